package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/trainyard/trainyard"
)

// A job has one log a process, whatever number of attempts it takes: each attempt's part follows the one before, under a line that says so.

// logSizes is how long each of a job's logs is. Those of an attempt that has ended are whole: a node's logs come before its reports, and
// what an old agent sends later is refused.
func (c *Control) logSizes(j *trainyard.Job) (map[string]int64, error) {
	files, err := c.Output.Files(context.Background(), j.Scope, j.Name)
	if err != nil {
		return nil, fmt.Errorf("logs of job %s: %w", j.Name, err)
	}
	sizes := map[string]int64{}
	for _, f := range files {
		sizes[f.Key] = f.Size
	}
	return sizes, nil
}

// appendLog adds bytes of an attempt, counted by index, at an offset in its own part of the log.
func (c *Control) appendLog(ctx context.Context, j *trainyard.Job, attempt int, name string, offset int64, data []byte) (int64, error) {
	if attempt < 1 || j.Status.Attempts[attempt-1].Logs[name] == 0 {
		return c.Output.Append(ctx, j.Scope, j.Name, name, offset, data)
	}
	before := &j.Status.Attempts[attempt-1]
	base := before.Logs[name]
	if head := heading(before, j.Status.Attempts[attempt].Number, name); head != "" {
		if _, err := c.Output.Append(ctx, j.Scope, j.Name, name, base, []byte(head)); err != nil {
			return 0, err
		}
		base += int64(len(head))
	}
	size, err := c.Output.Append(ctx, j.Scope, j.Name, name, base+offset, data)
	return max(0, size-base), err
}

// heading stands between the parts of two attempts in what users read. It is the same whenever it is asked for.
func heading(before *trainyard.Attempt, number int, name string) string {
	if !strings.HasPrefix(name, "user_logs/") {
		return ""
	}
	return fmt.Sprintf("\n--- attempt %d; attempt %d ended: %s ---\n", number, before.Number, before.Class)
}

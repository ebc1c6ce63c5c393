package control

import (
	"bytes"
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
	if collection, ok := strings.CutPrefix(name, trainyard.CollectedLog); ok && j.Plan.Serve != nil {
		return offset + int64(len(data)), c.collectOwn(ctx, j, collection, data)
	}
	if attempt < 1 || j.Status.Attempts[attempt-1].Logs[name] == 0 {
		return c.Output.Append(ctx, j.Scope, j.Name, name, offset, data)
	}
	return appendAfter(&j.Status.Attempts[attempt-1], j.Status.Attempts[attempt].Number, name, offset, data, func(offset int64, data []byte) (int64, error) {
		return c.Output.Append(ctx, j.Scope, j.Name, name, offset, data)
	})
}

// appendAfter adds bytes of an attempt after what the one before left. add is output.Store.Append for the log.
func appendAfter(before *trainyard.Attempt, number int, name string, offset int64, data []byte, add func(offset int64, data []byte) (int64, error)) (int64, error) {
	base := before.Logs[name]
	if err := padLog(base, add); err != nil {
		return 0, fmt.Errorf("log %s: %w", name, err)
	}
	if head := heading(before, number, name); head != "" {
		if _, err := add(base, []byte(head)); err != nil {
			return 0, err
		}
		base += int64(len(head))
	}
	size, err := add(base+offset, data)
	return max(0, size-base), err
}

// padLog fills up a log that is shorter than the attempts before left it: the disk lost it, or somebody deleted it. Offsets stay what they
// were, or the agent would send the same bytes for ever.
func padLog(base int64, add func(offset int64, data []byte) (int64, error)) error {
	const most = 1 << 20
	size, err := add(base, nil)
	if err != nil || size >= base {
		return err
	}
	line := fmt.Sprintf("\n--- %d bytes of earlier attempts were lost ---\n", base-size)
	for size < base {
		piece := bytes.Repeat([]byte{'\n'}, int(min(most, base-size)))
		if len(line) <= len(piece) {
			copy(piece, line)
		}
		line = ""
		now, err := add(size, piece)
		if err != nil {
			return err
		}
		if now <= size {
			return fmt.Errorf("it does not grow beyond %d bytes", now)
		}
		size = now
	}
	return nil
}

// heading stands between the parts of two attempts in what users read. It is the same whenever it is asked for.
func heading(before *trainyard.Attempt, number int, name string) string {
	if !strings.HasPrefix(name, "user_logs/") {
		return ""
	}
	return fmt.Sprintf("\n--- attempt %d; attempt %d ended: %s ---\n", number, before.Number, before.Class)
}

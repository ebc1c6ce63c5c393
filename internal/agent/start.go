package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/trainyard/trainyard"
)

// startPatience is how long a task is tried to be started on an engine that cannot just now; less where the job's own time is shorter.
const startPatience = 30 * time.Minute

// start has the driver start the process, again and again while the engine says that it cannot just now (CodeBusy): one that comes back, or
// a part of it, costs a task no attempt. An engine that does not answer at all is waited for in hasBegun. It ends early when the task is
// asked to end, to give way too: nothing was made that could be lost.
func (k *task) start(ctx context.Context) error {
	began, patience := time.Now(), startPatience
	if t := k.kept.Task.Timeout; t > 0 {
		patience = min(patience, t)
	}
	var tries backoff
	for {
		last := time.Since(began) >= patience
		err := k.a.cfg.Driver.Start(ctx, k.kept.Task)
		if err == nil || k.hasBegun(ctx) {
			return nil
		}
		if last || ctx.Err() != nil || k.asked() != "" || trainyard.CodeOf(err) != trainyard.CodeBusy {
			return err
		}
		k.a.log.Warn("start task", "task", k.id, "since", began, "err", err)
		k.waits(fmt.Sprintf("trying again: %v (since %s)", err, began.UTC().Format("15:04 MST")))
		wait := time.NewTimer(tries.next())
		select {
		case <-ctx.Done():
		case <-k.stopped:
		case <-wait.C:
		}
		wait.Stop()
		if ctx.Err() != nil || k.asked() != "" {
			return err
		}
	}
}

package agent

import (
	"context"

	"github.com/trainyard/trainyard"
)

// start has the driver start the process, again and again while the engine says that it cannot just now (CodeBusy): one that comes back, or
// a part of it, costs a task no attempt. An engine that does not answer at all is waited for in hasBegun. It ends early when the task is
// asked to end.
func (k *task) start(ctx context.Context) error {
	waiting, cancel := k.untilStopped(ctx)
	defer cancel()
	var tries backoff
	for {
		err := k.a.cfg.Driver.Start(ctx, k.kept.Task)
		if err == nil || k.hasBegun(ctx) {
			return nil
		}
		if waiting.Err() != nil || trainyard.CodeOf(err) != trainyard.CodeBusy {
			return err
		}
		k.a.log.Warn("start task", "task", k.id, "err", err)
		k.waits("trying again: " + err.Error())
		pause(waiting, tries.next())
	}
}

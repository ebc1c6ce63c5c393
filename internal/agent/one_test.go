package agent_test

import (
	"context"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agent"
)

// A task that is ended in its pod or its allocation keeps what it wrote for another attempt, and says only that it was ended.
func TestATaskEndedFromOutsideMayBeFollowedByAnother(t *testing.T) {
	isolated(t, func(y *yard) {
		var finished trainyard.Class
		y.stg.finish = func(_ context.Context, _ trainyard.Task, r trainyard.Result, _ trainyard.Progress) error {
			finished = r.Class
			return nil
		}
		k := task("alone", "sleep")
		ctx, end := context.WithCancel(context.Background())
		var got trainyard.TaskEnd
		done := make(chan error, 1)
		go func() {
			var err error
			got, err = agent.One{Task: k, Driver: y.mac, Stage: y.stg, Dir: t.TempDir()}.Run(ctx)
			done <- err
		}()
		y.until("it runs", func() bool { return y.mac.started(k.ID) == 1 })
		end()
		if err := <-done; err != nil || got.Result.Class != trainyard.ClassCanceled || finished != trainyard.ClassPreempted {
			t.Errorf("it ended as %+v, and its outputs were kept as of one that is %s; %v", got.Result, finished, err)
		}
	})
}

package control

import (
	"context"
	"io"
	"slices"

	"github.com/trainyard/trainyard"
)

// Runs is the run-history view of jobs. Official clients read a run's log only while the run is not over, so a run that such a client
// has seen alive shows Finalizing once more after its end: the client fetches the last lines, and sees the end at its next look.
type Runs struct{ *Control }

// mostPolled bounds what is remembered of watchers; beyond it the oldest promise is not kept, and a client may miss a log's tail.
const mostPolled = 10000

// Watched is the job as a client that follows its log sees it.
func (r Runs) Watched(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.Job, error) {
	j, err := r.Control.Job(ctx, scope, name)
	if err != nil {
		return nil, err
	}
	key := j.Key()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !j.Status.State.Terminal() {
		if len(r.polled) < mostPolled {
			r.polled[key] = true
		}
		return j, nil
	}
	if r.polled[key] {
		delete(r.polled, key)
		j.Status.State = trainyard.JobFinalizing
	}
	return j, nil
}

// LogFiles lists a job's logs.
func (r Runs) LogFiles(ctx context.Context, scope trainyard.Scope, job string) ([]trainyard.BlobInfo, error) {
	return r.Output.Files(ctx, scope, job)
}

// ReadLog reads a log from an offset to its present end.
func (r Runs) ReadLog(ctx context.Context, scope trainyard.Scope, job, name string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	return r.Output.Read(ctx, scope, job, name, offset)
}

// WaitLog waits until a log is longer than beyond, the job is over, or ctx is done.
func (r Runs) WaitLog(ctx context.Context, scope trainyard.Scope, job, name string, beyond int64) (int64, error) {
	ctx, over := context.WithCancel(ctx)
	defer over()
	key := trainyard.MakeJobKey(scope, job)
	ended := func() bool {
		j, err := r.Store.Job(ctx, key)
		return err != nil || j.Status.State.Terminal()
	}
	stop := r.Store.Subscribe(func(ch trainyard.Change) {
		if slices.Contains(ch.Jobs, key) {
			if _, live := r.Store.LiveJob(key); !live { // ended, or back in the queue: whoever waits looks again
				over()
			}
		}
	})
	defer stop()
	if ended() { // asked after subscribing, so that no end is missed
		over()
	}
	return r.Output.Wait(ctx, scope, job, name, beyond)
}

package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/slurm"
)

// How long an agent that was asked to stop may take, and how long Slurm may take to end everything that ran on its machine: what does not
// go at SIGTERM it gives a grace of its own (KillWait, half a minute as a rule).
const (
	stopTime = 3 * time.Second
	killTime = 2 * time.Minute
)

// Shrink ends machines: the agent is asked, then made to stop; Slurm ends what else ran in the job; then the folder goes.
func (d *Driver) Shrink(ctx context.Context, ids []trainyard.NodeID) ([]trainyard.NodeID, error) {
	stopped, err := fleet.ShrinkEach(ids, func(id trainyard.NodeID) error { return d.shrink(ctx, id) })
	d.forget()
	return stopped, err
}

func (d *Driver) shrink(ctx context.Context, id trainyard.NodeID) error {
	if err := d.settle(ctx); err != nil {
		return err
	}
	name := fleet.Folder(id)
	defer d.alone(name)()
	r, err := d.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if r.Mark != "" {
		if err := d.finish(ctx, r); err != nil {
			return err
		}
	}
	return d.remove(name, id)
}

// finish ends a machine's job, and returns when nothing of it runs.
func (d *Driver) finish(ctx context.Context, r record) error {
	began, asked := time.Now(), false
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		jobs, err := d.client.Queue(ctx, r.Mark)
		if err != nil {
			return err
		}
		left := ""
		for _, j := range jobs {
			if j.Name != r.Mark || j.Ended() {
				continue
			}
			left = j.ID
			if err := d.finishJob(ctx, slurm.Ref{ID: j.ID, Name: r.Mark}, j.State, asked, time.Since(began)); err != nil {
				return err
			}
		}
		if left == "" {
			return nil
		}
		if asked = true; time.Since(began) > killTime {
			return fmt.Errorf("job %s of the machine is still there %s after it was canceled; look at the state of its node in Slurm", left, killTime)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// finishJob takes the next step to end a job.
func (d *Driver) finishJob(ctx context.Context, j slurm.Ref, state string, asked bool, since time.Duration) error {
	switch {
	case state == slurm.Completing:
		return nil
	case state == slurm.Pending:
		return d.client.CancelPending(ctx, j)
	case !asked:
		return d.client.Signal(ctx, j, "TERM", slurm.Script)
	case since > 2*stopTime: // not to be killed: being configured, or suspended
		return d.client.Cancel(ctx, j)
	case since > stopTime:
		return d.client.Signal(ctx, j, "KILL", slurm.Script)
	}
	return nil
}

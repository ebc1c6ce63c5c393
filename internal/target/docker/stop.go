package docker

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// killPause is between tries to end a container whose grace is over.
const killPause = 500 * time.Millisecond

// Stop writes down that the task is to end, and has the container's first process send SIGTERM to all others. The container is ended
// when grace is over, also by a driver that is opened later. A second Stop may shorten the grace, never lengthen it.
func (d *Driver) Stop(ctx context.Context, id trainyard.TaskID, grace time.Duration) error {
	t, err := d.acquire(id, false)
	if t == nil {
		return err
	}
	defer d.release(t, false)
	if !d.isBegun(t) { // the agent before us died while it started it
		if _, err := d.settle(ctx, t); err != nil {
			return fmt.Errorf("stop %s: %w", id.Words(), err)
		}
	}
	first, record := d.wantStop(t, grace)
	if record != nil {
		if err := target.WriteJSON(d.path(t, stopFile), record); err != nil {
			d.env.Log.Warn("that the task is to stop could not be written down", "task", id, "err", err)
		}
	}
	if first {
		d.goes.Go(func() { d.enforce(t) })
	}
	t.poke()
	if grace <= 0 {
		return nil
	}
	if err := d.tell(ctx, t); err != nil {
		return fmt.Errorf("stop %s: %w", id.Words(), err)
	}
	return nil
}

// wantStop sets the task's stop. It returns nil if that is as it was.
func (d *Driver) wantStop(t *task, grace time.Duration) (first bool, rec *stopRecord) {
	now := time.Now()
	deadline := now.Add(max(grace, 0))
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !t.began || t.end != nil || d.closed:
		return false, nil
	case t.stop == nil:
		t.stop = &stopRecord{At: now, Deadline: deadline}
		return true, t.stop
	case t.stop.Deadline.After(deadline):
		t.stop = &stopRecord{At: t.stop.At, Deadline: deadline}
		return false, t.stop
	}
	return false, nil
}

// tell sends SIGTERM to a task that is to stop, once.
func (d *Driver) tell(ctx context.Context, t *task) error {
	d.mu.Lock()
	due := t.stop != nil && t.end == nil && !t.told
	d.mu.Unlock()
	if !due {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	if err := d.kill(ctx, t, "SIGTERM"); err != nil {
		return err
	}
	d.mu.Lock()
	t.told = true
	d.mu.Unlock()
	return nil
}

// retell sends SIGTERM in place of the agent before us, which may have died before it did.
func (d *Driver) retell(t *task) {
	t.op.Lock()
	defer t.op.Unlock()
	if err := d.tell(d.run, t); err != nil && d.run.Err() == nil {
		d.env.Log.Warn("task could not be told to stop", "task", t.id, "err", err)
	}
}

// kill sends a signal to the task's container. One that does not run is no error.
func (d *Driver) kill(ctx context.Context, t *task, signal string) error {
	_, err := d.engine.ContainerKill(ctx, d.container(t), client.ContainerKillOptions{Signal: signal})
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return engineError(err)
}

// enforce ends a task that is to stop when its grace is over, however long the engine is away by then.
func (d *Driver) enforce(t *task) {
	for {
		d.mu.Lock()
		deadline, over := t.stop.Deadline, t.end != nil || t.gone
		d.mu.Unlock()
		if over {
			return
		}
		wait := time.Until(deadline)
		if wait <= 0 {
			ctx, cancel := context.WithTimeout(d.run, workPatience)
			if err := d.kill(ctx, t, "SIGKILL"); err != nil && d.run.Err() == nil {
				d.env.Log.Warn("task does not die", "task", t.id, "err", err)
			}
			cancel()
			wait = killPause
		}
		select {
		case <-d.run.Done():
			return
		case <-t.nudge:
		case <-time.After(wait):
		}
	}
}

// poke tells enforce to look again.
func (t *task) poke() {
	select {
	case t.nudge <- struct{}{}:
	default:
	}
}

// Remove takes the container away, with all that runs in it, and the task's folder.
func (d *Driver) Remove(ctx context.Context, id trainyard.TaskID) error {
	t, err := d.acquire(id, false)
	if t == nil {
		return err
	}
	err = d.engine.remove(ctx, d.container(t), true)
	if err != nil {
		err = engineError(err)
	} else {
		err = target.RemoveAll(d.path(t, ""))
	}
	d.release(t, err == nil)
	if err != nil {
		return fmt.Errorf("remove %s: %w", id.Words(), err)
	}
	t.poke()
	return nil
}

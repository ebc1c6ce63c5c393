package process

import (
	"context"
	"fmt"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// Stop writes down that the task is to end, and sends SIGTERM to all its processes. The watcher ends it when grace is over. A second
// Stop may shorten the grace, never lengthen it.
func (d *Driver) Stop(ctx context.Context, id trainyard.TaskID, grace time.Duration) error {
	t, err := d.acquire(id, false)
	if t == nil {
		return err
	}
	defer d.release(t, false)
	first, record := d.wantStop(t, grace)
	if record == nil {
		return nil
	}
	if err := target.WriteJSON(d.path(t.dir, stopFile), record); err != nil {
		d.env.Log.Warn("that the task is to stop could not be written down", "task", id, "err", err)
	}
	if first {
		t.proc.terminate()
	}
	select {
	case t.nudge <- struct{}{}:
	default:
	}
	return nil
}

// wantStop sets the task's stop. It returns nil if there is nothing to do.
func (d *Driver) wantStop(t *task, grace time.Duration) (first bool, rec *stopRecord) {
	now := time.Now()
	deadline := now.Add(max(grace, 0))
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !t.began || t.end != nil:
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

// Remove kills what runs of the task, waits until it is gone, and takes away its cgroups and its folder.
func (d *Driver) Remove(ctx context.Context, id trainyard.TaskID) error {
	t, err := d.acquire(id, false)
	if t == nil {
		return err
	}
	if err := d.take(ctx, t); err != nil {
		d.release(t, false)
		return fmt.Errorf("remove %s: %w", id.Words(), err)
	}
	d.release(t, true)
	return nil
}

// take takes the task apart, in an order that can be begun again: what is needed to find the rest goes last.
func (d *Driver) take(ctx context.Context, t *task) error {
	if t.proc == nil {
		return nil
	}
	d.mu.Lock()
	ended := t.end != nil
	d.mu.Unlock()
	if !ended {
		if err := t.proc.kill(); err != nil {
			return err
		}
		select {
		case <-t.done:
		case <-d.closing:
			return errClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := t.proc.remove(); err != nil {
		return err
	}
	if t.status != nil {
		t.status.Close()
	}
	return target.RemoveAll(d.path(t.dir, ""))
}

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

// stopPause is between tries to send a task a signal.
const stopPause = 500 * time.Millisecond

// Stop writes down that the task is to end, and has the container's first process send SIGTERM to all others. While the engine cannot be
// asked for that it is tried again, also by a driver that is opened later, and no grace passes: an engine that comes back after a while
// would be sent both signals at once, and the task could save nothing. A second Stop may shorten the grace, never lengthen it.
func (d *Driver) Stop(ctx context.Context, id trainyard.TaskID, grace time.Duration) error {
	told, err := d.wantEnd(ctx, id, max(grace, 0))
	if err != nil {
		return fmt.Errorf("stop %s: %w", id.Words(), err)
	}
	if told == nil || grace <= 0 {
		return nil
	}
	select {
	case <-told.done:
		err = told.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", id.Words(), err)
	}
	return nil
}

// wantEnd has a task ended that runs, and returns the try to tell it so; nil if there is none to wait for.
func (d *Driver) wantEnd(ctx context.Context, id trainyard.TaskID, grace time.Duration) (*telling, error) {
	t, err := d.acquire(id, false)
	if t == nil {
		return nil, err
	}
	defer d.release(t, false)
	if !d.isBegun(t) { // the agent before us died while it started it
		if _, err := d.settle(ctx, t); err != nil {
			return nil, err
		}
	}
	first, changed, told := d.wantStop(t, grace)
	if changed {
		d.keepStop(t)
	}
	if first {
		d.goes.Go(func() { d.enforce(t) })
	}
	t.poke()
	return told, nil
}

// wantStop sets the task's stop. told is the next try to send SIGTERM, where that is still to be done.
func (d *Driver) wantStop(t *task, grace time.Duration) (first, changed bool, told *telling) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !t.began || t.end != nil || d.closed {
		return false, false, nil
	}
	if t.stop == nil {
		t.stop = &stopRecord{At: now, Deadline: now.Add(grace)}
		return true, true, t.telling
	}
	s := *t.stop
	if s.Told.IsZero() {
		now, told = s.At, t.telling
	}
	if deadline := now.Add(grace); deadline.Before(s.Deadline) {
		s.Deadline, t.stop = deadline, &s
		return false, true, told
	}
	return false, false, told
}

// keepStop writes the task's stop down. Its op lock is held.
func (d *Driver) keepStop(t *task) {
	d.mu.Lock()
	s := *t.stop
	d.mu.Unlock()
	if err := target.WriteJSON(d.path(t, stopFile), s); err != nil {
		d.env.Log.Warn("how the task is stopped could not be written down", "task", t.id, "err", err)
	}
}

// enforce tells a task that is to stop, and ends it when its grace is over, however long the engine is away.
func (d *Driver) enforce(t *task) {
	var said string
	for {
		d.mu.Lock()
		s, over := *t.stop, t.end != nil || t.gone
		d.mu.Unlock()
		if over {
			d.answer(t, nil)
			return
		}
		wait := time.Until(s.Deadline)
		if s.untold() || wait <= 0 {
			err := d.press(t, s)
			d.answer(t, err)
			if err != nil && err.Error() != said && d.run.Err() == nil {
				said = err.Error()
				d.env.Log.Warn("task cannot be stopped", "task", t.id, "err", err)
			}
			wait = stopPause
		}
		select {
		case <-d.run.Done():
			d.answer(t, errClosed)
			return
		case <-t.nudge:
		case <-time.After(wait):
		}
	}
}

// press sends a task the signal that is due. What is sent to an engine that hangs is served when it goes on, also after nobody waits for it
// any more. So it is asked first what runs, which can do no harm.
func (d *Driver) press(t *task, s stopRecord) error {
	ctx, cancel := context.WithTimeout(d.run, workPatience)
	defer cancel()
	if s.none() {
		return d.kill(ctx, t, "SIGKILL")
	}
	if runs, err := d.runs(ctx, t); err != nil || !runs {
		return err
	}
	if s.untold() {
		if err := d.kill(ctx, t, "SIGTERM"); err != nil {
			return err
		}
		d.changeStop(t, (*stopRecord).tell)
		t.poke() // the grace begins
		return nil
	}
	if !d.changeStop(t, (*stopRecord).late) {
		return nil
	}
	return d.kill(ctx, t, "SIGKILL")
}

// runs says whether the task's container still runs something.
func (d *Driver) runs(ctx context.Context, t *task) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, wordPatience)
	defer cancel()
	r, err := d.engine.ContainerInspect(ctx, d.container(t), client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, engineError(err)
	}
	return r.Container.State != nil && lives(r.Container.State.Status), nil
}

// changeStop changes the task's stop and writes it down. It returns false if the task was removed.
func (d *Driver) changeStop(t *task, change func(s *stopRecord, now time.Time)) bool {
	d.mu.Lock()
	s := *t.stop
	change(&s, time.Now())
	t.stop = &s
	d.mu.Unlock()
	t.op.Lock()
	defer t.op.Unlock()
	d.mu.Lock()
	gone := t.gone
	d.mu.Unlock()
	if !gone {
		d.keepStop(t)
	}
	return !gone
}

// none says that the task has no grace: it is ended without SIGTERM.
func (s *stopRecord) none() bool { return s.Told.IsZero() && !s.Deadline.After(s.At) }

// untold says that SIGTERM is still to be sent.
func (s *stopRecord) untold() bool { return s.Told.IsZero() && !s.none() }

// tell notes that SIGTERM got through: the grace begins.
func (s *stopRecord) tell(now time.Time) {
	s.Told, s.Deadline = now, now.Add(s.Deadline.Sub(s.At))
}

// late notes that the task still runs now that its grace is over.
func (s *stopRecord) late(now time.Time) {
	if s.Killed == 0 {
		s.Killed = max(now.Sub(s.Told), s.Deadline.Sub(s.Told)) // the computer's clock may have been put back
	}
}

// telling is a try to send a task that is to stop its signal.
type telling struct {
	done chan struct{} // closed when it is over, or not made any more
	err  error
}

func newTelling() *telling { return &telling{done: make(chan struct{})} }

// answer tells those who wait what came of the try; the next will be another.
func (d *Driver) answer(t *task, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.telling.err = err
	close(t.telling.done)
	t.telling = newTelling()
}

// kill sends a signal to the task's container. One that does not run is no error.
func (d *Driver) kill(ctx context.Context, t *task, signal string) error {
	_, err := d.engine.ContainerKill(ctx, d.container(t), client.ContainerKillOptions{Signal: signal})
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return engineError(err)
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

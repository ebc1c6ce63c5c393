package slurm

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
)

// Stop writes down that the task is to end. What waits is taken out of the queue; what runs gets SIGTERM, and has its program end the user's
// process when grace is over. SIGKILL is for a job that takes much longer, and for one that has no grace. While Slurm is away no grace passes: it
// counts from when SIGTERM got through. A second Stop may shorten it, never lengthen it.
func (d *Driver) Stop(_ context.Context, id trainyard.TaskID, grace time.Duration) error {
	if _, err := d.signs(); err != nil && !slurm.Away(err) { // it may have ended
		return err
	}
	d.mu.Lock()
	t := d.tasks[id.Dir()]
	closed := d.closed
	d.mu.Unlock()
	switch {
	case closed:
		return errClosed
	case t == nil || t.id != id:
		return nil
	}
	d.stop(t, grace, false)
	return nil
}

// stop has the task ended. sibling says that no one asked, but that a rank of it has failed.
func (d *Driver) stop(t *task, grace time.Duration, sibling bool) {
	now := time.Now()
	deadline := now.Add(max(grace, 0))
	d.mu.Lock()
	switch {
	case t.ending != nil || !t.over.IsZero() || t.gone:
		d.mu.Unlock()
		return
	case t.stop == nil:
		t.stop = &stopRecord{At: now, Deadline: deadline, Sibling: sibling}
	default:
		s := *t.stop
		if !s.Told || grace <= 0 {
			deadline = s.At.Add(max(grace, 0))
		}
		s.Deadline, s.Sibling = earlier(s.Deadline, deadline), s.Sibling && sibling
		if s == *t.stop {
			d.mu.Unlock()
			return
		}
		t.stop = &s
	}
	placed := t.job != ""
	d.mu.Unlock()
	d.saveStop(t)
	poke(t.nudge)
	if placed {
		d.tend(t)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// tend sees to a task's stop in the background, once.
func (d *Driver) tend(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.tended || d.closed || t.ending != nil {
		return
	}
	t.tended = true
	d.work.Go(func() { d.end1(t) })
}

// end1 asks the task's job to end, and makes it.
func (d *Driver) end1(t *task) {
	var granted time.Time // the end of the grace that the program knows
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		d.mu.Lock()
		s, due, job := *t.stop, d.due(t), slurm.Ref{ID: t.job, Name: t.rec.Mark}
		d.mu.Unlock()
		var err error
		switch {
		case s.atOnce() || s.Told && time.Until(due) <= 0:
			if s.Killed == 0 && !s.Since.IsZero() {
				d.changeStop(t, func(s *stopRecord) { s.Killed = time.Since(s.Since) })
			}
			err = d.kill(d.life, t, job, pause > 2*time.Second)
		case !s.Told:
			grace := s.Deadline.Sub(s.At)
			if err := d.grant(t, grace); err != nil && d.life.Err() == nil { // the program knows that of the task
				d.env.Log.Warn("tell a job how long it may take to end", "task", t.id, "job", job.ID, "err", err)
			}
			if err = d.terminate(d.life, t, job); err == nil {
				pause, granted = time.Second, time.Now().Add(grace)
				d.changeStop(t, (*stopRecord).told)
			}
		case s.Deadline.Before(granted) || granted.IsZero():
			if err = d.grant(t, time.Until(s.Deadline)); err == nil {
				pause, granted = time.Second, s.Deadline
			}
		}
		if err != nil && d.life.Err() == nil {
			d.env.Log.Warn("end a job", "task", t.id, "job", job.ID, "err", err)
		}
		d.signal()
		wait := pause
		if left := d.left(t); err == nil && left > 0 {
			wait = left
		}
		select {
		case <-d.life.Done():
			return
		case <-t.done:
			return
		case <-t.nudge:
		case <-time.After(wait):
		}
	}
}

// due is when a job that knows that it is to end is ended whatever it does. What has not begun has nothing to store. Driver.mu is held.
func (d *Driver) due(t *task) time.Time {
	if t.stop.atOnce() || t.running.IsZero() {
		return t.stop.Deadline
	}
	return t.stop.Deadline.Add(d.finishing)
}

// left is how long the job has until it is due.
func (d *Driver) left(t *task) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Until(d.due(t))
}

// grant tells the task's program how long the user's process may take to end. It looks when SIGTERM reaches it, and again now and then.
func (d *Driver) grant(t *task, grace time.Duration) error {
	ms := strconv.FormatInt(max(grace, 0).Milliseconds(), 10)
	return slurm.Put(d.client, d.path(t.name, graceFile), []byte(ms+"\n"), 0o600)
}

// changeStop changes the task's stop and writes it down.
func (d *Driver) changeStop(t *task, change func(s *stopRecord)) {
	d.mu.Lock()
	s := *t.stop
	change(&s)
	t.stop = &s
	d.mu.Unlock()
	d.saveStop(t)
}

// terminate takes a job that waits out of the queue, and sends SIGTERM to the programs of one that runs, and to nothing else.
func (d *Driver) terminate(ctx context.Context, t *task, job slurm.Ref) error {
	if err := d.client.CancelPending(ctx, job); err != nil {
		return err
	}
	part := slurm.Steps
	if t.rec.ranks() == 1 {
		part = slurm.Script
	}
	return d.client.Signal(ctx, job, "TERM", part)
}

// kill ends a job with everything that it started. Slurm's own cancel grants what is left a grace of the cluster's, so it is only for jobs
// that insist: those that are being configured or are suspended can be ended no other way.
func (d *Driver) kill(ctx context.Context, t *task, job slurm.Ref, insist bool) error {
	if t.rec.ranks() > 1 {
		if err := d.client.Signal(ctx, job, "KILL", slurm.Steps); err != nil {
			return err
		}
	}
	if err := d.client.Signal(ctx, job, "KILL", slurm.Script); err != nil {
		return err
	}
	if insist {
		return d.client.Cancel(ctx, job)
	}
	return d.client.CancelPending(ctx, job)
}

// Remove ends the task's job if it runs, waits until Slurm says that it is gone, and takes away what it left.
func (d *Driver) Remove(ctx context.Context, id trainyard.TaskID) error {
	t, err := d.acquire(id, false)
	if t == nil {
		return err
	}
	d.mu.Lock()
	over := t.ending != nil && t.job != "" || t.rec.Mark == "" // an end without a number may be one of a job that came later
	d.mu.Unlock()
	if !over {
		err = d.finish(ctx, t)
	}
	if err == nil {
		err = d.discard(t)
	}
	if err != nil {
		d.release(t, false)
		return fmt.Errorf("remove %s: %w", id.Words(), err)
	}
	d.release(t, true)
	return nil
}

// finish ends a task's job, whether its number is known or not, and returns when nothing of it runs.
func (d *Driver) finish(ctx context.Context, t *task) error {
	d.mu.Lock()
	mark := t.rec.Mark
	d.mu.Unlock()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		jobs, err := d.client.Queue(ctx, mark)
		if err != nil {
			return err
		}
		left := false
		for _, j := range jobs {
			if j.Name != mark || j.Ended() {
				continue
			}
			left = true
			if j.State == slurm.Completing {
				continue
			}
			if err := d.kill(ctx, t, slurm.Ref{ID: j.ID, Name: j.Name}, pause >= time.Second); err != nil {
				return err
			}
		}
		if !left {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.life.Done():
			return errClosed
		case <-time.After(pause):
		}
	}
}

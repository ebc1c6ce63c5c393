package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/trainyard/trainyard/internal/target"
)

const (
	// haltPatience bounds how long it is tried to tell a pod, before it is deleted.
	haltPatience = 5 * time.Second

	// spare is how long a pod that was told to end is left alone after its process' time, before it is deleted with no more: what there is to
	// be stored is stored then.
	spare = target.Finishing + 10*time.Second

	finishing = int(target.Finishing / time.Second) // as pods have it
)

// told is what a pod was told of its end.
type told struct {
	At     time.Time     `json:"at"`
	Until  time.Time     `json:"until"`            // its process may take
	Killed time.Duration `json:"killed,omitempty"` // how long after At it was deleted with no more time; 0: it was not
}

// runs says whether there may be something in the pod that is to be told of its end.
func (p *podSight) runs() bool {
	c := p.container()
	return !p.ended() && (p.begun || c != nil && c.State.Running != nil)
}

// dues are the pods of a task that is to end which do not know it, or not how soon, and those whose time is long over; open says that somebody
// is to be told. A pod in which nothing runs, as far as is known, is told when the time of those that were told at once is long over. Of a task
// that an earlier version was told to end, who knows it is not known before Stop says so again.
func (s *sight) dues(now time.Time, spare time.Duration) (untold, late []podSight, open bool) {
	if s.stop == nil {
		return nil, nil, false
	}
	for _, p := range s.pods {
		knows := !p.told.At.IsZero()
		switch {
		case p.ended():
		case knows && now.After(p.told.Until.Add(spare)):
			late = append(late, p)
		case s.allowed == nil, knows && !now.Add(*s.allowed).Before(p.told.Until):
		case s.main != "", p.runs(), now.After(s.stop.Add(spare)):
			untold = append(untold, p)
		}
	}
	return untold, late, len(untold) > 0 || s.main != "" && s.allowed != nil && !s.scaled
}

// halt tells pods to end, and writes down which were told. The caller holds t.op.
func (d *Driver) halt(ctx context.Context, t *task, all []podSight) error {
	d.mu.Lock()
	grace := *t.rec.Grace
	d.mu.Unlock()
	var wg sync.WaitGroup
	errs, at := make([]error, len(all)), make([]time.Time, len(all))
	for i, p := range all {
		wg.Go(func() {
			errs[i] = d.haltPod(ctx, p, grace)
			at[i] = time.Now()
		})
	}
	wg.Wait()
	err := d.save(t, func(r *record) {
		for i, p := range all {
			if errs[i] == nil {
				r.tell(p.Meta.UID, at[i], grace)
			}
		}
	})
	return errors.Join(append(errs, err)...)
}

// tell notes that a pod knows. What it is told later may shorten its time, and does not lengthen it.
func (r *record) tell(uid string, now time.Time, grace time.Duration) {
	knows, before := r.Told[uid]
	if r.Told == nil {
		r.Told = map[string]told{}
	}
	if !before {
		knows.At = now
	}
	if until := now.Add(grace); !before || until.Before(knows.Until) {
		knows.Until = until
	}
	r.Told[uid] = knows
}

// haltPod tells the program in a pod to end the user's process. A pod that cannot be told is deleted, and so is a replica's, whose containers
// may be anybody's: with that time as its grace.
func (d *Driver) haltPod(ctx context.Context, p podSight, grace time.Duration) error {
	seconds, why := int(math.Ceil(grace.Seconds())), error(nil)
	switch {
	case p.serves:
		seconds = max(1, seconds)
	case p.runs():
		bounded, cancel := context.WithTimeout(ctx, haltPatience)
		defer cancel()
		why = d.api.exec(bounded, p.Meta.Name, false, nil, io.Discard, haltScript, strconv.FormatInt(grace.Milliseconds(), 10))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if why == nil || cameThrough(why) {
			return nil
		}
		seconds += finishing
	default:
		seconds += finishing
	}
	if err := d.api.remove(ctx, d.api.path(pods, p.Meta.Name), object{"gracePeriodSeconds": seconds}); err != nil {
		return fmt.Errorf("end pod %s: %w", p.Meta.Name, err)
	}
	if why != nil {
		d.env.Log.Info("the pod could not be told to end, and was deleted", "pod", p.Meta.Name, "seconds", seconds, "err", why)
	}
	return nil
}

// haltReplica takes the pods away, which have until the end of grace for the requests that are under way. The caller holds t.op.
func (d *Driver) haltReplica(ctx context.Context, t *task, s *sight) error {
	if err := d.scale(ctx, t.name, 0); err != nil {
		return err
	}
	var alive []podSight
	for _, p := range s.pods {
		if !p.ended() {
			alive = append(alive, p)
		}
	}
	err := d.halt(ctx, t, alive)
	if err == nil {
		err = d.save(t, func(r *record) { r.Scaled = true })
	}
	t.look()
	return err
}

// press sees to it that a task ends which is to: pods are told until they are, and those that were and whose time is long over are deleted
// with no more.
func (d *tender) press(ctx context.Context, s *sight, now time.Time) {
	_, late, open := s.dues(now, d.spare)
	if len(late) > 0 && now.Sub(d.killed) > killAgain {
		d.killed = now
		d.kill(ctx, late)
	}
	if !open || now.Before(d.nextHalt) || !d.task.op.TryLock() {
		return
	}
	defer d.task.op.Unlock()
	err := d.tellAgain(ctx, now)
	if err == nil || ctx.Err() != nil {
		d.halts = 0
		return
	}
	d.halts++
	d.nextHalt = time.Now().Add(min(time.Duration(d.halts)*time.Second, 5*time.Second))
	if d.halts == 1 {
		d.env.Log.Warn("the task cannot be told to end, which is tried until it is", "task", d.task.id, "err", err)
	}
}

// tellAgain tells the pods that are still to be told, unless Stop is about it.
func (d *tender) tellAgain(ctx context.Context, now time.Time) error {
	d.mu.Lock()
	s, busy := d.sight(d.task), d.task.stopping > 0
	d.mu.Unlock()
	untold, _, open := s.dues(now, d.spare)
	switch {
	case busy, !open:
		return nil
	case s.main != "":
		return d.haltReplica(ctx, d.task, s)
	}
	return d.halt(ctx, d.task, untold)
}

// killAgain is how long it is waited for pods that were deleted with no more time.
const killAgain = 30 * time.Second

// kill deletes pods with no more time, and writes down which.
func (d *tender) kill(ctx context.Context, late []podSight) {
	for _, p := range late {
		if err := d.api.remove(ctx, d.api.path(pods, p.Meta.Name), object{"gracePeriodSeconds": 1}); err != nil {
			d.env.Log.Warn("delete pod", "pod", p.Meta.Name, "err", err)
			continue
		}
		d.env.Log.Info("the pod's time to end is over, and it was deleted", "task", d.task.id, "pod", p.Meta.Name, "told", p.told.At)
		err := d.save(d.task, func(r *record) {
			if knows := r.Told[p.Meta.UID]; knows.Killed == 0 {
				knows.Killed = time.Since(knows.At)
				r.Told[p.Meta.UID] = knows
			}
		})
		if err != nil {
			d.env.Log.Warn("write down that a pod was deleted", "pod", p.Meta.Name, "err", err)
		}
	}
}

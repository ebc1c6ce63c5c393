package kube

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/trainyard/trainyard"
)

// Stop tells the program in every pod to end the user's process, which leaves the program time to store results. A pod that cannot be
// told is deleted, with that time as its grace. Who could not be reached is told later: the time of each begins when it is told.
func (d *Driver) Stop(ctx context.Context, id trainyard.TaskID, grace time.Duration) error {
	d.mu.Lock()
	t := d.tasks[d.nameOf(id)]
	if t == nil || t.end != nil || t.rec.UID == "" {
		d.mu.Unlock()
		return nil
	}
	until := time.Now().Add(grace)
	if t.rec.Stop == nil || until.Before(*t.rec.Stop) {
		t.rec.Stop = &until
	}
	if t.rec.Grace == nil || grace < *t.rec.Grace {
		t.rec.Grace = &grace
	}
	if t.sending != nil {
		t.sending()
	}
	t.stopping++
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		t.stopping--
		d.mu.Unlock()
	}()
	t.op.Lock()
	defer t.op.Unlock()
	if err := d.save(t, nil); err != nil {
		return err
	}
	d.mu.Lock()
	s := d.sight(t)
	d.mu.Unlock()
	if t.rec.Main != "" {
		return d.haltReplica(ctx, t, s)
	}
	var running []podSight
	for _, p := range s.pods {
		if p.runs() {
			running = append(running, p)
		}
	}
	if len(running) == 0 {
		return d.stopEarly(ctx, t, s)
	}
	return d.halt(ctx, t, running)
}

// stopEarly ends a task of which nothing runs: from here on nothing will, since nobody sends the program.
func (d *Driver) stopEarly(ctx context.Context, t *task, s *sight) error {
	if v := judge(s, time.Now()); v.end != nil {
		return nil // the tender is about to say so
	}
	d.deletePods(ctx, s, 1)
	r := trainyard.Result{Class: trainyard.ClassCanceled, ExitCode: -1, Message: "ended before it began"}
	if s.vanished {
		r = s.replacedResult()
	}
	return d.finish(t, &ending{Ended: time.Now(), Result: r})
}

// Remove deletes the task's objects and waits until its pods are gone, so that it may be started anew.
func (d *Driver) Remove(ctx context.Context, id trainyard.TaskID) error {
	name := d.nameOf(id)
	d.mu.Lock()
	t := d.tasks[name]
	if t != nil {
		t.removing = true
		if t.tender != nil {
			t.tender()
		}
	}
	d.mu.Unlock()
	if t == nil {
		return d.removeParts(ctx, name, []string{secrets, services, jobs, deployments}) // an earlier start may have left some
	}
	if t.done != nil {
		<-t.done
	}
	t.op.Lock()
	defer t.op.Unlock()
	if t.rec.Main != "" {
		if err := d.scale(ctx, name, 0); err != nil {
			return err
		}
	}
	d.giveWay(ctx, t)
	if !d.donePods(t) {
		if err := d.removePods(ctx, name); err != nil {
			return err
		}
	}
	if err := d.removeParts(ctx, name, t.rec.kinds()); err != nil {
		return err
	}
	if err := os.RemoveAll(t.dir); err != nil {
		return fmt.Errorf("remove %s: %w", id.Words(), err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tasks[name] == t {
		if t.rec.UID == "" && t.job != nil { // not all of it was made
			t.rec.UID = t.job.Meta.UID
		}
		delete(d.tasks, name)
		delete(d.strays, t.owner())
		d.removed[t.rec.UID] = true
	}
	return nil
}

// giveWay lets tasks begin before one that has ended is cleared away, which is as much work for the cluster, unless they take long. It also
// lets a node say that it is done with the pod, which it does a moment after the end: what is deleted before is deleted twice.
func (d *Driver) giveWay(ctx context.Context, t *task) {
	d.mu.Lock()
	end := t.end
	d.mu.Unlock()
	if end == nil {
		return
	}
	from := time.Now()
	if end.Ended.Before(from) { // by the node's clock
		from = end.Ended
	}
	for time.Since(from) < longestLeft && d.crowdComes() || time.Since(from) < longestDone && d.almostDone(t) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// almostDone says whether all pods of a task have ended, and some are still in their nodes' hands.
func (d *Driver) almostDone(t *task) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	almost := false
	for _, p := range t.pods {
		c := p.pod.container()
		switch {
		case p.gone || p.pod.Status.Phase == "Succeeded" || p.pod.Status.Phase == "Failed":
		case c != nil && c.State.Terminated != nil && p.pod.Meta.Deleted == nil && !p.lost:
			almost = true
		default:
			return false
		}
	}
	return almost && t.rec.Main == ""
}

// longestDone is how long after its end it is waited for that.
const longestDone = 3 * time.Second

// longestLeft is how long after its end what is left of a task stays for other tasks' sake.
const longestLeft = 10 * time.Second

// donePods says whether the Job has all pods that it will have, and none that runs: one of each rank has ended well.
func (d *Driver) donePods(t *task) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	well := map[int]bool{}
	for _, p := range t.pods {
		if p.pod.Status.Phase == "Succeeded" {
			well[index(p.pod)] = true
		} else if !p.gone {
			return false
		}
	}
	return t.rec.Main == "" && len(well) >= t.rec.Ranks
}

// removePods deletes the pods of a task and returns when nothing of them runs. A pod on a node that is away is taken off the list by
// force: nobody can say what it does.
func (d *Driver) removePods(ctx context.Context, name string) error {
	asked := map[string]bool{}
	from := time.Now()
	for {
		var p page[pod]
		if err := d.api.get(ctx, d.api.path(pods), url.Values{"labelSelector": {taskLabel + "=" + name}}, &p); err != nil {
			return fmt.Errorf("list the pods of %s: %w", name, err)
		}
		alive := 0
		for _, one := range p.Items {
			if (&podSight{pod: one, serves: one.port() != 0}).ended() {
				continue // the Job takes it along
			}
			alive++
			grace := 1
			if time.Since(from) > overdue && d.nodeAway(ctx, one.Spec.Node) {
				grace = 0
			} else if asked[one.Meta.UID] {
				continue
			}
			asked[one.Meta.UID] = true
			if err := d.api.remove(ctx, d.api.path(pods, one.Meta.Name), object{"gracePeriodSeconds": grace}); err != nil {
				return fmt.Errorf("delete pod %s: %w", one.Meta.Name, err)
			}
		}
		if alive == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(100*time.Millisecond+time.Since(from)/10, time.Second)):
		}
	}
}

// removeParts deletes what is left of a task, the Job last, and returns when it is gone.
func (d *Driver) removeParts(ctx context.Context, name string, kinds []string) error {
	var left []string
	for _, kind := range kinds {
		gone, err := d.api.removed(ctx, d.api.path(kind, name), object{"propagationPolicy": "Background"})
		if err != nil && (kind != deployments || !isForbidden(err)) { // without the right to have one there is none
			return fmt.Errorf("delete %s %s: %w", kind, name, err)
		}
		if err == nil && !gone && (kind == jobs || kind == deployments) {
			left = append(left, kind)
		}
	}
	for _, kind := range left {
		if err := d.awaitGone(ctx, kind, name); err != nil {
			return err
		}
	}
	return nil
}

// awaitGone waits until an object is not there any more.
func (d *Driver) awaitGone(ctx context.Context, kind, name string) error {
	for {
		err := d.api.get(ctx, d.api.path(kind, name), nil, nil)
		if isMissing(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look whether %s %s is gone: %w", kind, name, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// tend has somebody look after the task until it has ended. The caller holds d.mu.
func (d *Driver) tend(t *task) {
	if t.tender != nil || t.end != nil || t.removing || d.closed {
		return
	}
	ctx, cancel := context.WithCancel(d.ctx)
	t.tender, t.done = cancel, make(chan struct{})
	d.members.Go(func() {
		defer close(t.done)
		(&tender{Driver: d, task: t}).run(ctx)
	})
}

// tender looks after one task: it sends the program, copies the log, notes the end.
type tender struct {
	*Driver
	task  *task
	log   *follower
	asked time.Time // when it was last asked for words of why the task waits
	tries int       // to send, in a row
	wait  time.Time // until which not to send again

	killed   time.Time // when pods were last deleted whose time to end was over
	halts    int       // to tell it to end, in a row and in vain
	nextHalt time.Time // until which not to try again

	explained bool      // Kueue has said why it took the Job back, or will not
	looks     int       // how often it was asked for that in vain
	nextLook  time.Time // when to ask again

	remade  bool      // its Job was made again, with a volume
	taken   time.Time // when a node was seen to have taken the pod on
	guess   time.Time // when to try next whether it runs
	guessed int       // how often it was tried
}

// run looks whenever something was heard of the task, and now and then in any case.
func (d *tender) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer func() {
		if d.log != nil {
			d.log.stop()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.task.nudge:
		case <-timer.C:
		}
		if d.fresh(365*24*time.Hour) == nil && d.step(ctx) {
			return
		}
		timer.Reset(d.pause())
	}
}

// pause is how long to wait for news.
func (d *tender) pause() time.Duration {
	wait := tick
	for _, at := range []time.Time{d.wait, d.guess} {
		if left := time.Until(at); left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

// step does what there is to do now, and says whether the task has ended.
func (d *tender) step(ctx context.Context) (over bool) {
	now := time.Now()
	open := d.whyTaken(ctx)
	d.mu.Lock()
	t, s := d.task, d.sight(d.task)
	first, stop := t.first(), t.rec.Stop
	readable := first != nil && hasLog(first.pod) && (!s.vanished || t.rec.Begun[first.pod.Meta.UID])
	d.mu.Unlock()
	v := judge(s, now)
	if d.log != nil && s.main != "" && first != nil && first.pod.Meta.Name != d.log.pod && hasLog(first.pod) { // another took its place
		d.log.stop()
		d.log = nil
	}
	if d.log == nil && readable {
		d.follow(ctx, first.pod.Meta.Name)
	}
	var end *ending
	switch {
	case v.end != nil && open && stop == nil: // how it ended is not known yet
	case v.end != nil:
		return d.over(ctx, s, v.end)
	case v.ready && now.After(d.wait):
		end = d.begin(ctx, false)
	case v.early && d.mayGuess(now):
		end = d.begin(ctx, true)
		d.guessAgain()
	}
	if end != nil {
		return d.over(ctx, s, end)
	}
	d.mu.Lock()
	over = t.end != nil
	d.mu.Unlock()
	if over {
		return true
	}
	d.listen(ctx, s, v, now)
	d.lookForLost(ctx, s, now)
	d.press(ctx, s, now)
	return false
}

// hasLog says whether a pod's container has begun, so that it may have written.
func hasLog(p *pod) bool {
	c := p.container()
	return c != nil && (c.State.Running != nil || c.ended() != nil)
}

// over waits for the last of the log and writes the end down.
func (d *tender) over(ctx context.Context, s *sight, e *ending) bool {
	if d.log != nil {
		gone := slices.ContainsFunc(s.pods, func(p podSight) bool { return p.gone || p.lost || p.Meta.Deleted != nil })
		d.log.finish(ctx, s, gone)
		if note := d.log.missing(s); note != "" && s.main == "" { // of one that was started again nobody counts
			e.Warnings = append(slices.Clone(e.Warnings), note)
		}
	}
	if ctx.Err() != nil {
		return true
	}
	if err := d.finish(d.task, e); err != nil {
		d.env.Log.Warn("task has ended", "task", d.task.id, "err", err)
		return false
	}
	if s.main != "" {
		if err := d.scale(ctx, s.name, 0); err != nil {
			d.env.Log.Warn("end replica", "task", d.task.id, "err", err)
		}
	}
	d.deletePods(ctx, s, 1) // of an end that is our own verdict some may live
	return true
}

// begin sends the program into every pod that has not got it. A gang's pods get each other's addresses with it. A guess may well fail.
// It returns how the task ends, if it cannot be begun.
func (d *tender) begin(ctx context.Context, guess bool) *ending {
	t := d.task
	t.op.Lock()
	defer t.op.Unlock()
	if guess {
		select {
		case d.guessing <- struct{}{}:
			defer func() { <-d.guessing }()
		default:
			return nil // there is work enough without
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sendPatience)
	defer cancel()
	d.mu.Lock()
	wanted := t.rec.Stop == nil && t.end == nil && !t.removing
	s := d.sight(t) // one that asks may have been told meanwhile
	t.sending = cancel
	d.mu.Unlock()
	if !wanted {
		return nil
	}
	err := d.beginPods(ctx, s, guess)
	if errors.Is(err, errNowhere) && ctx.Err() == nil {
		if end := d.nowhere(err); end != nil {
			return end
		}
		err = d.remake(ctx, s)
		guess = false
	} else if err == nil && d.remade {
		d.mu.Lock()
		d.rigid = true
		d.mu.Unlock()
	}
	if guess {
		return nil
	}
	d.tries++
	if err == nil {
		d.tries = 0
	} else if ctx.Err() == nil {
		d.wait = time.Now().Add(min(time.Duration(d.tries)*200*time.Millisecond, 5*time.Second))
		d.env.Log.Warn("send the program", "task", t.id, "try", d.tries, "err", err)
	}
	if errors.Is(err, errNoOrder) && d.tries >= lostAfter {
		d.forgotten(ctx, s)
	}
	return nil
}

// beginPods sends the program into every pod that has not got it.
func (d *tender) beginPods(ctx context.Context, s *sight, guess bool) error {
	alive := byIndex(s.pods)
	order, err := os.ReadFile(filepath.Join(d.task.dir, orderFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read what is to be sent: %w", err)
	}
	var hosts []string
	for i, p := range alive {
		if s.ranks > 1 {
			name := hostname(s.name, i)
			hosts = append(hosts, fmt.Sprintf("%s %s.%s %s", p.Status.IP, name, s.name, name))
		}
	}
	var wg sync.WaitGroup
	errs := make([]error, len(alive))
	for i, p := range alive {
		if !p.begun {
			wg.Go(func() { errs[i] = d.beginPod(ctx, p.pod, strings.Join(hosts, "\n"), order, guess) })
		}
	}
	wg.Wait()
	for i, p := range alive {
		if !p.begun && errs[i] == nil && s.job != nil && s.job.asks() {
			d.notHeard(p.Meta.Name)
		}
	}
	return joinSent(errs)
}

// joinSent makes one of how sending went in all pods. That one of them can write nothing is said only when it is known how it went in the
// others: they may have begun.
func joinSent(errs []error) error {
	var nowhere error
	for i, err := range errs {
		if errors.Is(err, errNowhere) {
			nowhere, errs[i] = err, nil
		}
	}
	return cmp.Or(errors.Join(errs...), nowhere)
}

// sendPatience bounds the sending of the program to all pods of a task.
const sendPatience = 10 * time.Minute

func (d *tender) beginPod(ctx context.Context, p *pod, hosts string, order []byte, guess bool) error {
	from := time.Now()
	kept := d.keptHere().words()
	if d.tries > 0 { // it may not be what it is called
		kept = ""
	}
	if err := d.send(ctx, d.task.name, p.Meta.Name, hosts, order, kept, guess); err != nil {
		return err
	}
	if guess {
		d.learn(from)
	}
	d.env.Log.Debug("program sent", "task", d.task.id, "pod", p.Meta.Name, "took", time.Since(from), "guess", d.guessed)
	err := d.save(d.task, func(r *record) { r.Begun[p.Meta.UID] = true })
	d.signal()
	return err
}

// listen has the cluster's events say why a task waits where the status does not: quotas, admission, disks.
func (d *tender) listen(ctx context.Context, s *sight, v verdict, now time.Time) {
	if v.state != "staging" || s.job == nil || now.Sub(s.job.Meta.Created) < 3*time.Second || now.Sub(d.asked) < tick {
		return
	}
	d.asked = now
	if s.queue != "" && s.job.Spec.Suspend {
		p, _ := d.line.look(ctx, d.api, now.Add(-queueLook), s.job.Meta.UID) // it says itself why nothing is known
		d.say(p.waits())
		return
	}
	uid := s.job.Meta.UID
	for _, p := range s.pods {
		if p.ended() {
			continue
		}
		if uid = p.Meta.UID; p.Spec.Node == "" { // the scheduler says so in the status
			d.say("")
			return
		}
	}
	d.say(d.warnings.of(d.Driver, uid))
}

// overdue is how long after it should have been gone a pod is looked for on its node.
const overdue = 20 * time.Second

// lookForLost finds pods that were to be gone and whose node is not there to say that they are.
func (d *tender) lookForLost(ctx context.Context, s *sight, now time.Time) {
	for _, p := range s.pods {
		if p.ended() || p.Meta.Deleted == nil || now.Before(p.Meta.Deleted.Add(overdue)) || !d.nodeAway(ctx, p.Spec.Node) {
			continue
		}
		d.mu.Lock()
		if seen := d.task.pods[p.Meta.Name]; seen != nil {
			seen.lost = true
		}
		d.mu.Unlock()
		d.task.look()
	}
}

// nodeAway says whether a node is gone or does not answer. Without the right to look it is taken to be away.
func (d *Driver) nodeAway(ctx context.Context, name string) bool {
	if name == "" {
		return true
	}
	var n node
	err := d.api.get(ctx, d.api.path(nodes, name), nil, &n)
	return isMissing(err) || isForbidden(err) || err == nil && !n.ready()
}

// deletePods has the pods that are alive ended after grace seconds.
func (d *Driver) deletePods(ctx context.Context, s *sight, grace int) {
	for _, p := range s.pods {
		if p.ended() {
			continue
		}
		if err := d.api.remove(ctx, d.api.path(pods, p.Meta.Name), object{"gracePeriodSeconds": grace}); err != nil {
			d.env.Log.Warn("delete pod", "pod", p.Meta.Name, "err", err)
		}
	}
}

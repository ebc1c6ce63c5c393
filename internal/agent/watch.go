package agent

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

const (
	slowLook = 2 * time.Second        // how often a driver is looked at in any case
	between  = time.Millisecond       // looks are this far apart on average, so that a busy driver's hints are merged
	share    = 4                      // and by so many times the length of one
	rest     = time.Second            // but a look is followed by no more than this without one
	leastly  = 250 * time.Millisecond // nor, if that was cut to rest and there is news, by more than this
	burst    = 5 * between            // of looks at once may be taken before that, so that a lone task waits for none
	overdue  = 3 * time.Second        // a look that takes longer is told of
	mostWait = time.Minute            // between two tries to remove what nobody wants
)

// watcher counts the looks at the drivers. Looks have rising numbers, so a task knows which of them began after it was started.
type watcher struct {
	begun atomic.Int64 // number of the newest look

	mu   sync.Mutex
	eyes []*eye // one for each driver
}

// eye looks at one driver, again and again, and never twice at a time. How long one driver takes is nothing to the eyes of others.
type eye struct {
	a      *Agent
	driver target.Driver
	place  int           // in watcher.eyes
	kick   chan struct{} // a wish to look soon

	failing time.Time // since when no look succeeds; zero: the last one did. Of watch alone, as is what follows
	told    bool      // and the tasks have been told
	paid    time.Time // looks up to now are paid for until then (a leaky bucket)

	mu      sync.Mutex
	orphans map[trainyard.TaskID]*orphan // tasks that the last look saw and that nobody wants
}

// orphan is a task that nobody wants and that is to be removed.
type orphan struct {
	going bool          // it is being removed
	next  time.Time     // when that may be tried again, if it is still there
	wait  time.Duration // as long after the last try was next; 0: there was none
}

// sight is what one look saw of one task: nil if it was not there.
type sight struct {
	look int64
	seen *trainyard.Observation
}

// open adds eyes for the drivers that have none yet, and returns those.
func (w *watcher) open(a *Agent) []*eye {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.eyes)
	for i, d := range a.parts()[n:] {
		w.eyes = append(w.eyes, &eye{a: a, driver: d, place: n + i, kick: make(chan struct{}, 1)})
	}
	return slices.Clone(w.eyes[n:])
}

func (w *watcher) all() []*eye {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.eyes[:len(w.eyes):len(w.eyes)]
}

// parts are the drivers that are looked at, each by itself.
func (a *Agent) parts() []target.Driver {
	if p, ok := a.cfg.Driver.(target.Plural); ok {
		return p.Parts()
	}
	return []target.Driver{a.cfg.Driver}
}

// holder is the driver that has the task, if holds is true, or that would get it. The caller holds k.mu.
func (k *task) holder() (d target.Driver, holds bool) {
	if p, ok := k.a.cfg.Driver.(target.Plural); ok {
		return p.Holder(&k.kept.Task)
	}
	return k.a.cfg.Driver, true
}

// watch looks at each driver whenever it says that something changed, and now and then in any case, and shows each task what it saw.
func (a *Agent) watch(ctx context.Context) error {
	var eyes sync.WaitGroup
	for _, e := range a.sights.open(a) {
		eyes.Go(func() { e.watch(ctx) })
	}
	eyes.Wait()
	return ctx.Err()
}

func (e *eye) watch(ctx context.Context) {
	var changed <-chan struct{}
	if w, ok := e.driver.(target.Watcher); ok {
		changed = w.Changed()
	}
	slow := time.NewTimer(0)
	defer slow.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-e.kick:
		case <-slow.C:
		}
		began := time.Now()
		e.mark(ctx, began, e.await(ctx, began))
		slow.Reset(slowLook)
		e.rest(ctx, began, changed)
	}
}

// await takes a look. While that takes longer than a moment, tasks are told.
func (e *eye) await(ctx context.Context, began time.Time) error {
	done := make(chan error, 1)
	go func() { done <- e.look(ctx) }()
	late := time.NewTimer(overdue)
	defer late.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-late.C:
			if e.failing.IsZero() {
				e.failing = began
			}
			e.tell(e.unanswered(e.failing))
			e.a.reports.away(e.place, trainyard.EngineAway{Why: e.unanswered(e.failing), Since: e.failing})
			late.Reset(time.Second) // there may be others to tell by then
		}
	}
}

// unanswered says since when the driver's engine does not answer.
func (e *eye) unanswered(since time.Time) string {
	return fmt.Sprintf("%s has not answered since %s", e.name(), since.UTC().Format("15:04:05 MST"))
}

// name is what the driver's engine is called.
func (e *eye) name() string {
	if n, ok := e.driver.(target.Named); ok {
		return n.Engine()
	}
	return "what runs it"
}

// rest keeps a driver that takes its time from being asked all the time. News may cut a long rest short.
func (e *eye) rest(ctx context.Context, began time.Time, changed <-chan struct{}) {
	if e.paid.Before(began) {
		e.paid = began
	}
	took := time.Since(began)
	e.paid = e.paid.Add(min(max(between, share*took), took+rest))
	debt := time.Until(e.paid) - burst
	if debt <= 0 {
		return
	}
	if share*took <= took+rest {
		pause(ctx, debt)
		return
	}
	pause(ctx, min(debt, leastly))
	if debt -= leastly; debt <= 0 {
		return
	}
	t := time.NewTimer(debt)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-changed:
		nudge(e.kick)
	case <-e.kick:
		nudge(e.kick)
	}
}

// look asks the driver once. With less than the whole view nothing is done.
func (e *eye) look(ctx context.Context) error {
	a := e.a
	n := a.sights.begun.Add(1)
	list, err := e.observe(ctx)
	if err != nil {
		return err
	}
	seen := make(map[trainyard.TaskID]*trainyard.Observation, len(list))
	for i := range list {
		seen[list[i].ID] = &list[i]
	}
	a.mu.Lock()
	heeded := a.heeded != 0 && a.heeded == a.leases.epoch()
	for id, k := range a.tasks {
		k.show(e, sight{n, seen[id]})
		delete(seen, id)
	}
	a.mu.Unlock()
	if heeded { // else what is not on our list may be wanted all the same: the server has not said yet
		e.clear(ctx, slices.Collect(maps.Keys(seen)))
	}
	return nil
}

// clear begins to remove the tasks that a look saw and nobody wants. It does not wait: one that cannot be removed, or takes its time, is no
// reason not to look at the others.
func (e *eye) clear(ctx context.Context, unwanted []trainyard.TaskID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.orphans
	e.orphans = make(map[trainyard.TaskID]*orphan, len(unwanted))
	for id, o := range before {
		if o.going {
			e.orphans[id] = o
		}
	}
	now := time.Now()
	for _, id := range unwanted {
		o := before[id]
		if o == nil {
			o = &orphan{}
		}
		e.orphans[id] = o
		if !o.going && !now.Before(o.next) {
			o.going = true
			e.a.running.Go(func() { e.remove(ctx, id, o) })
		}
	}
}

// remove tries once to remove a task that nobody wants.
func (e *eye) remove(ctx context.Context, id trainyard.TaskID, o *orphan) {
	if o.wait == 0 {
		e.a.log.Warn("remove a task that nobody wants", "task", id)
	}
	if err := e.a.cfg.Driver.Remove(ctx, id); err != nil && ctx.Err() == nil {
		e.a.log.Warn("a task that nobody wants could not be removed, which is tried again", "task", id, "err", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	o.going, o.wait = false, min(max(2*o.wait, slowLook), mostWait)
	o.next = time.Now().Add(o.wait)
}

func (e *eye) observe(ctx context.Context) ([]trainyard.Observation, error) {
	if p, ok := e.a.cfg.Driver.(target.Plural); ok {
		return p.ObservePart(ctx, e.driver)
	}
	return e.driver.Observe(ctx)
}

// mark notes whether a look succeeded. Users hear of it when none does for longer than a moment: what they read is no news any more.
func (e *eye) mark(ctx context.Context, began time.Time, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		e.a.log.Warn("look at the driver", "err", err)
		if e.failing.IsZero() {
			e.failing = began
		}
		if time.Since(e.failing) >= target.Patience {
			e.tell(err.Error())
		}
	} else {
		if e.told {
			for _, k := range e.tasks() {
				k.back(true)
			}
		}
		e.failing, e.told = time.Time{}, false
	}
	e.tellServer(err)
}

// tellServer has the node say whether the driver's engine answers, where that is no news of a moment. A look may have succeeded all the same.
func (e *eye) tellServer(err error) {
	since := e.failing
	if h, ok := e.driver.(target.Hearer); ok {
		if from, why := h.Unheard(); why != nil {
			since, err = from, why
		}
	}
	switch {
	case err == nil:
		e.a.reports.answers(e.place)
	case time.Since(since) >= target.Patience:
		text := strings.TrimPrefix(err.Error(), e.name()+" does not answer: ")
		e.a.reports.away(e.place, trainyard.EngineAway{Why: e.unanswered(since) + ": " + text, Since: since})
	}
}

// tell tells the driver's tasks why nothing is known of them.
func (e *eye) tell(why string) {
	e.told = true
	for _, k := range e.tasks() {
		k.away(why, true)
	}
}

// tasks are those that the driver has, or would get.
func (e *eye) tasks() []*task {
	return slices.DeleteFunc(e.a.all(), func(k *task) bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		d, _ := k.holder()
		return d != e.driver
	})
}

// show leaves word of what a look saw of the task, if it is news.
func (k *task) show(e *eye, s sight) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.latest()
	k.sights = append(k.sights, make([]sight, max(0, e.place+1-len(k.sights)))...)
	k.sights[e.place] = s
	after := k.latest()
	if before.look <= k.after && after.look > k.after || differ(before.seen, after.seen) {
		nudge(k.seen)
	}
}

// latest is what was seen of the task last. As long as it is not known who has it, it is where one driver sees it, and not there only when
// all have looked. The caller holds k.mu.
func (k *task) latest() sight {
	d, holds := k.holder()
	none := sight{look: math.MaxInt64}
	for _, e := range k.a.sights.all() {
		var s sight
		if e.place < len(k.sights) {
			s = k.sights[e.place]
		}
		if holds && d == e.driver || !holds && s.seen != nil {
			return s
		}
		none.look = min(none.look, s.look)
	}
	if holds || none.look == math.MaxInt64 { // its driver has not been looked at
		return sight{}
	}
	return none
}

// expect asks for a look that begins after now, and returns the number of the last one that did not.
func (k *task) expect() (after int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.after = k.a.sights.begun.Load()
	d, holds := k.holder()
	for _, e := range k.a.sights.all() {
		if !holds || d == e.driver {
			nudge(e.kick)
		}
	}
	return k.after
}

func (k *task) looked() sight {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.latest()
}

// away says of a task that its engine cannot be asked for it, and why. The first words stand until it is back: errors often tell the time.
// blind says that looks at the engine fail, and not that it says so itself of this task.
func (k *task) away(why string, blind bool) {
	k.mu.Lock()
	k.blind = k.blind || blind
	news := k.report.Away == "" && k.report.State.Rank() <= trainyard.TaskRunning.Rank()
	k.mu.Unlock()
	if news {
		k.change(atOnce, func(r *trainyard.TaskReport) { r.Away = why })
	}
}

// back says that the engine answers again. looked says that a look has succeeded: without one, a task that is blind stays so.
func (k *task) back(looked bool) {
	k.mu.Lock()
	still := ""
	if seen := k.latest().seen; seen != nil && seen.State == trainyard.TaskRunning {
		still = seen.Progress // the engine answers, and says itself that nothing is known of the task
	}
	news := k.report.Away != still && (looked || !k.blind) && k.report.Away != ""
	k.blind = k.blind && !looked
	k.mu.Unlock()
	if news {
		k.change(atOnce, func(r *trainyard.TaskReport) { r.Away = still })
	}
}

package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

const (
	atOnce    = 0                     // for what people and the scheduler wait for
	soon      = 30 * time.Millisecond // for what is often overtaken before anyone could read it
	maxReport = 500                   // tasks in one report
)

// reporter holds the latest truth about every task, and which of it the server has not heard. A state that a later one has overtaken is
// never sent.
type reporter struct {
	wake chan struct{}

	mu     sync.Mutex
	latest map[trainyard.TaskID]trainyard.TaskReport
	unsent map[trainyard.TaskID]bool
	flying map[trainyard.TaskID]bool // in the report that is under way
	landed chan struct{}             // closed and replaced when one was heard
	due    time.Time                 // when unsent must be sent

	loads    map[trainyard.TaskID]trainyard.TaskLoad // not sent yet
	loadsDue time.Time

	silent map[int]trainyard.EngineAway // engines that do not answer, by the place of whoever looks
	turned bool                         // the server has not heard who they are
}

func newReporter() *reporter {
	return &reporter{wake: make(chan struct{}, 1), latest: map[trainyard.TaskID]trainyard.TaskReport{}, unsent: map[trainyard.TaskID]bool{},
		flying: map[trainyard.TaskID]bool{}, landed: make(chan struct{}), loads: map[trainyard.TaskID]trainyard.TaskLoad{}, silent: map[int]trainyard.EngineAway{}}
}

// put replaces the truth about a task; it is sent within the time given.
func (r *reporter) put(t trainyard.TaskReport, within time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latest[t.ID] = t
	due := time.Now().Add(within)
	sooner := len(r.unsent) == 0 || due.Before(r.due)
	r.unsent[t.ID] = true
	if sooner {
		r.due = due
		nudge(r.wake)
	}
}

// forget drops a task that is gone.
func (r *reporter) forget(id trainyard.TaskID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.latest, id)
	delete(r.unsent, id)
	delete(r.loads, id)
}

// load notes what a replica uses; it is sent soon.
func (r *reporter) load(l trainyard.TaskLoad) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.loads) == 0 {
		r.loadsDue = time.Now().Add(loadsWithin)
		nudge(r.wake)
	}
	r.loads[l.ID] = l
}

// away notes that an engine does not answer. The first words stand until it does: errors often tell the time.
func (r *reporter) away(place int, w trainyard.EngineAway) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.silent[place]; !known {
		r.silent[place], r.turned = w, true
		nudge(r.wake)
	}
}

// answers notes that an engine does.
func (r *reporter) answers(place int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, was := r.silent[place]; was {
		delete(r.silent, place)
		r.turned = true
		nudge(r.wake)
	}
}

// engines are those that do not answer, and whether that is news to the server.
func (r *reporter) engines() (silent []trainyard.EngineAway, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, place := range slices.Sorted(maps.Keys(r.silent)) {
		silent = append(silent, r.silent[place])
	}
	news, r.turned = r.turned, false
	return silent, news
}

// takeLoads returns the loads that must be sent now, or with what is sent in any case. If that is none, next is how long it will stay so
// (0: until there are some).
func (r *reporter) takeLoads(anyway bool) (loads []trainyard.TaskLoad, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.loads) == 0 {
		return nil, 0
	}
	if next = time.Until(r.loadsDue); next > 0 && !anyway {
		return nil, next
	}
	for _, id := range slices.Sorted(maps.Keys(r.loads)) {
		loads = append(loads, r.loads[id])
	}
	clear(r.loads)
	return loads, 0
}

// heard waits until the server has heard all there is to say of a task. It returns false if ctx is done before.
func (r *reporter) heard(ctx context.Context, id trainyard.TaskID) bool {
	for {
		r.mu.Lock()
		waits, landed := r.unsent[id] || r.flying[id], r.landed
		r.mu.Unlock()
		if !waits {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-landed:
		}
	}
}

// land notes that the report which was under way was heard, or lost.
func (r *reporter) land() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.flying)
	close(r.landed)
	r.landed = make(chan struct{})
}

// again marks tasks as not heard; nil means all.
func (r *reporter) again(tasks []trainyard.TaskReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = time.Now()
	if tasks == nil {
		for id := range r.latest {
			r.unsent[id] = true
		}
	}
	for _, t := range tasks {
		if _, ok := r.latest[t.ID]; ok {
			r.unsent[t.ID] = true
		}
	}
}

// take returns what must be sent now. If that is nothing, next is how long it will stay so (0: until something is put).
func (r *reporter) take() (tasks []trainyard.TaskReport, next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unsent) == 0 {
		return nil, 0
	}
	if next = time.Until(r.due); next > 0 {
		return nil, next
	}
	for _, id := range slices.Sorted(maps.Keys(r.unsent)) {
		if len(tasks) == maxReport {
			return tasks, 0 // due stays past: the rest goes with the next report
		}
		tasks = append(tasks, r.latest[id])
		r.flying[id] = true
		delete(r.unsent, id)
	}
	return tasks, 0
}

// tell sends reports: at once when there is something to say, else as often as the lease asks for a sign of life.
func (a *Agent) tell(ctx context.Context) error {
	var tries backoff
	var last *lease
	var spoke time.Time
	for {
		l, err := a.leases.get(ctx)
		if err != nil {
			return err
		}
		if l != last {
			a.reports.again(nil) // what an older epoch was told may not have been heard
			last, spoke = l, time.Now()
		}
		tasks, wait := a.reports.take()
		loads, later := a.reports.takeLoads(len(tasks) > 0)
		silent, news := a.reports.engines()
		if rest := time.Until(spoke.Add(l.beat())); len(tasks)+len(loads) == 0 && !news && rest > 0 {
			for _, d := range []time.Duration{later, rest} {
				if wait == 0 || d > 0 && wait > d {
					wait = d
				}
			}
			a.idle(ctx, wait)
			continue
		}
		sent := time.Now()
		switch err := a.send(ctx, l, trainyard.Report{Tasks: tasks, Loads: loads, Away: silent}); {
		case err == nil:
			tries.reset()
			spoke = sent
		case outdated(err):
			a.leases.drop(l)
		case ctx.Err() == nil:
			a.log.Warn("report", "tasks", len(tasks), "err", err)
			pause(ctx, tries.next())
		}
	}
}

// send makes one report. What was not heard of tasks is said again; the engines are told of in all that it makes.
func (a *Agent) send(ctx context.Context, l *lease, r trainyard.Report) error {
	defer a.reports.land()
	sent := time.Now()
	r.Node, r.Epoch = a.cfg.Node, l.Epoch
	if err := a.cfg.Link.Report(ctx, r); err != nil {
		a.reports.again(r.Tasks)
		return err
	}
	a.heard(sent)
	return nil
}

// idle waits for news, which a new lease is too, or for d.
func (a *Agent) idle(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-a.reports.wake:
	case <-t.C:
	}
}

// nudge puts a value into a channel of one, if there is none.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
)

// FleetLink is what a fleet's host asks the server; package control satisfies it.
type FleetLink interface {
	// FleetWanted is every machine that the location should have. It blocks until Rev is above after, or some 25 s have passed; -1 never
	// blocks.
	FleetWanted(ctx context.Context, location string, after int64) (trainyard.FleetWanted, error)
	// FleetReport says what was seen and done.
	FleetReport(ctx context.Context, r trainyard.FleetReport) error
}

// FleetWatcher is a fleet.Driver that can say when to look: Changed's channel gets a value when an agent ends. Values may be merged. The
// host looks now and then in any case.
type FleetWatcher interface {
	Changed() <-chan struct{}
}

// FleetConfig is what a FleetHost works with. Location, Link and Driver are required.
type FleetConfig struct {
	Location string
	Link     FleetLink
	Driver   fleet.Driver
	Log      *slog.Logger
}

// FleetHost makes a location's machines be those that are wanted: what is missing or dead is started, what is not wanted is ended, and
// what was seen and done is told.
type FleetHost struct {
	cfg  FleetConfig
	log  *slog.Logger
	news chan struct{}

	since time.Time // from when on the machines could not be listed; zero if they can. For Run alone

	mu      sync.Mutex
	wanted  *trainyard.FleetWanted    // nil before the server's first word
	ending  map[trainyard.NodeID]bool // being ended
	stopped map[trainyard.NodeID]bool // gone, and not told yet
	trouble map[trainyard.NodeID]*trouble
	parting map[trainyard.NodeID]*parting
	work    sync.WaitGroup
}

// trouble is a machine that could not be started, or whose agent keeps ending.
type trouble struct {
	starts int       // in a row
	begun  int       // of them those that worked, so that an agent ended
	failed bool      // the last one did not
	last   time.Time // of them
	next   time.Time // not again before then
	why    string    // for people; "" while it may be a single accident
	lack   bool      // why is that no agent could be had, and not that agents end
}

// parting is a machine that is to be ended.
type parting struct {
	tries int
	next  time.Time         // not again before then, unless something is new
	seen  trainyard.Machine // at the last try
	why   string            // it could not be ended
}

const (
	fleetLook   = 5 * time.Second  // how often the fleet is looked at in any case
	longestTry  = 30 * time.Second // between starts of a machine that does not stay
	longestPart = 5 * time.Minute  // between tries to end one that cannot be ended
	steady      = time.Minute      // an agent that has lived so long has no trouble any more
)

// NewFleetHost makes a FleetHost; Run starts it.
func NewFleetHost(c FleetConfig) *FleetHost {
	h := &FleetHost{cfg: c, log: c.Log, news: make(chan struct{}, 1), ending: map[trainyard.NodeID]bool{},
		stopped: map[trainyard.NodeID]bool{}, trouble: map[trainyard.NodeID]*trouble{},
		parting: map[trainyard.NodeID]*parting{}}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.log = h.log.With("location", c.Location)
	return h
}

// Run works until ctx is done. Machines go on.
func (h *FleetHost) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	h.work.Go(func() { h.listen(ctx) })
	defer h.work.Wait()
	defer cancel() // before that: nobody listens on if this panics
	var changed <-chan struct{}
	if w, ok := h.cfg.Driver.(FleetWatcher); ok {
		changed = w.Changed()
	}
	look := time.NewTimer(fleetLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.news:
		case <-changed:
		case <-look.C:
		}
		again, err := h.round(ctx)
		if err != nil && ctx.Err() == nil {
			h.log.Warn("round of the fleet", "err", err)
		}
		look.Reset(again)
	}
}

// listen keeps what is wanted up to date.
func (h *FleetHost) listen(ctx context.Context) {
	after := int64(-1)
	var tries backoff
	for ctx.Err() == nil {
		asked := time.Now()
		w, err := h.cfg.Link.FleetWanted(ctx, h.cfg.Location, after)
		if err != nil {
			if ctx.Err() == nil {
				h.log.Warn("ask which machines are wanted", "err", err)
				pause(ctx, tries.next())
			}
			continue
		}
		if w.Rev != after || time.Since(asked) > time.Second {
			tries.reset()
		} else {
			pause(ctx, tries.next()) // it should have waited for news; do not spin
		}
		after = w.Rev
		h.mu.Lock()
		h.mended(&w)
		h.wanted = &w
		h.mu.Unlock()
		nudge(h.news)
	}
}

// mended has machines tried at once whose settings have changed: what was in their way may be gone. So may what was in the way of those that
// are to be ended, when a new machine is at the same place. The caller holds mu.
func (h *FleetHost) mended(w *trainyard.FleetWanted) {
	if h.wanted == nil {
		return
	}
	was := map[trainyard.NodeID]trainyard.MachineSpec{}
	for _, s := range h.wanted.Machines {
		was[s.ID] = s
	}
	for _, s := range w.Machines {
		if old, known := was[s.ID]; known && bytes.Equal(old.Settings, s.Settings) {
			continue
		}
		delete(h.trouble, s.ID)
		for _, p := range h.parting {
			p.tries, p.next = min(p.tries, 1), time.Time{}
		}
	}
}

// round makes the difference between what is there and what is wanted, and tells. It returns when to look again. With half a view it
// does nothing, and tells why.
func (h *FleetHost) round(ctx context.Context) (again time.Duration, err error) {
	h.mu.Lock()
	w := h.wanted
	h.mu.Unlock()
	if w == nil {
		return fleetLook, nil
	}
	have, err := h.cfg.Driver.Machines(ctx)
	if err != nil {
		return fleetLook, h.blind(ctx, fmt.Errorf("nothing is started or ended without the whole list of machines: %w", err))
	}
	h.since = time.Time{}
	h.end(ctx, surplus(have, w.Machines))
	missing, again := h.missing(have, w.Machines)
	if len(missing) > 0 {
		_, err := h.cfg.Driver.Grow(ctx, missing)
		again = min(again, h.blame(missing, err))
		if have, err = h.cfg.Driver.Machines(ctx); err != nil {
			return fleetLook, h.blind(ctx, fmt.Errorf("nothing is known without the whole list of machines: %w", err))
		}
	}
	return again, h.tell(ctx, have)
}

// blind tells that the machines cannot be listed, and since when; err is returned, with what went wrong in telling.
func (h *FleetHost) blind(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if h.since.IsZero() {
		h.since = time.Now()
	}
	away := fmt.Sprintf("the machines of location %s cannot be asked for since %s: %v", h.cfg.Location, h.since.UTC().Format("15:04:05 MST"), errors.Unwrap(err))
	return errors.Join(err, h.cfg.Link.FleetReport(ctx, trainyard.FleetReport{Location: h.cfg.Location, Away: away}))
}

// surplus lists the machines that are there and not wanted.
func surplus(have []trainyard.Machine, want []trainyard.MachineSpec) (out []trainyard.Machine) {
	for _, m := range have {
		if !slices.ContainsFunc(want, func(s trainyard.MachineSpec) bool { return s.ID == m.ID }) {
			out = append(out, m)
		}
	}
	return out
}

// end ends machines, without keeping others waiting. One that could not be ended is tried more and more seldom, and at once when something is
// new about it; what is said of it is said again when it is another thing.
func (h *FleetHost) end(ctx context.Context, machines []trainyard.Machine) {
	var ids, first []trainyard.NodeID
	h.mu.Lock()
	for _, m := range machines {
		p := h.parting[m.ID]
		if h.ending[m.ID] || p != nil && p.seen == m && time.Now().Before(p.next) {
			continue
		}
		if p == nil {
			p = &parting{}
			h.parting[m.ID] = p
			first = append(first, m.ID)
		}
		p.tries, p.seen = p.tries+1, m
		h.ending[m.ID] = true
		ids = append(ids, m.ID)
	}
	h.mu.Unlock()
	if len(first) > 0 {
		h.log.Info("end machines", "nodes", first)
	}
	if len(ids) == 0 {
		return
	}
	h.work.Go(func() {
		gone, err := h.cfg.Driver.Shrink(ctx, ids)
		if h.ended(ids, gone, err, ctx.Err() == nil) {
			nudge(h.news)
		}
	})
}

// ended takes note of which of the machines are gone, and why others are not. It says whether there is anything to tell.
func (h *FleetHost) ended(ids, gone []trainyard.NodeID, err error, say bool) (news bool) {
	each, rest := reasons(err)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		delete(h.ending, id)
		p := h.parting[id]
		if slices.Contains(gone, id) {
			h.stopped[id], news = true, true
			delete(h.trouble, id)
			delete(h.parting, id)
			continue
		}
		why := cmp.Or(each[id], rest, "it is not known to be gone")
		p.next = time.Now().Add(min(fleetLook<<min(p.tries-1, 10), longestPart))
		if say && p.why != why {
			p.why, news = why, true
			h.log.Warn("end a machine; it is tried again", "node", id, "err", why)
		}
	}
	return news
}

// missing lists the machines to start now, and says when the next one may be started.
func (h *FleetHost) missing(have []trainyard.Machine, want []trainyard.MachineSpec) (out []trainyard.MachineSpec, again time.Duration) {
	there := map[trainyard.NodeID]trainyard.Machine{}
	for _, m := range have {
		there[m.ID] = m
	}
	now, again := time.Now(), fleetLook
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range want {
		m, known := there[s.ID]
		t := h.trouble[s.ID]
		if known && m.State != trainyard.MachineDead {
			switch {
			case t == nil:
			case now.Sub(t.last) >= steady:
				delete(h.trouble, s.ID)
			case t.lack && m.State == trainyard.MachineRunning:
				t.why, t.lack = "", false
			}
			continue
		}
		if t == nil {
			t = &trouble{}
			h.trouble[s.ID] = t
		}
		if known && t.begun > 1 && !t.failed {
			t.why, t.lack = strings.TrimSuffix(fmt.Sprintf("its agent has ended %d times in a row: %s", t.begun, m.Note), ": "), false
		}
		switch wait := t.next.Sub(now); {
		case h.ending[s.ID]: // when that is done there is news
		case wait > 0:
			again = min(again, wait)
		default:
			t.starts, t.last = t.starts+1, now
			if t.starts > 1 {
				t.next = now.Add(min(time.Second<<min(t.starts-2, 10), longestTry))
			}
			out = append(out, s)
		}
	}
	return out, again
}

// blame notes which of the machines asked for could not be had, and returns when to try again.
func (h *FleetHost) blame(asked []trainyard.MachineSpec, err error) (again time.Duration) {
	if err != nil {
		h.log.Warn("start machines", "err", err)
	}
	each, rest := reasons(err)
	again = fleetLook
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range asked {
		why, failed := each[s.ID]
		t := h.trouble[s.ID]
		if t == nil { // its settings have changed meanwhile: what was tried is no trouble of the new ones
			nudge(h.news)
			continue
		}
		if t.failed = failed || rest != "" && len(each) == 0; !t.failed {
			t.begun++
			continue
		}
		if t.why, t.lack = why, true; why == "" {
			t.why = rest
		}
		t.next = t.last.Add(min(time.Second<<min(t.starts-1, 10), longestTry))
		again = min(again, time.Until(t.next))
	}
	return again
}

// reasons is what a fleet says of single machines, and of all others.
func reasons(err error) (each map[trainyard.NodeID]string, rest string) {
	each = map[trainyard.NodeID]string{}
	for _, e := range flatten(err) {
		if m, ok := errors.AsType[*fleet.MachineError](e); ok {
			each[m.ID] = m.Err.Error()
		} else {
			rest = e.Error()
		}
	}
	return each, rest
}

// flatten lists what errors.Join has joined; nothing of nil.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range many.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}

// tell reports all machines, those that went since the last report, and why others are not there, or still are. What could not be told is told next time.
func (h *FleetHost) tell(ctx context.Context, have []trainyard.Machine) error {
	r := trainyard.FleetReport{Location: h.cfg.Location, Machines: have, Failed: map[trainyard.NodeID]string{}}
	h.mu.Lock()
	r.Stopped = slices.Sorted(maps.Keys(h.stopped))
	for _, s := range h.wanted.Machines {
		if t := h.trouble[s.ID]; t != nil && t.why != "" {
			r.Failed[s.ID] = t.why
		}
		if !h.ending[s.ID] {
			delete(h.parting, s.ID) // it is wanted again
		}
	}
	for id, p := range h.parting {
		if p.why != "" {
			r.Failed[id] = p.why
		}
	}
	h.mu.Unlock()
	if err := h.cfg.Link.FleetReport(ctx, r); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range r.Stopped {
		delete(h.stopped, id)
	}
	for id := range h.trouble { // of machines nobody wants any more
		if !slices.ContainsFunc(h.wanted.Machines, func(s trainyard.MachineSpec) bool { return s.ID == id }) {
			delete(h.trouble, id)
		}
	}
	return nil
}

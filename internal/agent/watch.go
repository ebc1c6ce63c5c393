package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

const (
	slowLook = 2 * time.Second  // how often the driver is looked at in any case
	between  = time.Millisecond // looks are this far apart on average, so that a busy driver's hints are merged
	share    = 4                // and a look is followed by so many times its own length without one
	burst    = 5 * between      // of looks at once may be taken before that, so that a lone task waits for none
)

// watcher counts the looks at the driver. Looks have rising numbers, so a task knows which of them began after it was started.
type watcher struct {
	kick  chan struct{} // a wish to look soon
	begun atomic.Int64  // number of the newest look

	failing time.Time // since when no look succeeds; zero: the last one did. Of watch alone
	told    bool      // and the tasks have been told
}

// sight is what one look saw of one task: nil if it was not there.
type sight struct {
	look int64
	seen *trainyard.Observation
}

// watch looks at the driver whenever it says that something changed, and now and then in any case, and shows each task what it saw.
func (a *Agent) watch(ctx context.Context) error {
	var changed <-chan struct{}
	if w, ok := a.cfg.Driver.(target.Watcher); ok {
		changed = w.Changed()
	}
	slow := time.NewTimer(0)
	defer slow.Stop()
	var paid time.Time // looks up to now are paid for until then (a leaky bucket)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-a.sights.kick:
		case <-slow.C:
		}
		began := time.Now()
		if err := a.look(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("look at the driver", "err", err)
		}
		slow.Reset(slowLook)
		if paid.Before(began) {
			paid = began
		}
		paid = paid.Add(max(between, share*time.Since(began)))
		if debt := time.Until(paid) - burst; debt > 0 {
			pause(ctx, debt)
		}
	}
}

// look asks the driver once. With less than the whole view nothing is done.
func (a *Agent) look(ctx context.Context) error {
	n := a.sights.begun.Add(1)
	began := time.Now()
	list, err := a.cfg.Driver.Observe(ctx)
	if ctx.Err() == nil {
		a.mark(began, err)
	}
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
		k.show(sight{n, seen[id]})
		delete(seen, id)
	}
	a.mu.Unlock()
	if !heeded {
		return nil // what is not on our list may be wanted all the same: the server has not said yet
	}
	for id := range seen {
		a.log.Warn("remove a task that nobody wants", "task", id)
		if err := a.cfg.Driver.Remove(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// mark notes whether a look succeeded. Users hear of it when none does for longer than a moment: what they read is no news any more.
func (a *Agent) mark(began time.Time, err error) {
	s := a.sights
	if err == nil {
		if s.told {
			for _, k := range a.all() {
				k.back()
			}
		}
		s.failing, s.told = time.Time{}, false
		return
	}
	if s.failing.IsZero() {
		s.failing = began
	}
	if time.Since(s.failing) >= target.Patience {
		s.told = true
		for _, k := range a.all() {
			k.away(err.Error())
		}
	}
}

// away says of a task that its engine cannot be asked for it, and why. The first words stand until it is back: errors often tell the time.
func (k *task) away(why string) {
	k.mu.Lock()
	news := k.silent == "" && k.report.State.Rank() <= trainyard.TaskRunning.Rank()
	if news {
		k.silent = why
	}
	k.mu.Unlock()
	if news {
		k.change(atOnce, func(r *trainyard.TaskReport) { r.Progress = why })
	}
}

// back says that the engine answers again.
func (k *task) back() {
	k.mu.Lock()
	was := k.silent
	k.silent = ""
	k.mu.Unlock()
	if was != "" {
		k.change(atOnce, func(r *trainyard.TaskReport) {
			if r.Progress == was {
				r.Progress = ""
			}
		})
	}
}

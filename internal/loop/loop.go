// Package loop keeps goroutines alive and stops them: groups whose members are run again when they fail, a signal that merges, and
// reconciling by key with backoff. It knows nothing of what the loops do, and keeps nothing across a restart.
package loop

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"
)

// Backoff is how long to wait after the n-th failure in a row: Min doubled n-1 times, at most Max, of which a random half is taken off so
// that many who failed together do not come back together. Zero fields mean 100 ms and 1 minute.
type Backoff struct {
	Min, Max time.Duration
}

// Delay is the wait after the n-th failure in a row, n counting from 1: between half of the nominal wait and all of it.
func (b Backoff) Delay(n int) time.Duration {
	least, most := b.bounds()
	d := least
	for i := 1; i < n && d < most; i++ {
		d *= 2
	}
	d = min(d, most)
	return d/2 + rand.N(d/2+1)
}

func (b Backoff) bounds() (least, most time.Duration) {
	least, most = b.Min, b.Max
	if least <= 0 {
		least = 100 * time.Millisecond
	}
	if most <= 0 {
		most = time.Minute
	}
	return least, max(least, most)
}

// Group owns goroutines. The zero value is not usable; see New.
type Group struct {
	log     *slog.Logger
	backoff Backoff
	ctx     context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex
	stopped bool
	members sync.WaitGroup
}

// New makes a group without members. A nil log means slog.Default().
func New(log *slog.Logger) *Group {
	if log == nil {
		log = slog.Default()
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Group{log: log, backoff: Backoff{Min: 100 * time.Millisecond, Max: 30 * time.Second}, ctx: ctx, cancel: cancel}
}

// Go runs f in a goroutine of the group. While the group lives, an f that returns an error or panics is run again after a backoff; an f
// that returns nil is done. After Stop it does nothing.
func (g *Group) Go(name string, f func(ctx context.Context) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return
	}
	g.members.Go(func() { g.keep(name, f) })
}

// Stop cancels every member's context and waits until all have returned. It may be called at any time, by several at once, and again.
// A member must not call it: it would wait for itself.
func (g *Group) Stop() {
	g.mu.Lock()
	g.stopped = true
	g.mu.Unlock()
	g.cancel()
	g.members.Wait()
}

func (g *Group) keep(name string, f func(ctx context.Context) error) {
	for failures := 1; ; failures++ {
		began := time.Now()
		err := guard(g.log, name, func() error { return f(g.ctx) })
		if err == nil || g.ctx.Err() != nil {
			return
		}
		// What worked for longer than the longest wait has begun a new row of failures.
		if _, most := g.backoff.bounds(); time.Since(began) > most {
			failures = 1
		}
		wait := g.backoff.Delay(failures)
		g.log.Warn("loop failed, will run again", "loop", name, "error", err, "failures", failures, "wait", wait)
		select {
		case <-time.After(wait):
		case <-g.ctx.Done():
			return
		}
	}
}

// guard turns a panic of f into an error, and logs it with its stack.
func guard(log *slog.Logger, name string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("loop panicked", "loop", name, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s panicked: %v", name, p)
		}
	}()
	return f()
}

// Wake is a signal that merges: any number of Set calls that nobody has yet seen count as one.
type Wake struct {
	c chan struct{}
}

// NewWake makes a signal that is not set.
func NewWake() *Wake { return &Wake{c: make(chan struct{}, 1)} }

// Set sets the signal; it never blocks.
func (w *Wake) Set() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// C receives once for all the Sets since the last receive.
func (w *Wake) C() <-chan struct{} { return w.c }

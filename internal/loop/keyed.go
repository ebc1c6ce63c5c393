package loop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Keyed calls a function for keys that somebody added: several keys at once, the same key never twice at once. A key added while its call
// runs is called once more afterwards, so the last call always began after the last Add.
type Keyed[K comparable] struct {
	Log *slog.Logger // nil: slog.Default(); set it before Run

	workers int
	backoff Backoff
	f       func(ctx context.Context, k K) (again time.Duration, err error)

	mu    sync.Mutex
	ready *sync.Cond
	queue []K
	keys  map[K]*keyState
	phase phase
}

type phase int

const (
	phaseNew phase = iota
	phaseRunning
	phaseOver
)

// keyState is kept only while there is something to remember of the key.
type keyState struct {
	queued   bool
	running  bool
	dirty    bool // added while running
	failures int
	timer    *time.Timer
	due      time.Time // of timer
}

// NewKeyed makes a Keyed with at least one worker. f returns how long to wait before it wants to be called again for the key (0: when it
// is added again), or an error: then it is called again after a backoff of the key's own.
func NewKeyed[K comparable](workers int, backoff Backoff, f func(ctx context.Context, k K) (again time.Duration, err error)) *Keyed[K] {
	k := &Keyed[K]{workers: max(1, workers), backoff: backoff, f: f, keys: map[K]*keyState{}}
	k.ready = sync.NewCond(&k.mu)
	return k
}

// Add asks for a call for the key as soon as a worker is free. It does not wait, may be called before Run, and merges with an Add whose
// call has not begun.
func (q *Keyed[K]) Add(k K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(k)
}

// AddAfter asks for a call for the key after d. Of several that wait for one key the earliest counts; f says then when to look again.
func (q *Keyed[K]) AddAfter(k K, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addAfter(k, d)
}

// Run calls f until ctx ends, then waits for the calls that run, and returns nil. It can be called once.
func (q *Keyed[K]) Run(ctx context.Context) error {
	if !q.enter(phaseNew, phaseRunning) {
		return errors.New("loop: Keyed.Run called twice")
	}
	stop := context.AfterFunc(ctx, func() { q.enter(phaseRunning, phaseOver) })
	defer stop()
	var workers sync.WaitGroup
	for range q.workers {
		workers.Go(func() { q.work(ctx) })
	}
	workers.Wait()
	q.stopTimers()
	return nil
}

func (q *Keyed[K]) enter(from, to phase) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase != from {
		return false
	}
	q.phase = to
	q.ready.Broadcast()
	return true
}

func (q *Keyed[K]) state(k K) *keyState {
	s := q.keys[k]
	if s == nil {
		s = &keyState{}
		q.keys[k] = s
	}
	return s
}

func (q *Keyed[K]) add(k K) {
	if q.phase == phaseOver {
		return
	}
	s := q.state(k)
	switch {
	case s.running:
		s.dirty = true
	case !s.queued:
		s.queued = true
		q.queue = append(q.queue, k)
		q.ready.Signal()
	}
}

func (q *Keyed[K]) addAfter(k K, d time.Duration) {
	if d <= 0 {
		q.add(k)
		return
	}
	if q.phase == phaseOver {
		return
	}
	s, due := q.state(k), time.Now().Add(d)
	if s.timer != nil {
		if !due.Before(s.due) {
			return
		}
		s.timer.Stop()
	}
	s.due = due
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if s.timer == t { // not replaced by an earlier one
			s.timer = nil
			q.add(k)
		}
	})
	s.timer = t
}

func (q *Keyed[K]) work(ctx context.Context) {
	for {
		k, ok := q.next()
		if !ok {
			return
		}
		var again time.Duration
		err := guard(q.logger(), fmt.Sprint(k), func() (err error) {
			again, err = q.f(ctx, k)
			return err
		})
		q.done(ctx, k, again, err)
	}
}

// next waits for a key, and marks it as running. ok is false when Run is over.
func (q *Keyed[K]) next() (k K, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queue) == 0 && q.phase == phaseRunning {
		q.ready.Wait()
	}
	if q.phase != phaseRunning {
		return k, false
	}
	k = q.queue[0]
	var zero K
	q.queue[0] = zero
	q.queue = q.queue[1:]
	s := q.keys[k]
	s.queued, s.running = false, true
	return k, true
}

func (q *Keyed[K]) done(ctx context.Context, k K, again time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.keys[k]
	s.running = false
	switch {
	case err != nil && ctx.Err() == nil:
		s.failures++
		again = q.backoff.Delay(s.failures)
		q.logger().Warn("will try again", "key", k, "error", err, "failures", s.failures, "wait", again)
	case err == nil:
		s.failures = 0
	}
	if s.dirty {
		s.dirty = false
		q.add(k)
	}
	if again > 0 {
		q.addAfter(k, again)
	}
	if !s.queued && s.timer == nil && s.failures == 0 {
		delete(q.keys, k)
	}
}

func (q *Keyed[K]) stopTimers() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.keys {
		if s.timer != nil {
			s.timer.Stop()
			s.timer = nil
		}
	}
}

func (q *Keyed[K]) logger() *slog.Logger {
	if q.Log != nil {
		return q.Log
	}
	return slog.Default()
}

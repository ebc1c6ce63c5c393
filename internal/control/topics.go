package control

import (
	"context"
	"sync"
	"time"
)

// topics is a set of rising revision numbers that callers can wait on. Numbers start at base, so that they rise across restarts when
// base is a time.
type topics[K comparable] struct {
	base int64
	mu   sync.Mutex
	m    map[K]*topic
}

type topic struct {
	rev  int64
	wake chan struct{} // closed and replaced when rev rises
}

func newTopics[K comparable](base int64) *topics[K] {
	return &topics[K]{base: base, m: map[K]*topic{}}
}

func (t *topics[K]) get(k K) *topic {
	p := t.m[k]
	if p == nil {
		p = &topic{rev: t.base, wake: make(chan struct{})}
		t.m[k] = p
	}
	return p
}

// bump raises k's revision and wakes who waits.
func (t *topics[K]) bump(k K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.get(k)
	p.rev++
	close(p.wake)
	p.wake = make(chan struct{})
}

// rev is k's revision now.
func (t *topics[K]) rev(k K) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.get(k).rev
}

// forget drops k, waking who waits.
func (t *topics[K]) forget(k K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.m[k]; p != nil {
		close(p.wake)
		delete(t.m, k)
	}
}

// wait returns k's revision once it is past after, when hold is over, or when ctx is done. A caller who waits for a number from before a
// restart is answered at once.
func (t *topics[K]) wait(ctx context.Context, k K, after int64, hold time.Duration) int64 {
	timer := time.NewTimer(hold)
	defer timer.Stop()
	for {
		t.mu.Lock()
		p := t.get(k)
		rev, wake := p.rev, p.wake
		t.mu.Unlock()
		if rev > after {
			return rev
		}
		select {
		case <-wake:
		case <-timer.C:
			return rev
		case <-ctx.Done():
			return rev
		}
	}
}

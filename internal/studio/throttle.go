package studio

import (
	"maps"
	"sync"
	"time"
)

// Failed logins that one address has in a time before it must wait, and addresses that are remembered.
const (
	triesAtMost   = 10
	triesIn       = time.Minute
	addressesKept = 10000
)

// throttle counts failed logins by address.
type throttle struct {
	mu   sync.Mutex
	seen map[string]tries
}

type tries struct {
	n     int
	since time.Time
}

func newThrottle() *throttle { return &throttle{seen: map[string]tries{}} }

// wait says how long from must wait before it may try again; 0 is not at all.
func (t *throttle) wait(from string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seen[from]
	if s.n < triesAtMost {
		return 0
	}
	return max(s.since.Add(triesIn).Sub(now), 0)
}

func (t *throttle) failed(from string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.seen) >= addressesKept {
		maps.DeleteFunc(t.seen, func(_ string, s tries) bool { return now.Sub(s.since) >= triesIn })
	}
	s := t.seen[from]
	if now.Sub(s.since) >= triesIn {
		s = tries{since: now}
	}
	if s.n++; len(t.seen) < addressesKept || s.n > 1 {
		t.seen[from] = s
	}
}

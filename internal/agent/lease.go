package agent

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// lease is one joining of the server.
type lease struct {
	trainyard.NodeLease
	void context.CancelFunc // ends what is done under it
}

// beat is how often the server wants to hear something.
func (l *lease) beat() time.Duration {
	if l.Renew <= 0 {
		return 5 * time.Second
	}
	return l.Renew
}

// leases holds the present lease, lets others wait for one, and remembers when the server was last heard.
type leases struct {
	mu      sync.Mutex
	present *lease
	ready   chan struct{} // closed while there is a present lease
	last    time.Time     // when a request was sent that the server answered
}

func (s *leases) init() { s.ready = make(chan struct{}) }

// get waits for a lease; an error means that ctx is done.
func (s *leases) get(ctx context.Context) (*lease, error) {
	for {
		s.mu.Lock()
		l, ready := s.present, s.ready
		s.mu.Unlock()
		if l != nil {
			return l, ctx.Err()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ready:
		}
	}
}

// take makes a new lease the present one. void is called when it is dropped.
func (s *leases) take(n trainyard.NodeLease, void context.CancelFunc) *lease {
	l := &lease{n, void}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present = l
	close(s.ready)
	return l
}

// drop declares a lease void; nothing happens to a newer one.
func (s *leases) drop(l *lease) {
	l.void()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.present == l {
		s.present, s.ready = nil, make(chan struct{})
	}
}

// heard notes that the server answered a request sent at the time given. It says whether the lease had run out before.
func (s *leases) heard(sent time.Time) (late bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	late = s.expired(time.Now())
	if sent.After(s.last) {
		s.last = sent
	}
	return late
}

func (s *leases) lastHeard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// epoch is that of the present lease if the server cannot have counted this node as lost; else 0.
func (s *leases) epoch() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.present == nil || s.expired(time.Now()) {
		return 0
	}
	return s.present.Epoch
}

func (s *leases) expired(now time.Time) bool {
	return s.present != nil && s.present.Expires > 0 && now.Sub(s.last) >= s.present.Expires
}

// outdated says whether an answer of the server means that the agent must join again.
func outdated(err error) bool {
	code := trainyard.CodeOf(err)
	return code == trainyard.CodeConflict || code == trainyard.CodeUnknown
}

// backoff spaces tries: from 50 ms, doubling, to 2 s, each shortened by chance so that many agents do not come back as one.
type backoff struct{ n int }

func (b *backoff) next() time.Duration {
	d := min(50*time.Millisecond<<min(b.n, 10), 2*time.Second)
	b.n++
	return d/2 + rand.N(d/2)
}

func (b *backoff) reset() { b.n = 0 }

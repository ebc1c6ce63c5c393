package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Bounds on copies that wait for a mirror. What is over them is dropped and counted: a mirror never holds up a live call.
const (
	mirrorWaiting = 64       // for one deployment
	mirrorWorkers = 8        // for one deployment
	mirrorBytes   = 32 << 20 // in all
)

// mirrors holds the copies of requests that are on their way to mirrored deployments. A copy is made when its live call has its answer.
type mirrors struct {
	mu     sync.Mutex
	closed bool
	bytes  int
	queues map[*deployment]*mirrorQueue
	busy   map[*upstream]struct{}
}

type mirrorQueue struct {
	waiting [][]byte
	workers int
}

// copyToMirror hands over a copy of the request that was just answered.
func (c *conn) copyToMirror(whole bool) {
	d := c.ex.mirror
	if !whole && (!c.ex.whole || !c.ex.ended) {
		d.dropped()
		return
	}
	if !c.g.mirrors.add(c.g, d, c.up[:c.ex.target], c.ex.mirrorTarget, c.up[c.ex.targetEnd:], c.ex.kept) {
		d.dropped()
	}
}

func (m *mirrors) add(g *Gateway, d *deployment, parts ...[]byte) bool {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queues[d]
	if q == nil {
		q = &mirrorQueue{}
	}
	if m.closed || len(q.waiting) >= mirrorWaiting || m.bytes+size > mirrorBytes {
		return false
	}
	if m.queues == nil {
		m.queues, m.busy = map[*deployment]*mirrorQueue{}, map[*upstream]struct{}{}
	}
	m.queues[d] = q
	raw := bytes.Join(parts, nil)
	m.bytes += size
	q.waiting = append(q.waiting, raw)
	if q.workers < mirrorWorkers {
		q.workers++
		g.work.Go(func() { g.mirrorWork(d, q) })
	}
	return true
}

// mirrorWork sends copies until none waits.
func (g *Gateway) mirrorWork(d *deployment, q *mirrorQueue) {
	m := &g.mirrors
	for {
		m.mu.Lock()
		if len(q.waiting) == 0 {
			if q.workers--; q.workers == 0 {
				delete(m.queues, d)
			}
			m.mu.Unlock()
			return
		}
		raw := q.waiting[0]
		q.waiting = q.waiting[1:]
		m.mu.Unlock()
		g.mirrorOne(d, raw)
		m.mu.Lock()
		m.bytes -= len(raw)
		m.mu.Unlock()
	}
}

// mirrorOne sends one copy, and reads its answer away. A kept connection that had been closed meanwhile is worth a second try.
func (g *Gateway) mirrorOne(d *deployment, raw []byte) {
	start := g.now()
	c := &claim{d: d, start: start, base: start, mirror: true}
	status, bad := 0, (*refusal)(nil)
	for {
		var s grant
		if s, bad = g.mirrorSeat(c); bad != nil {
			break
		}
		again := false
		if status, again = g.mirrorTry(d, s, raw); !again || c.tries > 0 {
			break
		}
		c.tries++
		c.fresh = true
	}
	if bad != nil {
		status = bad.status
		d.dropped()
	}
	now := g.now()
	d.leave(c, status, now-start, now)
}

func (g *Gateway) mirrorSeat(c *claim) (grant, *refusal) {
	s, bad := c.d.acquire(c, g.now(), g.config.MaxHeld)
	if bad != nil || s.r != nil {
		return s, bad
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := g.now()
		s, until, bad := c.d.still(c, now)
		if bad != nil || s.r != nil {
			return s, bad
		}
		timer.Reset(until - now)
		select {
		case s := <-c.ch:
			return s, nil
		case <-c.again:
		case <-timer.C:
		case <-g.stop:
			c.d.abandon(c, g.now())
			return grant{}, refuse(http.StatusServiceUnavailable, "Closed", "the gateway is shut down")
		}
	}
}

func (g *Gateway) mirrorTry(d *deployment, s grant, raw []byte) (status int, again bool) {
	up, reused := s.up, s.up != nil
	if !reused {
		var err error
		if up, err = g.connect(s.r, d.timeout()); err != nil {
			closeAll(d.giveBack(s.r, nil, unreached, g.now()))
			return http.StatusBadGateway, true
		}
		d.reached(s.r)
	}
	status, keep, err := g.mirrorExchange(d, up, raw)
	what, kept := served, up
	if err != nil {
		what, status = unsure, http.StatusBadGateway
	}
	if err != nil || !keep {
		up.close()
		kept = nil
	}
	closeAll(d.giveBack(s.r, kept, what, g.now()))
	return status, err != nil && reused && !isTimeout(err)
}

func (g *Gateway) mirrorExchange(d *deployment, up *upstream, raw []byte) (status int, keep bool, err error) {
	if !g.mirrors.track(up) {
		return 0, false, errors.New("the gateway is shut down")
	}
	defer g.mirrors.untrack(up)
	if err := up.nc.SetDeadline(time.Now().Add(d.timeout())); err != nil {
		return 0, false, err
	}
	if _, err := up.nc.Write(raw); err != nil {
		return 0, false, err
	}
	var h head
	for h.status < 200 {
		n, err := readHead(&up.in)
		if err != nil {
			return 0, false, err
		}
		if bad := h.parseResponse(up.in.data()[:n]); bad != nil {
			return 0, false, bad
		}
		up.in.take(n)
	}
	var b body
	b.reset(&up.in, &h, true)
	if h.status == http.StatusNoContent || h.status == http.StatusNotModified || string(raw[:5]) == "HEAD " {
		b.framing = noBody
	}
	for {
		switch _, err := b.next(); {
		case errors.Is(err, io.EOF):
			keep = h.minor == 1 && !h.close && b.framing != toEnd && up.in.buffered() == 0
			return h.status, keep, up.nc.SetDeadline(time.Time{})
		case err != nil:
			return h.status, false, fmt.Errorf("read the mirror's answer: %w", err)
		}
	}
}

func (m *mirrors) track(up *upstream) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.busy[up] = struct{}{}
	return true
}

func (m *mirrors) untrack(up *upstream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.busy, up)
}

// finishMirrors drops what waits and ends what is on its way.
func (g *Gateway) finishMirrors() {
	m := &g.mirrors
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for d, q := range m.queues {
		for range q.waiting {
			d.dropped()
		}
		q.waiting = nil
	}
	for up := range m.busy {
		up.close()
	}
}

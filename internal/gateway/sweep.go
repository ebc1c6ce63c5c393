package gateway

import (
	"errors"
	"net"
	"slices"
	"time"
)

// phase is what a connection is doing, which says what happens when it takes too long.
type phase uint64

const (
	phaseIdle     phase = iota + 1 // between requests: it is closed
	phaseHead                      // a head is being read: 408, closed
	phaseBody                      // a small body is being read: 408, closed
	phaseQueue                     // waiting for a replica: that has timers of its own
	phaseUpstream                  // waiting for a replica's answer: 408 or 504
	phaseStream                    // passing on an answer: as long as it takes
	phaseWrite                     // the client takes the answer: closed
	phaseLinger                    // the last answer is out: closed
)

const (
	sweepEvery = 20 * time.Millisecond
	phaseBits  = 4
	kicked     = 1 << phaseBits // the sweep has interrupted this phase
	endShift   = phaseBits + 1
	noEnd      = 1<<(64-endShift) - 1 // milliseconds
)

// past is a deadline that interrupts what waits on a connection.
var past = time.Unix(1, 0)

func pack(p phase, end time.Duration) uint64 {
	ms := uint64(noEnd)
	if end > 0 {
		ms = uint64(end / time.Millisecond)
	}
	return uint64(p) | ms<<endShift
}

// enter begins a phase that may last for limit, 0 without end. true: the sweep interrupted the one before, and is done with that.
func (c *conn) enter(p phase, limit time.Duration) bool {
	var end time.Duration
	if limit > 0 {
		end = time.Duration(c.g.coarse.Load()) + limit + sweepEvery
	}
	return c.enterUntil(p, end)
}

func (c *conn) enterUntil(p phase, end time.Duration) bool {
	if c.state.Swap(pack(p, end))&kicked == 0 {
		return false
	}
	c.mu.Lock() // the sweep holds it while it interrupts
	defer c.mu.Unlock()
	return true
}

// extend lets phaseUpstream last for limit from now.
func (c *conn) extend(limit time.Duration) {
	was := c.state.Load()
	if phase(was&(kicked-1)) == phaseUpstream && was&kicked == 0 {
		c.state.CompareAndSwap(was, pack(phaseUpstream, time.Duration(c.g.coarse.Load())+limit+sweepEvery))
	}
}

// sweep looks at all connections and queues every 20 ms and interrupts what took too long. One loop for all costs a request two stores
// in memory; deadlines on connections would cost it several times as much.
func (g *Gateway) sweep() {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	var conns []*conn
	for {
		select {
		case <-g.stop:
			return
		case <-every.C:
		}
		now := g.now()
		g.coarse.Store(int64(now))
		conns = conns[:0]
		g.mu.Lock()
		for c := range g.conns {
			conns = append(conns, c)
		}
		g.mu.Unlock()
		for _, c := range conns {
			c.look(now)
		}
		clear(conns)
		g.sweepDeployments(now)
	}
}

// keepIdle is how long a connection to a replica is kept without use. Servers close theirs after a time of their own; a request that
// meets a closed one is sent again.
const keepIdle = 30 * time.Second

func (g *Gateway) sweepDeployments(now time.Duration) {
	for _, e := range g.table.Load().endpoints {
		for _, d := range e.deployments {
			if d.used.Load() {
				closeAll(d.tidy(now))
			}
		}
	}
}

// tidy serves those who wait because the only replicas were suspected, and returns connections that were not used for long.
func (d *deployment) tidy(now time.Duration) []*upstream {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.serve(now)
	var old []*upstream
	used := d.running > 0 || len(d.waiting) > 0
	for _, r := range d.replicas {
		n := 0
		for n < len(r.idle) && r.idle[n].idleSince < now-keepIdle {
			n++
		}
		old = append(old, r.idle[:n]...)
		r.idle = slices.Delete(r.idle, 0, n)
		used = used || len(r.idle) > 0
	}
	d.used.Store(used)
	return old
}

// look interrupts the connection if its phase lasts too long, and has its client watched if an answer is slow to come.
func (c *conn) look(now time.Duration) {
	state := c.state.Load()
	if end := state >> endShift; end != noEnd && uint64(now/time.Millisecond) >= end && state&kicked == 0 {
		c.interrupt(state)
	}
	if until := c.stall.Load(); until > 0 && int64(now) >= until && c.stall.CompareAndSwap(until, -1) {
		_ = c.nc.SetReadDeadline(past)
	}
	w := c.watch.Load()
	if w&3 == mayWatch && w == c.lastSeen {
		c.startWatch(w)
	}
	c.lastSeen = w
}

func (c *conn) interrupt(state uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.state.CompareAndSwap(state, state|kicked) {
		return // it went on in this moment
	}
	switch phase(state & (kicked - 1)) {
	case phaseUpstream:
		if c.current != nil {
			_ = c.current.nc.SetDeadline(past)
		}
	case phaseWrite, phaseLinger:
		_ = c.nc.SetDeadline(past)
	default:
		_ = c.nc.SetReadDeadline(past)
	}
}

// endIfIdle closes the connection if it is between requests.
func (c *conn) endIfIdle() {
	if state := c.state.Load(); phase(state&(kicked-1)) == phaseIdle {
		c.interrupt(state)
	}
}

// abort ends the connection whatever it is doing.
func (c *conn) abort() {
	c.goneNow()
	_ = c.nc.Close()
}

// A client is watched only while nobody else reads from its connection, and only when an answer takes longer than a sweep.
const (
	mayWatch = 1
	watching = 2
)

// letWatch allows the client to be watched until endWatch, unless it is already. Nobody else reads from it.
func (c *conn) letWatch() { c.watch.CompareAndSwap(0, c.serial<<2|mayWatch) }

func (c *conn) startWatch(w uint64) {
	if c.watch.CompareAndSwap(w, w&^3|watching) {
		go c.watchClient()
	}
}

// watchNow has the client watched at once.
func (c *conn) watchNow() {
	if w := c.watch.Load(); w&3 == mayWatch {
		c.startWatch(w)
	}
}

// watchClient reads until there is something. An end means that the client went away; bytes are its next request.
func (c *conn) watchClient() {
	err := c.in.fill(readBuffer)
	if err != nil && !errors.Is(err, errFull) && !isTimeout(err) {
		c.goneNow()
	}
	c.watched <- struct{}{}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// endWatch waits until nobody reads from the client's connection any more.
func (c *conn) endWatch() {
	if c.watch.Swap(0)&3 != watching {
		return
	}
	_ = c.nc.SetReadDeadline(past)
	<-c.watched
	_ = c.nc.SetReadDeadline(time.Time{})
}

// goneNow ends what is done for a client that went away.
func (c *conn) goneNow() {
	c.gone.Store(true)
	select {
	case c.leave <- struct{}{}:
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		_ = c.current.nc.Close()
	}
}

// attach says which connection to a replica the request uses; false: the client is gone.
func (c *conn) attach(up *upstream) bool {
	c.mu.Lock()
	c.current = up
	c.mu.Unlock()
	return up == nil || !c.gone.Load()
}

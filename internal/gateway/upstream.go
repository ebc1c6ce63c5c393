package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// upstream is a connection to a replica.
type upstream struct {
	nc        net.Conn
	in        reader
	idleSince time.Duration
}

func (u *upstream) close() { _ = u.nc.Close() }

// connect opens a connection to a replica.
func (g *Gateway) connect(r *replica, limit time.Duration) (*upstream, error) {
	ctx, cancel := context.WithTimeout(context.Background(), max(min(limit, g.config.DialTimeout), time.Millisecond))
	defer cancel()
	var nc net.Conn
	var err error
	if r.route.Direct {
		nc, err = g.config.Dial(ctx, r.route.Address)
	} else {
		nc, err = g.config.Source.Connect(ctx, r.route.Task)
	}
	if err != nil {
		return nil, err
	}
	return &upstream{nc: nc, in: reader{src: nc, buf: make([]byte, readSize)}}, nil
}

// lostError says that a replica failed before it had answered anything: the request may be sent again.
type lostError struct {
	err  error
	sent bool // the request, or a part of it, was on its way
}

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// maxLost is how many replicas may be lost while they have the request. Then it may be the request that ends them.
const maxLost = 3

// forward has the request answered by a replica of its deployment.
func (c *conn) forward() error {
	whole, err := c.readSmall()
	if err != nil {
		return err
	}
	c.ex.whole = true
	c.ex.claim.fresh = !whole
	if whole {
		c.letWatch()
	}
	err = c.tries(whole)
	c.endWatch()
	if err == nil && c.ex.mirror != nil {
		c.copyToMirror(whole)
	}
	return err
}

// tries sends the request to one replica after another until one answers.
func (c *conn) tries(whole bool) error {
	cl := &c.ex.claim
	for {
		g, err := c.seat(whole)
		if err != nil {
			return err
		}
		err = c.try(g, whole)
		var lost *lostError
		if !errors.As(err, &lost) {
			return err
		}
		cl.tries++
		cl.last, cl.fresh = lost.err, true
		c.ex.d.retried()
		switch {
		case c.gone.Load():
			return errClientGone
		case lost.sent && !c.ex.whole:
			return c.ex.d.lost("more than 1 MiB of its body had passed", lost.err)
		case c.ex.lost >= maxLost:
			return c.ex.d.lost("three replicas were lost while they had it", lost.err)
		}
	}
}

// seat takes a replica, waiting for it as long as the deployment lets requests wait.
func (c *conn) seat(whole bool) (grant, error) {
	d, cl := c.ex.d, &c.ex.claim
	g, bad := d.acquire(cl, c.g.now(), c.g.config.MaxHeld)
	if bad != nil {
		return grant{}, bad
	}
	if g.r != nil {
		return g, nil
	}
	c.enter(phaseQueue, 0)
	c.letWatch()
	c.watchNow()
	g, err := c.wait()
	if !whole {
		c.endWatch()
	}
	if cl.held {
		c.ex.waited = c.g.now() - cl.start
	}
	return g, err
}

func (c *conn) wait() (grant, error) {
	d, cl := c.ex.d, &c.ex.claim
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	told := ""
	for {
		now := c.g.now()
		g, until, bad := d.still(cl, now)
		switch {
		case bad != nil:
			return grant{}, bad
		case g.r != nil:
			return g, nil
		}
		if c.ex.notes {
			if text := d.progress(); text != told {
				told = text
				c.note(text, now-cl.start)
			}
		}
		timer.Reset(until - now)
		select {
		case g := <-cl.ch:
			return g, nil
		case <-cl.again:
		case <-timer.C:
		case <-c.leave:
			d.abandon(cl, c.g.now())
			return grant{}, errClientGone
		}
	}
}

// note tells a caller that asked for it, in an interim answer, what its request waits for.
func (c *conn) note(text string, waited time.Duration) {
	b := appendStatus(nil, http.StatusProcessing, http.StatusText(http.StatusProcessing))
	b = appendField(b, nameProgress, clean(text))
	b = appendField(b, nameWaited, strconv.FormatInt(waited.Milliseconds(), 10))
	_ = c.nc.SetWriteDeadline(time.Now().Add(time.Second)) // a client that does not read its notes does not hold up anything
	_, err := c.nc.Write(append(b, "\r\n"...))
	_ = c.nc.SetWriteDeadline(time.Time{})
	if err != nil {
		c.goneNow()
	}
}

// clean makes a text fit for a header.
func clean(text string) string {
	b := []byte(text[:min(len(text), 500)])
	for i, ch := range b {
		if !valueByte[ch] {
			b[i] = ' '
		}
	}
	return string(b)
}

// try sends the request to one replica and passes its answer on. It gives the replica's slot back in every case.
func (c *conn) try(g grant, whole bool) error {
	d, cl := c.ex.d, &c.ex.claim
	end := cl.base + d.timeout()
	up, reused := g.up, g.up != nil
	if !reused {
		var err error
		if up, err = c.g.connect(g.r, end-c.g.now()); err != nil {
			closeAll(d.giveBack(g.r, nil, unreached, c.g.now()))
			return &lostError{err: fmt.Errorf("connect to %s: %w", g.r.route.Address, err)}
		}
		d.reached(g.r)
	}
	var reusable bool
	err := errClientGone
	if c.attach(up) {
		c.enterUntil(phaseUpstream, end+sweepEvery)
		reusable, err = c.exchange(up, whole)
	}
	c.attach(nil)
	what := served
	var lost *lostError
	switch {
	case errors.As(err, &lost) && reused, c.gone.Load():
		what = unsure
	case lost != nil:
		what = failed
		c.ex.lost++
	}
	keep := up
	if !reusable || err != nil {
		up.close()
		keep = nil
	}
	closeAll(d.giveBack(g.r, keep, what, c.g.now()))
	return err
}

// exchange is one request and its answer on one connection.
func (c *conn) exchange(up *upstream, whole bool) (reusable bool, err error) {
	if _, err := up.nc.Write(c.up); err != nil {
		if c.enter(phaseQueue, 0) {
			return false, c.ex.d.timedOut()
		}
		return false, c.brokeBefore(up, nil, err)
	}
	var p *pump
	if !whole {
		if err := c.goOn(); err != nil {
			return false, err
		}
		c.enterUntil(phaseUpstream, max(c.ex.claim.base, c.g.now())+c.ex.d.timeout()+sweepEvery)
		p = c.startPump(up)
	}
	err = c.readAnswer(up)
	late := c.enter(phaseStream, 0)
	if late || err != nil {
		c.stopPump(p, up)
		if late && !c.gone.Load() && !p.broke() {
			return false, c.ex.d.timedOut()
		}
		return false, c.brokeBefore(up, p, err)
	}
	if c.res.status == http.StatusSwitchingProtocols {
		return false, c.tunnel(up)
	}
	if p.running() {
		c.ex.closing = true // what is left of the body stands before the next request
	}
	reusable, err = c.passOn(up)
	if p.running() {
		reusable = false
		c.stopPump(p, up)
	}
	return reusable && !p.broke() && p.sentAll(), err
}

// brokeBefore is what to make of an error before an answer was passed on.
func (c *conn) brokeBefore(up *upstream, p *pump, err error) error {
	var bad *refusal
	switch {
	case p.broke():
		return c.bodyBroke(p.err, p.late)
	case c.gone.Load():
		return errClientGone
	case errors.As(err, &bad), errors.Is(err, errFull):
		return c.ex.d.unreadable(err)
	case up.in.buffered() > 0:
		return c.ex.d.lost("a part of its answer had come", err)
	}
	return &lostError{err: err, sent: true}
}

// readAnswer reads the head of the answer into c.res. Interim answers are passed on at once.
func (c *conn) readAnswer(up *upstream) error {
	for {
		n, err := readHead(&up.in)
		if err != nil {
			return err
		}
		if bad := c.res.parseResponse(up.in.data()[:n]); bad != nil {
			return bad
		}
		switch {
		case c.res.status == http.StatusSwitchingProtocols && !c.ex.upgrade:
			return malformed(http.StatusBadGateway, "it switches protocols without being asked to")
		case c.res.status >= 200 || c.res.status == http.StatusSwitchingProtocols:
			return nil
		case c.res.status != http.StatusContinue && c.ex.minor == 1: // 100 was answered here
			if err := c.interim(); err != nil {
				return err
			}
		}
		up.in.take(n)
	}
}

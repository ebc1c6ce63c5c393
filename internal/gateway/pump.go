package gateway

import (
	"errors"
	"io"
	"time"
)

// keepBody is how much of a large body is kept while it passes, so that the request can be sent again.
const keepBody = 1 << 20

// pump moves a large body to a replica while its answer is awaited, and passed on, beside it. The methods work on nil, for a request
// without one.
type pump struct {
	done chan struct{}
	err  error // the client's body broke off, or is malformed
	late bool  // because it came too slowly
	all  bool  // all of it was sent
}

// running says whether the body still comes.
func (p *pump) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *pump) broke() bool { return p != nil && !p.running() && p.err != nil }

func (p *pump) sentAll() bool { return p == nil || !p.running() && p.all }

func (c *conn) startPump(up *upstream) *pump {
	p := &pump{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		c.move(p, up)
	}()
	return p
}

// move sends what was kept of the body, and then the rest as it comes.
func (c *conn) move(p *pump, up *upstream) {
	if len(c.ex.kept) > 0 {
		if _, err := up.nc.Write(c.ex.kept); err != nil {
			return // whoever waits for the answer meets the same end
		}
	}
	if c.ex.ended {
		p.all = true
		c.letWatch()
		return
	}
	w := &writer{to: up.nc, buf: make([]byte, 0, readBuffer), keep: c.keep}
	c.reqBody.before = func() error { return c.beforeWait(w) }
	defer func() { c.reqBody.before = nil }()
	passed := 0 // since the request was last given more time
	for {
		piece, err := c.reqBody.next()
		if until := c.stall.Load(); until > 0 {
			c.stall.CompareAndSwap(until, 0)
		}
		switch {
		case errors.Is(err, io.EOF):
			c.ex.ended = true
			p.all = w.end(c.reqBody.framing, c.reqBody.trail) == nil
			c.extend(c.ex.d.timeout())
			c.letWatch()
			return
		case err == nil:
			c.ex.collect.request(piece)
			err = w.piece(piece, c.reqBody.framing)
			if passed += len(piece); passed >= slowest { // a caller that drips holds a replica's place no longer than others
				c.extend(c.ex.d.timeout())
				passed = 0
			}
			if err != nil {
				return
			}
		default:
			c.moveBroke(p, up, err)
			return
		}
	}
}

// slowest is how many bytes of a body must pass in a request's time for it to be given that time again.
const slowest = 16 << 10

var errReplicaGone = errors.New("the replica takes no more of the body")

// beforeWait sends on what has come before the client is waited for.
func (c *conn) beforeWait(w *writer) error {
	if w.flush() != nil {
		return errReplicaGone
	}
	c.stall.Store(c.g.coarse.Load() + int64(c.g.config.BodyTimeout))
	return nil
}

// moveBroke ends the exchange when the client's side of it failed.
func (c *conn) moveBroke(p *pump, up *upstream, err error) {
	late := c.stall.Swap(0) == -1
	if errors.Is(err, errReplicaGone) || isTimeout(err) && !late { // the latter: stopPump
		return
	}
	p.err, p.late = err, late
	var bad *refusal
	if !late && !errors.As(err, &bad) {
		c.gone.Store(true)
	}
	up.close()
}

// keep remembers what is sent of a large body, up to a bound.
func (c *conn) keep(p []byte) {
	if !c.ex.whole {
		return
	}
	if len(c.ex.kept)+len(p) > keepBody {
		c.ex.whole, c.ex.kept = false, nil
		return
	}
	c.ex.kept = append(c.ex.kept, p...)
}

// stopPump ends a pump and waits for it. What it has read from the client is kept for the next try.
func (c *conn) stopPump(p *pump, up *upstream) {
	if p == nil {
		return
	}
	up.close()
	_ = c.nc.SetReadDeadline(past)
	<-p.done
	_ = c.nc.SetReadDeadline(time.Time{})
}

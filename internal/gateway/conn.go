package gateway

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one client's connection, and what is needed again for each of its requests. One goroutine owns it; the sweep and the watcher
// touch what is said to be theirs.
type conn struct {
	g      *Gateway
	nc     net.Conn
	remote []byte // IP address of the client
	local  bool   // from this computer
	proto  string // http, https

	in      reader
	out     writer
	req     head // points into in; not to be used once the body is read or the client is watched
	res     head
	reqBody body
	resBody body
	up      []byte // the request as it is sent to a replica: head, and body if that is small
	ids     requestIDs
	ex      exchange

	state    atomic.Uint64 // phase, and until when it may last; see sweep
	stall    atomic.Int64  // until when the pump may wait for the client; 0: it does not, -1: it was interrupted
	watch    atomic.Uint64 // serial of the request and whether the client may be watched while it is answered
	lastSeen uint64        // watch, as the last sweep saw it; the sweep's
	watched  chan struct{} // the watcher has ended
	gone     atomic.Bool   // the client went away
	leave    chan struct{} // and whoever waits for a replica should know
	serial   uint64

	mu      sync.Mutex // held while the sweep interrupts
	current *upstream  // what to close when the client goes away; under mu
}

// exchange is what is to be remembered of a request while it is answered.
type exchange struct {
	d                 *deployment
	claim             claim
	head              bool // HEAD
	minor             int
	closing           bool // the connection ends with this answer
	upgrade           bool
	notes             bool // interim answers tell what a held request waits for
	expect            bool // the client waits for 100 Continue
	started           bool // the first byte of an answer was written
	mirror            *deployment
	target, targetEnd int    // where the request's target begins and ends in conn.up
	mirrorTarget      []byte // the same for the mirror, whose scoring path may be another
	collect           *collecting
	kept              []byte // what of a large body has been sent, for another try
	whole             bool   // kept holds all of it so far
	ended             bool   // kept holds its end, too
	holdBack          bool   // the answer is sent when all of it is here
	status            int
	waited            time.Duration
	lost              int // tries that failed after the request was sent
}

const (
	readSize    = 8 << 10   // buffers begin with it
	keepBetween = 128 << 10 // a buffer larger than this is given up when its request is done
)

func newConn(g *Gateway, nc net.Conn) *conn {
	c := &conn{g: g, nc: nc, proto: "http", watched: make(chan struct{}, 1), leave: make(chan struct{}, 1)}
	c.in = reader{src: nc, buf: make([]byte, readSize)}
	c.out.to = nc
	if host, _, err := net.SplitHostPort(nc.RemoteAddr().String()); err == nil {
		c.remote = []byte(host)
		ip := net.ParseIP(host)
		c.local = ip != nil && ip.IsLoopback()
	}
	if _, ok := nc.(*tls.Conn); ok {
		c.proto = "https"
	}
	c.resBody.before = c.flushBeforeWait
	c.enter(phaseHead, g.config.HeadTimeout) // before the sweep can see it: to that, no phase at all is one that is over
	return c
}

// serve answers requests one after the other until the connection ends.
func (c *conn) serve() {
	defer c.g.forget(c)
	defer c.nc.Close()
	defer c.recover()
	for c.one() {
		if c.in.buffered() > 0 {
			c.enter(phaseHead, c.g.config.HeadTimeout)
			continue
		}
		if c.g.drain.Load() {
			return
		}
		c.enter(phaseIdle, c.g.config.IdleTimeout)
		if c.g.drain.Load() { // Shutdown looked before the connection was idle
			return
		}
		if c.in.fill(maxHead) != nil || c.enter(phaseHead, c.g.config.HeadTimeout) {
			return
		}
	}
}

// recover ends the connection alone when there is a mistake in the program.
func (c *conn) recover() {
	if p := recover(); p != nil {
		c.g.log.Error("a request was given up because of a mistake in the gateway", "panic", p, "stack", string(debug.Stack()))
	}
}

// one reads and answers one request; false: the connection cannot be used again.
func (c *conn) one() bool {
	n, err := readHead(&c.in)
	if cap(c.ex.kept) > keepBetween {
		c.ex.kept = nil
	}
	c.ex = exchange{kept: c.ex.kept[:0], claim: claim{ch: c.ex.claim.ch, again: c.ex.claim.again}}
	if err != nil {
		return c.badHead(err)
	}
	if bad := c.req.parseRequest(c.in.data()[:n]); bad != nil {
		return c.badHead(bad)
	}
	c.serial++
	c.reqBody.reset(&c.in, &c.req, false)
	c.ex.minor, c.ex.head, c.ex.expect = c.req.minor, string(c.req.method) == http.MethodHead, c.req.expect && c.req.minor == 1
	c.ex.closing = c.req.close || c.req.minor == 0
	c.ids.read(&c.req)
	bad := c.answer(n)
	if errors.Is(bad, errClientGone) {
		return false
	}
	if refused, ok := errors.AsType[*refusal](bad); ok {
		return c.refuse(refused)
	}
	if bad != nil { // the answer broke off: only the connection's end can say so
		return false
	}
	if c.ex.closing {
		c.linger()
		return false
	}
	return true
}

// badHead answers what is no request, and nothing at all when the client has left or said nothing.
func (c *conn) badHead(err error) bool {
	kicked := c.enter(phaseWrite, c.g.config.Stall)
	bad, ok := errors.AsType[*refusal](err)
	switch {
	case ok:
	case errors.Is(err, errFull):
		bad = malformed(http.StatusRequestHeaderFieldsTooLarge, "the request's head is longer than 64 KiB")
	case kicked && c.in.buffered() > 0:
		bad = malformed(http.StatusRequestTimeout, "the request's head did not come in time")
	default:
		return false
	}
	c.ids = requestIDs{}
	c.ex.closing = true
	return c.refuse(bad)
}

// refuse answers in the gateway's own name. What is left of a small body is read away so that the connection can go on.
func (c *conn) refuse(r *refusal) bool {
	if c.ex.d == nil {
		c.g.refused.add(r.status)
	}
	if c.ex.started {
		return false
	}
	if r.close || c.g.drain.Load() || c.reqBody.framing == chunkedF && !c.reqBody.done() || c.ex.expect && !c.reqBody.done() || c.reqBody.left > smallBody {
		c.ex.closing = true
	}
	c.enter(phaseWrite, c.g.config.Stall)
	c.out.buf = r.append(c.out.buf[:0], &c.ids, c.ex.closing, c.ex.head)
	if c.out.flush() != nil {
		return false
	}
	if c.ex.closing {
		c.linger()
		return false
	}
	c.enter(phaseBody, c.g.config.BodyTimeout)
	for !c.reqBody.done() {
		if _, err := c.reqBody.next(); err != nil {
			return false
		}
	}
	return true
}

// linger lets the client read the answer before the connection ends: closing with bytes unread would make the system send a reset, which
// can overtake the answer (RFC 9112 section 9.6).
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.reqBody.done() && c.in.buffered() == 0 {
		return
	}
	if c.enter(phaseLinger, lingerTime) {
		return
	}
	_, _ = io.CopyN(io.Discard, c.nc, 16<<20) // ends with the client's end, or when the sweep says it is enough
}

const lingerTime = 2 * time.Second

// answer does one request; n is the length of its head in the buffer. An error that is a refusal is what the client is to be told.
func (c *conn) answer(n int) error {
	now := c.g.now()
	if c.ids.tooLong {
		c.in.take(n)
		return &refusal{status: http.StatusRequestHeaderFieldsTooLarge, code: "RequestIDTooLong",
			message: "x-request-id and x-ms-client-request-id are at most 100 characters long"}
	}
	e, rest, bad := c.find()
	if bad != nil || e == nil {
		c.in.take(n)
		if bad == nil {
			return c.own(rest)
		}
		return bad
	}
	if bad := c.g.allow(e, c.req.get(hAuthorization)); bad != nil {
		c.in.take(n)
		return bad
	}
	d, bad := c.choose(e)
	if bad != nil {
		c.in.take(n)
		return bad
	}
	c.ex.d = d
	c.ex.claim = claim{d: d, start: now, base: now, ch: c.ex.claim.ch, again: c.ex.claim.again}
	c.ex.collect = c.g.collecting(d, &c.req)
	c.ex.notes = c.ex.minor == 1 && equalFold(c.req.get(hProgress), "true")
	c.ex.upgrade = c.req.switches() && c.reqBody.framing == noBody
	c.requestHead(d, rest)
	c.in.take(n)
	err := c.forward()
	c.account(err)
	return err
}

// account ends the claim and counts what became of the request.
func (c *conn) account(err error) {
	now := c.g.now()
	status := c.ex.status
	if bad, ok := errors.AsType[*refusal](err); ok && !c.ex.started {
		status = bad.status
	} else if err != nil && c.gone.Load() {
		status = clientGone
	} else if err != nil && status < 400 {
		status = http.StatusBadGateway // the answer broke off: the client saw another status, and an end too early
	}
	c.ex.d.leave(&c.ex.claim, status, now-c.ex.claim.start, now)
	if c.ex.collect != nil {
		c.ex.collect.finish(c.g, c.ex.d, &c.ids, status)
	}
}

// endpointsPath is where the endpoints are; what follows an endpoint's name is the replica's.
var endpointsPath = []byte("/endpoints/")

// find is the endpoint that the request's target names, and the target below it. A nil endpoint: rest is a page of the gateway's own.
func (c *conn) find() (*endpoint, []byte, *refusal) {
	target := c.req.target
	if target[0] != '/' {
		_, after, ok := bytes.Cut(target, []byte("://")) // the form that is sent to proxies (RFC 9112 section 3.2.2)
		slash := bytes.IndexByte(after, '/')
		if !ok || slash < 0 {
			return nil, nil, malformed(http.StatusBadRequest, "the request's target is not a path")
		}
		target = after[slash:]
	}
	if !bytes.HasPrefix(target, endpointsPath) {
		return nil, target, nil
	}
	name := target[len(endpointsPath):]
	rest := []byte("/")
	if i := bytes.IndexAny(name, "/?"); i >= 0 {
		name, rest = name[:i], name[i:]
	}
	var lower [64]byte
	if len(name) <= len(lower) {
		for i, b := range name {
			if b >= 'A' && b <= 'Z' {
				b += 'a' - 'A'
			}
			lower[i] = b
		}
		if e := c.g.table.Load().endpoints[string(lower[:len(name)])]; e != nil {
			return e, rest, nil
		}
	}
	if !c.g.Ready() { // it has just started, and its server has not told it anything yet
		return nil, nil, refuse(http.StatusServiceUnavailable, "ServiceUnavailable", "the gateway does not know its endpoints yet; try again in a moment")
	}
	return nil, nil, notFound("there is no endpoint " + quote(name))
}

// choose is the deployment for the request: the one its header names, which is neither split nor copied, or the one whose turn it is.
func (c *conn) choose(e *endpoint) (*deployment, *refusal) {
	if want := c.req.get(hDeployment); len(want) > 0 {
		if d := e.deployments[string(bytes.ToLower(want))]; d != nil {
			return d, nil
		}
		return nil, notFound("endpoint " + e.name + " has no deployment " + quote(want) + ", which the header " + nameDeployment + " asks for")
	}
	d := e.next()
	if d == nil {
		return nil, notFound("endpoint " + e.name + " has no deployment with traffic: give one a share with --traffic, or name one in the header " + nameDeployment)
	}
	if c.ex.mirror = e.copyTo(); c.ex.mirror == d {
		c.ex.mirror = nil
	}
	return d, nil
}

func quote(name []byte) string { return `"` + string(name[:min(len(name), 64)]) + `"` }

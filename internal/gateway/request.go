package gateway

import (
	"bytes"
	"strconv"

	"github.com/trainyard/trainyard"
)

// smallBody is the longest body that is read whole before a replica is chosen, so that a slow client does not hold a replica's slot.
const smallBody = 64 << 10

// requestHead writes into c.up the head that the replica gets: the caller's, without what concerns this connection alone, without the key,
// with the path below the endpoint. Host stays as the caller wrote it.
func (c *conn) requestHead(d *deployment, rest []byte) {
	h := &c.req
	up := append(c.up[:0], h.method...)
	up = append(up, ' ')
	c.ex.target = len(up)
	up = appendTarget(up, rest, d.route.Load())
	c.ex.targetEnd = len(up)
	if c.ex.mirror != nil {
		c.ex.mirrorTarget = appendTarget(nil, rest, c.ex.mirror.route.Load())
	}
	up = append(up, " HTTP/1.1\r\n"...)
	forwarded, proto := false, false
	for i := range h.fields {
		f := &h.fields[i]
		switch f.id {
		case hOther, hContentType, hHost, hForwardedHost, hTrailer, hMSRequestID:
		case hMSClientRequestID:
		case hCookie:
			if !h.lists(f.name) {
				up = appendCookies(up, f.name, f.value)
			}
			continue
		case hForwardedProto:
			proto = true
		case hForwardedFor:
			if forwarded || h.lists(f.name) {
				continue
			}
			forwarded = true
			up = append(append(up, "X-Forwarded-For: "...), f.value...)
			up = append(append(append(up, ", "...), c.remote...), "\r\n"...)
			continue
		default:
			continue
		}
		if len(h.listed) > 0 && h.lists(f.name) {
			continue
		}
		up = appendField(up, f.name, f.value)
	}
	if !forwarded {
		up = appendField(up, "X-Forwarded-For", c.remote)
	}
	if !proto {
		up = appendField(up, "X-Forwarded-Proto", c.proto)
	}
	if h.get(hHost) == nil { // HTTP/1.0, or a target with its own authority
		up = appendField(up, "Host", "localhost")
	}
	up = appendField(up, "x-request-id", c.ids.request)
	switch {
	case h.chunked:
		up = append(up, "Transfer-Encoding: chunked\r\n"...)
	case h.length >= 0:
		up = append(up, "Content-Length: "...)
		up = append(strconv.AppendInt(up, h.length, 10), "\r\n"...)
	}
	if c.ex.upgrade {
		up = append(up, "Connection: Upgrade\r\n"...)
		up = appendField(up, "Upgrade", h.upgrade)
	}
	c.up = append(up, "\r\n"...)
}

// ownCookies begins the names of the cookies that the server gives to people's browsers. A browser sends them to every port of a computer.
var ownCookies = []byte("trainyard")

// appendCookies writes the caller's cookies but for those that speak for somebody to the server: a model has no business with them.
func appendCookies(to, name, value []byte) []byte {
	if !bytes.Contains(value, ownCookies) {
		return appendField(to, name, value)
	}
	var rest [][]byte
	for one := range bytes.SplitSeq(value, []byte(";")) {
		if one = trim(one); len(one) > 0 && !isOwnCookie(one) {
			rest = append(rest, one)
		}
	}
	if len(rest) == 0 {
		return to
	}
	return appendField(to, name, bytes.Join(rest, []byte("; ")))
}

// isOwnCookie: Studio's session is trainyard-PORT, or __Host-trainyard-PORT over TLS.
func isOwnCookie(pair []byte) bool {
	name, _, _ := bytes.Cut(pair, []byte("="))
	name = bytes.TrimPrefix(trim(name), []byte("__Host-"))
	port, ok := bytes.CutPrefix(name, []byte("trainyard-"))
	for _, b := range port {
		ok = ok && b >= '0' && b <= '9'
	}
	return ok && len(port) > 0
}

// appendTarget writes the path for the replica. /score stands for the deployment's own scoring path, whatever that is.
func appendTarget(to, rest []byte, route *trainyard.DeploymentRoute) []byte {
	path, query := rest, []byte(nil)
	if i := bytes.IndexByte(rest, '?'); i >= 0 {
		path, query = rest[:i], rest[i:]
	}
	switch {
	case route.Scoring != "" && string(path) == "/score":
		to = appendEscaped(to, route.Scoring)
		if len(query) > 0 && bytes.IndexByte([]byte(route.Scoring), '?') >= 0 {
			to = append(to, '&')
			query = query[1:]
		}
	case len(path) == 0:
		to = append(to, '/')
	default:
		to = append(to, path...)
	}
	return append(to, query...)
}

// appendEscaped writes a path with %XX for what cannot stand in a request line: whatever a deployment calls its paths, that line is one.
func appendEscaped(to []byte, path string) []byte {
	const hexDigits = "0123456789ABCDEF"
	for i := range len(path) {
		if c := path[i]; targetByte[c] {
			to = append(to, c)
		} else {
			to = append(to, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return to
}

// readSmall reads a small body behind the head in c.up. true: all of the request is there now.
func (c *conn) readSmall() (bool, error) {
	if c.reqBody.framing == noBody {
		return true, nil
	}
	if c.reqBody.framing != byLengthF || c.reqBody.left > smallBody {
		return false, nil
	}
	if int64(c.in.buffered()) < c.reqBody.left {
		if err := c.goOn(); err != nil {
			return false, err
		}
		c.enter(phaseBody, c.g.config.BodyTimeout)
	}
	for !c.reqBody.done() {
		p, err := c.reqBody.next()
		if err != nil {
			return false, c.bodyBroke(err, c.enter(phaseWrite, c.g.config.Stall))
		}
		c.up = append(c.up, p...)
		c.ex.collect.request(p)
	}
	return true, nil
}

// goOn tells a client that waits with its body to send it.
func (c *conn) goOn() error {
	if !c.ex.expect {
		return nil
	}
	c.ex.expect = false
	c.enter(phaseWrite, c.g.config.Stall)
	if _, err := c.nc.Write([]byte("HTTP/1.1 100 Continue\r\n\r\n")); err != nil {
		c.gone.Store(true)
		return errClientGone
	}
	return nil
}

// bodyBroke is what to say of a body that ended early or came too slowly.
func (c *conn) bodyBroke(err error, late bool) error {
	if bad, ok := err.(*refusal); ok {
		return bad
	}
	if late {
		return malformed(408, "the request's body did not come in time")
	}
	c.gone.Store(true)
	return errClientGone
}

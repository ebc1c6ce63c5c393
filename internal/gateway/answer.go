package gateway

import (
	"errors"
	"io"
	"net/http"
	"strconv"
)

// passOn writes the answer whose head is in c.res, and its body as it comes.
func (c *conn) passOn(up *upstream) (reusable bool, err error) {
	bodiless := c.ex.head || c.res.status == http.StatusNoContent || c.res.status == http.StatusNotModified
	c.resBody.reset(&up.in, &c.res, true)
	if bodiless {
		c.resBody.framing = noBody
	}
	out := c.resBody.framing
	switch {
	case out == toEnd && c.ex.minor == 1:
		out = chunkedF
	case out == chunkedF && c.ex.minor == 0:
		out = toEnd
	}
	c.ex.closing = c.ex.closing || out == toEnd || c.g.drain.Load()
	c.answerHead(out, bodiless)
	c.ex.collect.answerType(c.res.get(hContentType))
	reusable = c.res.minor == 1 && !c.res.close && c.resBody.framing != toEnd
	up.in.take(c.res.size)
	c.ex.holdBack = out == byLengthF && c.resBody.left <= flushAt/2
	c.ex.started = !c.ex.holdBack
	if err := c.passBody(out); err != nil {
		return false, err
	}
	c.ex.started = true
	return reusable && up.in.buffered() == 0, nil
}

func (c *conn) passBody(out framing) error {
	for {
		piece, err := c.resBody.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !c.ex.started {
			c.ex.collect.forgetAnswer()
			return &lostError{err: err, sent: true} // the client has seen nothing of it
		}
		if err != nil {
			_ = c.flushBeforeWait() // what came is the client's
			return err
		}
		c.ex.collect.response(piece)
		if !c.ex.holdBack && len(c.out.buf)+len(piece) >= flushAt/4 {
			c.enter(phaseWrite, c.g.config.Stall)
		}
		if c.ex.holdBack {
			c.out.buf = append(c.out.buf, piece...)
		} else if err := c.out.piece(piece, out); err != nil {
			c.gone.Store(true)
			return errClientGone
		}
	}
	c.enter(phaseWrite, c.g.config.Stall)
	if err := c.out.end(out, c.resBody.trail); err != nil {
		c.gone.Store(true)
		return errClientGone
	}
	return nil
}

// flushBeforeWait sends what there is of the answer before more of it is waited for: nothing that a replica has said stays here, but for
// a short answer that says its length. That is sent whole, so that the request can be sent again if its replica dies on the way.
func (c *conn) flushBeforeWait() error {
	if c.ex.holdBack {
		c.enter(phaseStream, 0)
		return nil
	}
	if len(c.out.buf) > 0 {
		c.enter(phaseWrite, c.g.config.Stall)
		if c.out.flush() != nil {
			c.gone.Store(true)
			return errClientGone
		}
	}
	c.enter(phaseStream, 0)
	return nil
}

// answerHead writes the head that the client gets.
func (c *conn) answerHead(out framing, bodiless bool) {
	h := &c.res
	status, modelStatus := c.clientStatus()
	c.ex.status = status
	b := c.out.buf[:0]
	if status == h.status {
		b = appendStatusBytes(b, status, h.reason)
	} else {
		b = appendStatus(b, status, http.StatusText(status))
	}
	for i := range h.fields {
		f := &h.fields[i]
		if f.id != hOther && f.id != hContentType && f.id != hTrailer || len(h.listed) > 0 && h.lists(f.name) {
			continue
		}
		b = appendField(b, f.name, f.value)
	}
	switch {
	case out == chunkedF:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case h.length >= 0 && status != http.StatusNoContent && (out != toEnd || bodiless):
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, h.length, 10), "\r\n"...)
	case out == noBody && !bodiless:
		b = append(b, "Content-Length: 0\r\n"...)
	}
	if modelStatus {
		b = append(b, nameModelStatus+": "...)
		b = append(strconv.AppendInt(b, int64(h.status), 10), "\r\n"...)
		reason := h.reason
		if len(reason) == 0 {
			reason = []byte(http.StatusText(h.status))
		}
		b = appendField(b, nameModelReason, reason)
	}
	b = appendField(b, nameDeployment, c.ex.d.name)
	b = c.ids.append(b)
	if c.ex.waited > 0 {
		b = appendField(b, nameWaited, strconv.FormatInt(c.ex.waited.Milliseconds(), 10))
	}
	if c.ex.closing {
		b = append(b, "Connection: close\r\n"...)
	}
	c.out.buf = append(b, "\r\n"...)
}

// clientStatus is the status for the client: of a managed endpoint 424 when the model says anything but yes, of a Kubernetes endpoint 502
// when the model's code failed. true: the model's own status goes into headers.
func (c *conn) clientStatus() (int, bool) {
	status := c.res.status
	switch {
	case status < 300 || status == http.StatusNotModified:
		return status, false
	case !c.ex.d.route.Load().Kubernetes:
		return http.StatusFailedDependency, true
	case status == http.StatusInternalServerError:
		return http.StatusBadGateway, true
	}
	return status, false
}

func appendStatusBytes(to []byte, status int, reason []byte) []byte {
	to = append(to, "HTTP/1.1 "...)
	to = strconv.AppendInt(to, int64(status), 10)
	to = append(to, ' ')
	to = append(to, reason...)
	return append(to, "\r\n"...)
}

// interim passes on an answer that is not the last one.
func (c *conn) interim() error {
	b := appendStatusBytes(nil, c.res.status, c.res.reason)
	for i := range c.res.fields {
		if f := &c.res.fields[i]; f.id == hOther && !c.res.lists(f.name) {
			b = appendField(b, f.name, f.value)
		}
	}
	if _, err := c.nc.Write(append(b, "\r\n"...)); err != nil {
		c.gone.Store(true)
		return errClientGone
	}
	return nil
}

package gateway

import (
	"io"
	"net"
	"net/http"
)

// tunnel joins client and replica after a switch of protocols, until both have ended.
func (c *conn) tunnel(up *upstream) error {
	c.endWatch()
	h := &c.res
	b := appendStatusBytes(c.out.buf[:0], http.StatusSwitchingProtocols, h.reason)
	for i := range h.fields {
		if f := &h.fields[i]; f.id == hOther && !h.lists(f.name) {
			b = appendField(b, f.name, f.value)
		}
	}
	b = append(b, "Connection: Upgrade\r\n"...)
	b = appendField(b, "Upgrade", h.upgrade)
	b = appendField(b, nameDeployment, c.ex.d.name)
	b = c.ids.append(b)
	up.in.take(h.size)
	c.out.buf = append(append(b, "\r\n"...), up.in.data()...)
	c.ex.started, c.ex.closing, c.ex.status = true, true, http.StatusSwitchingProtocols
	if c.out.flush() != nil {
		c.gone.Store(true)
		return errClientGone
	}
	there := make(chan struct{})
	go func() {
		defer close(there)
		if c.in.buffered() > 0 {
			if _, err := up.nc.Write(c.in.data()); err != nil {
				hangUp(up.nc, c.nc)
				return
			}
			c.in.take(c.in.buffered())
		}
		join(up.nc, c.nc)
	}()
	join(c.nc, up.nc)
	<-there
	return nil
}

// join copies one direction. Its end is passed on; an error ends both directions.
func join(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		hangUp(to, from)
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		hangUp(to, from)
	}
}

func hangUp(a, b net.Conn) {
	_ = a.Close()
	_ = b.Close()
}

package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Mux is one port for TLS and, to callers on this machine alone, plain HTTP. It is a net.Listener for one http.Server: what it accepts
// is a *tls.Conn, on which net/http speaks HTTP/2, or a plain connection. Connections that say nothing wait on the side and hold up
// nobody.
type Mux struct {
	inner  net.Listener
	config *tls.Config
	ready  chan accepted
	done   chan struct{} // closed by Close

	mu      sync.Mutex
	waiting map[net.Conn]struct{} // have not said anything yet
	room    func() int            // how many may wait; nil: any number
	closed  bool
	all     sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

var _ net.Listener = (*Mux)(nil)

// firstByte is how long a client may take to say its first byte; goodbye is how long one that is refused may take to read why.
const (
	firstByte = 30 * time.Second
	goodbye   = 2 * time.Second
)

// Listen makes a Mux of an open port: TLS with cert, and plain HTTP from loopback addresses. Closing the Mux closes the port. protocols are
// what TLS offers; none: HTTP/2 and HTTP/1.1.
func Listen(inner net.Listener, cert tls.Certificate, protocols ...string) *Mux {
	if len(protocols) == 0 {
		protocols = []string{"h2", "http/1.1"}
	}
	m := &Mux{
		inner: inner,
		config: &tls.Config{
			Certificates: []tls.Certificate{cert},
			NextProtos:   protocols,
			MinVersion:   tls.VersionTLS12,
		},
		ready:   make(chan accepted),
		done:    make(chan struct{}),
		waiting: map[net.Conn]struct{}{},
	}
	m.all.Go(m.accept)
	return m
}

// Bound lets at most room() connections wait that have not said anything. It is asked without a lock of the Mux held. When there is no room
// for another, one of those that wait gives up its place: who says nothing must not keep others out.
func (m *Mux) Bound(room func() int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.room = room
}

// Addr is the address that is listened on, with the port that the system chose if none was asked for.
func (m *Mux) Addr() net.Addr { return m.inner.Addr() }

// Accept returns the next connection that has said something.
func (m *Mux) Accept() (net.Conn, error) {
	select {
	case a := <-m.ready:
		return a.conn, a.err
	case <-m.done:
		return nil, net.ErrClosed
	}
}

// Close stops listening, hangs up on those who have not said anything yet, and waits until nothing of the Mux runs. Connections that
// were accepted go on. It may be called again.
func (m *Mux) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		m.all.Wait()
		return nil
	}
	m.closed = true
	close(m.done)
	err := m.inner.Close()
	for c := range m.waiting {
		c.Close()
	}
	m.mu.Unlock()
	m.all.Wait()
	return err
}

func (m *Mux) accept() {
	for {
		c, err := m.inner.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !m.hand(nil, err) {
				return
			}
			continue // the server backs off before it accepts again, and hand waits for it
		}
		if m.hold(c) {
			m.all.Go(func() { m.sort(c) })
		}
	}
}

// hold notes a connection that has not spoken. It says false, and hangs up, if the Mux is closed.
func (m *Mux) hold(c net.Conn) bool {
	m.mu.Lock()
	room := m.room
	m.mu.Unlock()
	most := -1
	if room != nil {
		most = max(1, room()) // one at least, so that those who speak are told that there is no room
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		c.Close()
		return false
	}
	for other := range m.waiting {
		if most < 0 || len(m.waiting) < most {
			break
		}
		delete(m.waiting, other)
		other.Close()
	}
	m.waiting[c] = struct{}{}
	return true
}

func (m *Mux) release(c net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, c)
}

// hand gives what was accepted to the server, or hangs up if the Mux is closed first.
func (m *Mux) hand(c net.Conn, err error) bool {
	select {
	case m.ready <- accepted{c, err}:
		return true
	case <-m.done:
		if c != nil {
			c.Close()
		}
		return false
	}
}

// recordHandshake is the first byte of every TLS connection (RFC 8446, 5.1), and of no HTTP request.
const recordHandshake = 0x16

// sort reads the first byte and sends the connection on its way.
func (m *Mux) sort(c net.Conn) {
	var first [1]byte
	c.SetReadDeadline(time.Now().Add(firstByte))
	_, err := c.Read(first[:])
	m.release(c) // from here on Close leaves it to the server
	if err != nil {
		c.Close()
		return
	}
	c.SetReadDeadline(time.Time{})
	whole := &unread{Conn: c, first: first, left: true}
	switch {
	case first[0] == recordHandshake:
		m.hand(tls.Server(whole, m.config), nil)
	case loopback(c.RemoteAddr()):
		m.hand(whole, nil)
	default:
		sendAway(c)
	}
}

func loopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}

// sendAway answers plain HTTP from another machine, where a token could be read on the way.
func sendAway(c net.Conn) {
	defer c.Close()
	const text = "This server speaks plain HTTP to its own machine only, because tokens must not cross a network in clear. Use https:// and the server's CA certificate.\n"
	c.SetDeadline(time.Now().Add(goodbye))
	fmt.Fprintf(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	if t, ok := c.(interface{ CloseWrite() error }); ok {
		t.CloseWrite()
	}
	// Closing with bytes unread would reset the connection and take the answer away from the client.
	var rest [4096]byte
	for range 16 {
		if _, err := c.Read(rest[:]); err != nil {
			return
		}
	}
}

// unread is a connection whose first byte has been read and is read again.
type unread struct {
	net.Conn
	first [1]byte
	left  bool
}

func (u *unread) Read(p []byte) (int, error) {
	if !u.left || len(p) == 0 {
		return u.Conn.Read(p)
	}
	u.left = false
	p[0] = u.first[0]
	return 1, nil
}

// CloseWrite says that nothing more will be written.
func (u *unread) CloseWrite() error {
	if w, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return u.Conn.Close()
}

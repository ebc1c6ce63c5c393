package agentlink

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// Tunnels takes the connections to replicas that agents make because the server asked for them (trainyard.Wanted.Dials).
type Tunnels interface {
	// Dialled takes the connection that a dial asked for, or why there is none. It is the taker's when the error is nil, and else still
	// the caller's.
	Dialled(ctx context.Context, node trainyard.NodeID, id string, conn net.Conn, why error) error
}

const (
	tunnelProtocol = "trainyard-tunnel"
	maxTunnels     = 1024 // that an agent carries at a time
	maxRefusal     = 64 << 10
)

// dialled is an agent's answer to a dial: a request to upgrade is the connection itself, any other says why there is none.
func (h handler) dialled(w http.ResponseWriter, r *http.Request, node trainyard.NodeID) error {
	id := r.PathValue("id")
	if h.Tunnels == nil {
		return trainyard.Errorf(trainyard.CodeUnsupported, "this server asks for no connections")
	}
	if r.Header.Get("Upgrade") != tunnelProtocol {
		var why trainyard.Error
		if err := decode(w, r, maxRefusal, &why); err != nil {
			return err
		}
		if err := h.Tunnels.Dialled(r.Context(), node, id, nil, &why); err != nil {
			return err
		}
		return answer(w, struct{}{})
	}
	conn, err := accept(w)
	if err != nil {
		return err
	}
	if err := h.Tunnels.Dialled(r.Context(), node, id, conn, nil); err != nil { // nobody waits for it any more
		h.Log.Debug("a connection of an agent is not wanted", "node", node, "err", err)
		conn.Close()
	}
	return nil
}

// accept makes a connection of a request that asked for one.
func accept(w http.ResponseWriter) (net.Conn, error) {
	raw, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, trainyard.Errorf(trainyard.CodeUnsupported, "a connection to a replica needs HTTP/1.1: %v", err)
	}
	conn := net.Conn(raw)
	if n := rw.Reader.Buffered(); n > 0 {
		early, _ := rw.Reader.Peek(n)
		conn = &begun{Conn: raw, early: bytes.NewReader(bytes.Clone(early))}
	}
	_ = conn.SetDeadline(time.Now().Add(stall))
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", tunnelProtocol)
	_ = conn.SetDeadline(time.Time{})
	if err != nil { // who asked is gone, and whoever is given the connection finds out as well
		raw.Close()
	}
	return conn, nil
}

// begun is a connection of which some bytes have been read.
type begun struct {
	net.Conn
	early *bytes.Reader
}

func (b *begun) Read(p []byte) (int, error) {
	if b.early.Len() > 0 {
		return b.early.Read(p)
	}
	return b.Conn.Read(p)
}

// CloseWrite says that nothing more will be written, where the connection can say so.
func (b *begun) CloseWrite() error { return closeWrite(b.Conn) }

// Dialled gives the server the connection that it asked for, or says why there is none. The connection is carried until both its ends are
// done, or the Client is closed.
func (c *Client) Dialled(ctx context.Context, node trainyard.NodeID, id string, conn net.Conn, why error) error {
	u := c.url(node, "dials/"+id)
	if why != nil {
		e := trainyard.Error{Code: cmp.Or(trainyard.CodeOf(why), trainyard.CodeInternal), Message: why.Error()}
		return c.post(ctx, u, e, nil)
	}
	t, err := c.tunnels.begin(conn)
	if err != nil {
		return err
	}
	far, err := c.upgrade(ctx, u)
	if err != nil {
		c.tunnels.end(t)
		return err
	}
	if !c.tunnels.carry(t, far) {
		c.tunnels.end(t)
		far.Close()
		return net.ErrClosed
	}
	return nil
}

// upgrade makes a connection with the server out of a request. It does not end with ctx once it is made.
func (c *Client) upgrade(ctx context.Context, u string) (io.ReadWriteCloser, error) {
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	late := time.AfterFunc(c.times.call, cancel)
	fail := func(err error) (io.ReadWriteCloser, error) {
		cancel()
		return nil, c.away(ctx, err)
	}
	req, err := http.NewRequestWithContext(live, http.MethodGet, u, nil)
	if err != nil {
		return fail(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", tunnelProtocol)
	if t := c.token.Load(); t != nil {
		req.Header.Set("Authorization", "Bearer "+*t)
	}
	res, err := c.wire.RoundTrip(req)
	if err != nil {
		return fail(err)
	}
	far, ok := res.Body.(io.ReadWriteCloser)
	if res.StatusCode != http.StatusSwitchingProtocols || !ok {
		defer res.Body.Close()
		var e trainyard.Error
		data, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
		if json.Unmarshal(data, &e) == nil && e.Code != "" {
			return fail(&e)
		}
		return fail(fmt.Errorf("a connection was answered %s", res.Status))
	}
	if !stop() || !late.Stop() {
		far.Close()
		return fail(context.DeadlineExceeded)
	}
	return far, nil
}

// tunnels are the connections that a Client carries.
type tunnels struct {
	mu     sync.Mutex
	open   map[*tunnel]bool
	closed bool
	busy   sync.WaitGroup
}

// tunnel is one: near is the replica's end, far the server's.
type tunnel struct {
	near net.Conn
	far  io.ReadWriteCloser
}

func (s *tunnels) begin(near net.Conn) (*tunnel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if len(s.open) >= maxTunnels {
		return nil, trainyard.Errorf(trainyard.CodeBusy, "this node carries %d connections to its replicas already", maxTunnels)
	}
	if s.open == nil {
		s.open = map[*tunnel]bool{}
	}
	t := &tunnel{near: near}
	s.open[t] = true
	return t, nil
}

// end forgets a tunnel that was not carried.
func (s *tunnels) end(t *tunnel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, t)
}

// carry moves bytes both ways until both ends are done. It says false if the Client is closed.
func (s *tunnels) carry(t *tunnel, far io.ReadWriteCloser) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	t.far = far
	s.busy.Go(func() {
		defer s.end(t)
		Pipe(t.near, t.far)
	})
	return true
}

// close ends all tunnels and waits for that.
func (s *tunnels) close() {
	s.mu.Lock()
	s.closed = true
	for t := range s.open {
		t.near.Close()
		if t.far != nil {
			t.far.Close()
		}
	}
	s.mu.Unlock()
	s.busy.Wait()
}

// Pipe moves bytes between two connections until both have said all, and closes them. That one end will write no more is passed on to the
// other; if an end breaks, both are closed.
func Pipe(a, b io.ReadWriteCloser) {
	var both sync.WaitGroup
	both.Go(func() { move(a, b) })
	both.Go(func() { move(b, a) })
	both.Wait()
	a.Close()
	b.Close()
}

func move(to, from io.ReadWriteCloser) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = closeWrite(to)
	}
	if err != nil {
		to.Close()
		from.Close()
	}
}

// closeWrite says that nothing more will be written. A connection that cannot say so is closed as a whole.
func closeWrite(c io.Closer) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

var _ target.Dialer = (*Driver)(nil)

// Names of the port-forward protocol, see k8s.io/api/core/v1.
const (
	forwardProtocol  = "portforward.k8s.io"
	streamTypeHeader = "streamType"
	portHeader       = "port"
	requestHeader    = "requestID"
)

// Dial connects with the replica's port through the API server, as "kubectl port-forward" does.
func (d *Driver) Dial(ctx context.Context, id trainyard.TaskID) (net.Conn, error) {
	d.mu.Lock()
	t := d.tasks[d.nameOf(id)]
	var p *pod
	if t != nil && t.end == nil {
		p = t.front()
	}
	d.mu.Unlock()
	if p == nil {
		return nil, trainyard.NotFound("no pod of %s runs", id.Words())
	}
	c, err := d.forward(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("reach pod %s: %w", p.Meta.Name, err)
	}
	return c, nil
}

// front is the pod that answers: one that is ready before one that only runs. The caller holds Driver.mu.
func (t *task) front() (best *pod) {
	for _, seen := range t.pods {
		p := seen.pod
		c := p.container()
		if seen.gone || seen.lost || p.Meta.Deleted != nil || c == nil || c.State.Running == nil || p.port() == 0 {
			continue
		}
		if best == nil || c.Ready {
			best = p
		}
	}
	return best
}

// forward makes a connection of its own with the pod's node: what goes wrong on one that several share ends them all.
func (d *Driver) forward(ctx context.Context, p *pod) (net.Conn, error) {
	type made struct {
		conn httpstream.Connection
		err  error
	}
	done := make(chan made, 1)
	go func() {
		conn, err := d.api.forward(p.Meta.Name)
		done <- made{conn, err}
	}()
	select {
	case m := <-done:
		if m.err != nil {
			return nil, m.err
		}
		c, err := stream(m.conn, p.port())
		if err != nil {
			m.conn.Close()
			return nil, err
		}
		return c, nil
	case <-ctx.Done():
		go func() {
			if m := <-done; m.err == nil {
				m.conn.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// forward opens a connection with a pod's node.
func (c *client) forward(pod string) (httpstream.Connection, error) {
	u := c.url(c.path(pods, pod, "portforward"), nil)
	ws, err := portforward.NewSPDYOverWebsocketDialerForStreamingWithLogger(klog.Logger{}, u, c.rest)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(c.rest)
	if err != nil {
		return nil, err
	}
	plain := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport, Timeout: patience}, http.MethodPost, u)
	dialer := portforward.NewFallbackDialerForStreaming(ws, plain, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	conn, _, err := dialer.Dial(forwardProtocol)
	return conn, err
}

// stream makes the connection with the port.
func stream(conn httpstream.Connection, port int) (net.Conn, error) {
	h := http.Header{}
	h.Set(portHeader, strconv.Itoa(port))
	h.Set(requestHeader, "1")
	h.Set(streamTypeHeader, "error")
	fault, err := conn.CreateStream(h)
	if err != nil {
		return nil, err
	}
	fault.Close() // we say nothing there
	h = h.Clone()
	h.Set(streamTypeHeader, "data")
	data, err := conn.CreateStream(h)
	if err != nil {
		return nil, err
	}
	c := &forwarded{conn: conn, data: data, fault: fault, failed: make(chan struct{})}
	go c.listen()
	return c, nil
}

// forwarded is one connection with a port of a pod.
type forwarded struct {
	conn        httpstream.Connection
	data, fault httpstream.Stream
	once        sync.Once
	failed      chan struct{} // closed when the other end has said whether something is wrong
	err         error
	said        atomic.Bool // by the other end

	mu    sync.Mutex
	timer *time.Timer
}

var errRefused = errors.New("connection refused in its pod")

// listen reads what is wrong. That nobody listens on the port is said here, and not by the data.
func (c *forwarded) listen() {
	text, _ := io.ReadAll(io.LimitReader(c.fault, 4096))
	if len(text) > 0 {
		c.err = fmt.Errorf("its node says: %s", text)
		if strings.Contains(string(text), "connection refused") { // said at length
			c.err = errRefused
		}
		_ = c.data.Reset()
	}
	close(c.failed)
}

// why is err, or what the node says. That comes beside the data, and may come a moment later.
func (c *forwarded) why(err error) error {
	if err == nil || c.said.Load() {
		return err
	}
	late := time.NewTimer(faultPatience)
	defer late.Stop()
	select {
	case <-c.failed:
		if c.err != nil {
			return c.err
		}
	case <-late.C:
	}
	return err
}

// faultPatience is how long is waited for the reason of an end without a word.
const faultPatience = 200 * time.Millisecond

func (c *forwarded) Read(p []byte) (int, error) {
	n, err := c.data.Read(p)
	if n > 0 {
		c.said.Store(true)
	}
	return n, c.why(err)
}

func (c *forwarded) Write(p []byte) (int, error) {
	n, err := c.data.Write(p)
	return n, c.why(err)
}

// CloseWrite says that nothing more will be written.
func (c *forwarded) CloseWrite() error { return c.data.Close() }

// Close ends the connection, both ways.
func (c *forwarded) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		err = nil
		_ = c.SetDeadline(time.Time{})
		_ = c.conn.Close()
	})
	return err
}

// LocalAddr and RemoteAddr say little: the connection is one of many in another.
func (c *forwarded) LocalAddr() net.Addr  { return forwardAddr{} }
func (c *forwarded) RemoteAddr() net.Addr { return forwardAddr{} }

type forwardAddr struct{}

func (forwardAddr) Network() string { return "port-forward" }
func (forwardAddr) String() string  { return "pod" }

// SetDeadline ends the connection at a time; the zero time takes that back. Both ways have one deadline.
func (c *forwarded) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if !t.IsZero() {
		c.timer = time.AfterFunc(time.Until(t), func() { _ = c.data.Reset() })
	}
	return nil
}

func (c *forwarded) SetReadDeadline(t time.Time) error  { return c.SetDeadline(t) }
func (c *forwarded) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

package agentlink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// transport is one HTTP/2 connection over TLS, or a few of HTTP/1.1 on loopback. A connection whose other end is gone is noticed by
// pings, not by waiting.
func transport(c DialConfig, limits times) (*http.Transport, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: limits.dial, KeepAlive: limits.ping}).DialContext,
		TLSHandshakeTimeout:   limits.dial,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       2 * time.Minute,
		ResponseHeaderTimeout: limits.call,
		DisableCompression:    true, // sizes are what they are said to be
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		HTTP2: &http.HTTP2Config{SendPingTimeout: limits.ping, PingTimeout: limits.dial,
			MaxReceiveBufferPerStream: 4 << 20, MaxReceiveBufferPerConnection: 16 << 20},
	}
	if c.CAFile == "" && c.CA == "" {
		return t, nil
	}
	pem := []byte(c.CA)
	if c.CAFile != "" {
		var err error
		if pem, err = os.ReadFile(c.CAFile); err != nil {
			return nil, fmt.Errorf("read the server's CA certificate: %w", err)
		}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, trainyard.Invalid("the server's CA certificate (%s) holds no certificate", c.CAFile)
	}
	t.TLSClientConfig.RootCAs = pool
	return t, nil
}

// plainTransport is t without HTTP/2, in which a connection cannot become something else.
func plainTransport(t *http.Transport) *http.Transport {
	p := t.Clone()
	p.ForceAttemptHTTP2, p.HTTP2 = false, nil
	p.TLSClientConfig.NextProtos = []string{"http/1.1"}
	p.Protocols = new(http.Protocols)
	p.Protocols.SetHTTP1(true)
	return p
}

// errStall is why a transfer that does not move is ended.
var errStall = errors.New("nothing moved for too long")

// guard ends a transfer that does not move: its ctx is done when moved has not been called for limit.
type guard struct {
	ctx   context.Context
	stop  func()
	limit time.Duration
	timer *time.Timer
}

func watch(ctx context.Context, limit time.Duration) *guard {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &guard{ctx: ctx, limit: limit}
	g.timer = time.AfterFunc(limit, func() { cancel(errStall) })
	g.stop = func() { g.timer.Stop(); cancel(nil) }
	return g
}

func (g *guard) moved() { g.timer.Reset(g.limit) }

// why is err, or what is behind it.
func (g *guard) why(err error) error {
	if context.Cause(g.ctx) == errStall {
		return errStall
	}
	return err
}

// download is a blob on its way here.
type download struct {
	c     *Client
	ctx   context.Context
	body  io.ReadCloser
	guard *guard
}

func (d *download) Read(b []byte) (int, error) {
	d.guard.moved()
	n, err := d.body.Read(b)
	if err != nil && err != io.EOF {
		err = d.c.away(d.ctx, d.guard.why(err))
	}
	return n, err
}

func (d *download) Close() error {
	defer d.guard.stop()
	return d.body.Close()
}

// upload is a blob on its way there. It remembers if it could not be read, and when the transport lets go of it: a request can fail while
// its body is still being read.
type upload struct {
	r     io.Reader
	guard *guard
	done  chan struct{} // closed by Close
	once  sync.Once

	mu  sync.Mutex
	err error
}

func (u *upload) Read(b []byte) (int, error) {
	u.guard.moved()
	n, err := u.r.Read(b)
	u.guard.moved()
	if err != nil && err != io.EOF {
		u.mu.Lock()
		u.err = err
		u.mu.Unlock()
	}
	return n, err
}

func (u *upload) Close() error {
	u.once.Do(func() { close(u.done) })
	return nil
}

func (u *upload) failed() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

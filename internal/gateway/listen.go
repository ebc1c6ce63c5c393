package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// ErrClosed is what Serve returns after Shutdown.
var ErrClosed = errors.New("gateway closed")

// Serve answers the connections of ln until Shutdown, and then returns ErrClosed. It closes ln.
func (g *Gateway) Serve(ln net.Listener) error {
	if !g.open(ln) {
		return ErrClosed
	}
	if b, ok := ln.(bounded); ok {
		b.Bound(g.room)
	}
	defer func() {
		_ = ln.Close() // Shutdown may have closed it
		g.mu.Lock()
		delete(g.serving, ln)
		g.mu.Unlock()
	}()
	for failures := 0; ; {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			failures = 0
			g.accept(nc)
			continue
		case g.drain.Load():
			return ErrClosed
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept: %w", err)
		}
		failures++ // no file descriptor is free, or the client was gone before it was there
		g.log.Warn("a connection could not be accepted", "error", err)
		select {
		case <-g.stop:
		case <-time.After(min(5*time.Millisecond<<min(failures, 8), time.Second)):
		}
	}
}

func (g *Gateway) open(ln net.Listener) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = ln.Close()
		return false
	}
	g.serving[ln] = struct{}{}
	g.tickLocked()
	return true
}

// tickLocked starts the sweep, once.
func (g *Gateway) tickLocked() {
	if !g.tick && !g.closed {
		g.tick = true
		g.work.Go(g.sweep)
	}
}

func (g *Gateway) accept(nc net.Conn) {
	c := newConn(g, nc)
	g.mu.Lock()
	over := len(g.conns) >= g.config.MaxConns
	if !over && !g.closed {
		g.conns[c] = struct{}{}
		g.mu.Unlock()
		go c.serve()
		return
	}
	g.mu.Unlock()
	if over {
		busy := refuse(http.StatusServiceUnavailable, "TooManyConnections", "the gateway has as many connections as it takes; try again later")
		_ = nc.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if _, ok := nc.(*tls.Conn); !ok { // a handshake here would hold up all who come after
			_, _ = nc.Write(busy.append(nil, &requestIDs{}, true, false))
		}
		g.refused.add(busy.status)
	}
	_ = nc.Close()
}

func (g *Gateway) forget(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
	if g.empty != nil && len(g.conns) == 0 {
		close(g.empty)
		g.empty = nil
	}
}

// Shutdown accepts no more connections, closes those that are idle, and waits until the requests under way have their answers. When ctx
// is done first it closes the connections that are left and returns ctx's error.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.drain.Store(true)
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	for ln := range g.serving {
		_ = ln.Close()
	}
	empty := make(chan struct{})
	if len(g.conns) == 0 {
		close(empty)
	} else if g.empty == nil {
		g.empty = empty
	} else {
		empty = g.empty
	}
	for c := range g.conns {
		c.endIfIdle()
	}
	g.mu.Unlock()
	var err error
	select {
	case <-empty:
	case <-ctx.Done():
		err = ctx.Err()
		g.closeConns()
		<-empty
	}
	if first {
		close(g.stop)
		g.finishMirrors()
		g.work.Wait()
		for _, d := range g.deployments() {
			closeAll(d.drop())
		}
	}
	return err
}

func (g *Gateway) closeConns() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		c.abort()
	}
}

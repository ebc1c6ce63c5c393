package agentlink

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// A connection on which nothing arrives any more, and nobody says so, is given up.
func TestSilentConnectionIsNoticed(t *testing.T) {
	f := &fake{blobs: map[string][]byte{}, hold: time.Minute, waiting: make(chan struct{}, 1)}
	srv := httptest.NewUnstartedServer(Handler(Config{Server: f, Auth: auth}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	gate := newSilencer(t, srv.Listener.Addr().String())
	limits := patience
	limits.ping, limits.dial = 200*time.Millisecond, 200*time.Millisecond
	c := dialTo(t, srv, "https://"+gate.addr, limits)
	if _, err := c.Join(t.Context(), trainyard.NodeInfo{Node: "node-1"}); err != nil {
		t.Fatal(err)
	}
	polled := make(chan error, 1)
	go func() { _, err := c.Wanted(t.Context(), "node-1", 4, 0); polled <- err }()
	<-f.waiting
	close(gate.silent)
	select {
	case err := <-polled:
		if trainyard.CodeOf(err) != trainyard.CodeBusy {
			t.Errorf("%v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the long poll still waits on a dead connection")
	}
}

func TestTransferThatDoesNotMoveIsEnded(t *testing.T) {
	_, srv, _ := linked(t)
	limits := patience
	limits.stall = 200 * time.Millisecond
	c := dialTo(t, srv, srv.URL, limits)
	token := "node-1's"
	c.token.Store(&token)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, w := io.Pipe()
	defer w.Close()
	time.AfterFunc(2*time.Second, func() { w.CloseWithError(errors.New("closed by the test")) }) // the reader is the caller's, and blocks until then
	if err := c.Put(ctx, "a/b", r); err == nil || ctx.Err() != nil {
		t.Errorf("%v", err)
	}
}

// silencer is a TCP proxy that can fall silent without closing anything.
type silencer struct {
	addr   string
	silent chan struct{}
}

func newSilencer(t *testing.T, to string) *silencer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silencer{addr: ln.Addr().String(), silent: make(chan struct{})}
	var mu sync.Mutex
	var open []net.Conn
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.Close()
		}
	})
	copyUntilSilent := func(dst, src net.Conn) {
		buf := make([]byte, 32<<10)
		for {
			n, err := src.Read(buf)
			select {
			case <-s.silent:
				return
			default:
			}
			if err != nil {
				dst.Close()
				return
			}
			if _, err := dst.Write(buf[:n]); err != nil {
				src.Close()
				return
			}
		}
	}
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			mu.Lock()
			open = append(open, in, out)
			mu.Unlock()
			go copyUntilSilent(out, in)
			go copyUntilSilent(in, out)
		}
	}()
	return s
}

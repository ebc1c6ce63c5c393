package kube

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// Programs are sent into pods over SPDY where that can be had: the API server hands it on to the kubelet as it is, whereas it takes WebSocket's
// frames apart and makes SPDY's of them, which costs it three times the processor (4 MB: 41 ms and 14, Kubernetes 1.34). client-go's executor
// for SPDY has its gaps, so it is used for nothing else, and with a connection that is ours: a connection that breaks off looks to it like the
// end of the script, so the script has to say that it came to its end; it waits for answers whatever becomes of its context, and does not end
// refused connections.

const (
	firstWord      = 10 * time.Second // until the API server and the kubelet have agreed to a script
	longSilence    = 2 * time.Minute  // while nothing is sent or said: a network that is cut is not noticed otherwise
	tryDirectAgain = 10 * time.Minute // after it was seen that only the other way works

	// nearby is how long connecting takes in a network in which 9 MB as they are come as soon as the 4 that they are packed to, without the
	// 50 ms of the node's processor that unpacking takes.
	nearby = 2 * time.Millisecond
)

// mayGoDirect says whether a script is to be run over SPDY at first. Proxies are for the other way.
func (c *client) mayGoDirect(u *url.URL, now time.Time) bool {
	if now.UnixNano() < c.notDirect.Load() {
		return false
	}
	proxy := c.rest.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	through, err := proxy(&http.Request{URL: u})
	return through == nil && err == nil
}

// direct runs what an address says over SPDY. begun is false if nothing has run, and nothing of what is to be sent was read.
func (c *client) direct(ctx context.Context, u *url.URL, talk remotecommand.StreamOptions) (begun bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil) // and with it the connection, and whatever still waits for that
	run, err := c.directExecutor(ctx, u)
	if err != nil {
		return false, err
	}
	var passed atomic.Bool
	watch := time.AfterFunc(c.firstWord, func() {
		limit := c.firstWord
		if passed.Load() {
			limit = c.silence
		}
		end(fmt.Errorf("nothing was heard of it for %s", limit))
	})
	defer watch.Stop()
	heard := func() {
		passed.Store(true)
		if ctx.Err() == nil {
			watch.Reset(c.silence)
		}
	}
	talk.Stdin, talk.Stdout, talk.Stderr = notingReader{talk.Stdin, heard}, noting{talk.Stdout, heard}, noting{talk.Stderr, heard}
	done := make(chan error, 1)
	go func() { done <- run.StreamWithContext(ctx, talk) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return passed.Load(), err
}

// directExecutor makes an executor whose connection ends with ctx.
func (c *client) directExecutor(ctx context.Context, u *url.URL) (remotecommand.Executor, error) {
	config, err := rest.TLSConfigFor(c.rest)
	if err != nil {
		return nil, err
	}
	dial := func(dialing context.Context, network, address string) (net.Conn, error) {
		at := time.Now()
		conn, err := new(net.Dialer).DialContext(dialing, network, address)
		if err == nil {
			context.AfterFunc(ctx, func() { conn.Close() })
			if time.Since(at) < nearby {
				c.near.Store(true)
			}
		}
		return conn, err
	}
	upgrade, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{PingPeriod: 5 * time.Second,
		UpgradeTransport: &http.Transport{DialContext: dial, TLSClientConfig: config}})
	if err != nil {
		return nil, err
	}
	authorized, err := rest.HTTPWrappersForConfig(c.rest, upgrade)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewSPDYExecutorForTransports(authorized, upgrade, http.MethodPost, u)
}

// noting and notingReader tell of what passes, and that it is about to.
type noting struct {
	io.Writer
	heard func()
}

func (n noting) Write(p []byte) (int, error) {
	n.heard()
	return n.Writer.Write(p)
}

type notingReader struct {
	io.Reader
	heard func()
}

func (n notingReader) Read(p []byte) (int, error) {
	n.heard()
	read, err := n.Reader.Read(p)
	n.heard()
	return read, err
}

package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	upgrader "k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Programs are sent into pods over SPDY where that can be had: the API server hands it on to the kubelet as it is, whereas it takes WebSocket's
// frames apart and makes SPDY's of them (4 MB: 41 ms of its processor and 14 in one measurement with Kubernetes 1.34, too noisy to tell in
// another; a crowd of pods began sooner in each that was made). client-go's executor
// for SPDY has its gaps, so it is used for nothing else, and with a connection that is ours: a connection that breaks off looks to it like the
// end of the script, so the script has to say that it came to its end; it waits for answers whatever becomes of its context, and does not end
// refused connections.

const (
	firstWord      = 10 * time.Second // until the API server and the kubelet have agreed to a script
	longSilence    = 2 * time.Minute  // while nothing is sent or said: a network that is cut is not noticed otherwise
	tryDirectAgain = 10 * time.Minute // after it was seen that only the other way works
	brokenOff      = time.Minute      // and after a call that broke off, which may be for another reason

	// nearby is how soon the first answer of TLS comes in a network in which 9 MB as they are come as soon as the 4 that they are packed to,
	// without the 50 ms of the node's processor that unpacking takes.
	nearby = 5 * time.Millisecond
)

// mayGoDirect says whether a script is to be run over SPDY at first. Proxies are for the other way.
func (c *client) mayGoDirect(u *url.URL) bool {
	proxy := c.rest.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	through, err := proxy(&http.Request{URL: u})
	return through == nil && err == nil && c.directIsOpen()
}

func (c *client) directIsOpen() bool { return time.Now().UnixNano() >= c.notDirect.Load() }

// avoidDirect has scripts go the other way for some time.
func (c *client) avoidDirect(during time.Duration) {
	c.notDirect.Store(time.Now().Add(during).UnixNano())
}

// direct runs what an address says over SPDY. begun is false if nothing of what is to be sent was read, and nothing was heard; then nothing will.
func (c *client) direct(ctx context.Context, u *url.URL, talk remotecommand.StreamOptions) (begun bool, err error) {
	ctx, end := context.WithCancelCause(klog.NewContext(ctx, klog.Logger{}))
	defer end(nil) // and with it the connection, and whatever still waits for that
	run, err := c.directExecutor(ctx, u)
	if err != nil {
		return false, err
	}
	var passage passage
	watch := time.AfterFunc(c.firstWord, func() {
		if passage.CompareAndSwap(untouched, shut) {
			c.avoidDirect(tryDirectAgain) // silence is not the pod's
			end(fmt.Errorf("nothing was heard of it for %s", c.firstWord))
			return
		}
		end(fmt.Errorf("nothing was heard of it for %s", c.silence))
	})
	defer watch.Stop()
	passes := func() bool {
		if passage.CompareAndSwap(untouched, inUse); passage.Load() == shut {
			return false
		}
		if ctx.Err() == nil {
			watch.Reset(c.silence)
		}
		return true
	}
	talk.Stdin, talk.Stdout, talk.Stderr = notingReader{talk.Stdin, passes}, noting{talk.Stdout, passes}, noting{talk.Stderr, passes}
	done := make(chan error, 1)
	go func() { done <- run.StreamWithContext(ctx, talk) }()
	select {
	case err = <-done:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return !passage.CompareAndSwap(untouched, shut) && passage.Load() == inUse, err
}

// passage is whether a call's input was read or its output written: what has not begun when the call is given up never does.
type passage struct{ atomic.Int32 }

const (
	untouched int32 = iota
	inUse
	shut
)

// directExecutor makes an executor whose connection ends with ctx.
func (c *client) directExecutor(ctx context.Context, u *url.URL) (remotecommand.Executor, error) {
	config, err := rest.TLSConfigFor(c.rest)
	if err != nil {
		return nil, err
	}
	if config == nil { // or nobody would be asked for a certificate
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config.ServerName = u.Hostname()
	}
	dial := func(dialing context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(dialing, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { conn.Close() })
		return &timed{Conn: conn, answered: func(took time.Duration) {
			if took < nearby {
				c.near.Store(true)
			}
		}}, nil
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
	return remotecommand.NewSPDYExecutorForTransports(authorized, upgrader.NewUpgraderForStreaming(upgrade), http.MethodPost, u)
}

// timed tells how long the first answer took, which goes to the API server and back whatever lies between.
type timed struct {
	net.Conn
	asked    time.Time
	answered func(time.Duration)
}

func (t *timed) Write(p []byte) (int, error) {
	if t.asked.IsZero() && t.answered != nil {
		t.asked = time.Now()
	}
	return t.Conn.Write(p)
}

func (t *timed) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	if t.answered != nil && n > 0 {
		t.answered(time.Since(t.asked))
		t.answered = nil
	}
	return n, err
}

// noting and notingReader tell of what passes and that it is about to, and let nothing pass that is not to any more.
type noting struct {
	io.Writer
	passes func() bool
}

func (n noting) Write(p []byte) (int, error) {
	if !n.passes() {
		return 0, io.ErrClosedPipe
	}
	return n.Writer.Write(p)
}

type notingReader struct {
	io.Reader
	passes func() bool
}

func (n notingReader) Read(p []byte) (int, error) {
	if !n.passes() {
		return 0, io.EOF
	}
	read, err := n.Reader.Read(p)
	n.passes()
	return read, err
}

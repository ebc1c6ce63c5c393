//go:build linux

package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// gate is a proxy before the API server that lets some protocols through.
type gate struct {
	*client
	mu     sync.Mutex
	closed []string // what Upgrade begins with
	asked  []string
	hangs  chan struct{} // if not nil, nothing is answered until it is closed
}

// lets sets what comes through, and forgets what was asked for.
func (g *gate) lets(protocols ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.asked = []string{"SPDY", "websocket"}, nil
	for _, p := range protocols {
		g.closed = without(g.closed, p)
	}
}

func (g *gate) hang(until chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hangs = until
}

func without(list []string, one string) (out []string) {
	for _, s := range list {
		if s != one {
			out = append(out, s)
		}
	}
	return out
}

// went is what was asked for, and whether it came through.
func (g *gate) went() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.asked, " ")
}

func newGate(t *testing.T, behind *client) *gate {
	t.Helper()
	config, err := rest.TLSConfigFor(behind.rest)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.HTTPWrappersForConfig(behind.rest, &http.Transport{TLSClientConfig: config, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}})
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: behind.base.Scheme, Host: behind.base.Host})
		if up := r.In.Header.Get("Upgrade"); up != "" { // Rewrite is given it without
			r.Out.Header.Set("Connection", "Upgrade")
			r.Out.Header.Set("Upgrade", up)
		}
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol, _, _ := strings.Cut(r.Header.Get("Upgrade"), "/")
		g.mu.Lock()
		open := len(without(g.closed, protocol)) == len(g.closed)
		word := protocol
		if !open {
			word += ":refused"
		}
		g.asked = append(g.asked, word)
		hangs := g.hangs
		g.mu.Unlock()
		if hangs != nil {
			<-hangs
			return
		}
		if !open {
			http.Error(w, "this proxy does not know "+protocol, http.StatusBadRequest)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	base.Path = behind.base.Path
	g.client = &client{rest: &rest.Config{Host: server.URL}, http: server.Client(), base: base, namespace: behind.namespace, silence: longSilence}
	return g
}

// A script runs in a pod whichever way a proxy lets it through, and the way that was found is the first from then on.
func TestScriptsInPodsGoTheWayThatIsOpen(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(1, "sleep 600")
	b.start(k)
	b.begins(k, "runs")
	p := b.onlyPod(k)
	g := newGate(t, b.api)
	run := func(pod string, guess bool) (string, error) {
		var out bytes.Buffer
		err := g.exec(t.Context(), pod, guess, strings.NewReader("here\n"), &out, "read -r word; echo heard $word; exit ${1:-0}")
		return out.String(), err
	}
	works := func(what, want string) {
		t.Helper()
		if out, err := run(p.Meta.Name, false); err != nil || out != "heard here\n" {
			t.Errorf("%s: it printed %q, %v", what, out, err)
		}
		if got := g.went(); got != want {
			t.Errorf("%s: asked for %q, want %q", what, got, want)
		}
	}
	g.lets("SPDY", "websocket")
	works("both ways open", "SPDY")
	g.lets("websocket")
	if _, err := run(p.Meta.Name, true); err == nil || g.went() != "SPDY:refused" {
		t.Errorf("a guess: %v, asked for %q", err, g.went())
	}
	g.lets("websocket")
	works("only WebSocket", "SPDY:refused websocket")
	g.lets("websocket")
	works("only WebSocket, again", "websocket")
	g.lets("SPDY")
	works("only SPDY, as seen for the first time", "websocket:refused SPDY")
	g.lets("SPDY")
	works("only SPDY, again", "SPDY")
	g.lets()
	if _, err := run(p.Meta.Name, false); err == nil || !strings.Contains(err.Error(), "this proxy does not know SPDY") {
		t.Errorf("no way open: %v", err)
	}
	g.lets("SPDY", "websocket")
	if _, err := run("no-such", false); err == nil || !strings.Contains(err.Error(), `"no-such" not found`) {
		t.Errorf("a pod that is not there: %v", err)
	}
	g.lets("SPDY", "websocket")
	works("after a pod that was not there", "SPDY")

	err := g.exec(t.Context(), p.Meta.Name, false, nil, &bytes.Buffer{}, "exit 3")
	if !cameThrough(err) {
		t.Errorf("a script that fails: %v", err)
	}
	hangs := make(chan struct{})
	g.hang(hangs)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	given := make(chan error, 1)
	go func() { given <- g.exec(ctx, p.Meta.Name, false, nil, &bytes.Buffer{}, "true") }()
	select {
	case err := <-given:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("what does not answer: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("what does not answer is waited for longer than was to be")
	}
	close(hangs)
	g.hang(nil)
	g.silence = time.Second
	err = g.exec(t.Context(), p.Meta.Name, false, nil, &bytes.Buffer{}, "for i in 1 2 3 4 5; do echo $i; sleep 0.5; done; sleep 600")
	if err == nil || !strings.Contains(err.Error(), "nothing was heard of it for 1s") {
		t.Errorf("a script that says nothing more: %v", err)
	}
}

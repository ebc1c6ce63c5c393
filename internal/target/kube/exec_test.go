//go:build linux

package kube

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard"
)

// gate is a proxy before the API server that treats protocols as a test says.
type gate struct {
	*client
	mu    sync.Mutex
	how   map[string]string // by what Upgrade begins with: "refused", "dropped", "unanswered", "cut", "cut at its end"; "" is let through
	asked []string
	shut  bool           // to everything
	reads map[string]int // requests by what their path ends with
	cut   func()         // all connections that are open
}

// away has the gate let nothing through, or all as before.
func (g *gate) away(yes bool) {
	g.mu.Lock()
	g.shut = yes
	g.mu.Unlock()
	if yes {
		g.cut()
	}
}

// is sets how protocols are treated, and forgets what was asked for.
func (g *gate) is(spdy, sockets string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.how, g.asked = map[string]string{"SPDY": spdy, "websocket": sockets}, nil
}

// note takes note of what became of a request.
func (g *gate) note(word string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, word)
}

// went is what was asked for, and what became of it.
func (g *gate) went() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.asked, " ")
}

func (g *gate) treat(w http.ResponseWriter, r *http.Request, onward http.Handler) {
	protocol, _, _ := strings.Cut(r.Header.Get("Upgrade"), "/")
	g.mu.Lock()
	how := g.how[protocol]
	if g.shut {
		how = "dropped"
	}
	g.reads[path.Base(r.URL.Path)]++
	g.mu.Unlock()
	switch how {
	case "":
		g.note(protocol)
		onward.ServeHTTP(w, r)
	case "refused":
		g.note(protocol + ":refused")
		http.Error(w, "this proxy does not know "+protocol, http.StatusBadRequest)
	case "dropped":
		g.note(protocol + ":dropped")
		panic(http.ErrAbortHandler)
	case "unanswered":
		g.note(protocol)
		<-r.Context().Done()
		g.note(protocol + ":left")
	case "cut", "cut at its end":
		g.note(protocol)
		onward.ServeHTTP(&cutting{w, g, protocol, how == "cut"}, r)
	}
}

// cutting ends connections at their 64th KiB, or instead of handing the last word of send.sh on, and takes note of that.
type cutting struct {
	http.ResponseWriter
	g        *gate
	protocol string
	inside   bool
}

func (c *cutting) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(c.ResponseWriter).Hijack()
	return &cutConn{Conn: conn, cutting: c}, rw, err
}

type cutConn struct {
	net.Conn
	*cutting
	came atomic.Int64
	once sync.Once
}

func (c *cutConn) cut() error {
	c.once.Do(func() { c.g.note(c.protocol + ":cut") })
	_ = c.Conn.Close()
	return io.ErrUnexpectedEOF
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.came.Add(int64(n)) > 64<<10 && c.inside {
		return 0, c.cut()
	}
	return n, err
}

func (c *cutConn) Write(p []byte) (int, error) {
	if !c.inside && bytes.Contains(p, []byte("done\n")) {
		return 0, c.cut()
	}
	return c.Conn.Write(p)
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
	g := &gate{reads: map[string]int{}}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: behind.base.Scheme, Host: behind.base.Host})
		if up := r.In.Header.Get("Upgrade"); up != "" { // Rewrite is given it without
			r.Out.Header.Set("Connection", "Upgrade")
			r.Out.Header.Set("Upgrade", up)
		}
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.treat(w, r, proxy) }))
	t.Cleanup(server.Close)
	g.cut = server.CloseClientConnections
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	base.Path = behind.base.Path
	g.client = &client{rest: &rest.Config{Host: server.URL}, http: server.Client(), base: base, namespace: behind.namespace, firstWord: firstWord, silence: longSilence}
	return g
}

// gated leads a driver through a gate.
func gated(t *testing.T, c *Config) *gate {
	t.Helper()
	behind, err := c.connect()
	if err != nil {
		t.Fatal(err)
	}
	g := newGate(t, behind)
	c.Kubeconfig = fmt.Sprintf("{current-context: gate, contexts: [{name: gate, context: {cluster: gate, user: nobody}}], "+
		"clusters: [{name: gate, cluster: {server: %q}}], users: [{name: nobody, user: {}}]}", g.rest.Host)
	return g
}

// seen is how often something was asked for whose path ends with a word.
func (g *gate) seen(word string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reads[word]
}

// A script that is sent something runs in the pod whichever way a proxy lets it through.
func TestScriptsInPodsGoTheWayThatIsOpen(t *testing.T) {
	b := newBench(t, nil)
	over, k := b.task(1, "true"), b.task(1, "sleep 600")
	over.ID = trainyard.MakeTaskID(k.ID.Job(), 2, 0)
	b.start(over)
	b.ends(over, trainyard.ClassOK, "")
	b.start(k)
	b.begins(k, "runs")
	pod, gone := b.onlyPod(k).Meta.Name, b.onlyPod(over).Meta.Name
	g := newGate(t, b.api)
	run := func(pod string, guess bool) (string, error) {
		var out head
		err := g.exec(t.Context(), pod, guess, strings.NewReader("here\n"), &out, "read -r word; echo heard $word")
		return out.String(), err
	}
	works := func(what, want string) {
		t.Helper()
		if out, err := run(pod, false); err != nil || out != "heard here\n" {
			t.Errorf("%s: it printed %q, %v", what, out, err)
		}
		if got := g.went(); got != want {
			t.Errorf("%s: asked for %q, want %q", what, got, want)
		}
	}
	fails := func(what, pod string, guess bool, words, want string) {
		t.Helper()
		if _, err := run(pod, guess); err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "command=") {
			t.Errorf("%s: %v, want %q, and nothing of the script", what, err, words)
		}
		if got := g.went(); got != want {
			t.Errorf("%s: asked for %q, want %q", what, got, want)
		}
	}
	g.is("", "")
	works("both open", "SPDY")
	g.is("", "")
	fails("no such pod", "no-such", false, `"no-such" not found`, "SPDY websocket SPDY")
	g.is("", "")
	fails("a pod that has ended", gone, false, "", "SPDY websocket")
	g.is("", "")
	works("after pods that cannot be asked", "SPDY")
	g.is("refused", "refused")
	fails("none open", pod, false, "this proxy does not know", "SPDY:refused websocket:refused SPDY:refused")

	for _, how := range []string{"refused", "dropped"} {
		g.notDirect.Store(0)
		g.is(how, "")
		fails("a guess, SPDY "+how, pod, true, "", "SPDY:"+how)
		g.is(how, "")
		works("SPDY "+how, "SPDY:"+how+" websocket")
		g.is(how, "")
		works("SPDY "+how+", again", "websocket")
	}
	g.is("", "refused")
	works("the other way closed afterwards", "websocket:refused SPDY")

	g.notDirect.Store(0)
	g.firstWord = time.Second
	g.is("unanswered", "")
	if out, err := run(pod, false); err != nil || out != "heard here\n" || g.directIsOpen() {
		t.Errorf("SPDY unanswered: it printed %q, %v", out, err)
	}
	eventually(t, "the connection without an answer is ended", func() bool { return strings.Contains(g.went(), "SPDY:left") && strings.Contains(g.went(), "websocket") })

	g.notDirect.Store(0)
	g.is("unanswered", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.exec(ctx, pod, false, strings.NewReader(""), &head{}, "true"); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}

	g.firstWord, g.silence = firstWord, time.Second
	g.is("", "")
	var out head
	err := g.exec(t.Context(), pod, false, strings.NewReader(""), &out, "for i in 1 2 3 4 5; do echo $i; sleep 0.5; done; sleep 600")
	if err == nil || !strings.Contains(err.Error(), "nothing was heard of it for 1s") || out.String() != "1\n2\n3\n4\n5\n" {
		t.Errorf("a script that says nothing more: %v after %q", err, out.String())
	}
	if err := g.exec(t.Context(), pod, false, nil, &bytes.Buffer{}, "exit 3"); !cameThrough(err) {
		t.Errorf("a script that fails: %v", err)
	}
}

// Who cannot show a certificate for the API server's name is told nothing, also where the kubeconfig names no authority of its own.
func TestATokenIsSentToTheAPIServerAlone(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	try := func(config rest.Config) error {
		config.Host, config.BearerToken = server.URL, "secret"
		c := &client{rest: &config, base: base, namespace: "default", firstWord: firstWord, silence: longSilence}
		return c.exec(t.Context(), "pod", true, strings.NewReader(""), &head{}, "true")
	}
	for what, config := range map[string]rest.Config{"no authority": {}, "another name": {TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), ServerName: "other.test"}}} {
		if err := try(config); err == nil || !strings.Contains(err.Error(), "x509: ") || asked.Load() != 0 {
			t.Errorf("%s: %v, asked %d times", what, err, asked.Load())
		}
	}
	known := rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}}
	if err := try(known); err == nil || asked.Load() != 1 {
		t.Errorf("the API server itself: %v, asked %d times", err, asked.Load())
	}
}

// The program comes to run whether it is sent as it is, or packed, and by either way.
func TestAProgramIsSentPackedOrNot(t *testing.T) {
	b := newBench(t, nil)
	sent := func(attempt int, near, direct bool) {
		b.keepsFor(nil)
		b.api.near.Store(near)
		b.api.notDirect.Store(0)
		if !direct {
			b.api.notDirect.Store(math.MaxInt64)
		}
		k := b.task(1, "echo here")
		k.ID = trainyard.MakeTaskID(k.ID.Job(), attempt, 0)
		b.start(k)
		b.ends(k, trainyard.ClassOK, "")
		if got := b.log(k); got != "here\n" {
			t.Errorf("near %v, direct %v: the log is %q", near, direct, got)
		}
	}
	sent(1, true, true)
	sent(2, true, false)
	sent(3, false, false)
	sent(4, false, true)
}

// A connection that is cut while the program goes over it, or just when all of it has come, is no end of the task, which runs once.
func TestAConnectionIsCutInTheMiddleOfSending(t *testing.T) {
	var g *gate
	b := newBench(t, func(c *Config) { g = gated(t, c) })
	for attempt, how := range []string{"cut", "cut at its end", "cut at its end"} {
		b.api.notDirect.Store(0)
		b.keepsFor(nil)
		g.is(how, "")
		k := b.task(1, "echo here"+[]string{"", "", "; sleep 4"}[attempt]) // the second may have ended before it is sent again
		k.ID = trainyard.MakeTaskID(k.ID.Job(), attempt+1, 0)
		b.start(k)
		b.ends(k, trainyard.ClassOK, "")
		b.ran(k, 1)
		if got := b.log(k); got != "here\n" {
			t.Errorf("%s: the log is %q", how, got)
		}
		_, after, cut := strings.Cut(g.went(), "SPDY:cut")
		if again := attempt != 1; !cut || again && (!strings.Contains(after, "websocket") || b.api.directIsOpen()) {
			t.Errorf("%s: it went over %s, want WebSocket after SPDY was cut", how, g.went())
		}
	}
}

// What a pod's shell says is kept in part, however much it is.
func TestWhatAShellSaysIsBounded(t *testing.T) {
	heard := ""
	d := &dialog{feed: func(line string) { heard = line }}
	for range 1000 {
		_, _ = d.Write(bytes.Repeat([]byte("x"), 1000))
	}
	_, _ = d.Write([]byte("\nlast " + strings.Repeat("y", 1000)))
	if len(d.said) > mostSaid || len(heard) > mostSaid || len(d.last()) > mostQuoted || !strings.HasPrefix(d.last(), "last ") {
		t.Errorf("kept %d bytes, heard a line of %d, quotes %q", len(d.said), len(heard), d.last())
	}
}

package kube

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

//go:embed send.sh
var sendScript string

//go:embed halt.sh
var haltScript string

// run runs what an address says. Over SPDY the API server hands on what comes as it is; WebSocket's frames it takes apart and makes SPDY's of
// for the kubelet, which takes it three times the processor time (4 MB: 41 ms and 14, Kubernetes 1.34). What knows only WebSocket, a cluster
// or a proxy before it, is asked so at once after the first time. A guess, which may well fail, is not tried a second way.
func (c *client) run(ctx context.Context, u *url.URL, guess bool, talk remotecommand.StreamOptions) error {
	spdy, err := remotecommand.NewSPDYExecutor(c.rest, http.MethodPost, u)
	if err != nil {
		return err
	}
	sockets, err := remotecommand.NewWebSocketExecutor(c.rest, http.MethodGet, u.String())
	if err != nil {
		return err
	}
	first, second, before := spdy, sockets, c.socketsOnly.Load()
	if before {
		first, second = second, first
	}
	ctx = klog.NewContext(ctx, klog.Logger{}) // what it complains of is in the error
	err = streamed(ctx, first, talk)
	if guess || ctx.Err() != nil || !notUpgraded(err) {
		return err
	}
	if other := streamed(ctx, second, talk); !notUpgraded(other) {
		c.socketsOnly.CompareAndSwap(before, !before)
		return other
	}
	return err
}

// streamed returns when the call ends or nobody wants it any more: an executor of SPDY waits for an answer whatever becomes of ctx. What talk
// has may then be used for a while yet.
func streamed(ctx context.Context, e remotecommand.Executor, talk remotecommand.StreamOptions) error {
	done := make(chan error, 1)
	go func() { done <- e.StreamWithContext(ctx, talk) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// notUpgraded says whether a call ended before anything was sent or read: what was asked does not know the protocol, or the pod is not there.
func notUpgraded(err error) bool {
	return err != nil && (httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err) || strings.HasPrefix(err.Error(), "unable to upgrade connection"))
}

// longSilence is how long a script may go on while nothing is sent or said: SPDY does not notice that the network is cut.
const longSilence = time.Minute

// exec runs a shell script in a pod. in may be nil; what it says goes to out.
func (c *client) exec(ctx context.Context, pod string, guess bool, in io.Reader, out io.Writer, script string, args ...string) error {
	q := url.Values{"container": {containerName}, "stdout": {"true"}, "stderr": {"true"},
		"command": append([]string{"/bin/sh", "-c", script, "trainyard"}, args...)}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(c.silence, func() { cancel(fmt.Errorf("nothing was heard of it for %s", c.silence)) })
	defer watch.Stop()
	heard := func() { watch.Reset(c.silence) }
	words := &dialog{}
	talk := remotecommand.StreamOptions{Stdout: noting{out, heard}, Stderr: noting{words, heard}}
	if in != nil {
		q.Set("stdin", "true")
		talk.Stdin = notingReader{in, heard}
	}
	err := c.run(ctx, c.url(c.path(pods, pod, "exec"), q), guess, talk)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && !cameThrough(err) {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("run a command in pod %s: %w %s", pod, err, words.last())
}

// noting and notingReader tell of what passes.
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
	read, err := n.Reader.Read(p)
	n.heard()
	return read, err
}

// errNoOrder is the end of sending into a pod that is to be told its task by somebody who does not know it.
var errNoOrder = errors.New("what it is to run is not known here any more")

// errNowhere is the end of sending into a pod in which nothing can be written.
var errNowhere = errors.New("nothing can be written there, neither to /trainyard nor to /tmp/trainyard")

// send puts the program and the task into a pod, unless they are there. hosts are lines for its /etc/hosts; order is nil where the pod has a
// Secret with the task, and task is the name of its objects.
func (d *Driver) send(ctx context.Context, task, pod, hosts string, order []byte, guess bool) error {
	r, w := io.Pipe()
	defer r.Close()
	talk := &dialog{}
	talk.feed = func(line string) {
		go func() { talk.fail(feed(w, d.program, order, line)) }()
	}
	if err := d.api.exec(ctx, pod, guess, &untilClosed{r}, talk, sendScript, hosts, task); err != nil {
		return fmt.Errorf("send the program: %w", errors.Join(err, talk.failed()))
	}
	switch last, why, _ := strings.Cut(talk.last(), " "); last {
	case "have", "done":
		return nil
	case "nowhere":
		return fmt.Errorf("send the program into pod %s: %w: %.200q", pod, errNowhere, why)
	default:
		return fmt.Errorf("send the program into pod %s: it said %q", pod, talk.last())
	}
}

// untilClosed reads a pipe whose reading end may be closed meanwhile, which client-go would complain about on standard error.
type untilClosed struct{ r io.Reader }

func (u *untilClosed) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = io.EOF
	}
	return n, err
}

// feed answers the first line of send.sh on its standard input.
func feed(w *io.PipeWriter, p *program, order []byte, line string) error {
	defer w.Close()
	words := strings.Fields(line) // need MACHINE nothing cat, or need MACHINE task gzip -dc
	if len(words) < 4 || words[0] != "need" {
		return nil
	}
	if len(order) == 0 && words[2] != "task" {
		return errNoOrder
	}
	f, err := p.open(words[1], words[3] == "gzip")
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%d\n%s\n", info.Size(), bytes.TrimSpace(order)); err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, f, make([]byte, 256<<10))
	return err
}

// dialog is what a script says, which goes on for a moment after its stream was given up.
type dialog struct {
	feed func(line string) // of its first line; may be nil

	mu   sync.Mutex
	said []byte
	fed  bool
	err  error
}

func (d *dialog) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !errors.Is(err, io.ErrClosedPipe) { // the other end had enough
		d.err = err
	}
}

func (d *dialog) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *dialog) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = append(d.said, p...)
	if line, _, whole := strings.Cut(string(d.said), "\n"); whole && !d.fed && d.feed != nil {
		d.fed = true
		d.feed(line)
	}
	return len(p), nil
}

func (d *dialog) last() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(d.said)), "\n")
	return lines[len(lines)-1]
}

// cameThrough says whether a script ran in the pod, however it ended: one that has the pod ended may end with it.
func cameThrough(err error) bool {
	_, ran := errors.AsType[exec.CodeExitError](err)
	return ran
}

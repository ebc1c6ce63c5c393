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

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

//go:embed send.sh
var sendScript string

//go:embed halt.sh
var haltScript string

// overSockets runs what an address says over WebSocket, or over SPDY where a cluster or a proxy before it knows no other; fell says so. A guess,
// which may well fail, is not tried a second way.
func (c *client) overSockets(ctx context.Context, u *url.URL, guess bool, talk remotecommand.StreamOptions) (fell bool, err error) {
	ctx = klog.NewContext(ctx, klog.Logger{}) // what it complains of is in the error
	sockets, err := remotecommand.NewWebSocketExecutor(c.rest, http.MethodGet, u.String())
	if err != nil {
		return false, err
	}
	err = sockets.StreamWithContext(ctx, talk)
	if err == nil || guess || !httpstream.IsUpgradeFailure(err) && !httpstream.IsHTTPSProxyError(err) {
		return false, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(c.rest, http.MethodPost, u)
	if err != nil {
		return true, err
	}
	return true, spdy.StreamWithContext(ctx, talk)
}

// exec runs a shell script in a pod. in may be nil; what it says goes to out. That the script came to its end is only sure if it says so.
func (c *client) exec(ctx context.Context, pod string, guess bool, in io.Reader, out io.Writer, script string, args ...string) error {
	q := url.Values{"container": {containerName}, "stdout": {"true"}, "stderr": {"true"},
		"command": append([]string{"/bin/sh", "-c", script, "trainyard"}, args...)}
	if in != nil {
		q.Set("stdin", "true")
	}
	u, words := c.url(c.path(pods, pod, "exec"), q), &dialog{}
	talk := remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: words}
	var err error
	if in == nil || !c.mayGoDirect(u) {
		_, err = c.overSockets(ctx, u, guess, talk)
	} else {
		var begun, fell bool
		begun, err = c.direct(ctx, u, talk)
		switch {
		case err == nil || guess || ctx.Err() != nil:
		case !begun:
			if fell, err = c.overSockets(ctx, u, false, talk); err == nil && !fell {
				c.avoidDirect(tryDirectAgain)
			}
		case !cameThrough(err):
			c.avoidDirect(brokenOff)
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("run a command in pod %s: %w %s", pod, brief(err, u), words.last())
}

// brief is an error without an address that holds a script.
func brief(err error, u *url.URL) error {
	if text := strings.ReplaceAll(err.Error(), u.String(), u.Path); text != err.Error() {
		return shortened{err, text}
	}
	return err
}

type shortened struct {
	error
	text string
}

func (s shortened) Error() string { return s.text }
func (s shortened) Unwrap() error { return s.error }

// errNoOrder is the end of sending into a pod that is to be told its task by somebody who does not know it.
var errNoOrder = errors.New("what it is to run is not known here any more")

// errNowhere is the end of sending into a pod in which nothing can be written.
var errNowhere = errors.New("nothing can be written there, neither to /trainyard nor to /tmp/trainyard")

// send puts the program and the task into a pod, unless they are there. hosts are lines for its /etc/hosts; order is nil where the pod has a
// Secret with the task, task is the name of its objects, and kept says what of the program it may have already.
func (d *Driver) send(ctx context.Context, task, pod, hosts string, order []byte, kept string, guess bool) error {
	r, w := io.Pipe()
	defer r.Close()
	talk := &dialog{}
	talk.feed = func(line string) {
		go func() { talk.fail(feed(w, d.program, order, line)) }()
	}
	way := "far"
	if d.api.near.Load() && d.api.directIsOpen() {
		way = "near"
	}
	if err := d.api.exec(ctx, pod, guess, &untilClosed{r}, talk, sendScript, hosts, task, way, kept); err != nil {
		return fmt.Errorf("send the program: %w", errors.Join(err, talk.failed()))
	}
	switch last, why, _ := strings.Cut(talk.last(), " "); last {
	case "have", "done":
		d.api.far.Store(!d.api.near.Load())
		return nil
	case "nowhere":
		return fmt.Errorf("send the program into pod %s: %w: %.200q", pod, errNowhere, why)
	default:
		d.api.avoidDirect(brokenOff) // over which a connection that breaks off is no error
		return fmt.Errorf("send the program into pod %s: it broke off after it said %q", pod, talk.last())
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
	words := strings.Fields(line) // need MACHINE nothing cat, or need MACHINE task gzip -dc, or need MACHINE nothing kept
	if len(words) < 4 || words[0] != "need" {
		return nil
	}
	if len(order) == 0 && words[2] != "task" {
		return errNoOrder
	}
	packed := words[3] == "gzip"
	f, err := p.open(words[1], packed)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if words[3] == "kept" {
		_, err := fmt.Fprintf(w, "%d\n%s\n", size, bytes.TrimSpace(order))
		return err
	}
	var fill []byte
	if !packed { // zeros after a program's end are nothing to it
		fill = make([]byte, -size&(pieces-1))
		size += int64(len(fill))
	}
	if _, err := fmt.Fprintf(w, "%d\n%s\n", size, bytes.TrimSpace(order)); err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{w}, io.MultiReader(f, bytes.NewReader(fill)), make([]byte, 256<<10))
	return err
}

// pieces is how many bytes send.sh reads at once.
const pieces = 64 << 10

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
	if d.feed != nil && !d.fed {
		if line, _, whole := bytes.Cut(d.said, []byte("\n")); whole {
			d.fed = true
			d.feed(string(line))
		}
	}
	if len(d.said) > mostSaid { // a pod's shell may be anything
		d.said = append([]byte(nil), d.said[len(d.said)-mostSaid/2:]...)
	}
	return len(p), nil
}

func (d *dialog) last() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(d.said)), "\n")
	last := lines[len(lines)-1]
	return last[:min(len(last), mostQuoted)]
}

const (
	mostSaid   = 64 << 10 // bytes that are kept
	mostQuoted = 500      // and shown
)

// cameThrough says whether a script ran in the pod, however it ended: one that has the pod ended may end with it.
func cameThrough(err error) bool {
	_, ran := errors.AsType[exec.CodeExitError](err)
	return ran
}

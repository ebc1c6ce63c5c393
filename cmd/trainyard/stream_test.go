package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

// play is a server that plays a job's life: each look at the job is a step.
type play struct {
	mu    sync.Mutex
	steps []string // "state|reason"
	at    int
	log   string
	build string
	parts []string // "state|why" of a pipeline's one step at each of steps
}

func (p *play) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	state, why, _ := strings.Cut(p.steps[min(p.at, len(p.steps)-1)], "|")
	over := trainyard.JobState(state).Terminal()
	switch {
	case strings.HasSuffix(r.URL.Path, "/details"):
		logs := map[string]string{"system_logs/environment.txt": "http://x/log/build"}
		if p.parts != nil {
			logs = map[string]string{"logs/azureml/executionlogs.txt": "http://x/log/main"}
		} else if state == "Running" || over {
			logs["user_logs/std_log.txt"] = "http://x/log/main"
		}
		reply(w, map[string]any{"status": state, "logFiles": logs})
	case strings.HasPrefix(r.URL.Path, "/log/"):
		text := map[string]string{"build": p.build, "main": p.log}[strings.TrimPrefix(r.URL.Path, "/log/")]
		if !over && strings.HasSuffix(r.URL.Path, "main") {
			text = text[:len(text)/2] // the rest comes with the end
		}
		from, _ := strconv.Atoi(r.URL.Query().Get("offset"))
		w.Header().Set("Trainyard-Log-Size", strconv.Itoa(len(text)))
		w.Header().Set("Trainyard-Job-Status", state)
		_, _ = w.Write([]byte(text[min(from, len(text)):]))
	default:
		p.at++
		job := map[string]any{"name": "j", "id": "x", "properties": map[string]any{"status": state, "computeId": "c", "reason": map[string]any{"message": why},
			"warnings": []string{"the image was not used"}}}
		if p.parts != nil {
			state, why, _ := strings.Cut(p.parts[min(p.at-1, len(p.parts)-1)], "|")
			job["properties"].(map[string]any)["steps"] = []map[string]string{{"name": "fit", "job": "j-fit", "status": state, "why": why}}
		}
		if over {
			props := job["properties"].(map[string]any)
			props["timeline"] = []trainyard.Span{{Name: "queue", Start: noon, End: noon.Add(time.Second)}, {Name: "user", Start: noon.Add(time.Second), End: noon.Add(4 * time.Second)}}
			props["exitCode"] = map[string]int{"Completed": 0}[state]
			if state == "Failed" {
				props["exitCode"] = 137
				props["failure"] = map[string]string{"class": "OutOfMemory", "message": "the process was killed at its limit of 512 MB"}
			}
			props["outputs"] = map[string]any{"model": map[string]any{"uri": "azureml://datastores/workspaceblobstore/paths/m/"}}
		}
		reply(w, job)
	}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// watch streams a play, read by a person if tty.
func watch(t *testing.T, p *play, tty bool) (end client.JobStatus, out, note string, err error) {
	t.Helper()
	srv := httptest.NewServer(p)
	defer srv.Close()
	c, err := client.New(client.Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	var o, e bytes.Buffer
	a := &app{console: &console{out: &o, err: &e, outTTY: tty, errTTY: tty, color: tty, errColor: tty, width: 80, now: time.Now}}
	end, err = a.stream(t.Context(), c, "j")
	return end, o.String(), e.String(), err
}

func TestStreamTellsTheWaitTheLogAndTheEnd(t *testing.T) {
	p := &play{steps: []string{"Queued|cpu is at its maximum of 2 nodes", "Queued|cpu is at its maximum of 2 nodes", "Queued|a node starts", "Preparing|building environment e",
		"Preparing|building environment e", "Running|", "Running|", "Running|", "Completed|"}, log: "one\ntwo\n", build: "Collecting numpy\n"}
	end, out, note, err := watch(t, p, false)
	if err != nil || end.Status != trainyard.JobCompleted {
		t.Fatalf("%v, %v", end.Status, err)
	}
	if out != "one\ntwo\n" {
		t.Errorf("standard output is not the log alone: %q", out)
	}
	at := 0
	for _, want := range []string{"job j on c\n", "Queued     cpu is at its maximum of 2 nodes\n", "Queued     a node starts\n", "Preparing  building environment e\n",
		"✓ Completed in 4.0s, exit code 0\n", "user             3.0s", "output model  azureml://", "warning: the image was not used", "trainyard job download --name j --all"} {
		i := strings.Index(note[at:], want)
		if i < 0 {
			t.Fatalf("no %q, in its place, in\n%s", want, note)
		}
		at += i
	}
	if n := strings.Count(note, "cpu is at its maximum"); n != 1 {
		t.Errorf("the same reason is told %d times", n)
	}
	if !strings.Contains(note, "  | Collecting numpy\n") {
		t.Errorf("the build is not shown in\n%s", note)
	}
	if strings.Contains(note, "\x1b") || strings.Contains(note, "\r") {
		t.Errorf("control characters where nobody reads: %q", note)
	}
}

// The log of a pipeline tells of its steps; beside it stands only what the log does not have.
func TestStreamOfAPipelineTellsItsLogAndWhyAStepWaits(t *testing.T) {
	p := &play{steps: []string{"Preparing|its first steps are being submitted", "Preparing|its first steps are being submitted", "Preparing|0 of 1 steps completed; queued: fit", "Running|0 of 1 steps completed; running: fit",
		"Running|0 of 1 steps completed; stored: fit", "Completed|completed"}, log: "fit  Queued\nfit  Running\nfit  Completed\n",
		parts: []string{"NotStarted|", "NotStarted|", "Queued|no node is free", "Running|", "Finalizing|outputs are stored", "Completed|"}}
	end, out, note, err := watch(t, p, false)
	if err != nil || end.Status != trainyard.JobCompleted || out != p.log {
		t.Fatalf("%v, %v, standard output %q", end.Status, err, out)
	}
	for _, want := range []string{"job j of 1 step\n", "Preparing  its first steps are being submitted\n", "Queued     step fit: no node is free\n", "Running    0 of 1 steps completed; running: fit\n", "✓ Completed"} {
		if strings.Count(note, want) != 1 {
			t.Errorf("not once %q in\n%s", want, note)
		}
	}
	if strings.Contains(note, "stored") {
		t.Errorf("what the log says is told twice:\n%s", note)
	}
}

func TestStreamOfAFailureSaysWhy(t *testing.T) {
	end, _, note, err := watch(t, &play{steps: []string{"Running|", "Failed|"}, log: "x"}, true)
	if err != nil || end.Status != trainyard.JobFailed {
		t.Fatalf("%v, %v", end.Status, err)
	}
	for _, want := range []string{"✗ Failed in 4.0s, exit code 137", "the process was killed at its limit of 512 MB"} {
		if !strings.Contains(note, want) {
			t.Errorf("no %q in\n%s", want, note)
		}
	}
}

func TestStreamThatIsCancelledLeavesTheJobAndSaysSo(t *testing.T) {
	srv := httptest.NewServer(&play{steps: []string{"Running|"}, log: "xx"})
	defer srv.Close()
	c, err := client.New(client.Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var o, e bytes.Buffer
	a := &app{console: &console{out: &notify{w: &o, f: cancel}, err: &e, now: time.Now}}
	_, err = a.stream(ctx, c, "j")
	if !errors.Is(err, context.Canceled) || !strings.Contains(e.String(), "the job goes on") || !strings.Contains(e.String(), "trainyard job cancel --name j") {
		t.Errorf("%v, told %q", err, e.String())
	}
}

// waits is a server where a cancel goes on for as long as the job's life has steps.
type waits struct{ play }

func (p *waits) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/cancel"):
		w.Header().Set("Location", "http://"+r.Host+"/operation")
		w.WriteHeader(http.StatusAccepted)
	case r.URL.Path == "/operation":
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.at < len(p.steps)-1 {
			w.WriteHeader(http.StatusAccepted)
		}
	default:
		p.play.ServeHTTP(w, r)
	}
}

// cancels runs job cancel, for which a second goes by each time it looks at its clock.
func cancels(ctx context.Context, t *testing.T, says io.Writer, p *waits) error {
	t.Helper()
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	c, err := client.New(client.Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	a := &app{opened: c, console: &console{out: io.Discard, err: says, now: func() time.Time { now = now.Add(time.Second); return now }}}
	cmd := a.jobCancel()
	cmd.SetArgs([]string{"j"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	return cmd.ExecuteContext(ctx)
}

func TestACancelThatLastsTellsWhatItWaitsFor(t *testing.T) {
	var said bytes.Buffer
	stuck := "CancelRequested|the engine does not answer"
	err := cancels(t.Context(), t, &said, &waits{play{steps: []string{"CancelRequested|being stopped", stuck, stuck, "CancelRequested|being stopped", "Canceled|"}}})
	want := "CancelRequested being stopped\nCancelRequested the engine does not answer\nCancelRequested being stopped\nj is Canceled\n"
	if err != nil || said.String() != want {
		t.Errorf("%v, told %q, want %q", err, said.String(), want)
	}
}

// What is told while something is waited for does not contradict why it lasts: nothing is said of processes or nodes that cannot be reached.
func TestTheProgressOfAWaitSaysOnlyWhatIsWaitedFor(t *testing.T) {
	for want, wait := range map[string]func(*app, *client.Client, *client.Answer) error{
		"waiting for j to end … ": func(a *app, c *client.Client, ans *client.Answer) error {
			return a.waitCanceled(t.Context(), c, ans, "j")
		},
		"waiting for j to be deleted … ": func(a *app, c *client.Client, ans *client.Answer) error {
			return a.waitDeleted(t.Context(), c, a.computeDelete(), ans, "j", "deleted", "")
		},
	} {
		srv := httptest.NewServer(&waits{play{steps: []string{"CancelRequested|cannot be reached", "CancelRequested|cannot be reached", "Canceled|"}}})
		t.Cleanup(srv.Close)
		c, err := client.New(client.Config{URL: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		ans, err := c.Post(t.Context(), nil, "jobs", "j", "cancel")
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		now := time.Now()
		a := &app{console: &console{out: io.Discard, err: &said, errTTY: true, now: func() time.Time { now = now.Add(time.Second); return now }}}
		if err := wait(a, c, ans); err != nil || !strings.Contains(said.String(), want) || strings.Contains(said.String(), "asked to end") || strings.Contains(said.String(), "leaving") {
			t.Errorf("%v, told %q, want %q", err, said.String(), want)
		}
	}
}

func TestACancelThatIsNotWaitedForStays(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var said bytes.Buffer
	err := cancels(ctx, t, &notify{w: &said, f: cancel}, &waits{play{steps: []string{"CancelRequested|the engine does not answer", "Canceled|", "Canceled|"}}})
	if !errors.Is(err, context.Canceled) || !strings.HasPrefix(said.String(), "CancelRequested the engine does not answer\n") ||
		!strings.Contains(said.String(), "No longer waiting; j stays asked to end") || strings.Contains(said.String(), "is Canceled") {
		t.Errorf("%v, told %q", err, said.String())
	}
}

// notify calls f when something is written.
type notify struct {
	w *bytes.Buffer
	f func()
}

func (n *notify) Write(p []byte) (int, error) {
	n.f()
	return n.w.Write(p)
}

func TestEveryCommandHasAnExampleAndCompletesItsName(t *testing.T) {
	a, _, _ := people(0)
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
		if cmd.Short == "" || cmd.Example == "" && !cmd.Hidden {
			t.Errorf("%s has no example, or no sentence", cmd.CommandPath())
		}
		for _, f := range []string{"name", "output-name"} {
			if cmd.LocalNonPersistentFlags().Lookup(f) != nil {
				if _, ok := cmd.GetFlagCompletionFunc(f); !ok {
					t.Errorf("%s --%s is not completed", cmd.CommandPath(), f)
				}
			}
		}
	}
	root := newRoot(a)
	visit(root)
	for _, f := range []string{"output", "workspace-name"} {
		if _, ok := root.GetFlagCompletionFunc(f); !ok {
			t.Errorf("--%s is not completed", f)
		}
	}
}

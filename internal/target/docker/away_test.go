//go:build linux

package docker

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

const enginesDir = "../../../test/engines/docker"

// ownEngine is an engine that the test may take away, in a folder whose path is short enough for sockets.
type ownEngine struct {
	t   *testing.T
	dir string
	c   Config
}

func newEngine(t *testing.T) *ownEngine {
	t.Helper()
	shared := needEngine(t)
	dir, err := os.MkdirTemp("/tmp", "away")
	if err != nil {
		t.Fatal(err)
	}
	e := &ownEngine{t: t, dir: dir, c: Config{Host: "unix://" + filepath.Join(dir, "run", "docker.sock"), Image: shared.Image}}
	t.Cleanup(func() { e.do("down.sh", dir, "--wipe") })
	e.do("up.sh", dir)
	return e
}

// do runs one of the scripts.
func (e *ownEngine) do(script string, args ...string) {
	e.t.Helper()
	cmd := exec.Command(filepath.Join(enginesDir, script), args...)
	cmd.WaitDelay = time.Second // daemons keep nothing of ours open, and should they do, that is no reason to wait
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(err.Error(), "WaitDelay") {
		e.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

func (e *ownEngine) stop()  { e.t.Helper(); e.do("engine.sh", "stop", e.dir, "dockerd") }
func (e *ownEngine) kill()  { e.t.Helper(); e.do("engine.sh", "kill", e.dir, "dockerd") }
func (e *ownEngine) start() { e.t.Helper(); e.do("engine.sh", "start", e.dir, "dockerd") }

func (e *ownEngine) freeze() { e.t.Helper(); e.do("engine.sh", "freeze", e.dir, "dockerd") }
func (e *ownEngine) thaw()   { e.t.Helper(); e.do("engine.sh", "thaw", e.dir, "dockerd") }

// wantAway fails unless Observe says that it cannot look, as soon as it is heard that the engine's events have ended, and Capacity and Remove that
// they cannot act.
func wantAway(t *testing.T, d *Driver, id trainyard.TaskID) {
	t.Helper()
	until(t, "it is seen that the engine is away", func() bool {
		all, err := d.Observe(t.Context())
		if err != nil && len(all) > 0 {
			t.Errorf("while the engine is away Observe lists %v (%v)", all, err)
		}
		return err != nil
	})
	if _, err := d.Capacity(t.Context()); err == nil {
		t.Error("while the engine is away there is capacity")
	}
	if err := d.Remove(t.Context(), id); err == nil {
		t.Error("while the engine is away a task is removed")
	}
	if got := logOf(t, d, id); got != "up\n" {
		t.Errorf("while the engine is away the log is %q", got)
	}
}

// back waits until the engine answers.
func back(t *testing.T, d *Driver) {
	t.Helper()
	until(t, "the engine is back", func() bool {
		_, err := d.Observe(t.Context())
		return err == nil
	})
}

func TestEngineIsShutDownInTheMiddleOfAJob(t *testing.T) {
	e := newEngine(t)
	dir := t.TempDir()
	d := open(t, e.c, dir, trainyard.Resources{})
	task := newTestTask(t, "trap 'echo saved; exit 0' TERM; echo up; sleep 600 & wait")
	quick := newTestTask(t, "echo quick; exit 3")
	start(t, d, task)
	start(t, d, quick)
	until(t, "it is up", func() bool { return logOf(t, d, task.ID) == "up\n" && d.readStatus(quick.ID).ended })
	e.stop()
	if all, err := d.Observe(t.Context()); err == nil {
		t.Errorf("while the engine is away Observe lists %v", all)
	}
	e.start()
	back(t, d)
	o := ended(t, d, task.ID)
	if o.Result.Class != trainyard.ClassNodeLost || !strings.Contains(o.Result.Message, "the Docker engine was shut down or restarted") {
		t.Errorf("result is %+v", *o.Result)
	}
	if got := logOf(t, d, task.ID); got != "up\nsaved\n" {
		t.Errorf("log is %q, want that it was let save", got)
	}
	if o := ended(t, d, quick.ID); o.Result.Class != trainyard.ClassUser || o.Result.ExitCode != 3 {
		t.Errorf("a task that had ended before: %+v", *o.Result)
	}
}

func TestEngineIsKilledInTheMiddleOfAJob(t *testing.T) {
	e := newEngine(t)
	d := open(t, e.c, t.TempDir(), trainyard.Resources{})
	lost, runs, ends := newTestTask(t, "echo up; sleep 600"), newTestTask(t, "echo up; sleep 600"), newTestTask(t, "echo up; until test -e go; do sleep 0.02; done; exit 6")
	for _, task := range []trainyard.Task{lost, runs, ends} {
		start(t, d, task)
	}
	until(t, "they are up", func() bool { return logOf(t, d, lost.ID)+logOf(t, d, runs.ID)+logOf(t, d, ends.ID) == "up\nup\nup\n" })
	e.kill()
	wantAway(t, d, runs.ID)
	if err := d.Stop(t.Context(), runs.ID, time.Hour); err == nil {
		t.Error("while the engine is away a task is stopped")
	}
	if err := os.WriteFile(filepath.Join(ends.Run.Dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	until(t, "the task has ended without the engine", func() bool { return d.readStatus(ends.ID).ended })
	e.start()
	back(t, d)
	if o := ended(t, d, ends.ID); o.Result.Class != trainyard.ClassUser || o.Result.ExitCode != 6 {
		t.Errorf("the task that ended meanwhile: %+v", *o.Result)
	}
	if o := ended(t, d, runs.ID); o.Result.Class != trainyard.ClassCanceled { // Stop had been written down
		t.Errorf("the task that was to stop: %+v", *o.Result)
	}
	if o := ended(t, d, lost.ID); o.Result.Class != trainyard.ClassNodeLost || !strings.Contains(o.Result.Message, "restarted") {
		t.Errorf("the task that ran: %+v", *o.Result)
	}
}

func TestEngineThatKeepsContainersAliveIsRestarted(t *testing.T) {
	t.Setenv("DOCKERD_ARGS", "--live-restore")
	e := newEngine(t)
	dir := t.TempDir()
	d := reopen(t, e.c, dir, trainyard.Resources{})
	task := newTestTask(t, "echo up; until test -e go; do sleep 0.02; done; echo done; exit 6")
	stopped := newTestTask(t, "trap '' TERM; echo up; while :; do sleep 0.02; done")
	start(t, d, task)
	start(t, d, stopped)
	until(t, "they are up", func() bool { return logOf(t, d, task.ID)+logOf(t, d, stopped.ID) == "up\nup\n" })
	before := find(t, d, task.ID).Started
	if err := d.Stop(t.Context(), stopped.ID, 500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	e.kill()
	wantAway(t, d, task.ID)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = open(t, e.c, dir, trainyard.Resources{}) // with the engine away: it has tasks here
	e.start()
	back(t, d)
	if o := find(t, d, task.ID); o == nil || o.State != trainyard.TaskRunning || !o.Started.Equal(before) {
		t.Errorf("the task is seen as %+v", o)
	}
	if o := ended(t, d, stopped.ID); o.Result.Class != trainyard.ClassCanceled || o.Result.ExitCode != 137 {
		t.Errorf("the task whose grace ended while the engine was away: %+v", *o.Result)
	}
	if err := os.WriteFile(filepath.Join(task.Run.Dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if o := ended(t, d, task.ID); o.Result.ExitCode != 6 || logOf(t, d, task.ID) != "up\ndone\n" {
		t.Errorf("the task ended with %+v and wrote %q", *o.Result, logOf(t, d, task.ID))
	}
}

// An engine that hangs takes connections and does not answer. What is asked of it is done when it does.
func TestEngineHangsInTheMiddleOfAJob(t *testing.T) {
	e := newEngine(t)
	d := open(t, e.c, t.TempDir(), trainyard.Resources{})
	plain := reopen(t, e.c, t.TempDir(), trainyard.Resources{}) // in the place of a driver that needs no engine: it has nothing to ask it for
	t.Cleanup(func() { plain.Close() })
	both := &target.Several{First: plain, Others: []target.Driver{d}}
	runs := newTestTask(t, "trap 'echo told; exit 0' TERM; echo up; sleep 600 & wait")
	ends := newTestTask(t, "echo up; until test -e go; do sleep 0.02; done; exit 6")
	start(t, d, runs)
	start(t, d, ends)
	until(t, "they are up", func() bool { return logOf(t, d, runs.ID)+logOf(t, d, ends.ID) == "up\nup\n" })
	if _, err := both.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.freeze()
	t.Cleanup(e.thaw)
	if err := os.WriteFile(filepath.Join(ends.Run.Dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	until(t, "the task has ended without the engine", func() bool { return d.readStatus(ends.ID).ended })
	d.mu.Lock()
	d.listed = time.Time{} // as after a while
	d.mu.Unlock()
	looked, told := make(chan error, 1), make(chan error, 1)
	go func() { _, err := both.ObservePart(t.Context(), d); looked <- err }()
	go func() { told <- both.Stop(t.Context(), runs.ID, time.Hour) }()
	if list, err := both.ObservePart(t.Context(), plain); err != nil || len(list) > 0 {
		t.Errorf("beside an engine that hangs is seen %v, %v", list, err)
	}
	if err := both.Stop(t.Context(), "plain.1.0", 0); err != nil {
		t.Errorf("beside an engine that hangs a task is stopped: %v", err)
	}
	select {
	case err := <-looked:
		t.Fatalf("an engine that hangs was looked at: %v", err)
	default:
	}
	if name := d.Engine(); name != "the Docker engine" {
		t.Errorf("people are told of %q", name)
	}
	e.thaw()
	if err := errors.Join(<-looked, <-told); err != nil {
		t.Error(err)
	}
	if o := ended(t, d, ends.ID); o.Result.Class != trainyard.ClassUser || o.Result.ExitCode != 6 {
		t.Errorf("the task that ended meanwhile: %+v", *o.Result)
	}
	if o := ended(t, d, runs.ID); o.Result.Class != trainyard.ClassCanceled || logOf(t, d, runs.ID) != "up\ntold\n" {
		t.Errorf("the task that was stopped meanwhile: %+v, %q", *o.Result, logOf(t, d, runs.ID))
	}
}

func TestPreparationOutlivesAnEngineThatGoesAway(t *testing.T) {
	e := newEngine(t)
	d := open(t, e.c, t.TempDir(), trainyard.Resources{})
	task := in(t, "true", trainyard.EnvironmentPlan{Context: "key"})
	task.Run.Context = contextOf(t, map[string]string{"Dockerfile": "FROM " + e.c.Image + "\nRUN sleep 600\n"})
	p := &teller{}
	end := make(chan error, 1)
	go func() { end <- d.Prepare(t.Context(), task, p) }()
	until(t, "the build runs", func() bool { return strings.Contains(p.said(), "Step 2/") })
	e.kill()
	if err := <-end; err == nil || trainyard.ClassOf(err) != "" {
		t.Errorf("error is %v (class %q), want one that is tried again", err, trainyard.ClassOf(err))
	}
	if err := d.Prepare(t.Context(), task, p); err == nil || trainyard.ClassOf(err) != "" {
		t.Errorf("without an engine the error is %v (class %q), want one that is tried again", err, trainyard.ClassOf(err))
	}
	e.start()
	back(t, d)
	task.Run.Context = contextOf(t, map[string]string{"Dockerfile": "FROM " + e.c.Image + "\nRUN true\n"})
	prepare(t, d, task)
}

//go:build linux || darwin

package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// job is a task in a folder of its own.
func job(t testing.TB, name, command string) trainyard.Task {
	t.Helper()
	return trainyard.Task{ID: trainyard.TaskID("s/r/w/" + name + ".1.0"), Run: trainyard.Run{Command: command, Dir: t.TempDir()}}
}

// run starts a task and waits for its end; the log comes with it. The task is removed when the test ends.
func run(t testing.TB, d *Driver, task trainyard.Task) (trainyard.Observation, string) {
	t.Helper()
	start(t, d, task)
	o := waitEnded(t, d, task.ID)
	data, err := os.ReadFile(d.path(task.ID.Dir(), logFile))
	if err != nil {
		t.Fatal(err)
	}
	return o, string(data)
}

func start(t testing.TB, d *Driver, task trainyard.Task) {
	t.Helper()
	if err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(context.Background(), task.ID); err != nil && err != errClosed {
			t.Error(err)
		}
	})
}

func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	late := time.After(30 * time.Second)
	for !done() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("not true after 30 seconds: %s", what)
		}
	}
}

func TestNothingSecretOfTheAgentReachesATask(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("TRAINYARD_TOKEN", "secret")
	t.Setenv("https_proxy", "http://proxy:3128")
	t.Setenv("PIP_INDEX_URL", "http://index")
	d := open(t, &Config{}, t.TempDir(), trainyard.Resources{})
	task := job(t, "env", "env")
	task.Run.Env = map[string]string{"OWN": "1", "LANG": "de_DE.UTF-8"}
	o, log := run(t, d, task)
	if o.Result.Class != trainyard.ClassOK || strings.Contains(log, "secret") {
		t.Errorf("result is %+v, environment is\n%s", *o.Result, log)
	}
	for _, want := range []string{"https_proxy=http://proxy:3128", "PIP_INDEX_URL=http://index", "OWN=1", "LANG=de_DE.UTF-8", "HOME=", "PATH=", "USER=",
		"TMPDIR=" + d.path(task.ID.Dir(), tmpDir)} {
		if !strings.Contains("\n"+log, "\n"+want) {
			t.Errorf("%s is missing in\n%s", want, log)
		}
	}
}

func TestTaskThatSignalsItsWholeGroupKeepsItsStatus(t *testing.T) {
	d := open(t, &Config{}, t.TempDir(), trainyard.Resources{})
	o, _ := run(t, d, job(t, "group", "kill -TERM 0; sleep 600"))
	if o.Result.ExitCode != 143 || o.Result.Class != trainyard.ClassUser || !strings.Contains(o.Result.Message, "SIGTERM") {
		t.Errorf("result is %+v", *o.Result)
	}
	o, _ = run(t, d, job(t, "group-kill", "kill -KILL 0; sleep 600"))
	if o.Result.ExitCode != 137 || o.Result.Class != trainyard.ClassUser || !strings.Contains(o.Result.Message, "from outside") {
		t.Errorf("result is %+v", *o.Result)
	}
}

func TestChildrenOfAStoppedShellKeepTheirGrace(t *testing.T) {
	d := open(t, &Config{}, t.TempDir(), trainyard.Resources{})
	const command = `bash -c 'trap "sleep 0.2; echo saved; exit" TERM; touch up; while :; do sleep 0.01; done'; echo never`
	for name, others := range map[string]bool{"grace": false, "all-at-once": true} {
		task := job(t, name, command)
		start(t, d, task)
		waitFor(t, "the child is up", func() bool { _, err := os.Stat(filepath.Join(task.Run.Dir, "up")); return err == nil })
		if others { // it does not wait for anybody to be told
			d.tasks[task.ID.Dir()].proc.terminate()
			<-time.After(50 * time.Millisecond)
		}
		if err := d.Stop(t.Context(), task.ID, time.Hour); err != nil {
			t.Fatal(err)
		}
		o, log := run(t, d, task)
		if !strings.HasSuffix(log, "saved\n") || o.Result.Class != trainyard.ClassCanceled || o.Result.ExitCode != 143 {
			t.Errorf("%s: log is %q, result is %+v; want that the child could save although the shell was gone", name, log, *o.Result)
		}
	}
}

func TestTaskOfAnotherBootIsLostWithItsNode(t *testing.T) {
	dir := t.TempDir()
	d := reopen(t, &Config{}, dir, trainyard.Resources{})
	task := job(t, "boot", "touch up; sleep 600")
	start(t, d, task)
	waitFor(t, "it has begun", func() bool { _, err := os.Stat(filepath.Join(task.Run.Dir, "up")); return err == nil })
	path := d.path(task.ID.Dir(), taskFile)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	proc := d.tasks[task.ID.Dir()].proc
	d.Close()
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), d.host.boot, "another", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := proc.kill(); err != nil {
		t.Fatal(err)
	}
	if err := proc.hold.remove(); err != nil {
		t.Fatal(err)
	}
	d = open(t, &Config{}, dir, trainyard.Resources{})
	o := d.observe1(task.ID)
	if o == nil || o.Result == nil || o.Result.Class != trainyard.ClassNodeLost || !strings.Contains(o.Result.Message, "restarted") {
		t.Errorf("the task is seen as %+v", o)
	}
}

func TestClosedDriverRefuses(t *testing.T) {
	d := open(t, &Config{}, t.TempDir(), trainyard.Resources{})
	d.Close()
	if err := d.Start(t.Context(), job(t, "late", "true")); err != errClosed {
		t.Errorf("start: %v", err)
	}
	if _, err := d.Observe(t.Context()); err != errClosed {
		t.Errorf("observe: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
}

func TestBadSettingsAreNamed(t *testing.T) {
	for want, c := range map[string]Config{"no-such-shell": {Shell: "no-such-shell"}, "sys/fs": {CgroupRoot: "sys/fs"}} {
		if err := c.Validate(); trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v is %v", c, err)
		}
	}
	if err := Kind().New().Validate(); err != nil {
		t.Errorf("the defaults are %v", err)
	}
}

func TestStatusIsReadAsFarAsItIsWritten(t *testing.T) {
	for text, want := range map[string]status{
		"":                     {},
		"---------------\n{":   {},
		"b":                    {},
		"b\n-------------\n{":  {began: true},
		"b\n0\n-----------\n{": {began: true, ended: true},
		"b\n137\n---------\n{": {began: true, ended: true, code: 137},
		"b\n13-----------\n{":  {began: true},
	} {
		if got := parseStatus([]byte(text)); got != want {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
	}
}

func TestCapacityIsTheLimitWhereThereIsOne(t *testing.T) {
	limit := trainyard.Resources{CPUs: 1.5, MemoryMB: 3584, GPUs: 1, Slots: 1}
	d := open(t, &Config{CgroupRoot: "none"}, t.TempDir(), limit)
	if got, err := d.Capacity(t.Context()); err != nil || got != limit {
		t.Errorf("capacity is %+v (%v), want %+v", got, err, limit)
	}
}

// doneOf is closed when the task has ended.
func (d *Driver) doneOf(id trainyard.TaskID) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tasks[id.Dir()].done
}

// observe1 is what Observe says of one task.
func (d *Driver) observe1(id trainyard.TaskID) *trainyard.Observation {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tasks[id.Dir()]; t != nil && t.began {
		o := t.observe()
		return &o
	}
	return nil
}

func waitEnded(t testing.TB, d *Driver, id trainyard.TaskID) trainyard.Observation {
	t.Helper()
	select {
	case <-d.doneOf(id):
		return *d.observe1(id)
	case <-time.After(30 * time.Second):
		t.Fatalf("task %s does not end: %+v", id, d.observe1(id))
		panic("unreachable")
	}
}

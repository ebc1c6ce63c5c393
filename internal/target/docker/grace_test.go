//go:build linux

package docker

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/trainyard/trainyard"
)

const (
	listens = "trap 'echo saved; exit 0' TERM; echo up; sleep 600 & wait"
	deaf    = "trap '' TERM; echo up; while :; do sleep 0.02; done"
)

// stopAway stops tasks while the engine is away, which is to be said.
func stopAway(t *testing.T, d *Driver, grace time.Duration, tasks ...trainyard.Task) {
	t.Helper()
	for _, task := range tasks {
		if err := d.Stop(t.Context(), task.ID, grace); err == nil {
			t.Error("while the engine is away a task is stopped")
		}
	}
}

// wantSaved fails unless the task was let save what it had.
func wantSaved(t *testing.T, d *Driver, task trainyard.Task) {
	t.Helper()
	o := ended(t, d, task.ID)
	if got := logOf(t, d, task.ID); got != "up\nsaved\n" || o.Killed != 0 || o.Result.Class != trainyard.ClassCanceled {
		t.Errorf("it wrote %q, its result is %+v, and it was killed after %v", got, *o.Result, o.Killed)
	}
}

// wantKilled fails unless the task was killed when its grace was over; with none that is not said.
func wantKilled(t *testing.T, d *Driver, task trainyard.Task, grace time.Duration) {
	t.Helper()
	if o := ended(t, d, task.ID); o.Killed < grace || grace == 0 && o.Killed > 0 || o.Result.Class != trainyard.ClassCanceled || o.Result.ExitCode != 137 {
		t.Errorf("its result is %+v, and it was killed after %v", *o.Result, o.Killed)
	}
}

func TestGraceBeginsWhenTheEngineIsBack(t *testing.T) {
	const grace = 2 * time.Second
	for _, anew := range []bool{false, true} {
		t.Run(fmt.Sprintf("driver opened anew: %v", anew), func(t *testing.T) {
			g, c := newGate(t, needEngine(t))
			dir := t.TempDir()
			d := reopen(t, c, dir, trainyard.Resources{})
			good, bad, hasty := newTestTask(t, listens), newTestTask(t, deaf), newTestTask(t, deaf)
			for _, task := range []trainyard.Task{good, bad, hasty} {
				start(t, d, task)
			}
			until(t, "they are up", func() bool { return logOf(t, d, good.ID)+logOf(t, d, bad.ID)+logOf(t, d, hasty.ID) == "up\nup\nup\n" })
			g.shut()
			asked := time.Now()
			stopAway(t, d, grace, good, bad)
			stopAway(t, d, time.Hour, bad, hasty) // the first one is not made longer
			if err := d.Stop(t.Context(), hasty.ID, 0); err != nil {
				t.Error(err)
			}
			if anew {
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				d = reopen(t, c, dir, trainyard.Resources{})
			}
			<-time.After(time.Until(asked.Add(2 * grace)))
			if got := logOf(t, d, good.ID); got != "up\n" {
				t.Fatalf("while the engine is away it wrote %q", got)
			}
			g.open()
			back(t, d)
			wantSaved(t, d, good)
			wantKilled(t, d, hasty, 0)
			wantKilled(t, d, bad, grace)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d = open(t, c, dir, trainyard.Resources{})
			wantKilled(t, d, bad, grace)
		})
	}
}

// The grace that has begun is the only one: SIGTERM is not sent again by a driver that is opened later.
func TestGraceGoesOnInADriverThatIsOpenedAnew(t *testing.T) {
	c := needEngine(t)
	dir := t.TempDir()
	d := reopen(t, c, dir, trainyard.Resources{})
	task := newTestTask(t, "trap 'echo told' TERM; echo up; while :; do sleep 0.02; done")
	start(t, d, task)
	until(t, "it is up", func() bool { return logOf(t, d, task.ID) == "up\n" })
	if err := d.Stop(t.Context(), task.ID, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	before := *d.tasks[task.ID.Dir()].stop
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = open(t, c, dir, trainyard.Resources{})
	if s := d.tasks[task.ID.Dir()].stop; !s.Told.Equal(before.Told) || !s.Deadline.Equal(before.Deadline) || before.Told.IsZero() {
		t.Errorf("its stop is %+v, and was %+v", *s, before)
	}
	wantKilled(t, d, task, 2*time.Second)
	if got := logOf(t, d, task.ID); strings.Count(got, "told") != 1 {
		t.Errorf("it wrote %q, want that it was told once", got)
	}
}

// Of a stop that an older agent wrote down it is not known whether the task was told.
func TestStopThatAnOlderAgentWroteDown(t *testing.T) {
	c := needEngine(t)
	dir := t.TempDir()
	d := reopen(t, c, dir, trainyard.Resources{})
	task := newTestTask(t, listens)
	start(t, d, task)
	until(t, "it is up", func() bool { return logOf(t, d, task.ID) == "up\n" })
	path := d.path(newTask(task.ID.Dir()), stopFile)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"at":"2026-01-01T00:00:00Z","deadline":"2026-01-01T00:00:10Z"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	wantSaved(t, open(t, c, dir, trainyard.Resources{}), task)
}

// What is asked of an engine that hangs is done when it goes on: both signals at once if they were sent.
func TestGraceBeginsWhenAnEngineThatHungGoesOn(t *testing.T) {
	e := newEngine(t)
	d := open(t, e.c, t.TempDir(), trainyard.Resources{})
	task := newTestTask(t, listens)
	start(t, d, task)
	until(t, "it is up", func() bool { return logOf(t, d, task.ID) == "up\n" })
	e.freeze()
	t.Cleanup(e.thaw)
	asked := time.Now()
	stopAway(t, d, time.Second, task) // after wordPatience
	if took := time.Since(asked); took < wordPatience {
		t.Errorf("an engine that hangs was waited for %v", took)
	}
	e.thaw()
	back(t, d)
	wantSaved(t, d, task)
}

func TestATaskThatEndsJustBeforeSIGKILLIsNotSaidToBeKilled(t *testing.T) {
	late := &stopRecord{Killed: 2 * time.Second}
	cases := []struct {
		name string
		st   status
		code int // of the container
		want time.Duration
	}{
		{"all of it was killed", status{}, 137, late.Killed},
		{"the shell had ended, and what it left was killed", status{ended: true, code: 143}, 137, late.Killed},
		{"nothing was left, and the container ended by itself", status{ended: true, counts: true}, 0, 0},
		{"the same where its memory cannot be read", status{ended: true}, 0, 0},
		{"it had come to its end, and was killed all the same", status{ended: true, counts: true}, 137, 0},
	}
	for _, c := range cases {
		if got := judge(&task{stop: late}, c.st, &container.State{ExitCode: c.code}).Killed; got != c.want {
			t.Errorf("%s: it was killed after %v, want %v", c.name, got, c.want)
		}
	}
}

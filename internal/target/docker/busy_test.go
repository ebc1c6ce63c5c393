//go:build linux

package docker

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// once is a command that says how often it ran.
const once = "echo ran >> runs; exit 4"

// wantBusy fails unless the error is one after which the agent tries again.
func wantBusy(t *testing.T, err error) {
	t.Helper()
	if trainyard.CodeOf(err) != trainyard.CodeBusy || trainyard.ClassOf(err) != "" || !strings.Contains(err.Error(), "the Docker engine does not answer") {
		t.Errorf("error is %v (code %q), want that the engine does not answer, and %q", err, trainyard.CodeOf(err), trainyard.CodeBusy)
	}
}

// wantRunsOnce starts the task as the agent does again, and fails unless its command ran once in all.
func wantRunsOnce(t *testing.T, d *Driver, task trainyard.Task) {
	t.Helper()
	start(t, d, task)
	if o := ended(t, d, task.ID); o.Result.Class != trainyard.ClassUser || o.Result.ExitCode != 4 {
		t.Errorf("its result is %+v", *o.Result)
	}
	if data, err := os.ReadFile(filepath.Join(task.Run.Dir, "runs")); err != nil || string(data) != "ran\n" {
		t.Errorf("the command wrote %q (%v), want that it ran once", data, err)
	}
}

func TestEngineGoesAwayWhileATaskIsStarted(t *testing.T) {
	shared := needEngine(t)
	cases := []struct {
		name string
		at   string // the step of Start
		lose string // the request that is still served then
		made bool   // the container
	}{
		{"before the folder is made", "begin", "", false},
		{"before the container is made", "folder", "", false},
		{"before it is heard that it was made", "folder", "/containers/create", true},
		{"before the container is started", "created", "", true},
		{"before it is heard that it was started", "created", "/start HTTP", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			g, way := newGate(t, shared)
			d := open(t, way, t.TempDir(), trainyard.Resources{})
			run(t, d, newTestTask(t, "true")) // what is asked for once is known
			d.step = func(step string) {
				switch {
				case step == c.at && c.lose == "":
					g.shut()
				case step == c.at:
					g.loseAnswer(c.lose)
				}
			}
			task := newTestTask(t, once)
			for range 2 {
				if err := d.Start(t.Context(), task); err != nil || c.at != "created" || c.lose == "" { // else it may have begun by now
					wantBusy(t, err)
				}
			}
			d.step = nil
			g.open()
			back(t, d)
			all, err := d.engine.list(t.Context(), groupName(t), labelTask)
			if made := len(all) == 2; err != nil || made != c.made {
				t.Errorf("there are the containers %v (%v)", all, err)
			}
			wantRunsOnce(t, d, task)
		})
	}
}

func TestEngineHangsWhileATaskIsStarted(t *testing.T) {
	e := newEngine(t)
	d := open(t, e.c, t.TempDir(), trainyard.Resources{})
	run(t, d, newTestTask(t, "true"))
	t.Cleanup(e.thaw)
	for _, at := range []string{"folder", "created", "started"} {
		d.step = func(step string) {
			if step == at {
				e.freeze()
			}
		}
		task := newTestTask(t, once)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // in the place of workPatience
		err := d.Start(ctx, task)
		cancel()
		d.step = nil
		if at != "started" || err != nil { // it comes to the command without the engine
			wantBusy(t, err)
		}
		e.thaw()
		back(t, d)
		wantRunsOnce(t, d, task)
	}
}

// An engine that is killed is away at once; what it had made of the task is there when it is back.
func TestEngineIsKilledWhileATaskIsStarted(t *testing.T) {
	e := newEngine(t)
	d := open(t, e.c, t.TempDir(), trainyard.Resources{})
	run(t, d, newTestTask(t, "true"))
	for _, at := range []string{"folder", "created"} {
		d.step = func(step string) {
			if step == at {
				e.kill()
			}
		}
		task := newTestTask(t, once)
		wantBusy(t, d.Start(t.Context(), task))
		d.step = nil
		e.start()
		back(t, d)
		wantRunsOnce(t, d, task)
	}
}

func TestContainerIsPrunedBeforeItIsStarted(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	task := newTestTask(t, once)
	var pruned error
	d.step = func(step string) {
		if step == "created" {
			pruned = dockerCLI(c, "rm", d.container(newTask(task.ID.Dir())))
		}
	}
	err := d.Start(t.Context(), task)
	d.step = nil
	if pruned != nil {
		t.Fatal(pruned)
	}
	if trainyard.CodeOf(err) != trainyard.CodeBusy || !strings.Contains(err.Error(), "taken away from outside") {
		t.Errorf("error is %v", err)
	}
	wantRunsOnce(t, d, task)
}

//go:build linux

package docker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu/gputest"
)

// The engine's daemon is halted while the task ends, so that it cannot be who has said so.
func TestTheEndIsSeenBeforeTheEngineSaysIt(t *testing.T) {
	e := newEngine(t)
	d := open(t, e.c, t.TempDir(), trainyard.Resources{})
	text, err := os.ReadFile(filepath.Join(e.dir, "run", "dockerd.pid"))
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	ends, killed := newTestTask(t, "until test -e go; do sleep 0.02; done; echo last; exit 6"), newTestTask(t, "echo up; sleep 600")
	start(t, d, ends)
	start(t, d, killed)
	until(t, "it is up", func() bool { return logOf(t, d, killed.ID) == "up\n" })
	r, err := d.engine.ContainerInspect(t.Context(), d.container(&task{dir: killed.ID.Dir()}), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	signal := func(pid int, s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(pid, s); err != nil {
			t.Fatal(err)
		}
	}
	signal(daemon, syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(daemon, syscall.SIGCONT) })
	signal(r.Container.State.Pid, syscall.SIGKILL) // this one tells nothing of its end
	if err := os.WriteFile(filepath.Join(ends.Run.Dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	died := func(id trainyard.TaskID) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.tasks[id.Dir()].died
	}
	until(t, "its end is seen", func() bool { return died(ends.ID) })
	if died(killed.ID) {
		t.Error("a task that has told nothing is over before the engine has said so")
	}
	if got := logOf(t, d, ends.ID); got != "last\n" {
		t.Errorf("its log is %q", got)
	}
	signal(daemon, syscall.SIGCONT)
	if o := ended(t, d, ends.ID); o.Result.Class != trainyard.ClassUser || o.Result.ExitCode != 6 {
		t.Errorf("it ended with %+v", *o.Result)
	}
	if o := ended(t, d, killed.ID); o.Result.Class != trainyard.ClassNodeLost {
		t.Errorf("the one that was killed ended with %+v", *o.Result)
	}
	wantRemoved(t, d, ends.ID)
}

// wantRemoved removes a task, and fails if its container is still there.
func wantRemoved(t *testing.T, d *Driver, id trainyard.TaskID) {
	t.Helper()
	if err := d.Remove(t.Context(), id); err != nil {
		t.Error(err)
	}
	if _, err := d.engine.ContainerInspect(t.Context(), d.container(&task{dir: id.Dir()}), client.ContainerInspectOptions{}); !errdefs.IsNotFound(err) {
		t.Errorf("its container: %v", err)
	}
}

func TestATaskThatMeddlesWithItsPipeEndsAsItDoes(t *testing.T) {
	d := open(t, needEngine(t), t.TempDir(), trainyard.Resources{})
	for _, command := range []string{
		"echo word >/.trainyard/task/over", "rm /.trainyard/task/over", "cd /.trainyard/task; rm over; ln -s /dev/zero over", "{ sleep 600 5</.trainyard/task/over & }",
		"echo exit 0 >/.trainyard/task/status; echo oom 0 >>/.trainyard/task/status; sleep 0.2",
	} {
		task := newTestTask(t, command+"; ls /proc/$$/fd; exit 3") // and it has nothing of it open itself
		text, r := run(t, d, task)
		if r.Class != trainyard.ClassUser || r.ExitCode != 3 || !strings.HasSuffix(text, "0\n1\n2\n") {
			t.Errorf("%q wrote %q, and ended with %+v", command, text, r)
		}
		wantRemoved(t, d, task.ID)
	}
}

// What a task had is another's as soon as it is over, though the engine has its container still.
func TestGPUsGoFromTaskToTask(t *testing.T) {
	c := needEngine(t)
	gputest.Here(t).Set("80", "20")
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	for range 5 {
		task := newTestTask(t, "echo $NVIDIA_VISIBLE_DEVICES")
		task.Resources.GPUs = 2
		if text, r := run(t, d, task); r.Class != trainyard.ClassOK || text != "0,1\n" {
			t.Fatalf("it has GPUs %q, and ended with %+v", text, r)
		}
	}
}

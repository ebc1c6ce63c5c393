package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/target/targettest"
)

// openAlone opens a driver as the program does that runs one task: on the folder that the task is staged in, too.
func openAlone(t *testing.T, dir string) *Driver {
	t.Helper()
	d, err := (&Config{}).open(t.Context(), target.Env{Dir: dir, Group: groupName(t), Alone: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// staged is a task with a folder as staging makes it.
func staged(t *testing.T, dir, name, command string) trainyard.Task {
	t.Helper()
	task := job(t, name, command)
	task.Run.Root = filepath.Join(dir, task.ID.Dir())
	task.Run.Dir = filepath.Join(task.Run.Root, "work")
	if err := os.MkdirAll(task.Run.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return task
}

// end runs the task to its end.
func end(t *testing.T, d *Driver, task trainyard.Task) (trainyard.Observation, string) {
	t.Helper()
	start(t, d, task)
	o := waitEnded(t, d, task.ID)
	log, err := os.ReadFile(filepath.Join(task.Run.Root, logFile))
	if err != nil {
		t.Fatal(err)
	}
	return o, string(log)
}

// Nobody comes back to such a driver: where the suite opens it again it is still the same, and it is not asked what happened while it was closed.
func TestConformanceAlone(t *testing.T) {
	targettest.Run(t, func(t *testing.T, dir string) (target.Driver, func() target.Driver) {
		if strings.HasSuffix(t.Name(), "/tells_how_a_task_ended_while_it_was_closed") {
			t.Skip("nobody comes back to the folder of a task alone")
		}
		d := openAlone(t, dir)
		return d, func() target.Driver { return d }
	})
}

func TestAloneWritesNoMoreThanTheTaskReadsAndTakesOnlyThatAway(t *testing.T) {
	dir := t.TempDir()
	d := openAlone(t, dir)
	task := staged(t, dir, "lodger", `echo "$TMPDIR"; test -w "$TMPDIR" && echo kept >result`)
	o, log := end(t, d, task)
	if o.Result.Class != trainyard.ClassOK || strings.TrimSpace(log) != filepath.Join(task.Run.Root, tmpDir) {
		t.Errorf("result is %+v, log is %q", *o.Result, log)
	}
	var files []string
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
		rel, _ := filepath.Rel(dir, path)
		files = append(files, strings.ReplaceAll(rel, task.ID.Dir(), "T"))
		return nil
	})
	if got := strings.Join(files, " "); got != ". T T/log T/tmp T/work T/work/result" {
		t.Errorf("files are %s", got)
	}
	if err := d.Remove(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(task.Run.Root, "*"))
	kept, err := os.ReadFile(filepath.Join(task.Run.Dir, "result"))
	if len(left) != 1 || err != nil || string(kept) != "kept\n" {
		t.Errorf("after its removal %q are there, and its result is %q, %v", left, kept, err)
	}
}

func TestAStartThatFailsAloneLeavesWhatWasStaged(t *testing.T) {
	dir := t.TempDir()
	d := openAlone(t, dir)
	task := staged(t, dir, "again", "cat input")
	if err := os.WriteFile(filepath.Join(task.Run.Dir, "input"), []byte("staged\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shell := d.shell
	d.shell = filepath.Join(dir, "nothing")
	if err := d.Start(t.Context(), task); err == nil && d.observe1(task.ID).Result == nil {
		if o := waitEnded(t, d, task.ID); o.Result.ExitCode != 127 { // a shell of the driver's own was between
			t.Errorf("without a shell to run it the task ended with %+v", *o.Result)
		}
		if err := d.Remove(t.Context(), task.ID); err != nil {
			t.Fatal(err)
		}
	}
	d.shell = shell
	if o, log := end(t, d, task); o.Result.Class != trainyard.ClassOK || log != "staged\n" {
		t.Errorf("started again it ended with %+v and wrote %q", *o.Result, log)
	}
}

func TestACommandOfATaskAloneHasNoShellBeforeIt(t *testing.T) {
	dir := t.TempDir()
	d := openAlone(t, dir)
	if d.host.groups.tree.dir == "" || !d.host.groups.tree.v2 {
		t.Skip("there is no cgroup version 2 tree to start it in")
	}
	task := staged(t, dir, "direct", `echo $PPID $(ulimit -c) $(ulimit -Hc) $(readlink /proc/$$/fd/0)
		for f in 3 4 5 6 7 8 9; do test ! -e /proc/$$/fd/$f || echo $f $(readlink /proc/$$/fd/$f); done; exit 7`)
	o, log := end(t, d, task)
	// From 10 on are what bash keeps for itself.
	if want := fmt.Sprintf("%d 0 0 /dev/null\n", os.Getpid()); log != want || o.Result.ExitCode != 7 || o.Result.Class != trainyard.ClassUser {
		t.Errorf("log is %q, want %q; result is %+v", log, want, *o.Result)
	}
	o, _ = end(t, d, staged(t, dir, "killed", "kill -SEGV $$; sleep 600"))
	if o.Result.ExitCode != 139 || o.Result.Class != trainyard.ClassUser || !strings.Contains(o.Result.Message, "SIGSEGV") {
		t.Errorf("ended by a signal, the result is %+v", *o.Result)
	}
}

func TestWhatATaskAloneLeavesRunningEndsWithIt(t *testing.T) {
	dir := t.TempDir()
	d := openAlone(t, dir)
	task := staged(t, dir, "rest", `setsid env -u `+markName+` LEFT="$PWD" sleep 600 & until [ "$(readlink /proc/$!/exe)" != "$(readlink /proc/$$/exe)" ]; do :; done`)
	if d.host.groups.tree.dir == "" {
		t.Skip("without cgroups a process that leaves its session and environment is not found")
	}
	if o, _ := end(t, d, task); o.Result.Class != trainyard.ClassOK {
		t.Errorf("result is %+v", *o.Result)
	}
	if left := waitGone(t, "LEFT="+task.Run.Dir); left != nil {
		t.Errorf("processes %q run on", left)
	}
}

func TestLimitsOfATaskAloneHold(t *testing.T) {
	dir := t.TempDir()
	d := openAlone(t, dir)
	task := staged(t, dir, "eat", "head -c 200000000 /dev/zero | tail; exit ${PIPESTATUS[1]}")
	task.Resources = trainyard.Resources{MemoryMB: 100, CPUs: 0.5}
	start(t, d, task)
	o := waitEnded(t, d, task.ID)
	held := o.Result.Class == trainyard.ClassOutOfMemory && o.Result.LimitMB == 100
	if named := strings.Contains(o.Note, "memory limit of 100 MB is not held"); held == named {
		t.Errorf("note is %q, and a task that takes more memory than it may ends as %+v", o.Note, *o.Result)
	}
	if err := d.Remove(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	groups := d.host.groups
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []place{groups.tree, groups.memory, groups.cpu} {
		if p.dir != "" && exists(p.dir) {
			t.Errorf("%s is left", p.dir)
		}
	}
}

func TestATaskAloneHasItsGrace(t *testing.T) {
	dir := t.TempDir()
	d := openAlone(t, dir)
	task := staged(t, dir, "grace", `bash -c 'trap "sleep 0.2; echo saved; exit" TERM; touch up; while :; do sleep 0.01; done'; echo never`)
	start(t, d, task)
	waitFor(t, "the child is up", func() bool { return exists(filepath.Join(task.Run.Dir, "up")) })
	if err := d.Stop(t.Context(), task.ID, time.Hour); err != nil {
		t.Fatal(err)
	}
	if o, log := end(t, d, task); !strings.HasSuffix(log, "saved\n") || o.Result.Class != trainyard.ClassCanceled || o.Result.ExitCode != 143 {
		t.Errorf("log is %q, result is %+v; want that the child could save although the shell was gone", log, *o.Result)
	}
}

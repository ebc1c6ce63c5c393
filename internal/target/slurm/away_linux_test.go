package slurm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
)

// Slurm forgets jobs that have ended. What it said of them is remembered here, and what it did not say is not made up.
func TestJobThatSlurmHasForgotten(t *testing.T) {
	s := lab(t)
	d := open(t, s, t.TempDir())
	task := makeTask(t, "forgotten", "sleep 600", 1)
	start(t, d, task)
	running(t, d, task.ID)
	job := jobOf(d, task.ID)
	d.mu.Lock()
	it := d.tasks[task.ID.Dir()]
	it.rec.Mark, it.job = "never-was"+d.suffix, "999999"
	d.mu.Unlock()
	o := ended(t, d, task.ID)
	if o.Result.Class != trainyard.ClassNodeLost || !strings.Contains(o.Result.Message, "does not know job") {
		t.Errorf("result is %+v", *o.Result)
	}
	command(t, s, "scancel", "--signal=KILL", "--batch", job)
}

// A controller that loses its state gives numbers out again. The job that has ours now is none of our business.
func TestNumberThatAnotherJobHasNow(t *testing.T) {
	s := lab(t)
	d := open(t, s, t.TempDir())
	task := makeTask(t, "renumbered", "sleep 600", 1)
	start(t, d, task)
	running(t, d, task.ID)
	other := strings.TrimSpace(command(t, s, "sbatch", "--parsable", "--output=/dev/null", "--wrap=exec sleep 600"))
	t.Cleanup(func() { command(t, s, "scancel", other) })
	until(t, time.Minute, "the other job runs", func() bool {
		return strings.Contains(command(t, s, "squeue", "-h", "--jobs="+other, "-o%T"), "RUNNING")
	}, func() string { return "waiting" })
	d.mu.Lock()
	it := d.tasks[task.ID.Dir()]
	it.job = other
	d.mu.Unlock()
	until(t, time.Minute, "Slurm has answered", func() bool { return question(d) == nil }, func() string { return "silent" })
	poke(d.changed)
	<-d.Changed()
	if err := d.Stop(t.Context(), task.ID, 0); err != nil {
		t.Fatal(err)
	}
	<-d.Changed() // comes when all that Stop does was done once
	third := strings.TrimSpace(command(t, s, "sbatch", "--parsable", "--output=/dev/null", "--wrap=true"))
	until(t, time.Minute, "a job that came later is over", func() bool { // by then the signal would have had its effect
		return strings.Contains(command(t, s, "squeue", "-h", "--states=all", "--jobs="+third, "-o%T"), "COMPLETED")
	}, func() string { return "not over" })
	if got := command(t, s, "squeue", "-h", "--jobs="+other, "-o%T"); got != "RUNNING\n" {
		t.Errorf("the other job is %s", got)
	}
}

// slurmctld is ended in the middle of a job, and started again later.
func TestControllerAwayInTheMiddleOfAJob(t *testing.T) {
	s := lab(t)
	d := open(t, s, t.TempDir())
	goes, waits := makeTask(t, "goes-on", "until test -e go; do sleep 0.05; done; exit 4", 1), makeTask(t, "later", "echo late", 1)
	killed := makeTask(t, "killed-meanwhile", "sleep 600", 1)
	start(t, d, goes)
	start(t, d, killed)
	running(t, d, goes.ID)
	running(t, d, killed.ID)
	saved(t, s, jobOf(d, goes.ID))
	back := stopController(t, s)
	if _, err := d.Observe(t.Context()); err == nil { // it may have been asked just now
		until(t, time.Minute, "the list fails", func() bool { _, err := d.Observe(t.Context()); return err != nil }, func() string { return "whole" })
	}
	if err := os.WriteFile(filepath.Join(goes.Run.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, d, waits) // it is accepted
	if err := d.Stop(t.Context(), killed.ID, 0); err != nil {
		t.Errorf("stop: %v", err)
	}
	back()
	if o := ended(t, d, goes.ID); o.Result.Class != trainyard.ClassUser || o.Result.ExitCode != 4 {
		t.Errorf("result is %+v", *o.Result)
	}
	if o := ended(t, d, killed.ID); o.Result.Class != trainyard.ClassCanceled {
		t.Errorf("result is %+v", *o.Result)
	}
	if o := ended(t, d, waits.ID); o.Result.Class != trainyard.ClassOK || logOf(t, d, waits.ID) != "late\n" {
		t.Errorf("result is %+v", *o.Result)
	}
}

// A controller that has much to do answers late. How a task ended that has told it itself is seen all the same.
func TestEndIsSeenWhileSlurmIsSilent(t *testing.T) {
	s := lab(t)
	d := open(t, s, t.TempDir())
	task := makeTask(t, "not-held-up", "until test -e go; do sleep 0.05; done; exit 4", 1)
	start(t, d, task)
	running(t, d, task.ID)
	until(t, time.Minute, "Slurm has answered", func() bool { return question(d) == nil }, func() string { return "silent" })
	t.Cleanup(func() { signalController(t, s, syscall.SIGCONT) })
	signalController(t, s, syscall.SIGSTOP)
	until(t, time.Minute, "it is asked again", func() bool {
		if _, err := d.Observe(t.Context()); err != nil {
			t.Fatal(err)
		}
		return question(d) != nil
	}, func() string { return "let be" })
	unanswered := question(d)
	if err := os.WriteFile(filepath.Join(task.Run.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := ended(t, d, task.ID); o.Result.Class != trainyard.ClassUser || o.Result.ExitCode != 4 {
		t.Errorf("result is %+v", *o.Result)
	}
	select {
	case <-unanswered:
		t.Error("the end was seen only when Slurm had answered, or given up")
	default:
	}
}

// saved waits until slurmctld has saved its state with a job that runs. What it has not saved it forgets. It saves after every change, one time
// after the other: the first that is seen may have begun before the job did, and the second began after the first.
func saved(t *testing.T, s slurm.Settings, job string) {
	t.Helper()
	file := filepath.Join(filepath.Dir(filepath.Dir(s.ConfPath)), "state", "job_state")
	for _, change := range []string{"once", "twice"} {
		before, _ := os.Stat(file) // there is none before the first
		command(t, s, "scontrol", "update", "jobid="+job, "comment="+change)
		until(t, time.Minute, "slurmctld saves its state "+change, func() bool {
			now, err := os.Stat(file)
			return err == nil && (before == nil || now.ModTime().After(before.ModTime()))
		}, func() string { return "not saved" })
	}
}

// question is closed when the question to Slurm that is under way is over; nil if none is.
func question(d *Driver) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.view.asking
}

// signalController sends slurmctld a signal.
func signalController(t *testing.T, s slurm.Settings, sig syscall.Signal) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(s.ConfPath)), "run", "slurmctld.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// stopController kills slurmctld as a crash would, and returns what starts it again.
func stopController(t *testing.T, s slurm.Settings) (back func()) {
	t.Helper()
	dir := filepath.Dir(filepath.Dir(s.ConfPath))
	signalController(t, s, syscall.SIGKILL)
	started := false
	back = func() {
		if started {
			return
		}
		started = true
		out, err := os.OpenFile(filepath.Join(dir, "log", "slurmctld.out"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		path, err := exec.LookPath("slurmctld")
		if err != nil {
			path = "/usr/sbin/slurmctld"
		}
		cmd := exec.Command(path, "-D", "-f", s.ConfPath) // it stays for the tests that follow, and for down.sh to end
		cmd.Stdout, cmd.Stderr, cmd.Env = out, out, append(os.Environ(), "SLURM_CONF="+s.ConfPath)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Process.Release()
		until(t, time.Minute, "slurmctld answers", func() bool {
			_, err := s.Client("").Queue(context.Background())
			return err == nil
		}, func() string { return fmt.Sprint("silent; see ", dir) })
	}
	t.Cleanup(back)
	return back
}

// An sbatch that does not tell what it has done may have done it. A computer with much to do is enough for that.
func TestSubmissionThatSaysNothingIsLookedFor(t *testing.T) {
	for name, end := range map[string]string{
		"killed":     `sbatch "$@" >/dev/null; kill -KILL $$`,
		"silent":     `sbatch "$@" >/dev/null`,
		"held by":    `sleep 8 & exec sbatch "$@"`, // what it prints into is open for longer than it lives
		"never sent": `[ -e "$0.once" ] && exec sbatch "$@"; : >"$0.once"; kill -KILL $$`,
	} {
		t.Run(name, func(t *testing.T) {
			s := lab(t)
			path, err := exec.LookPath("sbatch")
			if err != nil {
				t.Fatal(err)
			}
			s.Commands = wrapped(t, map[string]string{"sbatch": "PATH=" + filepath.Dir(path) + ":$PATH\necho x >>\"$0.calls\"\n" + end})
			d := open(t, s, t.TempDir())
			task := makeTask(t, "unheard", "echo ran", 1)
			start(t, d, task)
			if o := ended(t, d, task.ID); o.Result.Class != trainyard.ClassOK || logOf(t, d, task.ID) != "ran\n" {
				t.Errorf("result is %+v", *o.Result)
			}
			if n, want := called(t, s, "sbatch"), 1+strings.Count(end, "once\" ]"); n != want {
				t.Errorf("sbatch was called %d times, and not %d", n, want)
			}
		})
	}
}

// Whatever keeps Slurm from saying if it has a task's job, the task is neither given up nor sent again: it says why it waits. That is so, too, of
// one that a driver finds that comes later.
func TestSearchThatFailsIsMadeAgain(t *testing.T) {
	s, broken := withoutQueue(t, `sbatch --hold "$@" >/dev/null; kill -KILL $$`)
	dir := t.TempDir()
	d := reopen(t, s, dir)
	task := makeTask(t, "sought", "echo ran", 1)
	if err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	saysWhy := func(o trainyard.Observation) bool {
		return o.State == trainyard.TaskStaging && strings.Contains(o.Progress, "its queue cannot be read: squeue: "+dayOff)
	}
	seen(t, d, task.ID, "it says why it waits", saysWhy)
	d.Close()
	d = open(t, s, dir)
	start(t, d, task)
	t.Cleanup(func() { _ = os.Remove(broken) }) // before it is removed
	seen(t, d, task.ID, "it says why it waits", saysWhy)
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	until(t, time.Minute, "its job is found", func() bool { return jobOf(d, task.ID) != "" }, func() string { return "without a job" })
	command(t, s, "scontrol", "release", jobOf(d, task.ID))
	if o := ended(t, d, task.ID); o.Result.Class != trainyard.ClassOK || logOf(t, d, task.ID) != "ran\n" {
		t.Errorf("result is %+v", *o.Result)
	}
	if n := called(t, s, "sbatch"); n != 1 {
		t.Errorf("sbatch was called %d times", n)
	}
}

// A job that runs says its number itself: it is stopped, and seen to end, though Slurm's queue cannot be read.
func TestJobThatRunsIsFoundWithoutTheQueue(t *testing.T) {
	s, broken := withoutQueue(t, `sbatch "$@" >/dev/null; kill -KILL $$`)
	d := open(t, s, t.TempDir())
	short, long := makeTask(t, "ends", "exit 4", 1), makeTask(t, "stopped", "echo began; sleep 600", 1)
	start(t, d, short)
	start(t, d, long)
	t.Cleanup(func() { _ = os.Remove(broken) }) // before they are removed
	state := func(id trainyard.TaskID) (o trainyard.Observation) {
		all, _ := d.Observe(t.Context()) // there is no list while Slurm would have to be asked of others
		for _, one := range all {
			if one.ID == id {
				o = one
			}
		}
		return o
	}
	until(t, time.Minute, "its job is known", func() bool { return jobOf(d, long.ID) != "" }, func() string { return fmt.Sprintf("%+v", state(long.ID)) })
	// Until its program is there the signal ends the script's shell, and only Slurm could tell of that.
	until(t, time.Minute, "its command has begun", func() bool { return logOf(t, d, long.ID) == "began\n" }, func() string { return logOf(t, d, long.ID) })
	if err := d.Stop(t.Context(), long.ID, time.Minute); err != nil {
		t.Fatal(err)
	}
	for task, want := range map[*trainyard.Task]trainyard.Class{&short: trainyard.ClassUser, &long: trainyard.ClassCanceled} {
		until(t, 2*time.Minute, "it has ended", func() bool { return state(task.ID).Result != nil }, func() string { return fmt.Sprintf("%+v", state(task.ID)) })
		if got := state(task.ID).Result; got.Class != want {
			t.Errorf("result is %+v", *got)
		}
	}
	if n := called(t, s, "sbatch"); n != 2 {
		t.Errorf("sbatch was called %d times", n)
	}
}

const dayOff = "a plugin of this site's has its day off"

// withoutQueue is a Slurm whose squeue does not work as long as there is a file, and whose sbatch is a script.
func withoutQueue(t *testing.T, sbatch string) (s slurm.Settings, broken string) {
	t.Helper()
	s = lab(t)
	path, err := exec.LookPath("sbatch")
	if err != nil {
		t.Fatal(err)
	}
	real := "PATH=" + filepath.Dir(path) + ":$PATH\n"
	s.Commands = wrapped(t, map[string]string{
		"sbatch": real + `echo x >>"$0.calls"` + "\n" + sbatch,
		"squeue": real + `[ ! -e "$0.broken" ] || { echo "squeue: error: ` + dayOff + `" >&2; exit 1; }; exec squeue "$@"`,
	})
	broken = filepath.Join(s.Commands, "squeue.broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return s, broken
}

// called is how often a script of wrapped's was.
func called(t *testing.T, s slurm.Settings, name string) int {
	t.Helper()
	calls, err := os.ReadFile(filepath.Join(s.Commands, name+".calls"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(calls), "x")
}

// wrapped is a folder of Slurm's commands, some of which are scripts, as sites have them.
func wrapped(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := scripts[name]; ok {
			err = os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700)
		} else {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What a command says with a high exit status is its answer, and no signal: scancel says so what was wrong.
func TestHighExitStatusIsAnAnswer(t *testing.T) {
	for _, way := range []string{byCommands, byLogin} {
		t.Run(way, func(t *testing.T) {
			s := labBy(t, way)
			if way == byLogin {
				s.Folder = t.TempDir()
			}
			s.Commands = wrapped(t, map[string]string{"sbatch": "echo project over budget >&2; exit 255", "scancel": "echo scancel: error: Invalid job id specified >&2; exit 225"})
			d := open(t, s, t.TempDir())
			if err := d.Start(t.Context(), makeTask(t, "refused", "true", 1)); err == nil || slurm.Away(err) || !strings.Contains(err.Error(), "over budget") {
				t.Errorf("start: %v", err)
			}
			if err := d.client.Signal(t.Context(), slurm.Ref{ID: "1", Name: "n"}, "KILL", slurm.Steps); err != nil {
				t.Errorf("signal: %v", err)
			}
		})
	}
}

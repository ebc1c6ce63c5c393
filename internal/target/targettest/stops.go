//go:build !windows

package targettest

import (
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// detach is a shell function that runs a command in a session of its own.
const detach = `detach() { if command -v setsid >/dev/null; then setsid "$@"; else perl -MPOSIX -e 'POSIX::setsid(); exec @ARGV' "$@"; fi; }; `

// long is a grace that no test lives to see.
const long = time.Hour

var stops = []check{
	{"stops a task with SIGTERM and says that it was stopped", func(h *harness) {
		p := h.pulse()
		t := h.task("trap 'echo saved; exit 7' TERM; exec 8>" + p.path + "; printf x >&8; while :; do sleep 0.02; done")
		h.start(t)
		p.up(1)
		h.stop(t, long)
		o := h.ended(t.ID)
		h.wantExit(o, trainyard.ClassCanceled, 7)
		if saysKilled(o, 0) {
			h.Errorf("it says that it was killed: %+v", o)
		}
		if got := h.log(t.ID, 0); !strings.HasSuffix(got, "saved\n") { // before it the shell may say what became of its children
			h.Errorf("it wrote %q", got)
		}
	}},
	{"tells every process once that it is to end", func(h *harness) { // a shell would take two signals for one
		p := h.pulse()
		t := h.task(detach + "exec 8>" + p.path + `
			count='import os, signal, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
os.write(8, b"x")
while not told: time.sleep(0.02)
until = time.monotonic() + 0.5
while time.monotonic() < until: time.sleep(0.02)
print("told %d" % len(told), flush=True)'
			python3 -c "$count" & detach python3 -c "$count" & wait`)
		h.start(t)
		p.up(2)
		h.stop(t, long)
		h.ended(t.ID)
		if got := h.log(t.ID, 0); strings.Count(got, "told 1\n") != 2 {
			h.Errorf("it wrote %q", got)
		}
	}},
	{"kills a task that does not care about SIGTERM when grace is over", func(h *harness) {
		h.wantExit(h.killed("trap '' TERM; exec 8>PULSE; printf x >&8; while :; do sleep 0.02; done"), trainyard.ClassCanceled, 137)
	}},
	{"kills what does not care about SIGTERM when the shell that began it is gone", func(h *harness) {
		h.killed("exec 8>PULSE; bash -c \"trap '' TERM; printf x >&8; while :; do sleep 0.02; done\" | cat")
	}},
	{"shortens the grace when it is told to stop again", func(h *harness) {
		p := h.pulse()
		t := h.task("trap '' TERM; exec 8>" + p.path + "; printf x >&8; while :; do sleep 0.02; done")
		h.start(t)
		p.up(1)
		h.stop(t, long)
		h.stop(t, 0)
		h.stop(t, long)
		h.wantExit(h.ended(t.ID), trainyard.ClassCanceled, 137)
	}},
	{"stops everything that a task started, in whatever session it is", func(h *harness) {
		p := h.pulse()
		t := h.task(detach + "exec 8>" + p.path + `
			detach bash -c "trap '' TERM HUP; printf x >&8; while :; do sleep 0.02; done" &
			(trap '' TERM; printf x >&8; sleep 600; sleep 600) &
			detach bash -c 'bash -c "printf x >&8; sleep 600; :" & exit' 
			printf x >&8; wait`)
		h.start(t)
		p.up(4)
		h.stop(t, 200*time.Millisecond)
		h.ended(t.ID)
		p.down()
	}},
	{"stops a task that has forked five hundred children", func(h *harness) {
		p := h.pulse()
		t := h.task("trap '' TERM; exec 8>" + p.path + "; for i in $(seq 500); do (printf x >&8; exec sleep 600) & done; wait")
		h.start(t)
		p.up(500)
		h.stop(t, 50*time.Millisecond)
		h.ended(t.ID)
		p.down()
	}},
	{"ends what a task left behind when its command is over", func(h *harness) {
		p := h.pulse()
		t := h.task(detach + "exec 8>" + p.path + "; detach sleep 600 & printf x >&8; exit 3")
		h.start(t)
		h.wantExit(h.ended(t.ID), trainyard.ClassUser, 3)
		p.down()
	}},
	{"returns from Stop at once, and leaves other tasks alone", func(h *harness) {
		a, b := h.task("trap '' TERM; while :; do sleep 0.02; done"), h.task("sleep 600")
		h.start(a)
		h.start(b)
		from := time.Now()
		h.stop(a, long)
		if took := time.Since(from); took > patience/2 {
			h.Errorf("Stop took %v", took)
		}
		h.stop(a, 0)
		h.ended(a.ID)
		if o, _ := h.find(b.ID); o.State != trainyard.TaskRunning {
			h.Errorf("the other task is %+v", o)
		}
	}},
	{"takes it as no error to stop or remove a task that it does not know", func(h *harness) {
		id := h.task("").ID
		if err := h.d.Stop(h.Context(), id, time.Second); err != nil {
			h.Errorf("stop: %v", err)
		}
		if err := h.d.Remove(h.Context(), id); err != nil {
			h.Errorf("remove: %v", err)
		}
	}},
	{"leaves the result of a task alone that had ended before it was stopped", func(h *harness) {
		t, _ := h.run("exit 3")
		h.stop(t, 0)
		h.wantExit(h.ended(t.ID), trainyard.ClassUser, 3)
	}},
	{"removes a task that runs, with every trace, and can run it anew", func(h *harness) {
		p := h.pulse()
		t := h.task(detach + "echo ran >> runs; exec 8>" + p.path + "; printf x >&8; mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a; detach sleep 600 & wait")
		for run := 1; run <= 2; run++ {
			h.start(t)
			p.up(1)
			h.remove(t)
			p.down()
			h.until("it ran once more", func() bool { return h.lines(filepath.Join(t.Run.Dir, "runs")) == run })
		}
		h.noTrace(t.ID)
	}},
	{"removes a task that has ended, with every trace", func(h *harness) {
		t, _ := h.run("echo hello; exit 3")
		h.remove(t)
		h.noTrace(t.ID)
		h.reopen()
		h.noTrace(t.ID)
	}},
	{"signals when a task ends, if it signals at all", func(h *harness) {
		w, ok := h.d.(target.Watcher)
		if !ok {
			return // the agent looks now and then
		}
		t := h.task("sleep 0.1")
		h.start(t)
		late := time.After(patience)
		for o, _ := h.find(t.ID); o.State != trainyard.TaskEnded; o, _ = h.find(t.ID) {
			select {
			case <-w.Changed():
			case <-late:
				h.Fatal("the task has ended, and no signal came")
			}
		}
	}},
}

// killed stops a command that does not end by itself, with a short grace, and returns how it ended. It holds PULSE open.
func (h *harness) killed(command string) trainyard.Observation {
	h.Helper()
	p := h.pulse()
	t := h.task(strings.ReplaceAll(command, "PULSE", p.path))
	h.start(t)
	p.up(1)
	h.stop(t, 200*time.Millisecond)
	o := h.ended(t.ID)
	if !saysKilled(o, 200*time.Millisecond) {
		h.Errorf("that it was killed is not said, or not once: %+v", o)
	}
	p.down()
	return o
}

// saysKilled says whether it is told once that a task was killed since it had not ended so long after SIGTERM: by the driver, or by the agent in what
// the driver started, in words.
func saysKilled(o trainyard.Observation, grace time.Duration) bool {
	words := strings.Count(strings.Join(o.Notes, "; "), "was killed: it had not ended")
	return o.Killed > 0 && o.Killed >= grace && words == 0 || o.Killed == 0 && words == 1
}

func (h *harness) stop(t trainyard.Task, grace time.Duration) {
	h.Helper()
	if err := h.d.Stop(h.Context(), t.ID, grace); err != nil {
		h.Fatalf("stop: %v", err)
	}
}

func (h *harness) remove(t trainyard.Task) {
	h.Helper()
	if err := h.d.Remove(h.Context(), t.ID); err != nil {
		h.Fatalf("remove: %v", err)
	}
}

// noTrace looks for the task where it could have left something.
func (h *harness) noTrace(id trainyard.TaskID) {
	h.Helper()
	if o, ok := h.find(id); ok {
		h.Errorf("Observe lists it: %+v", o)
	}
	if _, err := h.d.Logs(h.Context(), id, 0); !trainyard.IsNotFound(err) {
		h.Errorf("its log is still known (%v)", err)
	}
	err := filepath.WalkDir(h.dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(path, id.Dir()) {
			h.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		h.Error(err)
	}
}

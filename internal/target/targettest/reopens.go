//go:build !windows

package targettest

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

var reopens = []check{
	{"keeps tasks running that it ran before it was closed, and tells how they end", func(h *harness) {
		t := h.task("echo before; until test -e go; do sleep 0.02; done; echo after; exit 7")
		h.start(t)
		before, _ := h.find(t.ID)
		h.reopen()
		o, ok := h.find(t.ID)
		if !ok || o.State != trainyard.TaskRunning || !o.Started.Equal(before.Started) {
			h.Fatalf("after it was opened again the task is %+v, before %+v", o, before)
		}
		h.touch(filepath.Join(t.Run.Dir, "go"))
		h.wantExit(h.ended(t.ID), trainyard.ClassUser, 7)
		if got := h.log(t.ID, 0); got != "before\nafter\n" {
			h.Errorf("log is %q", got)
		}
	}},
	{"tells how a task ended while it was closed", func(h *harness) {
		p := h.pulse()
		t := h.task("exec 8>" + p.path + "; printf x >&8; until test -e go; do sleep 0.02; done; exit 9")
		h.start(t)
		p.up(1)
		h.closeFor(func() {
			h.touch(filepath.Join(t.Run.Dir, "go"))
			p.down()
		})
		h.wantExit(h.ended(t.ID), trainyard.ClassUser, 9)
	}},
	{"keeps the result and the log of an ended task until it is removed", func(h *harness) {
		t, o := h.run("echo hello; exit 3")
		h.reopen()
		again := h.ended(t.ID)
		if !again.Started.Equal(o.Started) || !again.Ended.Equal(o.Ended) || again.Result.ExitCode != o.Result.ExitCode ||
			again.Result.Class != o.Result.Class || again.Result.Message != o.Result.Message {
			h.Errorf("the task is %+v with %+v, and was %+v with %+v", again, *again.Result, o, *o.Result)
		}
		if got := h.log(t.ID, 0); got != "hello\n" {
			h.Errorf("log is %q", got)
		}
		h.remove(t)
		h.noTrace(t.ID)
	}},
	{"goes on stopping a task", func(h *harness) {
		p := h.pulse()
		t := h.task("trap '' TERM; exec 8>" + p.path + "; printf x >&8; while :; do sleep 0.02; done")
		h.start(t)
		p.up(1)
		h.stop(t, 300*time.Millisecond)
		h.reopen()
		h.wantExit(h.ended(t.ID), trainyard.ClassCanceled, 137)
		p.down()
		h.reopen()
		h.wantExit(h.ended(t.ID), trainyard.ClassCanceled, 137)
	}},
	{"can remove a task that it did not start itself", func(h *harness) {
		p := h.pulse()
		t := h.task(detach + "exec 8>" + p.path + "; printf x >&8; detach sleep 600 & wait")
		h.start(t)
		p.up(1)
		h.reopen()
		h.remove(t)
		p.down()
		h.noTrace(t.ID)
	}},
}

// limits are demanded only of drivers that hold them; one that does not must say so in the observation.
var limits = []check{
	{"names a task that ran out of memory, with its limit and its peak, or says that the limit is not held", func(h *harness) {
		t := h.task("head -c 200000000 /dev/zero | tail; exit ${PIPESTATUS[1]}")
		t.Resources.MemoryMB = 100
		h.start(t)
		o := h.ended(t.ID)
		if strings.Contains(strings.Join(o.Notes, "; "), "memory limit of 100 MB is not held") {
			return
		}
		h.wantExit(o, trainyard.ClassOutOfMemory, 137)
		if o.Result.LimitMB != 100 || o.Result.PeakMB < 90 || o.Result.PeakMB > 110 || !strings.Contains(o.Result.Message, "100 MB") {
			h.Errorf("result is %+v, want the limit of 100 MB and a peak like it, in the message too", o.Result)
		}
		h.reopen()
		if again := h.ended(t.ID); *again.Result != *o.Result {
			h.Errorf("result is %+v after it was opened again, and was %+v", again.Result, o.Result)
		}
	}},
	{"lets a task be that stays within its limit", func(h *harness) {
		t := h.task("head -c 50000000 /dev/zero | tail | wc -c")
		t.Resources.MemoryMB = 200
		h.start(t)
		h.wantExit(h.ended(t.ID), trainyard.ClassOK, 0)
		if got := h.log(t.ID, 0); got != "50000000\n" {
			h.Errorf("it wrote %q", got)
		}
	}},
}

func (h *harness) touch(path string) {
	h.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		h.Fatal(err)
	}
}

// closeFor closes the driver, calls f, and opens the driver again.
func (h *harness) closeFor(f func()) {
	h.Helper()
	if c, ok := h.d.(target.Closer); ok {
		if err := c.Close(); err != nil {
			h.Fatalf("close: %v", err)
		}
	}
	f()
	h.reopen()
}

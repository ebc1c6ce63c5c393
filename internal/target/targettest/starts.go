//go:build !windows

package targettest

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/trainyard/trainyard"
)

var starts = []check{
	{"says what tasks may use", func(h *harness) {
		r, err := h.d.Capacity(h.Context())
		if err != nil || r.CPUs <= 0 || r.MemoryMB <= 0 || r.Slots <= 0 {
			h.Errorf("capacity is %+v (%v), want CPUs, memory and slots", r, err)
		}
	}},
	{"runs a task once however often it is started", func(h *harness) {
		t := h.task("echo ran >> runs")
		runs := filepath.Join(t.Run.Dir, "runs")
		h.start(t)
		h.start(t)
		h.ended(t.ID)
		h.start(t)
		h.reopen()
		h.start(t)
		h.ended(t.ID)
		if n := h.lines(runs); n != 1 {
			h.Errorf("it ran %d times", n)
		}
	}},
	{"runs a task once when it is started by many at once", func(h *harness) {
		for range 5 {
			t := h.task("echo ran >> runs")
			together(8, func() {
				if err := h.d.Start(context.Background(), t); err != nil {
					h.Errorf("start: %v", err)
				}
			})
			h.ended(t.ID)
			if n := h.lines(filepath.Join(t.Run.Dir, "runs")); n != 1 {
				h.Errorf("it ran %d times", n)
			}
		}
	}},
	{"has begun a task when Start returns", func(h *harness) {
		t := h.task("sleep 600")
		h.start(t)
		o, ok := h.find(t.ID)
		if !ok || o.State != trainyard.TaskRunning || o.Started.IsZero() || o.Result != nil {
			h.Errorf("it is seen as %+v", o)
		}
	}},
	{"runs the command with bash in the folder and the environment that it was given", func(h *harness) {
		t := h.task(`pwd -P; printf '%s|' "$PLAIN" "$ODD"; [[ -n $BASH_VERSION ]] && echo bash
			test -d "$TMPDIR" -a -w "$TMPDIR" && echo tmp; echo "$HOME$PATH" | grep -c /`)
		t.Run.Env = map[string]string{"PLAIN": "1", "ODD": "a \"b\" 'c' $d\né"}
		h.start(t)
		h.wantExit(h.ended(t.ID), trainyard.ClassOK, 0)
		dir, err := filepath.EvalSymlinks(t.Run.Dir)
		if err != nil {
			h.Fatal(err)
		}
		want := dir + "\n1|a \"b\" 'c' $d\né|bash\ntmp\n1\n"
		if got := h.log(t.ID, 0); got != want {
			h.Errorf("it wrote %q, want %q", got, want)
		}
	}},
	{"runs a command of a quarter of a million characters", func(h *harness) {
		t, o := h.run("x=" + strings.Repeat("y", 250_000) + "; echo ${#x}; exit 5")
		h.wantExit(o, trainyard.ClassUser, 5)
		if got := h.log(t.ID, 0); got != "250000\n" {
			h.Errorf("it wrote %q", got)
		}
	}},
	{"gives a task nothing to read and no descriptor of the agent", func(h *harness) {
		t, o := h.run(`cat; for fd in 3 4 5 6 7 8 9; do if { true >&$fd; } 2>/dev/null; then echo "$fd is open"; fi; done`)
		h.wantExit(o, trainyard.ClassOK, 0)
		if got := h.log(t.ID, 0); got != "" {
			h.Errorf("it wrote %q, want nothing", got)
		}
	}},
	{"refuses a task whose folder is not there, and can start it later", func(h *harness) {
		t := h.task("exit 6")
		dir := t.Run.Dir
		t.Run.Dir = filepath.Join(dir, "missing")
		if err := h.d.Start(h.Context(), t); err == nil || !strings.Contains(err.Error(), "missing") {
			h.Errorf("error is %v, want one that names the folder", err)
		}
		if _, ok := h.find(t.ID); ok {
			h.Error("a task that did not start is listed")
		}
		t.Run.Dir = dir
		h.start(t)
		h.wantExit(h.ended(t.ID), trainyard.ClassUser, 6)
	}},
	{"tells exit codes, and signals as 128 and their number", func(h *harness) {
		for command, code := range map[string]int{"true": 0, "exit 3": 3, "(exit 9); (exit 11)": 11, "no-such-program": 127,
			"kill -KILL $$": 137, "kill -TERM $$": 143} {
			class := trainyard.ClassUser
			if code == 0 {
				class = trainyard.ClassOK
			}
			_, o := h.run(command)
			h.wantExit(o, class, code)
			if o.Ended.Before(o.Started) || o.Started.IsZero() {
				h.Errorf("%q ran from %v to %v", command, o.Started, o.Ended)
			}
		}
	}},
	{"lists all tasks, those that run and those that have ended", func(h *harness) {
		want := map[trainyard.TaskID]trainyard.TaskState{}
		for range 5 {
			a, b := h.task("sleep 600"), h.task("exit 2")
			h.start(a)
			h.start(b)
			want[a.ID], want[b.ID] = trainyard.TaskRunning, trainyard.TaskEnded
		}
		for id, state := range want {
			if state == trainyard.TaskEnded {
				h.ended(id)
			}
		}
		all := h.observe()
		if len(all) != len(want) {
			h.Errorf("%d tasks are listed, want %d", len(all), len(want))
		}
		for _, o := range all {
			if o.State != want[o.ID] {
				h.Errorf("%s is %q, want %q", o.ID, o.State, want[o.ID])
			}
		}
	}},
	{"lives with a task that deletes its own folder", func(h *harness) {
		t, o := h.run(`rm -rf "$PWD"; echo gone; exit 4`)
		h.wantExit(o, trainyard.ClassUser, 4)
		if got := h.log(t.ID, 0); got != "gone\n" {
			h.Errorf("it wrote %q", got)
		}
	}},
}

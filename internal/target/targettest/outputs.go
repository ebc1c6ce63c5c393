//go:build !windows

package targettest

import (
	"strings"

	"github.com/trainyard/trainyard"
)

var outputs = []check{
	{"keeps all that is written to standard output and error, in order", func(h *harness) {
		t, _ := h.run("for i in 1 2 3; do echo out $i; echo err $i >&2; done; printf 'no line end'")
		want := "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\nno line end"
		if got := h.log(t.ID, 0); got != want {
			h.Errorf("log is %q, want %q", got, want)
		}
		if got := h.log(t.ID, 12); got != want[12:] {
			h.Errorf("log from 12 is %q, want %q", got, want[12:])
		}
		if got := h.log(t.ID, int64(len(want))) + h.log(t.ID, 1<<40); got != "" {
			h.Errorf("log from its end and beyond is %q, want nothing", got)
		}
	}},
	{"shows what a task that runs has written so far, and does not wait for more", func(h *harness) {
		t := h.task("echo first; sleep 600")
		h.start(t)
		h.until("the line is there", func() bool { return h.log(t.ID, 0) == "first\n" })
	}},
	{"changes no byte that is not text", func(h *harness) {
		t, _ := h.run(`printf '\xff\xfe\x00\x80 \xc3(\r\n'`)
		if got := h.log(t.ID, 0); got != "\xff\xfe\x00\x80 \xc3(\r\n" {
			h.Errorf("log is %q", got)
		}
	}},
	{"keeps fifty million bytes", func(h *harness) {
		const size = 50_000_000
		t, o := h.run("head -c 50000000 /dev/zero | tr '\\0' x; echo end")
		h.wantExit(o, trainyard.ClassOK, 0)
		got := h.log(t.ID, 0)
		if len(got) != size+4 || strings.Count(got, "x") != size || !strings.HasSuffix(got, "xend\n") {
			h.Errorf("log has %d bytes, want %d of x and a last line", len(got), size)
		}
		if tail := h.log(t.ID, size); tail != "end\n" {
			h.Errorf("log from %d is %q", size, tail)
		}
	}},
	{"has the whole log when a task has ended, whatever it left running", func(h *harness) {
		t, _ := h.run("(while :; do echo more; done) & echo x; exit 0")
		before := h.log(t.ID, 0)
		if after := h.log(t.ID, 0); after != before {
			h.Errorf("the log grew from %d to %d bytes after the end", len(before), len(after))
		}
	}},
	{"says that it does not know the log of an unknown task", func(h *harness) {
		if r, err := h.d.Logs(h.Context(), h.task("").ID, 0); !trainyard.IsNotFound(err) {
			h.Errorf("logs are %v, error is %v, want %s", r, err, trainyard.CodeNotFound)
		} else if strings.Contains(err.Error(), trainyard.DefaultScope().Key()) {
			h.Errorf("%q names more than the job: it is for people", err)
		}
	}},
}

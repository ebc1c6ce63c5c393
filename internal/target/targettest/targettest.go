//go:build !windows

package targettest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// Open makes a driver whose folder is dir, without limits for the node. reopen closes the driver, as the end of an agent would, and
// returns a new one on the same folder. The suite removes the tasks it started and closes the last driver. Tasks must see the folders
// of t.TempDir under the same path.
type Open func(t *testing.T, dir string) (d target.Driver, reopen func() target.Driver)

// patience bounds every wait; on a machine that works it is never used up.
const patience = 60 * time.Second

// Run holds a driver to the contract.
func Run(t *testing.T, open Open) { run(t, open, starts, outputs, stops, reopens, limits) }

// RunAlone holds a driver to it that was opened with Env.Alone: nobody opens it again, so reopen is to return it as it is.
func RunAlone(t *testing.T, open Open) { run(t, open, starts, outputs, stops, limits) }

func run(t *testing.T, open Open, groups ...[]check) {
	for _, group := range groups {
		for _, c := range group {
			t.Run(c.says, func(t *testing.T) { c.hold(newHarness(t, open)) })
		}
	}
}

// check is one demand on drivers.
type check struct {
	says string
	hold func(h *harness)
}

// harness is one driver under test.
type harness struct {
	*testing.T
	d      target.Driver
	dir    string
	reopen func()
}

var names atomic.Int64

func newHarness(t *testing.T, open Open) *harness {
	h := &harness{T: t, dir: t.TempDir()}
	d, reopen := open(t, h.dir)
	h.d = d
	h.reopen = func() { h.d = reopen() }
	t.Cleanup(h.clean)
	return h
}

func (h *harness) clean() {
	for _, o := range h.observe() {
		if err := h.d.Remove(context.Background(), o.ID); err != nil {
			h.Errorf("remove %s: %v", o.ID, err)
		}
	}
	if left := h.observe(); len(left) > 0 {
		h.Errorf("after every task was removed Observe lists %v", left)
	}
	if c, ok := h.d.(target.Closer); ok {
		if err := c.Close(); err != nil {
			h.Errorf("close: %v", err)
		}
	}
}

// task makes a task with a name and a folder of its own.
func (h *harness) task(command string) trainyard.Task {
	n := int(names.Add(1))
	key := trainyard.MakeJobKey(trainyard.DefaultScope(), fmt.Sprintf("task-%d", n))
	dir := h.TempDir()
	return trainyard.Task{
		ID:      trainyard.MakeTaskID(key, 1, 0),
		JobName: fmt.Sprintf("task-%d", n),
		Attempt: 1,
		Hi:      1,
		Nodes:   1,
		Grace:   10 * time.Second,
		Run:     trainyard.Run{Command: command, Dir: dir, LogDir: h.TempDir(), Root: filepath.Dir(dir)},
	}
}

func (h *harness) start(t trainyard.Task) {
	h.Helper()
	if err := h.d.Start(h.Context(), t); err != nil {
		h.Fatalf("start: %v", err)
	}
}

// run starts a task and waits until it has ended.
func (h *harness) run(command string) (trainyard.Task, trainyard.Observation) {
	h.Helper()
	t := h.task(command)
	h.start(t)
	return t, h.ended(t.ID)
}

func (h *harness) observe() []trainyard.Observation {
	h.Helper()
	all, err := h.d.Observe(context.Background())
	if err != nil {
		h.Errorf("observe: %v", err)
	}
	return all
}

func (h *harness) find(id trainyard.TaskID) (found trainyard.Observation, ok bool) {
	h.Helper()
	for _, o := range h.observe() {
		if o.ID == id {
			if ok {
				h.Fatalf("Observe lists %s twice", id)
			}
			found, ok = o, true
		}
	}
	return found, ok
}

// ended waits for the task's end.
func (h *harness) ended(id trainyard.TaskID) (o trainyard.Observation) {
	h.Helper()
	h.until("the task ends", func() bool {
		var ok bool
		o, ok = h.find(id)
		if !ok {
			h.Fatalf("Observe does not list %s, which was started", id)
		}
		return o.State == trainyard.TaskEnded
	})
	if o.Result == nil {
		h.Fatalf("%s has ended without a result", id)
	}
	return o
}

// until looks again and again until done says true.
func (h *harness) until(what string, done func() bool) {
	h.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	late := time.After(patience)
	for !done() {
		select {
		case <-look.C:
		case <-late:
			h.Fatalf("after %v not true: %s", patience, what)
		}
	}
}

// log reads the task's output from an offset.
func (h *harness) log(id trainyard.TaskID, from int64) string {
	h.Helper()
	r, err := h.d.Logs(h.Context(), id, from)
	if err != nil {
		h.Fatalf("logs: %v", err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		h.Fatalf("read logs: %v", err)
	}
	return string(data)
}

// wantExit fails unless the task ended like this.
func (h *harness) wantExit(o trainyard.Observation, class trainyard.Class, code int) {
	h.Helper()
	if o.Result.Class != class || o.Result.ExitCode != code {
		h.Errorf("ended with class %s and exit code %d (%q), want %s and %d", o.Result.Class, o.Result.ExitCode, o.Result.Message, class, code)
	}
}

// lines counts the lines of a file that tasks append to; a file that is not there has none.
func (h *harness) lines(path string) int {
	h.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

// pulse tells when processes live: each opens the pipe for writing and writes a byte.
type pulse struct {
	h    *harness
	path string
	r    *os.File
}

func (h *harness) pulse() *pulse {
	h.Helper()
	path := filepath.Join(h.TempDir(), "pulse")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		h.Fatal(err)
	}
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { r.Close() })
	return &pulse{h: h, path: path, r: r}
}

// up waits until n processes have written.
func (p *pulse) up(n int) {
	p.h.Helper()
	buf := make([]byte, n)
	p.h.until("the task's processes are up", func() bool {
		got, _ := p.r.Read(buf[:n]) // end of file as long as nobody has opened it
		n -= got
		return n == 0
	})
}

// down waits until no process has it open any more.
func (p *pulse) down() {
	p.h.Helper()
	if err := p.r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		p.h.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, p.r); err != nil {
		p.h.Fatalf("processes of the task still live: %v", err)
	}
}

// together calls f n times at once and waits.
func together(n int, f func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(f)
	}
	wg.Wait()
}

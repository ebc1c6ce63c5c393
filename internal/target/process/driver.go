package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu"
	"github.com/trainyard/trainyard/internal/target"
)

// Driver runs tasks as processes of this computer. One at a time may be open on a folder.
type Driver struct {
	env    target.Env
	shell  string
	lock   io.Closer // nil: Env.Alone
	prefix string    // of the tasks' folders
	host   *host
	base   map[string]string // environment that every task gets
	gpus   *gpu.Reader
	step   func(string)

	gpuMu sync.Mutex // held from the choice of GPUs until the task that has them is known

	mu      sync.Mutex
	tasks   map[string]*task // by TaskID.Dir()
	closed  bool
	changed chan struct{}
	closing chan struct{}
	follows sync.WaitGroup
}

// task is one task in memory: a copy of what its folder says.
type task struct {
	dir    string
	status *os.File // its task file, where that is in memory alone; else nil

	// op is held by whoever starts or removes the task; gone says that the one before took it out of Driver.tasks.
	op   sync.Mutex
	gone bool

	// The rest is guarded by Driver.mu.
	id     trainyard.TaskID
	began  bool // the gate was opened: it is shown, and never started again
	rec    record
	proc   *process
	lost   bool // it was begun in another place: nothing of it is left, or may be
	stop   *stopRecord
	killed time.Duration // as in trainyard.Observation
	end    *ending       // not nil: it has ended
	nudge  chan struct{} // cap 1: stop has changed
	done   chan struct{} // closed when end is set
}

// ending is how and when a task ended.
type ending struct {
	At     time.Time        `json:"at"`
	Result trainyard.Result `json:"result"`
	Killed time.Duration    `json:"killed,omitempty"` // as in trainyard.Observation
}

// Observe lists all tasks from memory, which the files were read into when the driver was opened.
func (d *Driver) Observe(ctx context.Context) ([]trainyard.Observation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	out := make([]trainyard.Observation, 0, len(d.tasks))
	for _, t := range d.tasks {
		if t.began {
			out = append(out, t.observe())
		}
	}
	return out, nil
}

func (t *task) observe() trainyard.Observation {
	o := trainyard.Observation{ID: t.id, State: trainyard.TaskRunning, Started: t.rec.Started}
	if t.rec.Note != "" {
		o.Notes = []string{t.rec.Note}
	}
	if t.end != nil {
		result := t.end.Result
		o.State, o.Ended, o.Result, o.PeakMB, o.Killed = trainyard.TaskEnded, t.end.At, &result, result.PeakMB, t.end.Killed
	}
	return o
}

// Logs reads the task's log up to the length it has now.
func (d *Driver) Logs(ctx context.Context, id trainyard.TaskID, from int64) (io.ReadCloser, error) {
	f, err := os.Open(d.path(id.Dir(), logFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, trainyard.NotFound("%s has no log here: it was not started, or it was removed", id.Words())
	}
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", id.Words(), err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(min(max(from, 0), size), io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("log of %s: %w", id.Words(), err)
	}
	return &logReader{Reader: io.LimitReader(f, max(0, size-max(from, 0))), file: f}, nil
}

// logReader reads a file up to a limit.
type logReader struct {
	io.Reader
	file *os.File
}

func (r *logReader) Close() error { return r.file.Close() }

// Changed gets a value when a task begins or ends. What a task writes makes no signal: a job may print a line every microsecond.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Notes says by name what is not held here, in sentences for people. It does not change while the driver is open.
func (d *Driver) Notes() []string { return d.host.notes() }

// Close lets go of the folder and forgets the tasks, which go on. It waits until nothing of the driver runs any more.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	close(d.closing)
	tasks := make([]*task, 0, len(d.tasks))
	for _, t := range d.tasks {
		tasks = append(tasks, t)
	}
	d.mu.Unlock()
	for _, t := range tasks {
		t.op.Lock() // a start that is under way gets its gate opened first
		if t.proc != nil {
			t.proc.abandon()
		}
		t.op.Unlock()
	}
	d.follows.Wait()
	d.host.close()
	d.gpus.Close()
	if d.lock == nil {
		return nil
	}
	return d.lock.Close()
}

var errClosed = errors.New("process target is closed")

// signal tells the watcher to look.
func (d *Driver) signal() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (d *Driver) path(dir, name string) string { return filepath.Join(d.env.Dir, d.prefix+dir, name) }

// acquire returns the task with its op lock held; release it with d.release. Without create it returns nil for an unknown one.
func (d *Driver) acquire(id trainyard.TaskID, create bool) (*task, error) {
	dir := id.Dir()
	for {
		d.mu.Lock()
		if d.closed {
			d.mu.Unlock()
			return nil, errClosed
		}
		t := d.tasks[dir]
		if t == nil && create {
			t = newTask(id, dir)
			d.tasks[dir] = t
		}
		d.mu.Unlock()
		switch {
		case t == nil:
			return nil, nil
		case t.id != id:
			return nil, trainyard.Conflict("%s and %s would share the folder %s; give the job another name", t.id.Words(), id.Words(), dir)
		}
		t.op.Lock()
		if !t.gone {
			return t, nil
		}
		t.op.Unlock()
	}
}

// release lets go of a task that acquire returned, and forgets it if it never began or drop is true.
func (d *Driver) release(t *task, drop bool) {
	d.mu.Lock()
	if drop || !t.began {
		t.gone = true
		delete(d.tasks, t.dir)
	}
	d.mu.Unlock()
	t.op.Unlock()
}

func newTask(id trainyard.TaskID, dir string) *task {
	return &task{id: id, dir: dir, nudge: make(chan struct{}, 1), done: make(chan struct{})}
}

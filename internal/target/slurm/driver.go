package slurm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
	"github.com/trainyard/trainyard/internal/target"
)

// Driver runs tasks as Slurm jobs. One at a time may be open on a folder.
type Driver struct {
	settings slurm.Settings
	env      target.Env
	client   *slurm.Client
	lock     *os.File
	step     func(string)

	finishing time.Duration // target.Finishing; less in tests

	base    string // folder that the nodes see
	suffix  string // of the names of all our jobs, and of no others
	program string // as the nodes see it

	life     context.Context // until Close
	end      context.CancelFunc
	work     sync.WaitGroup
	submits  chan struct{} // holds a value for each sbatch that runs
	searches chan struct{} // holds a value for each search for a job by its name
	changed  chan struct{}
	kick     chan struct{} // there is something to watch

	looking sync.Mutex // held by the one who ends tasks

	limits sync.Mutex // held by the one who asks how Slurm is configured
	holds  *bool      // memory, if that is known

	mu     sync.Mutex
	tasks  map[string]*task // by TaskID.Dir()
	view   view
	closed bool
}

// task is one task in memory: a copy of what its folder says, and the last that Slurm said.
type task struct {
	name string // of its folder

	// op is held by whoever starts or removes the task; gone says that the one before took it out of Driver.tasks.
	op   sync.Mutex
	gone bool

	saving sync.Mutex // held by whoever writes its stop down, so that the last that is written is the last that was so

	// The rest is guarded by Driver.mu.
	id      trainyard.TaskID
	rec     record
	laid    bool                      // its folder is there
	job     string                    // its number; "" until it is known
	since   time.Time                 // that it is
	began   bool                      // Slurm has it, or will: it is shown, and never started again
	waits   string                    // why it could not be handed to Slurm yet
	running time.Time                 // when the script began, by the clock of the folder
	noticed time.Time                 // when that was seen here
	ends    map[int]trainyard.TaskEnd // of its ranks, counted from 0
	over    time.Time                 // when all of them were known
	seen    slurm.Job                 // what the queue last said
	missed  int                       // answers in a row that did not name it
	stop    *stopRecord
	ending  *ending
	tended  bool          // somebody sees to its stop
	nudge   chan struct{} // cap 1: stop has changed, or a sign has come that has the number of a job
	done    chan struct{} // closed when ending is set
}

func newTask(id trainyard.TaskID, name string) *task {
	return &task{id: id, name: name, ends: map[int]trainyard.TaskEnd{}, nudge: make(chan struct{}, 1), done: make(chan struct{})}
}

// Engine is what people call it.
func (d *Driver) Engine() string { return "Slurm" }

var errClosed = errors.New("slurm target is closed")

// Observe lists all tasks. What the tasks' own signs do not say Slurm is asked for, with one squeue for all, and not more often than is
// good for it; until it has answered what it said before is shown. While Slurm cannot be asked, and has to be, there is no list.
func (d *Driver) Observe(ctx context.Context) ([]trainyard.Observation, error) {
	if err := d.look(ctx); err != nil {
		return nil, fmt.Errorf("look at Slurm's jobs: %w", err)
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
	o := trainyard.Observation{ID: t.id, State: trainyard.TaskStaging}
	if t.rec.Note != "" {
		o.Notes = []string{t.rec.Note}
	}
	switch {
	case t.ending != nil:
		e := t.ending
		result := e.Result
		o.State, o.Started, o.Ended, o.Result, o.PeakMB, o.Spans = trainyard.TaskEnded, e.Started, e.Ended, &result, result.PeakMB, e.Spans
		o.Notes, o.Killed = append(o.Notes, e.Notes...), e.Killed
	case !t.running.IsZero():
		o.State, o.Started = trainyard.TaskRunning, t.running
	default:
		o.Progress = t.progress()
	}
	return o
}

// progress is why the task does not run yet.
func (t *task) progress() string {
	switch {
	case t.waits != "":
		return "Slurm has not said yet that it has the job, and is tried again: " + t.waits
	case t.seen.State == "":
		return fmt.Sprintf("Slurm: job %s is in the queue", t.job)
	case t.seen.State == slurm.Pending:
		return t.seen.Why()
	case t.seen.NodeList != "":
		return fmt.Sprintf("Slurm: job %s starts on %s", t.job, t.seen.NodeList)
	}
	return fmt.Sprintf("Slurm: job %s is %s", t.job, t.seen.State)
}

// Logs reads what the task has written up to now; of a gang, what its first rank has.
func (d *Driver) Logs(ctx context.Context, id trainyard.TaskID, from int64) (io.ReadCloser, error) {
	d.mu.Lock()
	t := d.tasks[id.Dir()]
	name := logFile
	if t != nil && t.rec.ranks() > 1 {
		name = logFile + ".0"
	}
	known := t != nil && t.began && t.id == id
	d.mu.Unlock()
	if !known {
		return nil, trainyard.NotFound("%s has no log here: it was not started, or it was removed", id.Words())
	}
	r, err := d.client.Open(d.path(id.Dir(), name), from)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(eof{}), nil // it waits
	}
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", id.Words(), err)
	}
	return r, nil
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// Changed gets a value when a task's script begins and when its program has left word of its end.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Leave takes away what the nodes had of us in a shared folder: tasks' folders and the program. What lies in Env.Dir is its owner's.
func (d *Driver) Leave(context.Context) error {
	if d.settings.Folder == "" {
		return nil
	}
	if err := d.client.Remove(d.base); err != nil {
		return fmt.Errorf("take away %s, which may be deleted by hand: %w", d.base, err)
	}
	return nil
}

// Close lets go of the folder and forgets the tasks, which go on. It waits until nothing of the driver runs any more.
func (d *Driver) Close() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	if closed {
		return nil
	}
	d.end()
	d.work.Wait()
	d.client.Close()
	return d.lock.Close()
}

// signal tells the agent to look.
func (d *Driver) signal() { poke(d.changed) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (d *Driver) path(task, name string) string {
	return filepath.Join(d.base, tasksFolder, task, name)
}

// sign is the path of what a task's ranks leave, without its last part.
func (d *Driver) sign(task string) string { return filepath.Join(d.base, signsFolder, task) }

// spawn does f in the background until Close, which waits for it. It says false after Close.
func (d *Driver) spawn(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.work.Go(f)
	return true
}

// acquire returns the task with its op lock held; release it with d.release. Without create it returns nil for an unknown one.
func (d *Driver) acquire(id trainyard.TaskID, create bool) (*task, error) {
	name := id.Dir()
	for {
		d.mu.Lock()
		if d.closed {
			d.mu.Unlock()
			return nil, errClosed
		}
		t := d.tasks[name]
		if t == nil && create {
			t = newTask(id, name)
			d.tasks[name] = t
		}
		d.mu.Unlock()
		switch {
		case t == nil:
			return nil, nil
		case t.id != id:
			return nil, trainyard.Conflict("%s and %s would share the folder %s; give the job another name", t.id.Words(), id.Words(), name)
		}
		t.op.Lock()
		if !t.gone {
			return t, nil
		}
		t.op.Unlock()
	}
}

// release lets go of a task that acquire returned, and forgets it if drop is true.
func (d *Driver) release(t *task, drop bool) {
	if drop {
		d.mu.Lock()
		t.gone = true
		delete(d.tasks, t.name)
		d.mu.Unlock()
	}
	t.op.Unlock()
}

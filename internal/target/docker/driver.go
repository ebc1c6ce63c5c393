package docker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu"
	"github.com/trainyard/trainyard/internal/target"
)

// Driver runs tasks as containers of one engine. One at a time may be open on a folder.
type Driver struct {
	cfg    Config
	env    target.Env
	engine *engine
	lock   io.Closer
	gpus   *gpu.Reader
	step   func(string)
	builds builds

	gpuMu  sync.Mutex   // held from the choice of GPUs to the container that has them
	noGPUs atomic.Int64 // Unix time until which the engine is not asked for GPUs, since it has said that it cannot give them

	mu      sync.Mutex
	tasks   map[string]*task // by TaskID.Dir()
	closed  bool
	changed chan struct{}

	bash      map[string]bool // by the ID of an image: whether it has bash at bashPath
	listening bool            // to the engine's events
	turn      int             // counts how often listening changed
	listed    time.Time       // when the containers were last listed since

	run  context.Context // done when the driver is closed
	stop context.CancelFunc
	goes sync.WaitGroup
}

// task is one task in memory: a copy of what its folder says.
type task struct {
	id  trainyard.TaskID
	dir string

	// op is held by whoever starts, ends or removes the task; gone says that the one before took it out of Driver.tasks.
	op   sync.Mutex
	gone bool

	// The rest is guarded by Driver.mu.
	rec      record
	starting bool // somebody is about to say whether it began
	began    bool // it is shown, and never started again
	started  time.Time
	stop     *stopRecord
	telling  *telling
	died     bool // the engine has said so, though its list may not yet
	end      *ending
	nudge    chan struct{} // cap 1: stop has changed
	public   int           // of a replica: where the engine has published its port; 0: not known
	hold     io.Closer     // keeps the port from others that it has of this computer
}

func newTask(dir string) *task {
	return &task{dir: dir, nudge: make(chan struct{}, 1), telling: newTelling()}
}

// record is task.json.
type record struct {
	ID      trainyard.TaskID `json:"id"`
	Image   string           `json:"image"`
	LimitMB int64            `json:"limitMB,omitempty"` // of memory, where it is held
	Note    string           `json:"note,omitempty"`
	GPUs    []string         `json:"gpus,omitempty"` // the numbers of those that it was given

	Port      int `json:"port,omitempty"`      // of a replica that has this computer's network: where it listens
	Published int `json:"published,omitempty"` // of one that has its own: where it listens in there
}

// stopRecord is stop.json.
type stopRecord struct {
	At       time.Time     `json:"at"`
	Told     time.Time     `json:"told,omitzero"`    // when SIGTERM had got through to the engine
	Deadline time.Time     `json:"deadline"`         // the end of the grace; until SIGTERM got through, that as if it had At
	Killed   time.Duration `json:"killed,omitempty"` // how long after Told it was due to be killed; 0: it was not
}

// ending is end.json.
type ending struct {
	Started time.Time        `json:"started"`
	At      time.Time        `json:"at"`
	Result  trainyard.Result `json:"result"`
	Killed  time.Duration    `json:"killed,omitempty"` // as in trainyard.Observation
}

// The files of a task; the package comment says what each is for.
const (
	tasksDir   = "tasks"
	taskFile   = "task.json"
	stopFile   = "stop.json"
	endFile    = "end.json"
	boxDir     = "box"
	scriptFile = "run.sh"
	longFile   = "command" // the command, where it is too long for an argument
	beganFile  = "began"
	logFile    = "log"
	statusFile = "status"
	pipeFile   = "pipe"
	tmpDir     = "tmp"
	homeDir    = "home"
)

var errClosed = errors.New("docker target is closed")

func newDriver(c Config, env target.Env, e *engine, lock io.Closer, step func(string)) *Driver {
	d := &Driver{cfg: c, env: env, engine: e, lock: lock, step: step, tasks: map[string]*task{}, bash: map[string]bool{}, changed: make(chan struct{}, 1), gpus: cmp.Or(env.GPUs, &gpu.Reader{})}
	d.run, d.stop = context.WithCancel(context.Background())
	d.builds.flights = map[string]*flight{}
	return d
}

// start begins what goes on while the driver is open.
func (d *Driver) start() {
	d.goes.Go(d.watch)
	for _, t := range d.tasks {
		if t.stop != nil && t.end == nil {
			d.goes.Go(func() { d.enforce(t) })
		}
	}
}

// adopt reads the folders of the tasks of the agent before us.
func (d *Driver) adopt() error {
	entries, err := os.ReadDir(filepath.Join(d.env.Dir, tasksDir))
	if err != nil {
		return fmt.Errorf("list tasks: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		t := newTask(e.Name())
		ok, err := target.ReadJSON(d.path(t, taskFile), &t.rec)
		if err != nil {
			return fmt.Errorf("adopt task in %s: %w", e.Name(), err)
		}
		if !ok || t.rec.ID.Dir() != t.dir { // its agent died before it could ask for a container
			if err := target.RemoveAll(d.path(t, "")); err != nil {
				return fmt.Errorf("adopt task in %s: %w", e.Name(), err)
			}
			continue
		}
		t.id = t.rec.ID
		if err := d.recall(t); err != nil {
			return fmt.Errorf("adopt %s: %w", t.id.Words(), err)
		}
		d.tasks[t.dir] = t
	}
	return nil
}

// recall reads the rest of an adopted task's folder.
func (d *Driver) recall(t *task) error {
	t.started, t.began = d.beganAt(t)
	if t.rec.Port != 0 {
		t.hold, _ = target.HoldPort(t.rec.Port) // if another holds it, the replica listens there all the same
	}
	var stop stopRecord
	if ok, err := target.ReadJSON(d.path(t, stopFile), &stop); err != nil {
		return err
	} else if ok {
		t.stop = &stop
	}
	var end ending
	if ok, err := target.ReadJSON(d.path(t, endFile), &end); err != nil {
		return err
	} else if ok {
		t.end, t.began, t.started = &end, true, end.Started
	}
	return nil
}

// sweep takes away what agents before us left in the engine by dying: containers that were made for no task that is known, and builders.
func (d *Driver) sweep(ctx context.Context) {
	all, err := d.engine.list(ctx, d.env.Group, labelGroup)
	if err != nil {
		d.env.Log.Warn("list what is left of the agent before", "err", err)
		return
	}
	for _, c := range all {
		_, built := c.Labels[labelBuild]
		if !built && (c.State != stateCreated || d.tasks[trainyard.TaskID(c.Labels[labelTask]).Dir()] != nil) {
			continue
		}
		if err := d.engine.remove(ctx, c.ID, built); err != nil {
			d.env.Log.Warn("remove container that is left of the agent before", "container", c.ID, "err", err)
		}
	}
	d.sweepLayers()
}

// Close lets go of the folder and forgets the tasks, which go on. It waits until nothing of the driver runs any more.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	tasks := make([]*task, 0, len(d.tasks))
	for _, t := range d.tasks {
		tasks = append(tasks, t)
	}
	d.mu.Unlock()
	for _, t := range tasks {
		t.idle()
		d.letGo(t)
	}
	d.stop()
	d.goes.Wait()
	d.builds.wait()
	d.gpus.Close()
	d.engine.close()
	return d.lock.Close()
}

// idle waits until nobody starts, ends or removes the task.
func (t *task) idle() {
	t.op.Lock()
	defer t.op.Unlock()
}

// Changed gets a value when a container begins or ends.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// signal tells the watcher to look.
func (d *Driver) signal() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// path is a file in the task's folder.
func (d *Driver) path(t *task, name string) string {
	return filepath.Join(d.env.Dir, tasksDir, t.dir, name)
}

// box is a file in the folder that the task's container has.
func (d *Driver) box(t *task, name string) string { return filepath.Join(d.path(t, boxDir), name) }

// container is the name of the task's container: the task's own, told apart from other nodes' on the same engine.
func (d *Driver) container(t *task) string { return "trainyard-" + t.dir + "-" + short(d.env.Group) }

// short is eight digits that stand for s.
func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

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
			t = newTask(dir)
			t.id = id
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

// release lets go of a task that acquire returned, and forgets it if drop is true.
func (d *Driver) release(t *task, drop bool) {
	d.mu.Lock()
	if drop {
		if t.hold != nil {
			t.hold.Close()
			t.hold = nil
		}
		t.gone = true
		delete(d.tasks, t.dir)
	}
	d.mu.Unlock()
	t.op.Unlock()
}

// isBegun says whether the task is known to have begun.
func (d *Driver) isBegun(t *task) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.began
}

// markBegun notes that the task has begun.
func (d *Driver) markBegun(t *task, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.began, t.started = true, at
}

// beganAt is when the command was begun, if it was.
func (d *Driver) beganAt(t *task) (time.Time, bool) {
	info, err := os.Lstat(d.box(t, beganFile))
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime(), true
}

// Package agent hosts drivers: it asks what should run on its node, makes it so, and reports. What is wanted and not seen is staged and
// started, what is seen and not wanted is ended and removed, and what has ended is finished and told. It decides nothing about jobs,
// never loses a log byte, and may be killed at any instruction: a new agent on the same folder goes on where the old one was.
// FleetHost hosts the machines of a location in the same way.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// Link is the way to the server. Calls may come from many goroutines. CodeBusy in an error says that the server could not be reached or
// had no time; the agent comes back for as long as it takes.
type Link interface {
	// Join makes this agent the node's own; what an earlier agent of the node says counts no more.
	Join(ctx context.Context, info trainyard.NodeInfo) (trainyard.NodeLease, error)
	// Wanted returns what should be on the node. It blocks until Rev is above after, or some 25 s have passed; -1 never blocks.
	Wanted(ctx context.Context, node trainyard.NodeID, epoch, after int64) (trainyard.Wanted, error)
	// Report says what became of tasks. CodeConflict: the epoch is old, join again.
	Report(ctx context.Context, r trainyard.Report) error
	// Append adds bytes to a log at an offset and returns the size that the server has. Bytes before that size are ignored, a gap is
	// refused by returning the smaller size. It does not keep data.
	Append(ctx context.Context, node trainyard.NodeID, epoch int64, task trainyard.TaskID, name string, offset int64, data []byte) (size int64, err error)
	// Open, List and Put move stored bytes. The agent itself does not call them; staging does.
	Open(ctx context.Context, key string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error)
	List(ctx context.Context, prefix string) ([]trainyard.BlobInfo, error)
	Put(ctx context.Context, key string, r io.Reader) error
}

// Stager brings what a task needs on to the node, and its results home. Every method may be called again after a crash. An error with a
// trainyard.ClassError in its chain is the end of the task; any other is the server's or the network's, and the call is made again.
type Stager interface {
	// Prepare returns the task with Run filled in.
	Prepare(ctx context.Context, t trainyard.Task, p trainyard.Progress) (trainyard.Task, error)
	// Finish stores outputs and artifacts of a task whose processes are gone.
	Finish(ctx context.Context, t trainyard.Task, r trainyard.Result, p trainyard.Progress) error
	// Remove takes away what Prepare made for this task alone. An unknown task is no error.
	Remove(ctx context.Context, id trainyard.TaskID) error
}

// ErrOrphan is what Run returns when the server has not been heard for Config.OrphanAfter and nothing has run for that long.
var ErrOrphan = errors.New("the server was not heard of, and nothing runs here")

// Config is what an agent needs. Node, Link, Driver, Stage (unless SelfStaged) and Dir are required.
type Config struct {
	Node      trainyard.NodeID
	JoinToken string
	Link      Link
	Driver    target.Driver
	Stage     Stager
	Dir       string // the agent's own folder; what it must remember of its tasks is here. One agent at a time.

	Address string   // where other nodes of a gang reach this one
	Version string   // of the program
	Notes   []string // what is not held on this node, for users
	Engines []string // container engines that Driver has
	Hide    []string // paths that no task may reach
	Log     *slog.Logger

	SelfStaged bool   // the driver's engine stages tasks where it runs them (target.Kind.SelfStaged): Stage is not used
	Server     string // URL at which tasks here reach the server; "": the one that they come with
	CA         string // PEM of the authority to trust there, for tasks that stage themselves

	Direct bool // this node is on the server's own computer, which so reaches the ports of replicas here
	Alone  bool // for one task, in a folder that nobody comes back to, with the network to itself, as in a pod: nothing is written down, and replicas are not probed

	// Trouble is told why the driver is not fit to work, so that the agent does not join, and nil when it is again. It may be nil.
	Trouble func(ctx context.Context, err error)

	// Yield gets a value when what the agent runs on is about to be taken away; nil: that is never known before.
	Yield <-chan Notice

	OrphanAfter time.Duration // no word from the server and no work for this long: Run returns ErrOrphan. 0: never
	KillAfter   time.Duration // no word from the server for this long: tasks are ended as lost. 0: never, tasks go on by themselves
}

// Validate says what is missing.
func (c *Config) Validate() error {
	switch {
	case c.Node == "":
		return trainyard.Invalid("the agent has no node ID")
	case c.Link == nil, c.Driver == nil, c.Stage == nil && !c.SelfStaged:
		return trainyard.Invalid("the agent of node %q lacks its link, driver or staging", c.Node)
	case c.Dir == "":
		return trainyard.Invalid("the agent of node %q has no folder", c.Node)
	}
	return nil
}

// Agent runs the tasks of one node. Make it with New.
type Agent struct {
	cfg     Config
	log     *slog.Logger
	leases  leases
	reports *reporter
	sights  *watcher
	buffers sync.Pool // of *[chunk]byte, for logs on their way
	images  looking
	looks   chan struct{}   // has a value for each image that is being looked for just now
	dials   map[string]bool // connections that the newest Wanted asks for. Of apply alone
	dialing chan struct{}   // has a value for each connection that is being made

	mu      sync.Mutex
	tasks   map[trainyard.TaskID]*task
	heeded  int64         // epoch of the newest Wanted that was applied; 0 before the first
	leaving bool          // the newest Wanted says so
	notice  *Notice       // what the agent runs on is about to be taken away
	told    bool          // and the server knows
	changed chan struct{} // closed and replaced when heeded changes or a lease is renewed late
	leave   context.CancelCauseFunc
	running sync.WaitGroup
}

// New makes an agent. It does nothing before Run.
func New(cfg Config) *Agent {
	a := &Agent{cfg: cfg, log: cfg.Log, tasks: map[trainyard.TaskID]*task{}, changed: make(chan struct{})}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	a.log = a.log.With("node", cfg.Node)
	if cfg.SelfStaged {
		a.cfg.Stage = elsewhere{}
	}
	a.leases.init()
	a.reports = newReporter()
	a.dialing = make(chan struct{}, maxDials)
	a.looks = make(chan struct{}, maxLooks)
	a.sights = &watcher{}
	a.buffers.New = func() any { return new([chunk]byte) }
	return a
}

// Run serves the node until ctx is done, the server lets the node go (nil), or nobody needs it any more (ErrOrphan). Tasks go on when it
// returns. It runs once.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.cfg.Validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(a.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("make the agent's folder: %w", err)
	}
	stored, unlock, err := a.enter()
	if err != nil {
		return err
	}
	defer unlock()
	ctx, a.leave = context.WithCancelCause(ctx)
	defer a.leave(nil)
	g, ctx := errgroup.WithContext(ctx)
	a.leases.heard(time.Now())
	for _, t := range stored {
		a.adopt(ctx, t)
	}
	g.Go(func() error { return a.watch(ctx) })
	g.Go(func() error { return a.tell(ctx) })
	g.Go(func() error { return a.obey(ctx) })
	g.Go(func() error { return a.mind(ctx) })
	g.Go(func() error { return a.yield(ctx) })
	err = g.Wait()
	a.running.Wait()
	if errors.Is(err, ErrOrphan) {
		return err
	}
	return nil // ctx is done, or the server has let the node go
}

// enter takes the agent's folder for this agent alone, and reads what the one before has left there.
func (a *Agent) enter() (left []stored, unlock func(), err error) {
	if a.cfg.Alone {
		return nil, func() {}, nil
	}
	unlock, err = lock(filepath.Join(a.cfg.Dir, "lock"))
	if err != nil {
		return nil, nil, fmt.Errorf("node %s: %w", a.cfg.Node, err)
	}
	if left, err = a.load(); err != nil {
		unlock()
		return nil, nil, err
	}
	return left, unlock, nil
}

// Why the agent ends by itself.
var (
	errLeft  = errors.New("left")       // the server has let the node go, and nothing is left on it
	errTaken = errors.New("taken away") // what it ran on is taken away
)

// mind watches over the time without a word from the server.
func (a *Agent) mind(ctx context.Context) error {
	every := time.Second
	for _, d := range []time.Duration{a.cfg.OrphanAfter, a.cfg.KillAfter} {
		if d > 0 {
			every = min(every, max(d/4, time.Millisecond))
		}
	}
	if a.cfg.OrphanAfter == 0 && a.cfg.KillAfter == 0 {
		return nil
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	worked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now, busy, heard := time.Now(), a.busy(), a.leases.lastHeard()
		if len(busy) > 0 {
			worked = now
		}
		if a.cfg.KillAfter > 0 && now.Sub(heard) >= a.cfg.KillAfter {
			for _, k := range busy {
				k.stop(trainyard.ClassNodeLost)
			}
		}
		if a.cfg.OrphanAfter > 0 && now.Sub(heard) >= a.cfg.OrphanAfter && now.Sub(worked) >= a.cfg.OrphanAfter {
			return fmt.Errorf("node %s, for %s: %w", a.cfg.Node, a.cfg.OrphanAfter, ErrOrphan)
		}
	}
}

// busy lists the tasks whose user process runs, as far as is known.
func (a *Agent) busy() []*task {
	var out []*task
	for _, k := range a.all() {
		if k.state() == trainyard.TaskRunning {
			out = append(out, k)
		}
	}
	return out
}

// all lists the tasks at hand.
func (a *Agent) all() []*task {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*task, 0, len(a.tasks))
	for _, k := range a.tasks {
		out = append(out, k)
	}
	return out
}

// broadcast wakes those who wait for a.changed. The caller holds a.mu.
func (a *Agent) broadcast() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

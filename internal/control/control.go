// Package control holds the verbs people say and the loops that make them so: one file a noun. It decides policy (what happens when a
// job ends, when a node is lost) and leaves what is true to store, where bytes are to output and blobs, and who does the work to agents.
// It knows no HTTP and no driver.
package control

import (
	"context"
	"io"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/loop"
	"github.com/trainyard/trainyard/internal/output"
	"github.com/trainyard/trainyard/internal/sched"
	"github.com/trainyard/trainyard/internal/store"
)

// Blobs is the part of the blob store that control needs.
type Blobs interface {
	Open(ctx context.Context, key string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error)
	List(ctx context.Context, prefix string) ([]trainyard.BlobInfo, error)
	Put(ctx context.Context, key string, r io.Reader) error
	Append(ctx context.Context, key string, offset int64, data []byte) (size int64, err error)
	DeletePrefix(ctx context.Context, prefix string) error
}

// Tokens makes and checks tokens; package identity has them.
type Tokens interface {
	Mint(who trainyard.User, audience string, ttl time.Duration) (string, error)
	Check(token string) (trainyard.User, error)
}

// Config is what control works with. All fields but Locations are required.
type Config struct {
	Store     *store.Store
	Output    *output.Store
	Blobs     Blobs
	Tokens    Tokens
	Sign      func(prefix, permissions string, expiry time.Time) url.Values // SAS for the blob door
	URL       func() string                                                 // where jobs and agents of this machine reach the server
	Host      trainyard.Resources                                           // this machine
	Gateway   func() string                                                 // URL of the gateway, as callers of endpoints reach it; no slash at its end
	Locations []trainyard.Location                                          // the first is the default
	Kinds     []Kind                                                        // types of compute that can be attached
	Now       func() time.Time
	Log       *slog.Logger
}

// Timing of nodes: an agent speaks at least every renew; not heard of for expire, its node is given up.
const (
	renew    = 5 * time.Second
	expire   = 30 * time.Second
	pollHold = 25 * time.Second // how long a long poll is held open
	grace    = 10 * time.Second // between SIGTERM and SIGKILL
)

// Control is the server's will. Make it with New, start its loops with Run.
type Control struct {
	Config
	sched *loop.Wake // something changed that the scheduler should see
	scale *loop.Wake // something changed that the scaler should see

	mu      sync.Mutex
	seen    map[trainyard.NodeID]time.Time         // last sign of life
	tasks   map[trainyard.TaskID]*trainyard.Task   // as handed to nodes, so that tokens in them stay the same
	remarks map[trainyard.NodeID]trainyard.Machine // what fleets say of their machines
	away    map[string]string                      // by location: why nothing is known of its machines
	silent  map[trainyard.NodeID]trainyard.Reason  // of nodes whose agents have reported: with an engine that does not answer
	polled  map[trainyard.JobKey]bool              // live jobs that a run-history client watches
	limits  map[trainyard.ComputeKey]limit         // as the scaler found them when it last looked
	looked  chan struct{}                          // closed when it has acted on that once
	begin   sync.Once                              // closes looked
	nodes   *topics[trainyard.NodeID]
	fleets  *topics[string]
	images  images
	looks   *loop.Keyed[imageOf] // images to be asked for
	dials   dials                // connections to replicas that agents are asked for

	served    *served
	reconcile *loop.Keyed[string] // deployments to be looked at
	routes    *topics[string]

	pipelines pipelines
	advances  *loop.Keyed[trainyard.JobKey] // pipelines to be looked at

	gathered *gathered
	settles  *loop.Keyed[string] // folders of collections to get a file

	retired []trainyard.Location // not configured any more, and not without nodes yet; as Boot found them
	unsub   func()
}

// New makes a Control; nothing runs yet.
func New(cfg Config) *Control {
	c := &Control{
		Config: cfg, sched: loop.NewWake(), scale: loop.NewWake(),
		seen: map[trainyard.NodeID]time.Time{}, tasks: map[trainyard.TaskID]*trainyard.Task{}, polled: map[trainyard.JobKey]bool{}, remarks: map[trainyard.NodeID]trainyard.Machine{}, away: map[string]string{},
		silent: map[trainyard.NodeID]trainyard.Reason{}, looked: make(chan struct{}),
		nodes: newTopics[trainyard.NodeID](cfg.Now().UnixNano()), fleets: newTopics[string](cfg.Now().UnixNano()),
		served: newServed(), routes: newTopics[string](cfg.Now().UnixNano()), gathered: newGathered(), images: newImages(),
	}
	c.reconcile = loop.NewKeyed(4, loop.Backoff{}, c.reconcileDeployment)
	c.advances = loop.NewKeyed(4, loop.Backoff{}, c.advancePipeline)
	c.looks = loop.NewKeyed(2, loop.Backoff{}, c.askForImage)
	c.settles = loop.NewKeyed(2, loop.Backoff{}, c.nextFile)
	for _, n := range cfg.Store.AllNodes() {
		c.seen[n.ID] = cfg.Now() // a server that was away gives every node its full time again
	}
	return c
}

// Run starts the loops in the group: the scheduler, the scaler, the watch over nodes.
func (c *Control) Run(g *loop.Group) {
	c.unsub = c.Store.Subscribe(func(ch trainyard.Change) {
		if len(ch.Jobs)+len(ch.Nodes)+len(ch.Computes) > 0 {
			c.sched.Set()
			c.scale.Set()
		}
		for _, key := range c.served.touched(ch.Jobs) {
			c.reconcile.Add(key)
		}
		for _, key := range c.pipelines.touched(ch.Jobs) {
			c.advances.Add(key)
		}
	})
	g.Go("schedule", c.schedule)
	g.Go("scale", c.scaleLoop)
	g.Go("watch nodes", c.watchNodes)
	g.Go("serve", c.serve)
	g.Go("pipelines", c.runPipelines)
	g.Go("images", c.looks.Run)
	g.Go("collected rows", c.settles.Run)
	g.Go("collected rows of earlier servers", c.deliverLeft)
	c.sched.Set()
	c.scale.Set()
}

// schedule places jobs whenever something changed. Rounds are merged while one is being decided. It begins when the scaler has looked once:
// before, nobody knows which jobs are to be held back.
func (c *Control) schedule(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.looked:
	}
	all := true // first round: everything
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.sched.C():
		}
		if err := c.round(ctx, all); err != nil {
			return err
		}
		all = false
	}
}

// round is one scheduling cycle: snapshot, decide, commit, tell the nodes.
func (c *Control) round(ctx context.Context, all bool) error {
	plan := sched.Decide(c.limited(c.Store.Snapshot(c.Now(), all)))
	if len(plan.Placed)+len(plan.Waiting) == 0 {
		return nil
	}
	placed, err := c.Store.Commit(ctx, plan, c.Now())
	if trainyard.IsConflict(err) {
		c.sched.Set() // the world moved on: look again
		return nil
	}
	if err != nil {
		return err
	}
	c.tellNodesOf(placed)
	return nil
}

// tellNodesOf wakes the agents of the nodes that hold the jobs' current tasks.
func (c *Control) tellNodesOf(jobs []trainyard.JobKey) {
	for _, key := range jobs {
		if j, ok := c.Store.LiveJob(key); ok {
			c.tell(j)
		}
	}
}

func (c *Control) tell(j *trainyard.Job) {
	if a := j.Status.Current(); a != nil {
		for i := range a.Tasks {
			c.nodes.bump(a.Tasks[i].Node)
		}
	}
}

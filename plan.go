package trainyard

import "time"

// Snapshot is what the scheduler sees: the computes on which something may have changed, each with its usable nodes and its queue.
// Nothing in it is ever changed after it was made.
type Snapshot struct {
	Now      time.Time
	Computes []ComputeView
}

// ComputeView is one compute in a Snapshot.
type ComputeView struct {
	Key        ComputeKey
	Name       string
	Type       string
	MaxNodes   int  // most nodes it can ever have; 1 for Local
	Exclusive  bool // one task a node (clusters); else by Slots (local)
	Stopped    bool // stopped by a user
	Deleting   bool
	Serverless bool     // nobody created it, and nobody can change it
	Bound      *Bound   // most nodes that its location can ever hold; nil: no limit
	Hold       *Hold    // what is kept from its jobs; nil: nothing
	Wanted     int      // nodes the scaler wants now
	Errors     []string // why machines could not be had, newest last
	Full       string   // why its location has no room for more of them
	Nodes      []NodeView
	Queue      []QueuedJob // by priority (higher first), then Seq
}

// Bound is how many nodes of a cluster's size its location can ever hold, beside those that other clusters keep for ever. It changes with
// the minimums of those clusters.
type Bound struct {
	Location string
	Size     string
	Nodes    int
}

// Hold keeps a cluster's nodes from its own jobs, since their room goes to a job of higher priority on another cluster of the location.
type Hold struct {
	Below int    // jobs of lower priority than this are not placed
	Keep  int    // except while no more nodes than this are at work: the cluster's minimum goes to nobody else
	Why   Reason // without a time
}

// NodeView is one node in a ComputeView.
type NodeView struct {
	ID    NodeID
	Epoch int64
	State NodeState
	Free  Resources // what no task holds
	All   Resources
	Jobs  []string // names of the jobs whose tasks it holds

	Contains bool // it has a container engine
}

// QueuedJob is a job as the scheduler sees it.
type QueuedJob struct {
	Key      JobKey
	Name     string
	Seq      int64
	Priority int
	Nodes    int // gang size
	Since    time.Time
	Serves   bool // a replica: see Shares

	Contained bool // it runs in a container, so only where there is an engine
}

// Shares says whether a replica shares a node of this compute with whatever else is there, and takes no place from it. On a cluster it has
// a node of its own, as its size promises.
func (c *ComputeView) Shares() bool { return c.Type != ComputeCluster }

// Plan is what the scheduler decided. Commit it whole or not at all.
type Plan struct {
	Placed  []Placement
	Waiting []Waiting
}

// Placement starts an attempt: rank i of the gang goes to Nodes[i]. On Local one node may stand several times.
type Placement struct {
	Job    JobKey
	Nodes  []NodeID
	Epochs []int64
}

// Waiting says why a job was not placed. Jobs that wait for the same thing share one Reason.
type Waiting struct {
	Job    JobKey
	Reason *Reason
}

// Demand is what the scaler sees of one cluster.
type Demand struct {
	Now      time.Time
	Min, Max int
	Idle     time.Duration // a node idle for this long may go
	Stopped  bool
	Deleting bool
	Machine  bool        // it is one attached machine, without bounds that anybody set
	Bound    *Bound      // most nodes that its location can ever hold; nil: no limit
	Queued   []QueuedJob // waiting jobs in queue order
	Nodes    []NodeAge   // all nodes that are not leaving
}

// NodeAge is one node in a Demand.
type NodeAge struct {
	ID       NodeID
	State    NodeState
	Serves   bool // it has a replica
	IdleFrom time.Time
}

// Scale is the scaler's answer.
type Scale struct {
	Add    int      // nodes to create
	Remove []NodeID // idle nodes to let go
	Wanted int      // nodes that should be there when this is done
	Why    Reason
	Again  time.Time // look again then, zero: when something changes
}

// Room is what the scaler sees of one location.
type Room struct {
	Name     string
	Capacity Capacity  // of all its machines; zero fields are not limited
	Used     Capacity  // by those that are there or on their way in, with those that were told to give way
	Asks     []Ask     // of every cluster, also of those that want nothing more
	Low      []LowNode // of low priority, and not told to give way yet
	Yielding Capacity  // of those that were told to give way or let go, and are not gone
	Leaving  Capacity  // of Yielding: those that had nothing to do
}

// Ask is a cluster's wish for more nodes, and what it has to give.
type Ask struct {
	Compute ComputeKey
	Name    string
	Add     int
	Size    VMSize
	Low     bool        // of low priority
	Gangs   []QueuedJob // the waiting jobs that Add is for, in queue order; none: Add is for single nodes
	Idle    []NodeID    // its nodes without work, which those jobs take first
	Coming  int         // nodes on their way in, which they take as well
	Have    int         // nodes that work, are idle or are on their way in
	Serving int         // nodes of those with a replica, which does not end by itself
	Min     int         // nodes that it always keeps
}

// LowNode is a node of low priority. Began is when its present work began, zero if it has none.
type LowNode struct {
	ID    NodeID
	Size  VMSize
	Began time.Time
}

// Sharing is how a location's room is given out.
type Sharing struct {
	Grant   map[ComputeKey]int      // of what was asked for; what is missing may be granted later
	Release map[ComputeKey][]NodeID // idle nodes that are let go so that others have room
	Preempt []NodeID                // low-priority nodes that give way to dedicated ones
	Hold    map[ComputeKey]Hold     // of clusters whose nodes, when idle, go to a job of higher priority elsewhere
	Why     map[ComputeKey]Reason   // of clusters that did not get all
}

// ReplicaDemand is what the scaler sees of one deployment. Loads are totals over all replicas, in the metric's unit.
type ReplicaDemand struct {
	Now        time.Time
	Min, Max   int
	Metric     string  // for people: "concurrency"
	Target     float64 // load that one replica should have
	Stable     float64 // mean load over the stable window
	Panic      float64 // mean load over the panic window
	Window     time.Duration
	Ready      int           // replicas that take requests
	Wanted     int           // as decided last
	Waiting    int           // requests that wait for the first replica
	Idle       time.Duration // since the last request
	ZeroAfter  time.Duration
	PanicUntil time.Time // as decided last
}

// ReplicaScale is the scaler's answer.
type ReplicaScale struct {
	Wanted int
	Why    Reason
	Panic  time.Time // until when nothing is taken away
	Again  time.Time // look again then; zero: when the load changes
}

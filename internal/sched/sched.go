// Package sched decides which waiting job goes to which nodes. It is a pure function of a snapshot: no clock, no I/O, no randomness, no
// log, so that last month's queue can be replayed. It does not decide how many nodes there should be; package scale does.
package sched

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/trainyard/trainyard"
)

// Decide places what can be placed and says why the rest waits. Each compute's queue is served strictly in its order (priority, then
// submission): a gang at the head keeps the free nodes until it has all it needs, so that small jobs never starve a large one. A job
// that could never fit is passed over with a reason that says so; one that is held back for a better one of another cluster waits, and all
// behind it. Cost is linear in nodes and queued jobs.
func Decide(s trainyard.Snapshot) trainyard.Plan {
	var plan trainyard.Plan
	for i := range s.Computes {
		decide(&s.Computes[i], s, &plan)
	}
	return plan
}

// decide serves one queue.
func decide(c *trainyard.ComputeView, s trainyard.Snapshot, plan *trainyard.Plan) {
	if len(c.Queue) == 0 {
		return
	}
	room := newRoom(c)
	var blocked *trainyard.Reason // why the head, and so everything behind it, waits
	never := map[int]*trainyard.Reason{}
	nowhere := sync.OnceValue(func() *trainyard.Reason { return noEngine(c) })
	plan.Waiting = slices.Grow(plan.Waiting, len(c.Queue))
	if c.Stopped || c.Deleting {
		blocked = stopped(c)
	}
	for i := range c.Queue {
		q := &c.Queue[i]
		if q.Serves && c.Shares() && !c.Stopped && !c.Deleting {
			if p, ok := share(c, q); ok {
				plan.Placed = append(plan.Placed, p)
				continue
			}
		}
		if c.Exclusive && (q.Nodes > c.MaxNodes || c.Bound != nil && q.Nodes > c.Bound.Nodes) {
			if never[q.Nodes] == nil {
				never[q.Nodes] = tooLarge(c, q.Nodes)
			}
			plan.Waiting = append(plan.Waiting, trainyard.Waiting{Job: q.Key, Reason: never[q.Nodes]})
			continue
		}
		if q.Contained && nowhere() != nil {
			plan.Waiting = append(plan.Waiting, trainyard.Waiting{Job: q.Key, Reason: nowhere()})
			continue
		}
		if blocked == nil && held(c, q, room) {
			blocked = &c.Hold.Why
		}
		if blocked == nil {
			if p, ok := room.take(q); ok {
				plan.Placed = append(plan.Placed, p)
				continue
			}
			blocked = full(c, q, room)
		}
		plan.Waiting = append(plan.Waiting, trainyard.Waiting{Job: q.Key, Reason: blocked})
	}
}

// share puts a replica on the node that holds the fewest jobs, whether or not it has a place free. It waits for nobody.
func share(c *trainyard.ComputeView, q *trainyard.QueuedJob) (trainyard.Placement, bool) {
	var on *trainyard.NodeView
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.State.Usable() && (n.Contains || !q.Contained) && (on == nil || len(n.Jobs) < len(on.Jobs)) {
			on = n
		}
	}
	if on == nil {
		return trainyard.Placement{}, false
	}
	return trainyard.Placement{Job: q.Key, Nodes: []trainyard.NodeID{on.ID}, Epochs: []int64{on.Epoch}}, true
}

// held says whether a job must leave the cluster's nodes to one of higher priority elsewhere.
func held(c *trainyard.ComputeView, q *trainyard.QueuedJob, r *room) bool {
	if c.Hold == nil || q.Priority >= c.Hold.Below {
		return false
	}
	work := r.plain.next + r.boxed.next
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.State.Usable() && n.Free.Slots <= 0 {
			work++
		}
	}
	return work+q.Nodes > c.Hold.Keep
}

// room is what is free on a compute while its queue is served. What needs no container goes where there can be none first.
type room struct {
	plain, boxed part // nodes without a container engine, and with one
	whole        bool // one task takes a whole node
}

type part struct {
	nodes []slot
	next  int // nodes before it are full
}

type slot struct {
	node *trainyard.NodeView
	free int
}

func newRoom(c *trainyard.ComputeView) *room {
	r := &room{whole: c.Exclusive}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if !n.State.Usable() || n.Free.Slots <= 0 {
			continue
		}
		in := &r.plain
		if n.Contains {
			in = &r.boxed
		}
		in.nodes = append(in.nodes, slot{n, n.Free.Slots})
	}
	return r
}

// parts are those that a job may be placed on.
func (r *room) parts(q *trainyard.QueuedJob) []*part {
	if q.Contained {
		return []*part{&r.boxed}
	}
	return []*part{&r.plain, &r.boxed}
}

// free counts the tasks of such a job that could start now.
func (r *room) free(q *trainyard.QueuedJob) int {
	n := 0
	for _, p := range r.parts(q) {
		if r.whole {
			n += len(p.nodes) - p.next
			continue
		}
		for _, s := range p.nodes[p.next:] {
			n += s.free
		}
	}
	return n
}

// take finds room for all of a gang, or leaves everything as it was. On a shared node a gang larger than the node takes the whole of it.
func (r *room) take(q *trainyard.QueuedJob) (trainyard.Placement, bool) {
	to := trainyard.Placement{Job: q.Key}
	if !r.whole {
		for _, p := range r.parts(q) {
			if p.share(q, &to) {
				return to, true
			}
		}
		return to, false
	}
	if r.free(q) < q.Nodes {
		return to, false
	}
	for _, p := range r.parts(q) {
		for ; p.next < len(p.nodes) && len(to.Nodes) < q.Nodes; p.next++ {
			n := p.nodes[p.next].node
			to.Nodes, to.Epochs = append(to.Nodes, n.ID), append(to.Epochs, n.Epoch)
		}
	}
	return to, true
}

// share finds room for all of a gang on one node.
func (p *part) share(q *trainyard.QueuedJob, to *trainyard.Placement) bool {
	for i := p.next; i < len(p.nodes); i++ {
		s := &p.nodes[i]
		need := min(q.Nodes, s.node.All.Slots)
		if s.free < need {
			continue
		}
		s.free -= need
		for range q.Nodes {
			to.Nodes, to.Epochs = append(to.Nodes, s.node.ID), append(to.Epochs, s.node.Epoch)
		}
		for p.next < len(p.nodes) && p.nodes[p.next].free == 0 {
			p.next++
		}
		return true
	}
	return false
}

// noEngine says why what needs a container cannot start on a compute; nil if it may yet.
func noEngine(c *trainyard.ComputeView) *trainyard.Reason {
	usable := 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Contains || n.State == trainyard.NodeCreating {
			return nil
		}
		if n.State.Usable() {
			usable++
		}
	}
	if usable == 0 {
		return nil
	}
	return &trainyard.Reason{Code: "NoContainerEngine", Message: fmt.Sprintf("the job's environment has an image or a build context, and no node of %s has a container engine any more; "+
		"start Docker there, or cancel the job and submit it again to run it without", c.Name)}
}

func stopped(c *trainyard.ComputeView) *trainyard.Reason {
	if c.Deleting {
		return &trainyard.Reason{Code: "ComputeDeleting", Message: fmt.Sprintf("%s is being deleted; cancel the job or submit it to another compute", c.Name)}
	}
	return &trainyard.Reason{Code: "ComputeStopped", Message: fmt.Sprintf("%s is stopped; start it with: trainyard compute start --name %s", c.Name, c.Name)}
}

// tooLarge says why a job of so many nodes can never start.
func tooLarge(c *trainyard.ComputeView, nodes int) *trainyard.Reason {
	switch b := c.Bound; {
	case b != nil && b.Nodes == 0:
		return &trainyard.Reason{Code: "LargerThanLocation", Message: fmt.Sprintf("location %s has no room for a node of size %s; cancel the job, or submit it for another size or compute",
			b.Location, b.Size)}
	case b != nil && nodes > b.Nodes:
		return &trainyard.Reason{Code: "LargerThanLocation", Message: fmt.Sprintf("the job needs %s of size %s at once and location %s has room for %d; "+
			"cancel it, or lower resources.instance_count", count(nodes, "node"), b.Size, b.Location, b.Nodes)}
	case c.Serverless:
		return &trainyard.Reason{Code: "LargerThanCompute", Message: fmt.Sprintf("the job asks for %s and serverless compute has at most %d at once; "+
			"lower resources.instance_count, or name a cluster of your own", count(nodes, "node"), c.MaxNodes)}
	}
	return &trainyard.Reason{Code: "LargerThanCompute", Message: fmt.Sprintf(
		"the job asks for %s and %s has at most %d; raise max_instances or lower resources.instance_count", count(nodes, "node"), c.Name, c.MaxNodes)}
}

// full says why the head of a queue cannot start.
func full(c *trainyard.ComputeView, q *trainyard.QueuedJob, r *room) *trainyard.Reason {
	free := r.free(q)
	usable, starting, lost, busy := tally(c)
	switch {
	case q.Contained && len(r.plain.nodes) > r.plain.next:
		return &trainyard.Reason{Code: "NoFreeNode", Message: fmt.Sprintf("the job needs a container engine, and the nodes of %s that have one are taken: %s", c.Name, running(busy)) + have(q, free)}
	case !c.Exclusive && usable == 0:
		return &trainyard.Reason{Code: "NoNode", Message: fmt.Sprintf("%s has no working node at the moment%s", c.Name, because(c))}
	case !c.Exclusive:
		return &trainyard.Reason{Code: "NoFreeSlot", Message: fmt.Sprintf("all places of %s are taken: %s", c.Name, running(busy))}
	case len(c.Errors) > 0 && starting > 0:
		return &trainyard.Reason{Code: "NodeFailed", Message: fmt.Sprintf("%s could not get a node and tries again: %s", c.Name, c.Errors[len(c.Errors)-1])}
	case c.Type != trainyard.ComputeCluster: // an attached machine: there is one
		return attached(c, starting, lost, busy)
	case starting > 0:
		return &trainyard.Reason{Code: "NodesStarting", Message: fmt.Sprintf("%s is starting %s%s", c.Name, count(starting, "node"), have(q, free))}
	case lost > 0 && usable+lost >= c.MaxNodes:
		return &trainyard.Reason{Code: "NodesUnusable", Message: fmt.Sprintf("%s of %s cannot be used: nothing was heard of them; they are being replaced%s", count(lost, "node"), c.Name, because(c))}
	case len(c.Nodes) >= c.MaxNodes && c.MaxNodes > 0:
		return &trainyard.Reason{Code: "AtMaximumNodes", Message: fmt.Sprintf("%s is at its maximum of %s; %s", c.Name, count(c.MaxNodes, "node"), running(busy)) + have(q, free)}
	case c.Full != "":
		return &trainyard.Reason{Code: "LocationFull", Message: c.Full + have(q, free) + because(c)}
	case c.MaxNodes == 0:
		return &trainyard.Reason{Code: "AtMaximumNodes", Message: fmt.Sprintf("%s may have no nodes (max_instances is 0); raise it with: trainyard compute update --name %s --max-instances 1", c.Name, c.Name)}
	}
	return &trainyard.Reason{Code: "ScalingUp", Message: fmt.Sprintf("%s has %s and is about to grow%s%s", c.Name, count(len(c.Nodes), "node"), have(q, free), because(c))}
}

// attached says why a job waits for a machine that was attached.
func attached(c *trainyard.ComputeView, starting, lost int, busy []string) *trainyard.Reason {
	switch {
	case starting > 0:
		return &trainyard.Reason{Code: "NodesStarting", Message: fmt.Sprintf("the agent on %s is being started%s", c.Name, because(c))}
	case lost > 0:
		return &trainyard.Reason{Code: "NodesUnusable", Message: fmt.Sprintf("%s cannot be reached at the moment%s; what runs there goes on, and the job starts when it is back", c.Name, because(c))}
	case len(busy) > 0:
		return &trainyard.Reason{Code: "NoFreeNode", Message: fmt.Sprintf("%s is busy: %s", c.Name, running(busy))}
	}
	return &trainyard.Reason{Code: "NoNode", Message: fmt.Sprintf("%s has no working node at the moment%s", c.Name, because(c))}
}

// tally counts a compute's nodes and names the jobs on them.
func tally(c *trainyard.ComputeView) (usable, starting, lost int, busy []string) {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		switch {
		case n.State == trainyard.NodeCreating:
			starting++
		case n.State.Usable():
			usable++
		case n.State == trainyard.NodeUnusable:
			lost++
		}
		for _, j := range n.Jobs {
			if len(busy) < 4 && !slices.Contains(busy, j) {
				busy = append(busy, j)
			}
		}
	}
	return usable, starting, lost, busy
}

func running(jobs []string) string {
	switch len(jobs) {
	case 0:
		return "its nodes are on their way out"
	case 1:
		return "job " + jobs[0] + " is there"
	case 4:
		return "jobs " + strings.Join(jobs[:3], ", ") + " and others are there"
	}
	return "jobs " + strings.Join(jobs[:len(jobs)-1], ", ") + " and " + jobs[len(jobs)-1] + " are there"
}

func have(q *trainyard.QueuedJob, free int) string {
	if q.Nodes == 1 {
		return ""
	}
	return fmt.Sprintf("; job %s needs %s at once, %d free now", q.Name, count(q.Nodes, "node"), free)
}

func because(c *trainyard.ComputeView) string {
	if len(c.Errors) == 0 {
		return ""
	}
	return ": " + c.Errors[len(c.Errors)-1]
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

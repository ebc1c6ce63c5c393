package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
)

// What is answered from memory.

func (im *image) liveJob(key trainyard.JobKey) (*trainyard.Job, bool) {
	im.mu.RLock()
	defer im.mu.RUnlock()
	j, ok := im.live[key]
	return j, ok
}

func (im *image) compute(key trainyard.ComputeKey) *trainyard.Compute {
	im.mu.RLock()
	defer im.mu.RUnlock()
	if c := im.computes[key]; c != nil {
		return c.compute
	}
	return nil
}

func (im *image) node(id trainyard.NodeID) *trainyard.Node {
	im.mu.RLock()
	defer im.mu.RUnlock()
	if n := im.nodes[id]; n != nil {
		return n.node
	}
	return nil
}

func (im *image) nodesOf(key trainyard.ComputeKey) []*trainyard.Node {
	im.mu.RLock()
	defer im.mu.RUnlock()
	c := im.computes[key]
	if c == nil {
		return nil
	}
	out := make([]*trainyard.Node, len(c.nodes))
	for i, n := range c.nodes {
		out[i] = n.node
	}
	return out
}

func (im *image) nodeTasks(id trainyard.NodeID) []TaskRef {
	im.mu.RLock()
	defer im.mu.RUnlock()
	return im.tasks[id]
}

// LiveJob is a job that was placed and has not ended, as it is in memory. Do not change it.
func (s *Store) LiveJob(key trainyard.JobKey) (*trainyard.Job, bool) { return s.image.liveJob(key) }

// NodeTasks lists the live tasks on a node. A task is live until it has ended or its attempt has. Do not change the list or the jobs.
// Inside Update use Tx.NodeTasks, which sees what has not been stored yet.
func (s *Store) NodeTasks(id trainyard.NodeID) []TaskRef { return s.image.nodeTasks(id) }

// Compute reads a compute.
func (s *Store) Compute(_ context.Context, key trainyard.ComputeKey) (*trainyard.Compute, error) {
	if c := s.image.compute(key); c != nil {
		return cloneCompute(c), nil
	}
	return nil, noCompute(key)
}

// Computes lists a workspace's computes by name; those of all workspaces for the zero Scope.
func (s *Store) Computes(_ context.Context, scope trainyard.Scope) ([]*trainyard.Compute, error) {
	out := s.image.allComputes()
	if scope != (trainyard.Scope{}) {
		out = slices.DeleteFunc(out, func(c *trainyard.Compute) bool { return c.Scope.Fold() != scope.Fold() })
	}
	slices.SortFunc(out, func(a, b *trainyard.Compute) int { return cmp.Compare(a.Key(), b.Key()) })
	for i, c := range out {
		out[i] = cloneCompute(c)
	}
	return out, nil
}

func (im *image) allComputes() []*trainyard.Compute {
	im.mu.RLock()
	defer im.mu.RUnlock()
	out := make([]*trainyard.Compute, 0, len(im.computes))
	for _, c := range im.computes {
		if c.compute != nil {
			out = append(out, c.compute)
		}
	}
	return out
}

// Node reads a node.
func (s *Store) Node(_ context.Context, id trainyard.NodeID) (*trainyard.Node, error) {
	if n := s.image.node(id); n != nil {
		return n.Clone(), nil
	}
	return nil, noNode(id)
}

// Nodes lists a compute's nodes by ID.
func (s *Store) Nodes(_ context.Context, key trainyard.ComputeKey) ([]*trainyard.Node, error) {
	return cloneNodes(s.image.nodesOf(key)), nil
}

// AllNodes lists every node by ID.
func (s *Store) AllNodes() []*trainyard.Node {
	out := cloneNodes(s.image.allNodes())
	slices.SortFunc(out, func(a, b *trainyard.Node) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func (im *image) allNodes() []*trainyard.Node {
	im.mu.RLock()
	defer im.mu.RUnlock()
	out := make([]*trainyard.Node, 0, len(im.nodes))
	for _, n := range im.nodes {
		out = append(out, n.node)
	}
	return out
}

func cloneNodes(nodes []*trainyard.Node) []*trainyard.Node {
	for i, n := range nodes {
		nodes[i] = n.Clone()
	}
	return nodes
}

// MarkDirty makes the next Snapshot show the compute.
func (s *Store) MarkDirty(key trainyard.ComputeKey) { s.image.mark(key) }

func (im *image) mark(keys ...trainyard.ComputeKey) {
	im.mu.Lock()
	defer im.mu.Unlock()
	for _, key := range keys {
		if im.computes[key] != nil {
			im.touch(key)
		}
	}
}

// QueueOf lists a compute's waiting jobs in the order in which they will be served. Do not change the list.
func (s *Store) QueueOf(key trainyard.ComputeKey) []trainyard.QueuedJob {
	s.image.mu.Lock()
	defer s.image.mu.Unlock()
	if c := s.image.computes[key]; c != nil {
		return c.queue.view()
	}
	return nil
}

// Waits says whether a job is in the queue of its compute. It costs the same however long that is.
func (s *Store) Waits(key trainyard.JobKey) bool {
	s.image.mu.RLock()
	defer s.image.mu.RUnlock()
	_, ok := s.image.waiting[key]
	return ok
}

// Counts says how many jobs of a compute wait and how many are placed.
func (s *Store) Counts(key trainyard.ComputeKey) (queued, running int) {
	s.image.mu.RLock()
	defer s.image.mu.RUnlock()
	if c := s.image.computes[key]; c != nil {
		return c.queue.len(), c.running
	}
	return 0, 0
}

// Snapshot shows the scheduler every compute that changed since the last Snapshot; all of them if all is set. It costs as much as the
// nodes of the computes that it shows, whatever the length of their queues. Nothing in it changes later; do not change it either.
func (s *Store) Snapshot(now time.Time, all bool) trainyard.Snapshot {
	return trainyard.Snapshot{Now: now, Computes: s.image.snapshot(all)}
}

func (im *image) snapshot(all bool) []trainyard.ComputeView {
	im.mu.Lock()
	defer im.mu.Unlock()
	var out []trainyard.ComputeView
	if all {
		for _, c := range im.computes {
			if c.compute != nil {
				out = append(out, im.viewOf(c))
			}
		}
	} else {
		for key := range im.dirty {
			if c := im.computes[key]; c != nil && c.compute != nil {
				out = append(out, im.viewOf(c))
			}
		}
	}
	clear(im.dirty)
	slices.SortFunc(out, func(a, b trainyard.ComputeView) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

func (im *image) viewOf(c *computeState) trainyard.ComputeView {
	v := trainyard.ComputeView{
		Key: c.key, Name: c.compute.Name, Type: c.compute.Spec.ComputeType, MaxNodes: maxNodes(c.compute), Exclusive: isExclusive(c.compute),
		Serverless: c.compute.Serverless,
		Stopped:    c.compute.Stopped, Deleting: c.compute.Deleting, Wanted: c.compute.Wanted, Errors: c.compute.Errors, Full: c.compute.Full,
		Nodes: make([]trainyard.NodeView, len(c.nodes)), Queue: c.queue.view(),
	}
	for i, n := range c.nodes {
		if n.old {
			n.view, n.old = viewNode(n.node, im.tasks[n.node.ID], c.compute), false
		}
		v.Nodes[i] = n.view
	}
	return v
}

func maxNodes(c *trainyard.Compute) int {
	if s := c.Spec.Properties.ScaleSettings; s != nil && isExclusive(c) {
		return s.MaxNodeCount
	}
	if c.Elastic() {
		return 0
	}
	return 1
}

func viewNode(n *trainyard.Node, tasks []TaskRef, c *trainyard.Compute) trainyard.NodeView {
	v := trainyard.NodeView{ID: n.ID, Epoch: n.Epoch, State: n.State, All: n.Capacity, Free: free(n, tasks, c),
		Contains: len(n.Engines) > 0 || c.Engine != ""} // whether an engine that runs all tasks has containers is in what a job is planned as
	for _, t := range tasks {
		if !slices.Contains(v.Jobs, t.Job.Name) {
			v.Jobs = append(v.Jobs, t.Job.Name)
		}
	}
	return v
}

// free is what no task holds. On an exclusive compute a task holds the whole node until it ends. On a shared one it holds a place for each
// of its ranks while it has processes, and a gang larger than the node holds all of it; CPU and memory are shared there. A replica on a
// node that is not of a cluster holds nothing: see trainyard.ComputeView.Shares.
func free(n *trainyard.Node, tasks []TaskRef, c *trainyard.Compute) trainyard.Resources {
	r := n.Capacity
	if isExclusive(c) {
		if r.Slots = 1; slices.ContainsFunc(tasks, func(t TaskRef) bool { return !shares(c, t.Job) }) {
			r = trainyard.Resources{}
		}
		return r
	}
	for _, t := range tasks {
		if holdsPlaces(t.Task()) && !shares(c, t.Job) {
			r.Slots -= places(n, t.Task().Hi-t.Task().Lo)
		}
	}
	r.Slots = max(0, r.Slots)
	return r
}

// shares says whether a job is a replica that takes no place of the compute's.
func shares(c *trainyard.Compute, j *trainyard.Job) bool {
	return j.Plan.Serve != nil && !c.Elastic()
}

// holdsPlaces says whether a live task has, or will have, processes: while it uploads they are gone.
func holdsPlaces(t *trainyard.RunTask) bool { return t.State != trainyard.TaskUploading }

// places is how many of a shared node's places so many ranks take.
func places(n *trainyard.Node, ranks int) int { return min(max(1, ranks), n.Capacity.Slots) }

package store

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// image is what has not ended, in memory. It is built from the database when that is opened, and then changed by the writer alone, with
// what has become durable. What it points at (jobs, nodes, computes, slices of tasks) is never changed, only replaced, so that it can be
// handed out under a short lock.
type image struct {
	mu       sync.RWMutex
	seal     sealer // of what is stored; memory is plain
	computes map[trainyard.ComputeKey]*computeState
	nodes    map[trainyard.NodeID]*nodeState
	waiting  map[trainyard.JobKey]waitingJob
	live     map[trainyard.JobKey]*trainyard.Job
	tasks    map[trainyard.NodeID][]TaskRef // live ones; the node itself may be gone
	dirty    map[trainyard.ComputeKey]struct{}
}

// computeState is a compute with what belongs to it. It exists as soon as anything names the compute.
type computeState struct {
	key     trainyard.ComputeKey
	compute *trainyard.Compute // nil: there is none of that name
	nodes   []*nodeState       // by ID
	queue   queue
	reasons []trainyard.Waiting // of the last plan, in the order of the queue as it was then
	running int                 // placed jobs
}

// nodeState is a node with how the scheduler sees it.
type nodeState struct {
	node *trainyard.Node
	view trainyard.NodeView
	old  bool // view is to be made again
}

// waitingJob says where in which queue a job is.
type waitingJob struct {
	in       *computeState
	seq      int64
	priority int
	nodes    int
	since    time.Time
}

func newImage() *image {
	return &image{
		computes: map[trainyard.ComputeKey]*computeState{}, nodes: map[trainyard.NodeID]*nodeState{},
		waiting: map[trainyard.JobKey]waitingJob{}, live: map[trainyard.JobKey]*trainyard.Job{},
		tasks: map[trainyard.NodeID][]TaskRef{}, dirty: map[trainyard.ComputeKey]struct{}{},
	}
}

// apply takes in what a batch has made durable.
func (im *image) apply(l *layer) {
	im.mu.Lock()
	defer im.mu.Unlock()
	for key, r := range l.computes {
		im.setCompute(key, r.compute)
	}
	for id, r := range l.nodes {
		if r.quiet {
			im.nodes[id].node = r.node
		} else {
			im.setNode(id, r.node)
		}
	}
	for key, r := range l.jobs {
		if r.write {
			im.setJob(key, r.job)
		}
	}
}

// replace takes over another image whole, and says that everything may have changed.
func (im *image) replace(n *image) trainyard.Change {
	im.mu.Lock()
	defer im.mu.Unlock()
	c := trainyard.Change{At: time.Now()}
	for _, old := range []*image{im, n} {
		for key := range old.computes {
			c.Computes = append(c.Computes, key)
		}
		for key := range old.live {
			c.Jobs = append(c.Jobs, key)
		}
	}
	im.computes, im.nodes, im.waiting, im.live, im.tasks, im.dirty = n.computes, n.nodes, n.waiting, n.live, n.tasks, n.dirty
	return c
}

func (im *image) state(key trainyard.ComputeKey) *computeState {
	c := im.computes[key]
	if c == nil {
		c = &computeState{key: key}
		im.computes[key] = c
	}
	return c
}

// tidy forgets a compute that nothing names any more.
func (im *image) tidy(c *computeState) {
	if c.compute == nil && len(c.nodes) == 0 && c.queue.len() == 0 && c.running == 0 {
		delete(im.computes, c.key)
		delete(im.dirty, c.key)
	}
}

func (im *image) touch(key trainyard.ComputeKey) { im.dirty[key] = struct{}{} }

// setCompute puts a compute in its place; nil takes it away.
func (im *image) setCompute(key trainyard.ComputeKey, n *trainyard.Compute) {
	c := im.state(key)
	exclusive := isExclusive(c.compute)
	c.compute = n
	im.touch(key)
	if exclusive != isExclusive(n) {
		for _, ns := range c.nodes {
			ns.old = true
		}
	}
	im.tidy(c)
}

func isExclusive(c *trainyard.Compute) bool {
	return c != nil && !c.Hosted()
}

// setNode puts a node in its place; nil takes it away.
func (im *image) setNode(id trainyard.NodeID, n *trainyard.Node) {
	if old := im.nodes[id]; old != nil && (n == nil || n.Compute != old.node.Compute) {
		c := im.state(old.node.Compute)
		if i, ok := c.find(id); ok {
			c.nodes = slices.Delete(c.nodes, i, i+1)
		}
		delete(im.nodes, id)
		im.touch(c.key)
		im.tidy(c)
	}
	if n == nil {
		return
	}
	c, ns := im.state(n.Compute), im.nodes[id]
	im.touch(c.key)
	if ns != nil {
		ns.node, ns.old = n, true
		return
	}
	ns = &nodeState{node: n, old: true}
	im.nodes[id] = ns
	i, _ := c.find(id)
	c.nodes = slices.Insert(c.nodes, i, ns)
}

func (c *computeState) find(id trainyard.NodeID) (int, bool) {
	return slices.BinarySearchFunc(c.nodes, id, func(n *nodeState, id trainyard.NodeID) int { return cmp.Compare(n.node.ID, id) })
}

// setJob puts a job where its state belongs: in a queue, among the placed ones, or out of the image. nil takes it out.
func (im *image) setJob(key trainyard.JobKey, n *trainyard.Job) {
	old, next := im.live[key], []TaskRef(nil)
	if n != nil {
		next = liveTasks(n)
	}
	if old != nil && n != nil && phaseOf(n.Status.State) == phasePlaced {
		if prev := liveTasks(old); old.Plan.Compute == n.Plan.Compute && sameTasks(prev, next) { // the usual case: the scheduler need not look
			im.live[key] = n
			im.point(prev, next)
			return
		}
	}
	if w, ok := im.waiting[key]; ok && n != nil && w.same(n) {
		return
	}
	im.dequeue(key)
	if old != nil {
		im.unhold(liveTasks(old))
		im.unplace(key, old)
	}
	if n == nil {
		return
	}
	switch phaseOf(n.Status.State) {
	case phaseWaiting:
		im.enqueue(computeOf(n), queued(key, n))
	case phasePlaced:
		c := im.state(computeOf(n))
		c.running++
		im.live[key] = n
		im.touch(c.key)
		im.hold(next)
	}
}

func computeOf(j *trainyard.Job) trainyard.ComputeKey {
	return trainyard.MakeComputeKey(j.Scope, j.Plan.Compute)
}

// queued is what the image keeps of a waiting job. Its name is part of its key, so that the text is in memory once.
func queued(key trainyard.JobKey, j *trainyard.Job) trainyard.QueuedJob {
	return trainyard.QueuedJob{Key: key, Name: string(key)[len(key)-len(j.Name):], Seq: j.Seq, Priority: j.Plan.Priority, Nodes: j.Plan.Nodes, Since: fromNanos(since(j)), Serves: j.Plan.Serve != nil,
		Contained: j.Plan.Environment.Contained()}
}

func (im *image) enqueue(in trainyard.ComputeKey, w trainyard.QueuedJob) {
	c := im.state(in)
	c.queue.add(w)
	im.waiting[w.Key] = waitingJob{c, w.Seq, w.Priority, w.Nodes, w.Since}
	im.touch(in)
}

// same says that the job still waits, as it did.
func (w waitingJob) same(n *trainyard.Job) bool {
	return phaseOf(n.Status.State) == phaseWaiting && w.in.key == computeOf(n) && w.seq == n.Seq && w.priority == n.Plan.Priority &&
		w.nodes == n.Plan.Nodes && w.since.Equal(fromNanos(since(n)))
}

func (im *image) dequeue(key trainyard.JobKey) {
	w, ok := im.waiting[key]
	if !ok {
		return
	}
	w.in.queue.remove(key)
	delete(im.waiting, key)
	im.touch(w.in.key)
	if w.in.queue.len() == 0 {
		w.in.reasons = nil
	}
	im.tidy(w.in)
}

func (im *image) unplace(key trainyard.JobKey, j *trainyard.Job) {
	c := im.state(computeOf(j))
	c.running--
	delete(im.live, key)
	im.touch(c.key)
	im.tidy(c)
}

// sameTasks says that two states of a job hold the same of the same nodes.
func sameTasks(a, b []TaskRef) bool {
	return slices.EqualFunc(a, b, func(a, b TaskRef) bool {
		s, t := a.Task(), b.Task()
		return a.Attempt == b.Attempt && a.Index == b.Index && s.ID == t.ID && s.Node == t.Node && s.Lo == t.Lo && s.Hi == t.Hi &&
			holdsPlaces(s) == holdsPlaces(t)
	})
}

// point makes the nodes' lists point at the job as it is now.
func (im *image) point(prev, next []TaskRef) {
	for i, p := range prev {
		id := p.Task().Node
		list := slices.Clone(im.tasks[id])
		list[slices.Index(list, p)] = next[i]
		im.tasks[id] = list
	}
}

func (im *image) hold(tasks []TaskRef) {
	for _, t := range tasks {
		id := t.Task().Node
		im.tasks[id] = append(slices.Clip(im.tasks[id]), t)
		im.touchNode(id)
	}
}

func (im *image) unhold(tasks []TaskRef) {
	for _, t := range tasks {
		id := t.Task().Node
		list := im.tasks[id]
		i := slices.Index(list, t)
		list = append(slices.Clone(list[:i]), list[i+1:]...)
		if im.tasks[id] = list; len(list) == 0 {
			delete(im.tasks, id)
		}
		im.touchNode(id)
	}
}

func (im *image) touchNode(id trainyard.NodeID) {
	if ns := im.nodes[id]; ns != nil {
		ns.old = true
		im.touch(ns.node.Compute)
	}
}

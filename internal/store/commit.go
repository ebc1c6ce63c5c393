package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Commit makes a plan true: whole, or not at all. Every placement needs its job still to wait, and every node to be usable, of the epoch
// that the plan was made for, and with room; if the world moved on it is a Conflict, nothing was stored, and the next Snapshot shows the
// computes of the plan again. A placed job has a new attempt with its tasks assigned, and is Preparing. What a node does follows from the
// tasks that it holds, so nodes are not written. Why the rest of the plan's jobs wait is kept in memory: see Reason.
func (s *Store) Commit(ctx context.Context, p trainyard.Plan, now time.Time) (placed []trainyard.JobKey, err error) {
	if len(p.Placed) > 0 {
		err = s.Update(ctx, func(tx *Tx) error {
			placed = placed[:0]
			for i := range p.Placed {
				if err := tx.place(&p.Placed[i], now); err != nil {
					return err
				}
				placed = append(placed, p.Placed[i].Job)
			}
			return nil
		})
	}
	if err != nil {
		s.image.markPlan(p)
		return nil, err
	}
	s.image.explainWaiting(p.Waiting)
	return placed, nil
}

// place starts an attempt of a job.
func (tx *Tx) place(p *trainyard.Placement, now time.Time) error {
	j, err := tx.Job(p.Job)
	if trainyard.IsNotFound(err) {
		return trainyard.Conflict("job %q was deleted before it could be placed", p.Job.Name())
	}
	if err != nil {
		return err
	}
	if j.Status.State != trainyard.JobQueued || len(p.Nodes) == 0 || len(p.Epochs) != len(p.Nodes) {
		return trainyard.Conflict("job %q is %s and does not wait to be placed", j.Name, j.Status.State)
	}
	a := trainyard.Attempt{Number: len(j.Status.Attempts) + 1, Placed: now}
	if last := j.Status.Current(); last != nil {
		a.Number = last.Number + 1
	}
	taken := map[trainyard.NodeID]int{} // by this job's earlier ranks; other jobs' show in NodeTasks
	for lo := 0; lo < len(p.Nodes); {
		hi := lo + 1
		for hi < len(p.Nodes) && p.Nodes[hi] == p.Nodes[lo] {
			hi++
		}
		if err := tx.takeNode(j, p.Nodes[lo], p.Epochs[lo], hi-lo, taken); err != nil {
			return err
		}
		a.Tasks = append(a.Tasks, trainyard.RunTask{ID: trainyard.MakeTaskID(p.Job, a.Number, lo), Node: p.Nodes[lo], Lo: lo, Hi: hi, State: trainyard.TaskAssigned})
		lo = hi
	}
	j.Status.Attempts = append(j.Status.Attempts, a)
	j.Status.Timeline = turn(j.Status.Timeline, now)
	on := names(p.Nodes)
	if err := j.MoveTo(trainyard.JobPreparing, trainyard.Reason{Code: "Placed", Message: "placed on " + on, Since: now}, now); err != nil {
		return err
	}
	tx.Event(trainyard.Event{Time: now, Scope: j.Scope, Kind: "job", Subject: j.Name, What: "placed", Message: fmt.Sprintf("attempt %d on %s", a.Number, on)})
	return tx.PutJob(j)
}

// takeNode checks that the node can still take so many ranks, and counts them.
func (tx *Tx) takeNode(j *trainyard.Job, id trainyard.NodeID, epoch int64, ranks int, taken map[trainyard.NodeID]int) error {
	n := tx.node(id).node
	switch {
	case n == nil || n.Compute != computeOf(j):
		return trainyard.Conflict("job %q was to be placed on node %q, which %s does not have", j.Name, id, j.Plan.Compute)
	case !n.State.Usable():
		return trainyard.Conflict("job %q was to be placed on node %q, which is %s now", j.Name, id, n.State)
	case n.Epoch != epoch:
		return trainyard.Conflict("job %q was to be placed on node %q, which joined anew since", j.Name, id)
	}
	c := tx.compute(n.Compute)
	if c == nil || c.Stopped || c.Deleting {
		return trainyard.Conflict("job %q was to be placed on %s, which is being stopped or deleted", j.Name, j.Plan.Compute)
	}
	if shares(c, j) {
		return nil
	}
	room, need := free(n, tx.NodeTasks(id), c).Slots, places(n, ranks)
	if isExclusive(c) {
		need = 1
	}
	if room < taken[id]+need {
		return trainyard.Conflict("job %q was to be placed on node %q, which has no room for it now", j.Name, id)
	}
	taken[id] += need
	return nil
}

// turn ends what a timeline was at, and begins the time in which the job is its nodes'.
func turn(timeline []trainyard.Span, now time.Time) []trainyard.Span {
	if n := len(timeline); n > 0 && timeline[n-1].End.IsZero() {
		timeline[n-1].End = now
	}
	return append(timeline, trainyard.Span{Name: trainyard.SpanNode, Start: now})
}

// names lists nodes for people, each once.
func names(ids []trainyard.NodeID) string {
	var list []string
	for _, id := range ids {
		if !slices.Contains(list, string(id)) {
			list = append(list, string(id))
		}
		if len(list) > 4 {
			return strings.Join(list[:4], ", ") + fmt.Sprintf(" and others, %d in all", len(ids))
		}
	}
	return strings.Join(list, ", ")
}

// markPlan makes the next Snapshot show what a plan that was not stored is about.
func (im *image) markPlan(p trainyard.Plan) {
	im.mu.Lock()
	defer im.mu.Unlock()
	for i := range p.Placed {
		for _, id := range p.Placed[i].Nodes {
			if n := im.nodes[id]; n != nil {
				im.touch(n.node.Compute)
			}
		}
		if w, ok := im.waiting[p.Placed[i].Job]; ok {
			im.touch(w.in.key)
		}
	}
	for i := range p.Waiting {
		if w, ok := im.waiting[p.Waiting[i].Job]; ok {
			im.touch(w.in.key)
		}
	}
}

// explainWaiting keeps why jobs wait. Plans list a compute's jobs together and in its queue's order, so a run of entries is recognised by
// walking along the queue, and the plan's own slice is kept: a job costs a comparison, no more.
func (im *image) explainWaiting(list []trainyard.Waiting) {
	im.mu.Lock()
	defer im.mu.Unlock()
	for begin := 0; begin < len(list); {
		w, ok := im.waiting[list[begin].Job]
		if !ok { // gone since
			begin++
			continue
		}
		c, end := w.in, begin+1
		q := c.queue.view()
		at := c.queue.place(&trainyard.QueuedJob{Seq: w.seq, Priority: w.priority}) + 1
		for end < len(list) {
			if at < len(q) && q[at].Key == list[end].Job {
				at, end = at+1, end+1
				continue
			}
			next, ok := im.waiting[list[end].Job]
			if ok && next.in != c {
				break
			}
			if ok {
				at = c.queue.place(&trainyard.QueuedJob{Seq: next.seq, Priority: next.priority}) + 1
			}
			end++
		}
		c.reasons = list[begin:end:end]
		begin = end
	}
}

// Reason says why a job waits, by the last plan, and its place in its compute's queue: 1 is next. Both are zero if it does not wait; a job
// that no plan has seen yet has a place only.
func (s *Store) Reason(key trainyard.JobKey) (why trainyard.Reason, position int) {
	im := s.image
	im.mu.Lock()
	defer im.mu.Unlock()
	w, ok := im.waiting[key]
	if !ok {
		return why, 0
	}
	position = w.in.queue.place(&trainyard.QueuedJob{Seq: w.seq, Priority: w.priority}) + 1
	if r := nearest(w.in.reasons, key, position-1); r != nil {
		why = *r
	}
	return why, position
}

// nearest finds the job's entry, beginning where it would be if the queue had not changed since the plan.
func nearest(list []trainyard.Waiting, key trainyard.JobKey, at int) *trainyard.Reason {
	at = min(at, len(list)-1)
	for lo, hi := at, at+1; lo >= 0 || hi < len(list); lo, hi = lo-1, hi+1 {
		if lo >= 0 && list[lo].Job == key {
			return list[lo].Reason
		}
		if hi < len(list) && list[hi].Job == key {
			return list[hi].Reason
		}
	}
	return nil
}

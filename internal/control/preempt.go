package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/scale"
	"github.com/trainyard/trainyard/internal/store"
)

const preempted = "Preempted" // the code of the reason of nodes that give way

// share cuts what clusters wish for down to what their locations have room for, says whose jobs are held back for better ones, and has
// low-priority nodes give way to dedicated ones.
func (c *Control) share(ctx context.Context, wishes []wish) error {
	for i := range c.Locations {
		l := c.place(c.Locations[i].Name)
		if l.Capacity == (trainyard.Capacity{}) {
			continue
		}
		r := trainyard.Room{Name: l.Name, Capacity: l.Capacity, Used: c.Used(ctx, l.Name)}
		for j := range wishes {
			c.see(&r, l, &wishes[j])
		}
		s := scale.Share(r)
		for j := range wishes {
			w := &wishes[j]
			if w.comp.Where != l.Name || !w.comp.Elastic() {
				continue
			}
			if lacks := w.Add - s.Grant[w.comp.Key()]; lacks > 0 {
				w.Add, w.full = w.Add-lacks, s.Why[w.comp.Key()]
			}
			if h, ok := s.Hold[w.comp.Key()]; ok {
				w.hold = &h
			}
			w.gives = s.Release[w.comp.Key()]
			w.Remove = append(w.Remove, w.gives...)
		}
		if err := c.preempt(ctx, s.Preempt, l.Name); err != nil {
			return err
		}
	}
	return nil
}

// see adds a cluster of the location, and its nodes, to the room.
func (c *Control) see(r *trainyard.Room, l *trainyard.Location, w *wish) {
	if w.comp.Where != l.Name || !w.comp.Elastic() {
		return
	}
	low := w.comp.LowPriority()
	if size, ok := l.Size(w.comp.Spec.Properties.VMSize); ok {
		a := scale.Ask(w.demand, w.Scale)
		a.Compute, a.Name, a.Size, a.Low = w.comp.Key(), w.comp.Name, size, low
		r.Asks = append(r.Asks, a)
	}
	for _, n := range w.nodes {
		size, ok := l.Size(n.Size)
		switch {
		case !ok:
		case n.State == trainyard.NodePreempted:
			r.Yielding = r.Yielding.Plus(1, size)
		case n.State == trainyard.NodeLeaving: // its machine is there until the fleet says otherwise
			r.Used, r.Yielding = r.Used.Plus(1, size), r.Yielding.Plus(1, size)
			if n.Reason.Code != preempted {
				r.Leaving = r.Leaving.Plus(1, size)
			}
		case slices.Contains(w.Remove, n.ID): // it will be leaving in a moment
			r.Yielding, r.Leaving = r.Yielding.Plus(1, size), r.Leaving.Plus(1, size)
		case low:
			r.Low = append(r.Low, trainyard.LowNode{ID: n.ID, Size: size, Began: c.began(n.ID)})
		}
	}
}

// began is when the oldest work on a node began; zero if it has none.
func (c *Control) began(id trainyard.NodeID) (at time.Time) {
	for _, ref := range c.Store.NodeTasks(id) {
		if placed := ref.Job.Status.Attempts[ref.Attempt].Placed; at.IsZero() || placed.Before(at) {
			at = placed
		}
	}
	return at
}

// preempt has nodes give way: what they run is asked to end, and they leave when it has.
func (c *Control) preempt(ctx context.Context, ids []trainyard.NodeID, location string) error {
	for _, id := range ids {
		var others []trainyard.NodeID
		err := c.Store.Update(ctx, func(tx *store.Tx) error {
			n, err := tx.Node(id)
			if err != nil || n.State == trainyard.NodeLeaving || n.State == trainyard.NodePreempted {
				return nil
			}
			why := trainyard.Reason{Code: preempted, Message: "dedicated work of location " + location + " needs its room"}
			if n.State == trainyard.NodeCreating || n.State == trainyard.NodeUnusable {
				err = n.MoveTo(trainyard.NodeLeaving, why, c.Now())
			} else {
				err = n.MoveTo(trainyard.NodePreempted, why, c.Now())
			}
			if err != nil {
				return err
			}
			if others, err = c.preemptTasks(tx, id); err != nil {
				return err
			}
			tx.Event(c.event(scopeOf(n.Compute), "node", string(id), "preempted", "", why.Message))
			return tx.PutNode(n)
		})
		if err != nil {
			return fmt.Errorf("preempt node %s: %w", id, err)
		}
		c.nodes.bump(id)
		for _, other := range others {
			c.nodes.bump(other)
		}
	}
	if len(ids) > 0 {
		c.fleets.bump(location)
	}
	return nil
}

// preemptTasks has the attempts ended that have a task at work on a node, with all their tasks on other nodes too: they have nothing left to
// work for. It returns the nodes that must hear of it.
func (c *Control) preemptTasks(tx *store.Tx, id trainyard.NodeID) (nodes []trainyard.NodeID, err error) {
	for _, ref := range tx.NodeTasks(id) {
		j, err := tx.Job(ref.Task().ID.Job())
		if err != nil {
			continue // deleted meanwhile
		}
		stopped := preemptJob(j, id)
		if len(stopped) == 0 {
			continue
		}
		if err := tx.PutJob(j); err != nil {
			return nil, err
		}
		nodes = append(nodes, stopped...)
	}
	return nodes, nil
}

// preemptJob has the tasks of a job's current attempt end if one of them is at work on the node. A task whose process has ended is left to
// store what it made, and so are those that have a reason to end already. It returns the nodes of the tasks that must end.
func preemptJob(j *trainyard.Job, id trainyard.NodeID) (nodes []trainyard.NodeID) {
	a := j.Status.Current()
	if a == nil || !slices.ContainsFunc(a.Tasks, func(t trainyard.RunTask) bool { return t.Node == id && atWork(&t) }) {
		return nil
	}
	for i := range a.Tasks {
		if t := &a.Tasks[i]; atWork(t) && t.StopWhy == "" {
			t.StopWhy = trainyard.ClassPreempted
			nodes = append(nodes, t.Node)
		}
	}
	return nodes
}

// atWork says that a task's process has not ended yet.
func atWork(t *trainyard.RunTask) bool { return t.State.Rank() < trainyard.TaskUploading.Rank() }

// leavePreempted lets preempted nodes go whose work has ended.
func (c *Control) leavePreempted(ctx context.Context, comp *trainyard.Compute, nodes []*trainyard.Node) error {
	for _, n := range nodes {
		if n.State != trainyard.NodePreempted || len(c.Store.NodeTasks(n.ID)) > 0 {
			continue
		}
		err := c.Store.Update(ctx, func(tx *store.Tx) error {
			n, err := tx.Node(n.ID)
			if err != nil || n.State != trainyard.NodePreempted || len(tx.NodeTasks(n.ID)) > 0 {
				return nil
			}
			if err := n.MoveTo(trainyard.NodeLeaving, n.Reason, c.Now()); err != nil {
				return err
			}
			return tx.PutNode(n)
		})
		if err != nil {
			return err
		}
		c.nodes.bump(n.ID)
		c.fleets.bump(comp.Where)
	}
	return nil
}

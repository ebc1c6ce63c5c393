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

// share cuts what clusters wish for down to what their locations have room for, and has low-priority nodes give way to dedicated ones.
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
	if size, ok := l.Size(w.comp.Spec.Properties.VMSize); ok && w.Add > 0 {
		r.Asks = append(r.Asks, trainyard.Ask{Compute: w.comp.Key(), Name: w.comp.Name, Add: w.Add, Size: size, Low: low})
	}
	for _, n := range w.nodes {
		size, ok := l.Size(n.Size)
		switch {
		case !ok:
		case n.State == trainyard.NodePreempted:
			r.Yielding = r.Yielding.Plus(1, size)
		case n.State == trainyard.NodeLeaving: // its machine is there until the fleet says otherwise
			r.Used, r.Yielding = r.Used.Plus(1, size), r.Yielding.Plus(1, size)
		case low && !slices.Contains(w.Remove, n.ID):
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
		err := c.Store.Update(ctx, func(tx *store.Tx) error {
			n, err := tx.Node(id)
			if err != nil || n.State == trainyard.NodeLeaving || n.State == trainyard.NodePreempted {
				return nil
			}
			why := trainyard.Reason{Code: "Preempted", Message: "dedicated work of location " + location + " needs its room"}
			if n.State == trainyard.NodeCreating || n.State == trainyard.NodeUnusable {
				err = n.MoveTo(trainyard.NodeLeaving, why, c.Now())
			} else {
				err = n.MoveTo(trainyard.NodePreempted, why, c.Now())
			}
			if err != nil {
				return err
			}
			for _, ref := range tx.NodeTasks(id) {
				if err := c.stopTask(tx, ref.Task().ID, trainyard.ClassPreempted); err != nil {
					return err
				}
			}
			tx.Event(c.event(scopeOf(n.Compute), "node", string(id), "preempted", "", why.Message))
			return tx.PutNode(n)
		})
		if err != nil {
			return fmt.Errorf("preempt node %s: %w", id, err)
		}
		c.nodes.bump(id)
	}
	if len(ids) > 0 {
		c.fleets.bump(location)
	}
	return nil
}

// stopTask has a task ended for a reason, unless it has one already.
func (c *Control) stopTask(tx *store.Tx, id trainyard.TaskID, why trainyard.Class) error {
	j, err := tx.Job(id.Job())
	if err != nil {
		return nil // deleted meanwhile
	}
	if t := findTask(j, id); t != nil && t.State != trainyard.TaskEnded && t.StopWhy == "" {
		t.StopWhy = why
		return tx.PutJob(j)
	}
	return nil
}

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

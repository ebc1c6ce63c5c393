package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/catalog"
	"github.com/trainyard/trainyard/internal/scale"
	"github.com/trainyard/trainyard/internal/store"
)

// scaleLoop lets every cluster have the nodes that its work asks for. It wakes when something changes and when an idle node's time is up.
func (c *Control) scaleLoop(ctx context.Context) error {
	idle := map[trainyard.NodeID]time.Time{}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.scale.C():
		case <-timer.C:
		}
		again, err := c.scaleAll(ctx, idle)
		if err != nil {
			c.scale.Set()
			return err
		}
		timer.Reset(again)
	}
}

// scaleAll looks at every cluster once and says when to look again at the latest.
func (c *Control) scaleAll(ctx context.Context, idle map[trainyard.NodeID]time.Time) (time.Duration, error) {
	defer c.begin.Do(func() { close(c.looked) }) // whatever came of it: the scheduler waits for no second time
	comps, err := c.Store.Computes(ctx, trainyard.Scope{})
	if err != nil {
		return 0, err
	}
	nodes := map[trainyard.ComputeKey][]*trainyard.Node{}
	for _, n := range c.Store.AllNodes() {
		nodes[n.Compute] = append(nodes[n.Compute], n)
	}
	again, bounds := time.Hour, c.bounds(comps, nodes)
	var errs []error
	var wishes []wish
	for _, comp := range comps {
		if comp.Hosted() {
			if err := c.letGo(ctx, comp, nodes[comp.Key()]); err != nil {
				errs = append(errs, fmt.Errorf("let %s go: %w", comp.Name, err))
			}
			continue
		}
		if err := c.leavePreempted(ctx, comp, nodes[comp.Key()]); err != nil {
			errs = append(errs, fmt.Errorf("let preempted nodes of %s go: %w", comp.Name, err))
		}
		d := c.demand(comp, nodes[comp.Key()], idle)
		d.Bound = bounds[comp.Key()]
		w := wish{comp: comp, nodes: nodes[comp.Key()], demand: d, Scale: scale.Decide(d)}
		if !w.Again.IsZero() {
			again = min(again, max(time.Millisecond, w.Again.Sub(c.Now())))
		}
		wishes = append(wishes, w)
	}
	if err := c.share(ctx, wishes); err != nil {
		errs = append(errs, err)
	}
	c.setLimits(wishes)
	for _, w := range wishes {
		if err := c.scaleOne(ctx, w); err != nil {
			errs = append(errs, fmt.Errorf("scale %s: %w", w.comp.Name, err))
		}
	}
	return again, errors.Join(errs...)
}

// wish is what one cluster would have if there were room without end.
type wish struct {
	comp  *trainyard.Compute
	nodes []*trainyard.Node
	trainyard.Scale
	demand trainyard.Demand
	full   trainyard.Reason   // why it does not get all
	hold   *trainyard.Hold    // what others keep from its jobs
	gives  []trainyard.NodeID // of Remove: those that go because others need their room
}

func (c *Control) scaleOne(ctx context.Context, w wish) error {
	comp, s := w.comp, w.Scale
	if len(w.nodes) == 0 && c.isRetired(comp.Where) && !comp.Deleting {
		return c.moveCompute(ctx, comp.Key()) // and look again: it changed
	}
	if comp.Deleting && len(w.nodes) == 0 {
		return c.finishDelete(ctx, comp.Key())
	}
	if s.Add == 0 && len(s.Remove) == 0 && comp.Wanted == s.Wanted && comp.WantedWhy.Code == s.Why.Code && comp.Full == w.full.Message {
		return nil
	}
	err := c.Store.Update(ctx, func(tx *store.Tx) error { return c.resize(tx, comp.Key(), w) })
	if s.Add > 0 || len(s.Remove) > 0 {
		for _, id := range s.Remove {
			c.nodes.bump(id)
		}
		c.fleets.bump(comp.Where)
	}
	return err
}

// demand is what the scaler sees. When a node became idle is remembered in idle, not stored: after a restart its time begins anew.
func (c *Control) demand(comp *trainyard.Compute, nodes []*trainyard.Node, idle map[trainyard.NodeID]time.Time) trainyard.Demand {
	d := trainyard.Demand{Now: c.Now(), Stopped: comp.Stopped, Deleting: comp.Deleting, Idle: idleDefault}
	if s := comp.Spec.Properties.ScaleSettings; s != nil {
		d.Min, d.Max = s.MinNodeCount, s.MaxNodeCount
		if t, err := trainyard.ParseISODuration(s.NodeIdleTimeBeforeScaleDown); err == nil {
			d.Idle = t
		}
	}
	if !comp.Elastic() { // an attached machine is there while the compute is
		d.Min, d.Max, d.Machine = 1, 1, true
	}
	d.Queued = c.Store.QueueOf(comp.Key())
	for _, n := range nodes {
		if n.State == trainyard.NodeLeaving || n.State == trainyard.NodePreempted {
			delete(idle, n.ID)
			continue
		}
		serves := func(ref store.TaskRef) bool { return ref.Job.Plan.Serve != nil }
		age := trainyard.NodeAge{ID: n.ID, State: c.stateOf(n), Serves: slices.ContainsFunc(c.Store.NodeTasks(n.ID), serves)}
		if age.State != trainyard.NodeIdle {
			delete(idle, n.ID)
		} else {
			if idle[n.ID].IsZero() {
				idle[n.ID] = d.Now
			}
			age.IdleFrom = idle[n.ID]
		}
		d.Nodes = append(d.Nodes, age)
	}
	return d
}

// resize writes a decision down: new nodes as creating, idle ones as leaving if they still are idle.
func (c *Control) resize(tx *store.Tx, key trainyard.ComputeKey, w wish) error {
	s, full := w.Scale, w.full.Message
	comp, err := tx.Compute(key)
	if err != nil {
		return nil // deleted meanwhile
	}
	now := c.Now()
	for range s.Add {
		n := &trainyard.Node{ID: newNodeID(strings.ToLower(comp.Name)), Compute: key, State: trainyard.NodeCreating, Size: comp.Spec.Properties.VMSize, Created: now,
			Reason: trainyard.Reason{Code: s.Why.Code, Message: s.Why.Message, Since: now}}
		if err := tx.PutNode(n); err != nil {
			return err
		}
		tx.Event(c.event(comp.Scope, "node", string(n.ID), "creating", "", s.Why.Message))
	}
	for _, id := range s.Remove {
		n, err := tx.Node(id)
		if err != nil || n.State == trainyard.NodeLeaving || len(tx.NodeTasks(id)) > 0 {
			continue
		}
		why := s.Why
		if slices.Contains(w.gives, id) {
			why = trainyard.Reason{Code: "RoomNeeded", Message: "it has no work and others of location " + comp.Where + " need its room"}
		}
		if err := n.MoveTo(trainyard.NodeLeaving, why, now); err != nil {
			return err
		}
		if err := tx.PutNode(n); err != nil {
			return err
		}
		tx.Event(c.event(comp.Scope, "node", string(id), "leaving", "", why.Message))
	}
	if comp.Wanted != s.Wanted {
		comp.Resized = now
	}
	comp.Wanted, comp.WantedWhy, comp.Full = s.Wanted, s.Why, full
	comp.WantedWhy.Since = now
	return tx.PutCompute(comp)
}

// FleetWanted is every machine that a location should have; it waits until that is newer than after. Leaving nodes are not among them: a
// node only leaves when it holds nothing, or when it was given up.
func (c *Control) FleetWanted(ctx context.Context, location string, after int64) (trainyard.FleetWanted, error) {
	w := trainyard.FleetWanted{Rev: c.fleets.wait(ctx, location, after, pollHold)}
	if err := ctx.Err(); err != nil {
		return w, err
	}
	comps, err := c.Store.Computes(ctx, trainyard.Scope{})
	if err != nil {
		return w, err
	}
	here := map[trainyard.ComputeKey]*trainyard.Compute{}
	for _, comp := range comps {
		if comp.Where == location && !comp.Hosted() {
			here[comp.Key()] = comp
		}
	}
	for _, n := range c.Store.AllNodes() {
		comp := here[n.Compute]
		if comp == nil || n.State == trainyard.NodeLeaving {
			continue
		}
		size := trainyard.VMSize{}
		if l := c.place(location); l != nil {
			var ok bool
			if size, ok = l.Size(n.Size); !ok { // the configuration has dropped it; what is there may finish
				size, _ = catalog.Size(n.Size)
			}
		}
		token, err := c.JoinToken(n.ID)
		if err != nil {
			return w, err
		}
		w.Machines = append(w.Machines, trainyard.MachineSpec{ID: n.ID, Compute: n.Compute, Size: size, Token: token, Settings: comp.Settings})
	}
	return w, nil
}

// FleetReport takes note of what a fleet saw and did: nodes that are gone, and why machines could not be had.
func (c *Control) FleetReport(ctx context.Context, r trainyard.FleetReport) error {
	c.noteAway(r.Location, r.Away)
	if r.Away != "" {
		return c.noteFailures(ctx, r)
	}
	c.remark(r.Machines)
	there := map[trainyard.NodeID]bool{}
	for _, m := range r.Machines {
		there[m.ID] = true
	}
	for _, n := range c.Store.AllNodes() {
		comp, err := c.Store.Compute(ctx, n.Compute)
		if err != nil || comp.Where != r.Location || comp.Hosted() {
			continue
		}
		gone := slices.Contains(r.Stopped, n.ID) || (n.State == trainyard.NodeLeaving && !there[n.ID])
		if !gone {
			continue
		}
		if err := c.nodeGone(ctx, n.ID, n.Reason.Message); err != nil {
			return err
		}
		if comp.Deleting {
			if err := c.finishDelete(ctx, comp.Key()); err != nil {
				return err
			}
		}
	}
	return c.noteFailures(ctx, r)
}

// noteAway keeps why nothing is known of a location's machines; "" forgets it.
func (c *Control) noteAway(location, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why == "" {
		delete(c.away, location)
	} else {
		c.away[location] = why
	}
}

// noteFailures keeps on each compute why its machines could not be had or, if all could, given back, and forgets it when all could. Of a
// location that does not answer that is true of all.
func (c *Control) noteFailures(ctx context.Context, r trainyard.FleetReport) error {
	failed := map[trainyard.ComputeKey]string{}
	leaving := map[trainyard.ComputeKey]bool{} // what failed says is of a node that leaves
	for _, id := range slices.Sorted(maps.Keys(r.Failed)) {
		n, err := c.Store.Node(ctx, id)
		if err != nil {
			continue // forgotten
		}
		switch goes := n.State == trainyard.NodeLeaving; {
		case failed[n.Compute] != "" && (goes || !leaving[n.Compute]): // one will do
		case goes:
			failed[n.Compute], leaving[n.Compute] = fmt.Sprintf("node %s does not leave: %s", id, r.Failed[id]), true
		default:
			failed[n.Compute], leaving[n.Compute] = r.Failed[id], false
		}
	}
	comps, err := c.Store.Computes(ctx, trainyard.Scope{})
	if err != nil {
		return err
	}
	for _, comp := range comps {
		why := cmp.Or(r.Away, failed[comp.Key()])
		if comp.Where != r.Location || (why == "" && len(comp.Errors) == 0) || (why != "" && slices.Contains(comp.Errors, why)) {
			continue
		}
		err := c.Store.Update(ctx, func(tx *store.Tx) error {
			comp, err := tx.Compute(comp.Key())
			if err != nil {
				return nil
			}
			comp.Errors = nil
			if why != "" {
				comp.Errors = []string{why}
				what := "node failed"
				if r.Away != "" {
					what = "location away"
				}
				tx.Event(c.event(comp.Scope, "compute", comp.Name, what, "", why))
			}
			return tx.PutCompute(comp)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

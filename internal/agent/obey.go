package agent

import (
	"context"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
)

// obey joins the server and does what it wants, joining again whenever the lease turns out to be void.
func (a *Agent) obey(ctx context.Context) error {
	var tries backoff
	for ctx.Err() == nil {
		joined := time.Now()
		err := a.serve(ctx)
		if time.Since(joined) > 5*time.Second {
			tries.reset()
		}
		if ctx.Err() == nil {
			a.log.Warn("joining again", "err", err)
			pause(ctx, tries.next())
		}
	}
	return ctx.Err()
}

// serve is one lease: from joining to the moment that it is void.
func (a *Agent) serve(ctx context.Context) error {
	n, err := a.join(ctx)
	if err != nil {
		return err
	}
	under, void := context.WithCancel(ctx)
	l := a.leases.take(n, void)
	defer a.leases.drop(l)
	nudge(a.reports.wake)
	return a.follow(under, l.Epoch, func(w trainyard.Wanted) { a.apply(ctx, w) }) // tasks outlive the lease
}

// join asks the server for a lease.
func (a *Agent) join(ctx context.Context) (trainyard.NodeLease, error) {
	capacity, err := a.cfg.Driver.Capacity(ctx)
	if a.cfg.Trouble != nil && ctx.Err() == nil {
		a.cfg.Trouble(ctx, err)
	}
	if err != nil {
		return trainyard.NodeLease{}, err
	}
	info := trainyard.NodeInfo{Node: a.cfg.Node, Token: a.cfg.JoinToken, Capacity: capacity,
		Address: a.cfg.Address, Version: a.cfg.Version, Notes: a.cfg.Notes, Engines: a.cfg.Engines}
	for _, k := range a.all() {
		info.Holding = append(info.Holding, k.id)
	}
	slices.Sort(info.Holding)
	sent := time.Now()
	n, err := a.cfg.Link.Join(ctx, info)
	if trainyard.IsNotFound(err) && len(info.Holding) == 0 {
		a.leave(errLeft) // the server has no such node, and the node has nothing
	}
	if err != nil {
		return trainyard.NodeLease{}, err
	}
	a.heard(sent)
	a.log.Info("joined", "epoch", n.Epoch, "holding", len(info.Holding))
	return n, nil
}

// heard notes a sign of life of the server, and wakes tasks that waited for one.
func (a *Agent) heard(sent time.Time) {
	if late := a.leases.heard(sent); late {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.broadcast()
	}
}

// follow asks for what is wanted and hands it to apply, until ctx is done or the epoch turns out to be old.
func (a *Agent) follow(ctx context.Context, epoch int64, apply func(trainyard.Wanted)) error {
	after := int64(-1)
	var tries backoff
	for {
		sent := time.Now()
		w, err := a.cfg.Link.Wanted(ctx, a.cfg.Node, epoch, after)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case outdated(err):
			return err
		case err != nil:
			a.log.Warn("ask what is wanted", "err", err)
			pause(ctx, tries.next())
			continue
		case w.Epoch > epoch:
			return trainyard.Conflict("another agent has joined as node %q", a.cfg.Node)
		}
		a.heard(sent)
		if w.Epoch == epoch && w.Rev >= after {
			apply(w)
		}
		if w.Rev > after || time.Since(sent) > time.Second {
			tries.reset()
		} else {
			pause(ctx, tries.next()) // it should have waited for news; do not spin
		}
		after = max(after, w.Rev)
	}
}

// apply makes the tasks at hand those that are wanted: new ones begin, known ones hear of orders, others go. What goes is told so before
// the epoch counts as heeded, so that no task that is not wanted passes mayStart.
func (a *Agent) apply(ctx context.Context, w trainyard.Wanted) {
	wanted := make(map[trainyard.TaskID]*trainyard.Task, len(w.Tasks))
	for i := range w.Tasks {
		wanted[w.Tasks[i].ID] = &w.Tasks[i]
	}
	for _, k := range a.all() {
		if t := wanted[k.id]; t == nil {
			k.drop()
		} else if t.Stop != "" {
			k.stop(t.Stop)
		}
	}
	var begun []*task
	a.mu.Lock()
	for id, t := range wanted {
		if a.tasks[id] == nil && a.notice == nil { // what does not begin here any more begins elsewhere
			k := newTask(a, *t)
			a.tasks[id] = k
			begun = append(begun, k)
		}
	}
	if a.heeded != w.Epoch {
		a.heeded = w.Epoch
		a.broadcast()
	}
	a.leaving = w.Leaving
	a.checkLeft()
	a.mu.Unlock()
	for _, k := range begun {
		a.running.Go(func() { k.run(ctx) })
	}
	a.answer(ctx, w.Dials)
	a.lookForImages(ctx, w.Images)
}

// adopt takes up a task found on disk.
func (a *Agent) adopt(ctx context.Context, s stored) {
	k := newTask(a, s.Task)
	k.restore(s)
	a.mu.Lock()
	a.tasks[k.id] = k
	a.mu.Unlock()
	a.running.Go(func() { k.run(ctx) })
}

// forget takes a task that is gone for good off the list.
func (a *Agent) forget(id trainyard.TaskID) {
	a.reports.forget(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.tasks, id)
	a.checkLeft()
}

// checkLeft ends Run when the server lets the node go, or it is taken away, and nothing is left. The caller holds a.mu.
func (a *Agent) checkLeft() {
	if a.told && len(a.tasks) == 0 {
		a.leave(errTaken)
	}
	if a.leaving && len(a.tasks) == 0 {
		a.leave(errLeft)
	}
}

// mayStart waits until the server has said, in the present epoch, that the node's tasks are wanted, and cannot have counted the node as
// lost since. Without that a task found on disk might run twice: here, and where the server has put it meanwhile.
func (a *Agent) mayStart(ctx context.Context) error {
	for {
		a.mu.Lock()
		heeded, changed := a.heeded, a.changed
		a.mu.Unlock()
		if epoch := a.leases.epoch(); epoch != 0 && epoch == heeded {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

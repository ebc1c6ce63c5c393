package agent

import (
	"context"
	"time"

	"github.com/trainyard/trainyard"
)

// Notice says that what the agent runs on is about to be taken away, with all that runs there.
type Notice struct {
	Class  trainyard.Class // of the tasks that are ended by it: Preempted or NodeLost
	Why    string          // in words
	Within time.Duration   // until then
}

// grace is how long a task may take to end. The rest is for storing what it made.
func (n *Notice) grace() time.Duration { return n.Within * 2 / 3 }

// yield waits for a notice. Then tasks are ended for its reason, those whose processes have ended store what they made, nothing begins any
// more, the server is told, and the agent ends when all is done or the time is up.
func (a *Agent) yield(ctx context.Context) error {
	var n Notice
	select {
	case <-ctx.Done():
		return ctx.Err()
	case n = <-a.cfg.Yield:
	}
	ctx, cancel := context.WithTimeout(ctx, n.Within)
	defer cancel()
	a.log.Warn("what the node runs on is taken away", "why", n.Why, "within", n.Within)
	a.mu.Lock()
	a.notice = &n
	a.mu.Unlock()
	for _, k := range a.all() {
		if k.state().Rank() < trainyard.TaskUploading.Rank() {
			k.stopBecause(n.Class, n.Why)
		}
	}
	if a.tellYield(ctx, &n) {
		a.mu.Lock()
		a.told = true
		a.checkLeft()
		a.mu.Unlock()
	}
	<-ctx.Done()
	a.leave(errTaken)
	return nil
}

// tellYield tells the server that the node goes, so that it places nothing there. It says false if there was no time for that.
func (a *Agent) tellYield(ctx context.Context, n *Notice) bool {
	var tries backoff
	for {
		l, err := a.leases.get(ctx)
		if err != nil {
			return false
		}
		err = a.cfg.Link.Report(ctx, trainyard.Report{Node: a.cfg.Node, Epoch: l.Epoch, Yields: n.Why, YieldsAs: n.Class})
		switch {
		case err == nil:
			return true
		case outdated(err):
			a.leases.drop(l)
		}
		pause(ctx, tries.next())
	}
}

// yields is the notice that the agent has had; nil if it has had none.
func (a *Agent) yields() *Notice {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notice
}

package control

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// quiet is how long a node's agent may be silent before those who look at its jobs are told.
const quiet = 3 * renew

// codeSilent is of a live job with a node that nothing is heard of.
const codeSilent = "NodeSilent"

// silence is why what is known of a live job may be old: a node of it that was not heard of. ok is false if all speak.
func (c *Control) silence(ctx context.Context, j *trainyard.Job) (why string, ok bool) {
	a := j.Status.Current()
	if a == nil || !a.Ended.IsZero() || j.Status.State.Terminal() {
		return "", false
	}
	for i := range a.Tasks {
		t := &a.Tasks[i]
		if t.State == trainyard.TaskEnded {
			continue
		}
		c.mu.Lock()
		last, note := c.seen[t.Node], c.remarks[t.Node].Note
		c.mu.Unlock()
		if !last.IsZero() && c.Now().Sub(last) > quiet {
			text := fmt.Sprintf("nothing was heard of node %s since %s", t.Node, clock(last))
			if note != "" {
				text += " (" + note + ")"
			}
			return text + c.whatThen(ctx, j), true
		}
	}
	return "", false
}

// clock is a moment of today, as people are told it.
func clock(t time.Time) string { return t.UTC().Format(time.TimeOnly + " MST") }

// whatThen is what becomes of a job whose node is silent.
func (c *Control) whatThen(ctx context.Context, j *trainyard.Job) string {
	comp, err := c.Store.Compute(ctx, trainyard.MakeComputeKey(j.Scope, j.Plan.Compute))
	asked := j.Status.State == trainyard.JobCancelRequested
	switch {
	case err != nil:
		return ""
	case asked && comp.Elastic():
		return fmt.Sprintf("; after %s the node is ended, and the job with it%s", expire, troubles(comp))
	case asked:
		return "; the job ends when the node answers" + troubles(comp)
	case comp.Elastic() && len(comp.Errors) > 0:
		return fmt.Sprintf("; after %s the node is to be ended, and when that is certain the job goes to another: %s", expire, strings.Join(comp.Errors, "; "))
	case comp.Elastic():
		return fmt.Sprintf("; after %s the node is ended and the job goes to another", expire)
	case len(comp.Errors) > 0:
		return "; compute " + comp.Name + ": " + strings.Join(comp.Errors, "; ")
	}
	return "; what it runs goes on, and the node is waited for"
}

// troubles are what is wrong with a compute, after a colon; "" if nothing is.
func troubles(comp *trainyard.Compute) string {
	if len(comp.Errors) == 0 {
		return ""
	}
	return ": " + strings.Join(comp.Errors, "; ")
}

// remark keeps what a fleet says of its machines, for those who ask why a node is silent.
func (c *Control) remark(machines []trainyard.Machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range machines {
		if m.Note == "" {
			delete(c.remarks, m.ID)
		} else {
			c.remarks[m.ID] = m
		}
	}
}

func (c *Control) remarkOf(id trainyard.NodeID) (note string, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.remarks[id]
	return m.Note, m.Cut
}

// What is kept of what a machine says of itself, which may be anything.
const (
	mostAway = 8   // engines that do not answer
	mostSaid = 300 // characters of a sentence
)

// noteEngines keeps which engines of a node do not answer, for those who look at the node, and writes down when that changes. A report that
// says of images whether they can be had, or that the node is taken away, tells nothing of engines.
func (c *Control) noteEngines(ctx context.Context, r trainyard.Report) error {
	if len(r.Images) > 0 || r.Yields != "" {
		return nil
	}
	var now trainyard.Reason
	var words []string
	for _, w := range r.Away[:min(len(r.Away), mostAway)] {
		words = append(words, shorten(w.Why, mostSaid))
		if now.Since.IsZero() || w.Since.Before(now.Since) {
			now.Since = w.Since
		}
	}
	if len(words) > 0 {
		now.Code, now.Message = codeUnseen, strings.Join(words, "; ")
	}
	if was, known := c.knownEngineAway(r.Node); known && was.Message == now.Message {
		return nil
	}
	told, err := c.toldEngineAway(ctx, r.Node, now)
	if err != nil {
		return err
	}
	was := c.engineAway(r.Node) // before the update, which may be made twice
	return c.Store.Update(ctx, func(tx *store.Tx) error {
		n, err := tx.Node(r.Node)
		if err != nil {
			return nil // gone meanwhile
		}
		c.setEngineAway(tx, n, was, now, told)
		return nil
	})
}

// What is written down of a node's engines.
const (
	eventAway = "engine away"
	eventBack = "engine back"
)

// toldEngineAway says that an engine of a node is away of which that is written down already, before this server began.
func (c *Control) toldEngineAway(ctx context.Context, id trainyard.NodeID, now trainyard.Reason) (bool, error) {
	if _, known := c.knownEngineAway(id); known || now.Message == "" {
		return false, nil
	}
	last, err := c.Store.LastEvent(ctx, "node", string(id), eventAway, eventBack)
	return last.What == eventAway, err
}

// setEngineAway keeps why an engine of a node that there is does not answer, and did not before; without a message all do. It writes down when
// one goes away, unless it is told already, and when all are back, but not that what is said of it changes.
func (c *Control) setEngineAway(tx *store.Tx, n *trainyard.Node, was, now trainyard.Reason, told bool) {
	c.mu.Lock()
	if have, known := c.silent[n.ID]; !known || now.Message != have.Message {
		c.silent[n.ID] = now
	}
	c.mu.Unlock()
	if told || (now.Message == "") == (was.Message == "") {
		return
	}
	what, why := eventAway, now.Message
	if why == "" {
		what, why = eventBack, "all its engines answer again"
	}
	tx.Event(c.event(scopeOf(n.Compute), "node", string(n.ID), what, "", why))
}

func (c *Control) engineAway(id trainyard.NodeID) trainyard.Reason {
	why, _ := c.knownEngineAway(id)
	return why
}

// knownEngineAway is why an engine of the node does not answer; nothing is known before its agent has reported since this server began.
func (c *Control) knownEngineAway(id trainyard.NodeID) (why trainyard.Reason, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	why, known = c.silent[id]
	return why, known
}

// noteUnseen writes down, on a job, that the engine which runs it does not answer, and when it does again for how long it did not.
func (c *Control) noteUnseen(tx *store.Tx, j *trainyard.Job, was trainyard.Reason) {
	now := j.Status.Reason
	switch {
	case now.Code == was.Code:
	case now.Code == codeUnseen:
		tx.Event(c.event(j.Scope, "job", j.Name, eventAway, "", now.Message))
	case was.Code == codeUnseen:
		tx.Event(c.event(j.Scope, "job", j.Name, eventBack, "", now.Message))
		j.Status.Warnings = trainyard.Warn(j.Status.Warnings, fmt.Sprintf("from %s to %s nothing could be seen of it: %s",
			was.Since.UTC().Format(time.TimeOnly), clock(c.Now()), cmp.Or(was.Cause, was.Message)))
	}
}

// noteSilence writes down, on the jobs of a node that is given up, that nothing is heard of it.
func (c *Control) noteSilence(tx *store.Tx, id trainyard.NodeID, why string) {
	for _, ref := range tx.NodeTasks(id) {
		if ref.Task().State != trainyard.TaskEnded {
			tx.Event(c.event(ref.Job.Scope, "job", ref.Job.Name, "node silent", "", fmt.Sprintf("node %s: %s", id, why)))
		}
	}
}

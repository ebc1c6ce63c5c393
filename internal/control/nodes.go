package control

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// Join makes an agent the one that speaks for its node, and everything an older agent of the node says void.
func (c *Control) Join(ctx context.Context, info trainyard.NodeInfo) (trainyard.NodeLease, error) {
	who, err := c.Tokens.Check(info.Token)
	if err != nil || who.Node != info.Node {
		return trainyard.NodeLease{}, trainyard.Errorf(trainyard.CodeUnknown, "the join token is not one for node %q", info.Node)
	}
	var epoch int64
	err = c.Store.Update(ctx, func(tx *store.Tx) error {
		n, err := tx.Node(info.Node)
		if err != nil {
			return err
		}
		if n.State == trainyard.NodeLeaving && len(tx.NodeTasks(n.ID)) == 0 {
			return trainyard.NotFound("node %q is no longer wanted; its agent may stop", n.ID)
		}
		now := c.Now()
		n.Epoch++
		n.Joined, n.Address, n.Agent, n.Notes = now, info.Address, info.Version, info.Notes
		n.Capacity, n.Engines = info.Capacity, info.Engines
		if n.State == trainyard.NodeCreating || n.State == trainyard.NodeUnusable {
			if err := n.MoveTo(trainyard.NodeIdle, trainyard.Reason{Code: "Joined", Message: "its agent has joined"}, now); err != nil {
				return err
			}
		}
		epoch = n.Epoch
		if err := rememberEngines(tx, n); err != nil {
			return err
		}
		if err := c.loseForgotten(tx, n, info.Holding); err != nil {
			return err
		}
		tx.Event(c.event(scopeOf(n.Compute), "node", string(n.ID), "joined", "", fmt.Sprintf("agent %s at %s", info.Version, info.Address)))
		return tx.PutNode(n)
	})
	if err != nil {
		return trainyard.NodeLease{}, err
	}
	c.saw(info.Node)
	token, err := c.Tokens.Mint(trainyard.User{Name: string(info.Node), Role: trainyard.RoleAgent, Node: info.Node}, "agent", 30*24*time.Hour)
	c.nodes.bump(info.Node)
	return trainyard.NodeLease{Epoch: epoch, Token: token, Renew: renew, Expires: expire}, err
}

// rememberEngines keeps with a cluster what container engines its newest node has: while it has no node, its next ones are taken to have them.
func rememberEngines(tx *store.Tx, n *trainyard.Node) error {
	comp, err := tx.Compute(n.Compute)
	if trainyard.IsNotFound(err) || err == nil && (comp.Spec.ComputeType != trainyard.ComputeCluster || slices.Equal(comp.Engines, n.Engines)) {
		return nil
	} else if err != nil {
		return err
	}
	comp.Engines = slices.Clone(n.Engines)
	return tx.PutCompute(comp)
}

// loseForgotten counts tasks as lost that ran when the node was last heard of and that its new agent knows nothing of: the node's disk
// is another, so they must not run again as if they had never begun.
func (c *Control) loseForgotten(tx *store.Tx, n *trainyard.Node, holding []trainyard.TaskID) error {
	for _, ref := range tx.NodeTasks(n.ID) {
		id := ref.Task().ID
		if ref.Task().State.Rank() < trainyard.TaskRunning.Rank() || slices.Contains(holding, id) {
			continue
		}
		if _, err := c.lose(tx, n, id, fmt.Sprintf("node %s came back without the task that it ran", n.ID)); err != nil {
			return err
		}
	}
	return nil
}

// takenAway is of a node whose agent has had notice that what it runs on goes.
const takenAway = "TakenAway"

// lose ends a task as lost with its node, or as preempted if the node was taken away for that, and lets policy act. It returns the nodes
// that must hear of it.
func (c *Control) lose(tx *store.Tx, n *trainyard.Node, id trainyard.TaskID, why string) ([]trainyard.NodeID, error) {
	j, err := tx.Job(id.Job())
	if err != nil {
		return nil, nil // deleted meanwhile
	}
	t := findTask(j, id)
	if t == nil || t.State == trainyard.TaskEnded {
		return nil, nil
	}
	t.State = trainyard.TaskEnded
	t.Result = &trainyard.Result{Class: trainyard.ClassNodeLost, ExitCode: -1, Message: why}
	if n.Reason.Code == takenAway && n.LostAs == trainyard.ClassPreempted {
		t.Result.Class = n.LostAs
	}
	return c.step(tx, j)
}

// Wanted is what should be on the node; it waits until that is newer than after.
func (c *Control) Wanted(ctx context.Context, id trainyard.NodeID, epoch, after int64) (trainyard.Wanted, error) {
	if _, err := c.speaker(ctx, id, epoch); err != nil {
		return trainyard.Wanted{}, err
	}
	rev := c.nodes.wait(ctx, id, after, pollHold)
	if err := ctx.Err(); err != nil {
		return trainyard.Wanted{}, err
	}
	n, err := c.nodeOf(ctx, id, epoch) // that it is answered is no word of its agent's
	if err != nil {
		return trainyard.Wanted{}, err
	}
	w := trainyard.Wanted{Epoch: n.Epoch, Rev: rev, Leaving: n.State == trainyard.NodeLeaving, Dials: c.dials.of(id), Images: c.images.of(id)}
	for _, ref := range c.Store.NodeTasks(id) {
		t, err := c.task(ctx, ref, n)
		if err != nil {
			return trainyard.Wanted{}, err
		}
		w.Tasks = append(w.Tasks, t)
	}
	return w, nil
}

// speaker is the node whose agent speaks, if the caller's epoch is the present one.
func (c *Control) speaker(ctx context.Context, id trainyard.NodeID, epoch int64) (*trainyard.Node, error) {
	n, err := c.nodeOf(ctx, id, epoch)
	if err == nil {
		c.saw(id)
	}
	return n, err
}

// nodeOf is the node, if the epoch is the present one.
func (c *Control) nodeOf(ctx context.Context, id trainyard.NodeID, epoch int64) (*trainyard.Node, error) {
	n, err := c.Store.Node(ctx, id)
	if err != nil {
		return nil, err
	}
	if n.Epoch != epoch {
		return nil, trainyard.Conflict("node %q has been taken over by a newer agent (epoch %d, not %d): join again", id, n.Epoch, epoch)
	}
	if n.State == trainyard.NodeUnusable && n.Epoch > 0 { // it was given up, and is here after all: joining makes it usable
		return nil, trainyard.Conflict("nothing was heard of node %q for too long: join again", id)
	}
	return n, nil
}

// Report takes note of what an agent says of its tasks.
func (c *Control) Report(ctx context.Context, r trainyard.Report) error {
	speaker, err := c.speaker(ctx, r.Node, r.Epoch)
	if err != nil {
		return err
	}
	if r.Yields != "" {
		if err := c.noteYield(ctx, r); err != nil {
			return err
		}
	}
	c.noteLoads(r.Loads)
	if err := c.noteEngines(ctx, r); err != nil {
		return err
	}
	for _, w := range r.Images {
		if err := c.noteImage(ctx, speaker, w); err != nil {
			return err
		}
	}
	if len(r.Tasks) == 0 {
		return nil
	}
	var others []trainyard.NodeID // nodes of gangs that must hear of it
	err = c.Store.Update(ctx, func(tx *store.Tx) error {
		others = others[:0]
		n, err := tx.Node(r.Node)
		if err != nil {
			return err
		}
		if n.Epoch != r.Epoch {
			return trainyard.Conflict("node %q has been taken over by a newer agent: join again", r.Node)
		}
		for i := range r.Tasks {
			told, err := c.note(tx, r.Node, &r.Tasks[i])
			if err != nil {
				return err
			}
			others = append(others, told...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range r.Tasks {
		if r.Tasks[i].State == trainyard.TaskEnded {
			c.forgetTask(r.Tasks[i].ID)
			others = append(others, r.Node)
		}
	}
	slices.Sort(others)
	for _, id := range slices.Compact(others) {
		c.nodes.bump(id)
	}
	return nil
}

// noteYield has a node of a cluster go that is taken away by whoever it is from. Its agent ends its tasks, and no other is placed there.
func (c *Control) noteYield(ctx context.Context, r trainyard.Report) error {
	return c.Store.Update(ctx, func(tx *store.Tx) error {
		n, err := tx.Node(r.Node)
		if err != nil || n.Epoch != r.Epoch || !n.State.Usable() {
			return err
		}
		if comp, err := tx.Compute(n.Compute); err != nil || !comp.Elastic() {
			return nil // an attached machine is waited for: there is no other
		}
		why := shorten(r.Yields, mostSaid)
		if err := n.MoveTo(trainyard.NodePreempted, trainyard.Reason{Code: takenAway, Message: why}, c.Now()); err != nil {
			return err
		}
		if r.YieldsAs == trainyard.ClassPreempted {
			n.LostAs = r.YieldsAs
		}
		tx.Event(c.event(scopeOf(n.Compute), "node", string(n.ID), "preempted", "", why))
		return tx.PutNode(n)
	})
}

// note applies one task's report to its job and lets policy act. It returns the nodes whose wanted tasks changed by it.
func (c *Control) note(tx *store.Tx, from trainyard.NodeID, r *trainyard.TaskReport) ([]trainyard.NodeID, error) {
	j, err := tx.Job(r.ID.Job())
	if trainyard.IsNotFound(err) {
		return nil, nil // deleted meanwhile; the agent will be told that it is not wanted
	}
	if err != nil {
		return nil, err
	}
	t := findTask(j, r.ID)
	if t == nil || t.Node != from || t.State == trainyard.TaskEnded || r.State.Rank() < t.State.Rank() {
		return nil, nil // an old attempt, another node's task, or old news
	}
	if r.State == trainyard.TaskRunning && r.Away == "" { // as agents say it that are older than Away
		r.Away, r.Progress = r.Progress, ""
	}
	t.State, t.Progress, t.Away, t.Spans, t.Serving = r.State, r.Progress, r.Away, r.Spans, r.Serving
	if r.Result != nil {
		res := *r.Result
		if res.Class == trainyard.ClassCanceled && t.StopWhy != "" {
			res.Class = t.StopWhy // a driver knows that it was asked to stop, not why
		}
		t.Result = &res
	}
	for _, w := range r.Warnings {
		j.Status.Warnings = trainyard.Warn(j.Status.Warnings, w)
	}
	return c.step(tx, j)
}

// stateOf is what a usable node does: idle, preparing or running, by the tasks it holds. It is never stored, so no job costs a write to
// its node.
func (c *Control) stateOf(n *trainyard.Node) trainyard.NodeState {
	if !n.State.Usable() {
		return n.State
	}
	state := trainyard.NodeIdle
	for _, ref := range c.Store.NodeTasks(n.ID) {
		switch ref.Job.Status.Attempts[ref.Attempt].Tasks[ref.Index].State {
		case trainyard.TaskRunning, trainyard.TaskUploading:
			return trainyard.NodeRunning
		default:
			state = trainyard.NodePreparing
		}
	}
	return state
}

// Append takes log bytes of a task.
func (c *Control) Append(ctx context.Context, node trainyard.NodeID, epoch int64, id trainyard.TaskID, name string, offset int64, data []byte) (int64, error) {
	if _, err := c.speaker(ctx, node, epoch); err != nil {
		return 0, err
	}
	for _, ref := range c.Store.NodeTasks(node) {
		if ref.Job.Status.Attempts[ref.Attempt].Tasks[ref.Index].ID == id {
			return c.appendLog(ctx, ref.Job, ref.Attempt, name, offset, data)
		}
	}
	return 0, trainyard.NotFound("%s is not one of node %q", id.Words(), node)
}

// AppendOwn adds to a log of a task of the job whose token asks.
func (c *Control) AppendOwn(ctx context.Context, who trainyard.User, id trainyard.TaskID, name string, offset int64, data []byte) (int64, error) {
	key := trainyard.MakeJobKey(who.Scope, who.Job)
	j, live := c.Store.LiveJob(key)
	if !live || id.Job() != key || findTask(j, id) == nil {
		return 0, trainyard.Errorf(trainyard.CodeForbidden, "%s is not one of job %q that runs", id.Words(), who.Job)
	}
	return c.appendLog(ctx, j, len(j.Status.Attempts)-1, name, offset, data)
}

// JobKeys lists the blob prefixes that a live job's token may write below: its artifacts and outputs, and inputs mounted for writing.
func (c *Control) JobKeys(who trainyard.User) []string {
	j, live := c.Store.LiveJob(trainyard.MakeJobKey(who.Scope, who.Job))
	if !live {
		return nil
	}
	keys := []string{artifacts(j.Scope, j.Name).Key()}
	for _, out := range j.Plan.Outputs {
		keys = append(keys, out.Key)
	}
	for _, in := range j.Plan.Inputs {
		if in.Key != "" && strings.EqualFold(in.Mode, "ReadWriteMount") {
			keys = append(keys, in.Key)
		}
	}
	return keys
}

// Open, List and Put let a node fetch and store bytes.
func (c *Control) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	return c.Blobs.Open(ctx, key, offset)
}

func (c *Control) List(ctx context.Context, prefix string) ([]trainyard.BlobInfo, error) {
	return c.Blobs.List(ctx, prefix)
}

func (c *Control) Put(ctx context.Context, key string, r io.Reader) error {
	return c.Blobs.Put(ctx, key, r)
}

// watchNodes gives up nodes that were not heard of, and takes the tasks of those that are certainly gone away from them. When it finds
// that this process stood still itself, and so heard nobody, every node has its full time again, as after a restart.
func (c *Control) watchNodes(ctx context.Context) error {
	tick := time.NewTicker(renew)
	defer tick.Stop()
	last := c.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := c.Now()
		stood := now.Sub(last)
		last = now
		watched := slices.DeleteFunc(c.Store.AllNodes(), func(n *trainyard.Node) bool { return !n.State.Usable() && n.State != trainyard.NodePreempted })
		if stood > 2*renew {
			c.Log.Warn("this server stood still, or all but did; its nodes have their full time again to be heard of", "for", stood.Round(time.Second))
			for _, n := range watched {
				c.saw(n.ID)
			}
			continue
		}
		for _, n := range watched {
			if now.Sub(c.lastSeen(n.ID)) > expire { // by one clock: it may stand still from here on, too
				if err := c.giveUp(ctx, n.ID); err != nil {
					return err
				}
			}
		}
	}
}

// giveUp marks a silent node unusable, unless it is heard of by then. A cluster's node is replaced: its fleet is asked to end it, and only
// when that is certain are its tasks counted as lost, so that nothing ever runs twice.
func (c *Control) giveUp(ctx context.Context, id trainyard.NodeID) error {
	var location string
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		location = ""
		n, err := tx.Node(id)
		preempted := err == nil && n.State == trainyard.NodePreempted
		last := c.lastSeen(id)
		if err != nil || !n.State.Usable() && !preempted || c.Now().Sub(last) <= expire {
			return nil
		}
		why := trainyard.Reason{Code: "NotHeardOf", Message: "nothing was heard of its agent since " + clock(last)}
		if preempted { // what it is given up for was known before
			why = n.Reason
		} else {
			if err := n.MoveTo(trainyard.NodeUnusable, why, c.Now()); err != nil {
				return err
			}
		}
		comp, err := tx.Compute(n.Compute)
		if err == nil && comp.Elastic() { // an attached machine is waited for: there is no other
			location = comp.Where
			if err := n.MoveTo(trainyard.NodeLeaving, why, c.Now()); err != nil {
				return err
			}
		}
		tx.Event(c.event(scopeOf(n.Compute), "node", string(id), "unusable", "", why.Message))
		c.noteSilence(tx, id, why.Message)
		return tx.PutNode(n)
	})
	if err == nil && location != "" {
		c.fleets.bump(location)
	}
	return err
}

// nodeGone takes a node that certainly runs nothing any more out of the world; its tasks are lost and policy goes on from there.
func (c *Control) nodeGone(ctx context.Context, id trainyard.NodeID, why string) error {
	var told []trainyard.NodeID
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		told = told[:0]
		n, err := tx.Node(id)
		if trainyard.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, ref := range tx.NodeTasks(id) {
			more, err := c.lose(tx, n, ref.Task().ID, fmt.Sprintf("node %s was lost: %s", id, why))
			if err != nil {
				return err
			}
			told = append(told, more...)
		}
		tx.Event(c.event(scopeOf(n.Compute), "node", string(id), "gone", "", why))
		return tx.DeleteNode(id)
	})
	if err != nil {
		return err
	}
	c.forgetNode(id)
	for _, n := range told {
		c.nodes.bump(n)
	}
	c.nodes.forget(id)
	return nil
}

// forgetNode forgets what memory has of a node that is gone.
func (c *Control) forgetNode(id trainyard.NodeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.seen, id)
	delete(c.remarks, id)
	delete(c.silent, id)
}

// saw notes a sign of life.
func (c *Control) saw(id trainyard.NodeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[id] = c.Now()
}

func (c *Control) lastSeen(id trainyard.NodeID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[id]
}

// JoinToken is what a machine needs to join as the node.
func (c *Control) JoinToken(id trainyard.NodeID) (string, error) {
	return c.Tokens.Mint(trainyard.User{Name: string(id), Role: trainyard.RoleAgent, Node: id}, "join", 365*24*time.Hour)
}

// newNodeID names a node after its compute, for people, with enough chance in it to be unique for ever.
func newNodeID(compute string) trainyard.NodeID {
	var b [5]byte
	rand.Read(b[:])
	return trainyard.NodeID(compute + "-" + hex.EncodeToString(b[:]))
}

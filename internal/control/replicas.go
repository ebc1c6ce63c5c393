package control

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// A replica is a job that is not supposed to end: it waits, is placed, staged, watched and retried as any job is. This file keeps as many
// of them as a deployment should have.

// noCompute is the reason's code of a deployment whose compute is gone: no replica can come.
const noCompute = "NoCompute"

// replicaTag is on every replica's job; its value names the deployment.
const replicaTag = "trainyard.replica"

// Keeping replicas.
const (
	crashMemory = 10 * time.Minute // a replica that ran so long was well: the next end is the first of its row
	crashDelay  = 200 * time.Millisecond
	crashMost   = 30 * time.Second
	blockedWait = 10 * time.Second
	drainAck    = 3 * time.Second // a gateway that says nothing for so long is not waited for
	replicaTail = 4 << 10         // bytes of a replica's log in the reason of its deployment
	replicaWide = 16 << 10        // the same before its tables are made narrower
	replicaLogs = 3               // ended replicas of a deployment whose logs are kept
)

// serve looks at every deployment once, and then at those where something changed.
func (c *Control) serve(ctx context.Context) error {
	for _, e := range c.served.allEndpoints() {
		for _, d := range c.served.deploymentsOf(e.Name) {
			c.reconcile.Add(deploymentKey(d.Endpoint, d.Name))
		}
	}
	return c.reconcile.Run(ctx)
}

// replica is one replica as reconcile sees it.
type replica struct {
	job     *trainyard.Job
	gen     int
	serving trainyard.Serving
}

func (r *replica) over() bool { return r.job.Status.State.Terminal() }

func (r *replica) ready() bool { return !r.over() && r.serving.Ready }
func (r *replica) ending() bool {
	return r.over() || r.job.Status.State == trainyard.JobCancelRequested
}

// look reads a deployment's replicas, those of an old generation first, the oldest first.
func (c *Control) look(ctx context.Context, key string) ([]*replica, error) {
	var out []*replica
	for _, k := range c.served.replicasOf(key) {
		j, err := c.Store.Job(ctx, k)
		if trainyard.IsNotFound(err) {
			continue // being made, or deleted
		}
		if err != nil {
			return nil, err
		}
		r := &replica{job: j, gen: j.Plan.Serve.Generation}
		if a := j.Status.Current(); a != nil && len(a.Tasks) > 0 && a.Tasks[0].Serving != nil {
			r.serving = *a.Tasks[0].Serving
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *replica) int {
		if a.gen != b.gen {
			return a.gen - b.gen
		}
		return int(a.job.Seq - b.job.Seq)
	})
	return out, nil
}

// reconcileDeployment makes what is there what should be there, one step at a time. It may be called at any time and any number of times.
func (c *Control) reconcileDeployment(ctx context.Context, key string) (time.Duration, error) {
	c.served.verbs.Lock()
	defer c.served.verbs.Unlock()
	endpoint, name, _ := strings.Cut(key, "/")
	d := c.served.deployment(endpoint, name)
	if d == nil {
		return 0, nil
	}
	all, err := c.look(ctx, key)
	if err != nil {
		return 0, err
	}
	k := &keeper{c: c, ctx: ctx, key: key, d: d, now: c.Now()}
	for _, r := range all {
		if r.over() {
			if err := k.ended(r); err != nil {
				return 0, err
			}
			continue
		}
		k.live = append(k.live, r)
	}
	if d.Status.State == trainyard.DeploymentDeleting {
		return 0, k.delete()
	}
	if err := k.late(); err != nil {
		return 0, err
	}
	if err := k.keep(); err != nil {
		return 0, err
	}
	return k.again, nil
}

// keeper is one look at one deployment.
type keeper struct {
	c     *Control
	ctx   context.Context
	key   string
	d     *trainyard.OnlineDeployment // replaced by what is stored
	now   time.Time
	live  []*replica
	again time.Duration

	blocked string // why no replica can be made
}

// later asks for another look after a while, at the latest.
func (k *keeper) later(d time.Duration) {
	if d > 0 && (k.again == 0 || d < k.again) {
		k.again = d
	}
}

// of counts the live replicas of a generation that are to stay.
func (k *keeper) of(gen int) (present, ready []*replica) {
	for _, r := range k.live {
		if r.gen != gen || r.ending() || k.c.served.isLeaving(k.key, r.job.Key()) {
			continue
		}
		present = append(present, r)
		if r.ready() {
			ready = append(ready, r)
		}
	}
	return present, ready
}

// keep makes the number right, moves from the old generation to the new one, and says how it stands.
func (k *keeper) keep() error {
	s := &k.d.Status
	var readyNow int
	if s.Live != nil {
		_, ready := k.of(s.Live.Generation)
		readyNow = len(ready)
	}
	want, why, again := k.c.replicasWanted(k.key, readyNow)
	if s.Live == nil || s.Next != nil { // until it has shown that it serves, it must have one
		want = max(want, 1)
	}
	k.later(again)
	if want != s.Wanted || s.WantedWhy.Code != why.Code {
		n := *k.d
		why.Since = k.now
		n.Status.Wanted, n.Status.WantedWhy = want, why
		if err := k.put(&n, ""); err != nil {
			return err
		}
		s = &k.d.Status
	}
	if s.Next != nil {
		if err := k.fill(s.Next, want); err != nil {
			return err
		}
		if _, ready := k.of(s.Next.Generation); len(ready) >= want {
			if err := k.promote(); err != nil {
				return err
			}
			s = &k.d.Status
		}
	}
	if s.Live != nil {
		keep := want
		if s.Next != nil { // each new one that is ready takes the place of an old one
			_, ready := k.of(s.Next.Generation)
			keep = max(0, want-len(ready))
		}
		if err := k.fill(s.Live, keep); err != nil {
			return err
		}
	}
	if err := k.dismiss(); err != nil {
		return err
	}
	if err := k.say(); err != nil {
		return err
	}
	r, err := k.c.deploymentRoute(k.ctx, k.d)
	if err != nil {
		return err
	}
	if k.c.served.routeIsNew(k.key, &r) {
		k.c.routesChanged()
	}
	return nil
}

// fill makes replicas that are missing and lets spare ones go, those that are not ready first, then the newest.
func (k *keeper) fill(p *trainyard.ReplicaPlan, want int) error {
	present, _ := k.of(p.Generation)
	for i := len(present); i < want && k.blocked == ""; i++ {
		if wait := k.c.served.crashWait(k.key, k.now); wait > 0 {
			k.later(wait)
			return nil
		}
		if err := k.start(p); err != nil {
			return err
		}
	}
	if spare := len(present) - want; spare > 0 {
		slices.SortStableFunc(present, func(a, b *replica) int {
			switch {
			case a.ready() != b.ready() && !a.ready():
				return -1
			case a.ready() != b.ready():
				return 1
			}
			return int(b.job.Seq - a.job.Seq)
		})
		for _, r := range present[:spare] {
			k.leave(r)
		}
	}
	return nil
}

// start makes one replica.
func (k *keeper) start(p *trainyard.ReplicaPlan) error {
	var chance [4]byte
	rand.Read(chance[:])
	spec := p.Spec
	spec.IsArchived = true // replicas are seen through their deployment, not among jobs
	spec.Tags = map[string]string{replicaTag: k.key}
	j := &trainyard.Job{Scope: k.d.Scope, Name: fmt.Sprintf("%s-%s-%d-%s", k.d.Endpoint, k.d.Name, p.Generation, hex.EncodeToString(chance[:])),
		Spec: spec, Plan: p.Plan, Created: k.now, Modified: k.now, CreatedBy: k.d.CreatedBy}
	why := trainyard.Reason{Code: "Submitted", Message: "waiting for its turn on " + j.Plan.Compute}
	if err := j.MoveTo(trainyard.JobQueued, why, k.now); err != nil {
		return err
	}
	k.c.served.addReplica(k.key, j.Key()) // before it can change, so that no change is missed
	err := k.c.Store.Update(k.ctx, func(tx *store.Tx) error {
		comp, err := tx.Compute(trainyard.MakeComputeKey(j.Scope, j.Plan.Compute))
		if err != nil {
			return err
		}
		if comp.Deleting { // its jobs are being cancelled: one that comes now would wait on nothing for ever
			return trainyard.NotFound("compute %q is being deleted", comp.Name)
		}
		return tx.InsertJob(j)
	})
	if err != nil {
		k.c.served.dropReplica(j.Key())
	}
	if trainyard.IsNotFound(err) { // of the compute: nothing else is looked for
		k.blocked = err.Error() + "; attach or create it again, or deploy elsewhere"
		k.later(blockedWait)
		return nil
	}
	if err != nil {
		return fmt.Errorf("start a replica of %s/%s: %w", k.d.Endpoint, k.d.Name, err)
	}
	k.live = append(k.live, &replica{job: j, gen: p.Generation})
	return nil
}

// promote makes the generation that was on its way the one that serves.
func (k *keeper) promote() error {
	n := *k.d
	n.Status.Live, n.Status.Next = n.Status.Next, nil
	k.c.served.forgive(k.key)
	k.later(time.Millisecond) // it has shown that it serves: it may have no replica now
	return k.put(&n, fmt.Sprintf("generation %d serves", n.Status.Live.Generation))
}

// say moves the deployment to the state that its replicas show.
func (k *keeper) say() error {
	s := &k.d.Status
	n := *k.d
	if s.Next != nil {
		state := trainyard.DeploymentUpdating
		if s.Live == nil {
			state = trainyard.DeploymentCreating
		}
		return k.move(&n, state, k.progress(s.Next))
	}
	if s.Live == nil {
		return nil // failed, and said so
	}
	_, ready := k.of(s.Live.Generation)
	switch {
	case len(ready) >= s.Wanted:
		if s.State == trainyard.DeploymentFailed && s.Generation > s.Live.Generation {
			return nil // the newest specification does not serve; that an older one does is in the reason
		}
		what := fmt.Sprintf("%d of %d replicas are ready", len(ready), s.Wanted)
		if s.Wanted == 0 {
			what = "scaled to zero: " + s.WantedWhy.Message
		}
		return k.move(&n, trainyard.DeploymentSucceeded, trainyard.Reason{Code: "Serving", Message: what})
	case s.State == trainyard.DeploymentFailed:
		return nil
	case s.State == trainyard.DeploymentScaling:
		return k.move(&n, s.State, k.progress(s.Live))
	}
	return k.move(&n, trainyard.DeploymentSucceeded, k.progress(s.Live)) // it serves, if with fewer than it should
}

// progress says what the replicas that are not ready do.
func (k *keeper) progress(p *trainyard.ReplicaPlan) trainyard.Reason {
	present, ready := k.of(p.Generation)
	what := fmt.Sprintf("%d of %d replicas are ready", len(ready), k.d.Status.Wanted)
	if k.blocked != "" {
		return trainyard.Reason{Code: noCompute, Message: what + "; " + k.blocked}
	}
	for _, r := range present {
		if r.ready() {
			continue
		}
		j := k.c.present(k.ctx, r.job.Clone())
		why := j.Status.Reason.Message
		if j.Status.State == trainyard.JobRunning {
			why = "the model is loading"
			if r.serving.Why != "" && r.serving.Was {
				why = "it is not well: " + r.serving.Why
			}
		}
		return trainyard.Reason{Code: "Waiting", Message: what + "; " + r.job.Name + ": " + why}
	}
	if len(present) < k.d.Status.Wanted {
		if why := k.c.served.crashWhy(k.key); why != "" {
			what += "; a replica ended: " + why
		}
	}
	return trainyard.Reason{Code: "Waiting", Message: what}
}

// move changes a deployment's state and reason, if they are other than they were.
func (k *keeper) move(n *trainyard.OnlineDeployment, to trainyard.DeploymentState, why trainyard.Reason) error {
	before := k.d.Status
	if before.State == to && before.Reason.Code == why.Code && before.Reason.Message == why.Message && n.Status.Next == before.Next && n.Status.Live == before.Live {
		return nil
	}
	why.Since = k.now
	if before.State == to && before.Reason.Code == why.Code {
		why.Since = before.Reason.Since
	}
	if err := n.MoveTo(to, why, k.now); err != nil {
		return err
	}
	event := ""
	if before.State != to {
		event = strings.ToLower(string(to))
	}
	return k.put(n, event)
}

// put stores a deployment. event is empty where nothing happened that people would want to read of.
func (k *keeper) put(n *trainyard.OnlineDeployment, event string) error {
	err := k.c.Store.Update(k.ctx, func(tx *store.Tx) error {
		if event != "" {
			tx.Event(k.c.event(n.Scope, "deployment", n.Endpoint+"/"+n.Name, event, "", n.Status.Reason.Message))
		}
		return putDeployment(tx, n)
	})
	if err == nil {
		k.c.served.keepDeployment(n)
		k.d = n
	}
	return err
}

package control

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// A replica is a job that is not supposed to end: it waits, is placed, staged, watched and retried as any job is. This file keeps as many
// of them as a deployment should have.

// replicaTag is on every replica's job; its value names the deployment.
const replicaTag = "trainyard.replica"

// Keeping replicas.
const (
	crashMemory = 10 * time.Minute // a replica that ran so long was well: the next end is the first of its row
	crashDelay  = 200 * time.Millisecond
	crashMost   = 30 * time.Second
	drainAck    = 3 * time.Second // a gateway that says nothing for so long is not waited for
	replicaTail = 4 << 10         // bytes of a replica's log in the reason of its deployment
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

func (r *replica) over() bool  { return r.job.Status.State.Terminal() }
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
	for i := len(present); i < want; i++ {
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
		if _, err := tx.Compute(trainyard.MakeComputeKey(j.Scope, j.Plan.Compute)); err != nil {
			return err
		}
		return tx.InsertJob(j)
	})
	if err != nil {
		k.c.served.dropReplica(j.Key())
		return fmt.Errorf("start a replica of %s: %w", k.key, err)
	}
	k.live = append(k.live, &replica{job: j, gen: p.Generation})
	return nil
}

// leave takes a replica out of the routes; dismiss ends it when the gateways know.
func (k *keeper) leave(r *replica) {
	if !r.ready() { // nobody sends it anything
		k.c.served.markLeaving(k.key, r.job.Key(), 0)
		return
	}
	k.c.served.markLeaving(k.key, r.job.Key(), 0) // first, so that the routes of that number are without it
	k.c.served.markLeaving(k.key, r.job.Key(), k.c.routesChanged())
}

// dismiss ends replicas that no gateway sends anything to any more.
func (k *keeper) dismiss() error {
	for _, r := range k.live {
		if r.ending() {
			continue
		}
		rev, leaving := k.c.served.leavingRev(k.key, r.job.Key())
		if !leaving {
			if k.strayed(r) {
				k.leave(r)
				k.later(time.Millisecond)
			}
			continue
		}
		if wait := k.c.served.known(k.key, r.job.Key(), rev, k.now); wait > 0 {
			k.later(wait)
			continue
		}
		if err := k.c.CancelJob(k.ctx, trainyard.User{Name: "trainyard", Role: trainyard.RoleAdmin}, r.job.Scope, r.job.Name); err != nil {
			return err
		}
	}
	return nil
}

// strayed says whether a replica is of a generation that is neither served nor on its way.
func (k *keeper) strayed(r *replica) bool {
	s := &k.d.Status
	return !(s.Live != nil && s.Live.Generation == r.gen || s.Next != nil && s.Next.Generation == r.gen)
}

// promote makes the generation that was on its way the one that serves.
func (k *keeper) promote() error {
	n := *k.d
	n.Status.Live, n.Status.Next = n.Status.Next, nil
	k.c.served.forgive(k.key)
	k.later(time.Millisecond) // it has shown that it serves: it may have no replica now
	return k.put(&n, fmt.Sprintf("generation %d serves", n.Status.Live.Generation))
}

// ended takes note of a replica that is over.
func (k *keeper) ended(r *replica) error {
	s := &k.d.Status
	asked := r.job.Status.State == trainyard.JobCanceled && r.job.Status.CanceledBy != ""
	defer k.c.served.dropReplica(r.job.Key())
	if asked || k.strayed(r) {
		return k.c.DeleteJob(k.ctx, trainyard.User{Name: "trainyard", Role: trainyard.RoleAdmin}, r.job.Scope, r.job.Name)
	}
	why := r.job.Status.Reason.Message
	if f := r.job.Status.Failure; f != nil {
		why = f.Message
	}
	tail := ""
	if text := k.c.replicaTail(k.ctx, r.job, replicaTail); text != "" && !r.serving.Was {
		tail = "\nThe end of its log:\n" + text
	}
	k.c.served.crash(k.key, r, why+tail, k.now)
	if err := k.trim(); err != nil {
		return err
	}
	if s.Next == nil || s.Next.Generation != r.gen || r.serving.Was {
		return nil
	}
	n := *k.d
	n.Status.Next = nil
	what := fmt.Sprintf("replica %s did not become ready: %s", r.job.Name, why)
	if n.Status.Live != nil {
		what += "; the deployment as it was before still serves"
	}
	k.c.served.forgive(k.key)
	return k.move(&n, trainyard.DeploymentFailed, trainyard.Reason{Code: string(failureClass(r.job)), Message: what + tail})
}

func failureClass(j *trainyard.Job) trainyard.Class {
	if f := j.Status.Failure; f != nil {
		return f.Class
	}
	return trainyard.ClassUser
}

// trim deletes the jobs of ended replicas but the newest few, with their logs.
func (k *keeper) trim() error {
	over := []trainyard.JobState{trainyard.JobCompleted, trainyard.JobFailed, trainyard.JobCanceled}
	page, err := k.c.Store.Jobs(k.ctx, trainyard.JobQuery{Scope: k.d.Scope, View: trainyard.ViewAll, Tag: replicaTag + "=" + k.key, States: over, Top: 100})
	if err != nil {
		return err
	}
	for i, j := range page.Items {
		if i >= replicaLogs {
			if err := k.c.DeleteJob(k.ctx, trainyard.User{Name: "trainyard", Role: trainyard.RoleAdmin}, j.Scope, j.Name); err != nil {
				return err
			}
		}
	}
	return nil
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

// delete ends every replica, and then the deployment, and its endpoint if that waits for it.
func (k *keeper) delete() error {
	for _, r := range k.live {
		if !r.ending() {
			if err := k.c.CancelJob(k.ctx, trainyard.User{Name: "trainyard", Role: trainyard.RoleAdmin}, r.job.Scope, r.job.Name); err != nil {
				return err
			}
		}
	}
	left := 0
	for _, key := range k.c.served.replicasOf(k.key) {
		if j, err := k.c.Store.Job(k.ctx, key); err == nil && !j.Status.State.Terminal() {
			left++
		} else {
			k.c.served.dropReplica(key)
		}
	}
	if left > 0 {
		return nil
	}
	page, err := k.c.Store.Jobs(k.ctx, trainyard.JobQuery{Scope: k.d.Scope, View: trainyard.ViewAll, Tag: replicaTag + "=" + k.key, Top: 1000})
	if err != nil {
		return err
	}
	for _, j := range page.Items {
		if err := k.c.DeleteJob(k.ctx, trainyard.User{Name: "trainyard", Role: trainyard.RoleAdmin}, j.Scope, j.Name); err != nil {
			return err
		}
	}
	e := k.c.served.endpoint(k.d.Endpoint)
	last := e != nil && e.Deleting && len(k.c.served.deploymentsOf(k.d.Endpoint)) == 1
	err = k.c.Store.Update(k.ctx, func(tx *store.Tx) error {
		if err := tx.DeleteResource(k.d.Scope, trainyard.KindOnlineDeployment, k.d.Endpoint+"/"+k.d.Name, ""); err != nil && !trainyard.IsNotFound(err) {
			return err
		}
		if !last {
			return nil
		}
		return tx.DeleteResource(e.Scope, trainyard.KindOnlineEndpoint, e.Name, "")
	})
	if err != nil {
		return err
	}
	k.c.served.dropDeployment(k.d.Endpoint, k.d.Name)
	if last {
		k.c.served.dropEndpoint(e.Name)
	}
	k.c.routesChanged()
	return nil
}

// replicaTail is the end of a replica's log, at most so many bytes of whole lines; "" if there is none.
func (c *Control) replicaTail(ctx context.Context, j *trainyard.Job, most int64) string {
	files, err := c.Output.Files(ctx, j.Scope, j.Name)
	if err != nil {
		return ""
	}
	for _, f := range files {
		if f.Key != replicaLog {
			continue
		}
		r, _, err := c.Output.Read(ctx, j.Scope, j.Name, f.Key, max(0, f.Size-most))
		if err != nil {
			return ""
		}
		defer r.Close()
		data, err := io.ReadAll(io.LimitReader(r, most))
		if err != nil {
			return ""
		}
		if f.Size > most {
			if i := bytes.IndexByte(data, '\n'); i >= 0 {
				data = data[i+1:]
			}
		}
		return strings.TrimSpace(strings.ToValidUTF8(string(data), "\uFFFD"))
	}
	return ""
}

// Marks on replicas.

func (s *served) markLeaving(key string, job trainyard.JobKey, rev int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[key]; d != nil {
		d.leaving[job], d.since[job] = rev, time.Time{}
	}
}

func (s *served) leavingRev(key string, job trainyard.JobKey) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil {
		return 0, false
	}
	rev, ok := d.leaving[job]
	return rev, ok
}

func (s *served) isLeaving(key string, job trainyard.JobKey) bool {
	_, ok := s.leavingRev(key, job)
	return ok
}

// known says how long to wait until every gateway has the routes in which a replica is no more; 0: they have.
func (s *served) known(key string, job trainyard.JobKey, rev int64, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil || rev == 0 {
		return 0
	}
	if d.since[job].IsZero() {
		d.since[job] = now
	}
	left := drainAck - now.Sub(d.since[job])
	for _, g := range s.gateways {
		if g.rev < rev && left > 0 {
			return min(left, 100*time.Millisecond)
		}
	}
	return 0
}

// routeIsNew says whether a deployment's route is another than it was at the last call.
func (s *served) routeIsNew(key string, r *trainyard.DeploymentRoute) bool {
	text, err := json.Marshal(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil || err == nil && bytes.Equal(d.route, text) {
		return false
	}
	d.route = text
	return true
}

// crash counts an end that nobody asked for.
func (s *served) crash(key string, r *replica, why string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil {
		return
	}
	ran := r.job.Status.Ended.Sub(r.job.Status.Started)
	if now.Sub(d.crashed) > crashMemory || r.serving.Was && ran > 5*time.Second {
		d.crashes = 0
	}
	d.crashes++
	d.crashed, d.why = now, why
	var how *trainyard.Result
	if a := r.job.Status.Current(); a != nil && len(a.Tasks) > 0 {
		how = a.Tasks[0].Result
	}
	d.load.leave(trainyard.MakeTaskID(r.job.Key(), len(r.job.Status.Attempts), 0), how)
}

func (s *served) forgive(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[key]; d != nil {
		d.crashes, d.why = 0, ""
	}
}

// crashWait is how long to wait before the next try: nothing after the first end, then twice as long each time.
func (s *served) crashWait(key string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil || d.crashes < 2 {
		return 0
	}
	wait := min(crashMost, crashDelay<<min(d.crashes-2, 10))
	return max(0, d.crashed.Add(wait).Sub(now))
}

func (s *served) crashWhy(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[key]; d != nil && d.crashes > 0 {
		return d.why
	}
	return ""
}

// routesRev counts changes of routes that gateways must learn of.
func (c *Control) routesChanged() int64 {
	c.routes.bump(allRoutes)
	return c.routes.rev(allRoutes)
}

const allRoutes = "routes"

// Routes is what gateways send requests by; it waits until that is newer than after.
func (c *Control) Routes(ctx context.Context, after int64) (trainyard.Routes, error) {
	rev := c.routes.wait(ctx, allRoutes, after, pollHold)
	if err := ctx.Err(); err != nil {
		return trainyard.Routes{}, err
	}
	out := trainyard.Routes{Rev: rev}
	for _, e := range c.served.allEndpoints() {
		if e.Deleting {
			continue
		}
		r, err := c.route(ctx, e)
		if err != nil {
			return trainyard.Routes{}, err
		}
		out.Endpoints = append(out.Endpoints, r)
	}
	return out, nil
}

func (c *Control) route(ctx context.Context, e *trainyard.OnlineEndpoint) (trainyard.EndpointRoute, error) {
	out := trainyard.EndpointRoute{Scope: e.Scope, Name: e.Name, AuthMode: e.Spec.AuthMode, Traffic: e.Spec.Traffic, Mirror: e.Spec.MirrorTraffic}
	if e.Spec.AuthMode == trainyard.AuthKey {
		out.Keys = [][]byte{sha(e.Keys.Primary), sha(e.Keys.Secondary)}
	}
	for _, d := range c.served.deploymentsOf(e.Name) {
		r, err := c.deploymentRoute(ctx, d)
		if err != nil {
			return out, err
		}
		out.Deployments = append(out.Deployments, r)
	}
	return out, nil
}

func (c *Control) deploymentRoute(ctx context.Context, d *trainyard.OnlineDeployment) (trainyard.DeploymentRoute, error) {
	s := &d.Status
	out := trainyard.DeploymentRoute{Name: d.Name, Wanted: s.Wanted, Collect: d.Spec.DataCollector, Kubernetes: d.Spec.EndpointComputeType == trainyard.ServeKubernetes}
	plan := s.Live
	if plan == nil {
		plan = s.Next
	}
	if plan == nil || plan.Plan.Serve == nil {
		out.Failed = s.Reason.Message
		return out, nil
	}
	serve := plan.Plan.Serve
	out.Scoring, out.Concurrency, out.Queue, out.Timeout = serve.Scoring, serve.Concurrency, serve.Queue, serve.Timeout
	key := deploymentKey(d.Endpoint, d.Name)
	all, err := c.look(ctx, key)
	if err != nil {
		return out, err
	}
	for _, r := range all {
		if !r.ready() || r.ending() || c.served.isLeaving(key, r.job.Key()) {
			continue
		}
		if gen := r.gen; !(s.Live != nil && gen == s.Live.Generation || s.Next != nil && gen == s.Next.Generation) {
			continue
		}
		a := r.job.Status.Current()
		out.Replicas = append(out.Replicas, trainyard.ReplicaRoute{Task: a.Tasks[0].ID, Address: r.serving.Address, Direct: r.serving.Direct})
	}
	out.Hold = holdLive
	out.Wakes = s.Live != nil || s.Next != nil
	if s.Wanted == 0 || scaling(d).min == 0 {
		out.Hold = holdWake
	}
	if len(out.Replicas) == 0 && s.Live != nil {
		out.Progress = s.Reason.Message
		if n := c.served.crashCount(key); n >= 3 {
			out.Failed = fmt.Sprintf("%d replicas in a row ended before they were ready: %s", n, c.served.crashWhy(key))
		}
	}
	return out, nil
}

// How long a gateway holds a request for a replica that is on its way.
const (
	holdLive = time.Minute      // one that was lost is being replaced
	holdWake = 10 * time.Minute // the first one after none: an environment may have to be built
)

func (s *served) crashCount(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[key]; d != nil {
		return d.crashes
	}
	return 0
}

// Connect is in dial.go.

// replicaLog is where a replica's log is among its job's.
const replicaLog = "user_logs/std_log.txt"

// DeploymentLogs is the end of what a deployment's replicas said, newest replica last: so many lines of each. container chooses between
// the model server ("InferenceServer") and the preparation before it ("StorageInitializer").
func (c *Control) DeploymentLogs(ctx context.Context, scope trainyard.Scope, endpoint, name string, tail int, container string) (string, error) {
	d := c.served.deployment(endpoint, name)
	if d == nil || d.Scope.Fold() != scope.Fold() {
		return "", noDeployment(endpoint, name)
	}
	if tail <= 0 {
		tail = 50
	}
	page, err := c.Store.Jobs(ctx, trainyard.JobQuery{Scope: scope, View: trainyard.ViewAll, Tag: replicaTag + "=" + deploymentKey(endpoint, name), Top: 20})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	slices.Reverse(page.Items)
	for _, j := range page.Items {
		text, err := c.lastLines(ctx, j, tail, strings.EqualFold(container, "StorageInitializer"))
		if err != nil {
			return "", err
		}
		if text == "" {
			continue
		}
		if len(page.Items) > 1 {
			fmt.Fprintf(&b, "--- replica %s: %s ---\n", j.Name, strings.ToLower(string(j.Status.State)))
		}
		b.WriteString(text)
		if !strings.HasSuffix(text, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.String(), nil
}

// lastLines is the end of a replica's log, or of what was said while it was prepared.
func (c *Control) lastLines(ctx context.Context, j *trainyard.Job, lines int, preparing bool) (string, error) {
	files, err := c.Output.Files(ctx, j.Scope, j.Name)
	if err != nil {
		return "", err
	}
	const most = 1 << 20
	var out []string
	for _, f := range files {
		if strings.HasPrefix(f.Key, "user_logs/") == preparing {
			continue
		}
		r, _, err := c.Output.Read(ctx, j.Scope, j.Name, f.Key, max(0, f.Size-most))
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(io.LimitReader(r, most))
		r.Close()
		if err != nil {
			return "", err
		}
		out = append(out, strings.Split(strings.TrimRight(string(data), "\n"), "\n")...)
	}
	return strings.Join(out[max(0, len(out)-lines):], "\n"), nil
}

// replicaStatuses is what people see of a deployment's replicas.
func (c *Control) replicaStatuses(ctx context.Context, d *trainyard.OnlineDeployment) ([]trainyard.ReplicaStatus, error) {
	all, err := c.look(ctx, deploymentKey(d.Endpoint, d.Name))
	if err != nil {
		return nil, err
	}
	var out []trainyard.ReplicaStatus
	for _, r := range all {
		j := c.present(ctx, r.job)
		s := trainyard.ReplicaStatus{Name: j.Name, Generation: r.gen, State: string(j.Status.State), Address: r.serving.Address,
			Reason: j.Status.Reason.Message, Since: j.Status.Reason.Since}
		if a := j.Status.Current(); a != nil && len(a.Tasks) > 0 {
			s.Node = a.Tasks[0].Node
			use, heard := c.served.usage(deploymentKey(d.Endpoint, d.Name), a.Tasks[0].ID)
			s.MemoryMB, s.PeakMB, s.CPU, s.OOMKills, s.Measured = use.MemoryMB, use.PeakMB, use.CPU, use.OOMKills, heard
		}
		switch {
		case r.ready():
			s.State, s.Reason = "Ready", ""
		case j.Status.State == trainyard.JobRunning && r.serving.Was:
			s.State, s.Reason = "Unready", r.serving.Why
		case j.Status.State == trainyard.JobRunning:
			s.State, s.Reason = "Loading", "the model is loading"
		}
		out = append(out, s)
	}
	return out, nil
}

// instances is a number of replicas for people.
func instances(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return strconv.Itoa(n) + " instances"
}

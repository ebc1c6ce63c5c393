package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

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

// ended takes note of a replica that is over.
func (k *keeper) ended(r *replica) error {
	asked := r.job.Status.State == trainyard.JobCanceled && r.job.Status.CanceledBy != ""
	defer k.c.served.dropReplica(r.job.Key())
	if asked || k.strayed(r) {
		return k.c.DeleteJob(k.ctx, trainyard.User{Name: "trainyard", Role: trainyard.RoleAdmin}, r.job.Scope, r.job.Name)
	}
	why := r.job.Status.Reason.Message
	if f := r.job.Status.Failure; f != nil {
		why = f.Message
	}
	if err := k.trim(); err != nil {
		return err
	}
	return k.lost(r, failureClass(r.job), why)
}

// late gives up replicas that had the time in which they should have become ready. What they are doing they will be doing tomorrow.
func (k *keeper) late() error {
	for _, r := range k.live {
		if r.ending() || r.serving.Was || r.job.Status.State != trainyard.JobRunning || r.job.Status.Started.IsZero() || k.c.served.isLeaving(k.key, r.job.Key()) {
			continue
		}
		probe := r.job.Plan.Serve.Liveness
		limit := probe.Delay + time.Duration(max(1, probe.Failures))*probe.Period
		if left := r.job.Status.Started.Add(limit).Sub(k.now); left > 0 {
			k.later(left)
			continue
		}
		k.leave(r)
		why := fmt.Sprintf("it ran for %s without being ready (liveness_probe: initial_delay + failure_threshold × period)", limit)
		if r.serving.Why != "" {
			why += "; the last answer to its probe: " + r.serving.Why
		}
		if err := k.lost(r, trainyard.ClassUnwell, why); err != nil {
			return err
		}
	}
	return nil
}

// lost counts a replica that is no more, or no good, without having been asked to end. The first one of a new specification that was never
// ready ends the change: what served before serves on.
func (k *keeper) lost(r *replica, class trainyard.Class, why string) error {
	tail := ""
	if said, end := lastWords(k.c.replicaTail(k.ctx, r.job, replicaWide)); end != "" && !r.serving.Was {
		tail = "\nThe end of its log:\n" + end
		if said != "" {
			why += ": " + said
		}
	}
	k.c.served.crash(k.key, r, why+tail, k.now)
	if s := &k.d.Status; s.Next == nil || s.Next.Generation != r.gen || r.serving.Was {
		return nil
	}
	n := *k.d
	n.Status.Next = nil
	what := fmt.Sprintf("replica %s did not become ready: %s", r.job.Name, why)
	if n.Status.Live != nil {
		what += "; " + trainyard.StillServes
	}
	k.c.served.forgive(k.key)
	return k.move(&n, trainyard.DeploymentFailed, trainyard.Reason{Code: string(class), Message: what + tail})
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
	ours := slices.DeleteFunc(page.Items, notOf(k.key))
	for i, j := range ours {
		if i >= replicaLogs {
			if err := k.c.DeleteJob(k.ctx, trainyard.User{Name: "trainyard", Role: trainyard.RoleAdmin}, j.Scope, j.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// notOf says that a job has the tag of a deployment's replicas because its user wrote it, and is none.
func notOf(key string) func(*trainyard.Job) bool {
	return func(j *trainyard.Job) bool {
		s := j.Plan.Serve
		return s == nil || deploymentKey(s.Endpoint, s.Deployment) != key
	}
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
	for _, j := range slices.DeleteFunc(page.Items, notOf(k.key)) {
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

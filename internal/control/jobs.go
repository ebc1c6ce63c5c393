package control

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

var jobName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$`)

// SubmitJob takes a new job, or updates what may change of an old one: tags, display name, description, properties, archive flag.
func (c *Control) SubmitJob(ctx context.Context, who trainyard.User, in *trainyard.Job) (*trainyard.Job, bool, error) {
	return c.submit(ctx, who, in, func(*trainyard.Job) error { return nil })
}

// submit is SubmitJob; finish may add to a new job once it is resolved.
func (c *Control) submit(ctx context.Context, who trainyard.User, in *trainyard.Job, finish func(*trainyard.Job) error) (*trainyard.Job, bool, error) {
	if !jobName.MatchString(in.Name) {
		return nil, false, trainyard.Invalid("%q cannot be a job's name: use letters, digits, '-', '_' and '.', at most 255, beginning with a letter or digit", in.Name)
	}
	if old, err := c.Store.Job(ctx, in.Key()); err == nil {
		saved, err := c.updateJob(ctx, who, old, in)
		return saved, false, err
	} else if !trainyard.IsNotFound(err) {
		return nil, false, err
	}
	if who.Role == trainyard.RoleJob { // its token is for the run that there is; it outlives a run that is deleted
		return nil, false, trainyard.Errorf(trainyard.CodeForbidden, "the token of job %q may change its run and not submit one", who.Job)
	}
	asked := askedDigest(&in.Spec) // before anything is filled in: a clone shares what it has not changed
	j := in.Clone()
	warnings, err := c.resolve(ctx, j)
	if err == nil {
		err = finish(j)
	}
	if err == nil {
		err = c.shelveSteps(ctx, who, j)
	}
	if err != nil {
		return nil, false, err
	}
	now := c.Now()
	if j.Spec.ExperimentName == "" {
		j.Spec.ExperimentName = "Default"
	}
	j.Created, j.Modified, j.CreatedBy, j.Plan.Asked = now, now, who.Name, asked
	j.Status = trainyard.JobStatus{Warnings: warnings}
	if err := enter(j, now); err != nil {
		return nil, false, err
	}
	created := true
	err = c.Store.Update(ctx, func(tx *store.Tx) error {
		created = true
		to, err := openFor(tx, j)
		if err != nil {
			return err
		}
		if err := c.pipelines.reserved(tx, j); err != nil {
			return err
		}
		if err := tx.InsertJob(j); err != nil {
			if !trainyard.IsConflict(err) {
				return err
			}
			created = false // the same request twice, or two at once
			return nil
		}
		tx.Event(c.event(j.Scope, "job", j.Name, eventName(j.Status.State), who.Name, "submitted to "+to))
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	if !created {
		old, err := c.Store.Job(ctx, in.Key())
		if err != nil {
			return nil, false, err
		}
		saved, err := c.updateJob(ctx, who, old, in)
		return saved, false, err
	}
	if j.Plan.Pipeline != nil {
		c.watchPipeline(j)
	}
	c.lookForImage(j)
	return j, true, nil
}

// enter is the first state of a job: in the queue of its compute, or, of a pipeline, which waits in none, on its way to its first steps.
func enter(j *trainyard.Job, now time.Time) error {
	if err := j.MoveTo(trainyard.JobQueued, trainyard.Reason{Code: "Submitted", Message: "waiting for its turn on " + j.Plan.Compute}, now); err != nil || j.Plan.Pipeline == nil {
		return err
	}
	return j.MoveTo(trainyard.JobPreparing, trainyard.Reason{Code: "Submitted", Message: "its first steps are being submitted"}, now)
}

// openFor checks that where a new job is to be is there, and says what that is called.
func openFor(tx *store.Tx, j *trainyard.Job) (string, error) {
	if j.Plan.Pipeline != nil {
		return fmt.Sprintf("run as %d steps", len(j.Plan.Pipeline.Steps)), stepsFree(tx, j)
	}
	comp, err := tx.Compute(trainyard.MakeComputeKey(j.Scope, j.Plan.Compute))
	if err != nil {
		return "", err
	}
	if comp.Deleting {
		return "", trainyard.Conflict("compute %q is being deleted", comp.Name)
	}
	return comp.Name, parentLives(tx, j)
}

// updateJob changes what may change of a submitted job. What a client sends back unchanged is no change.
func (c *Control) updateJob(ctx context.Context, who trainyard.User, old, in *trainyard.Job) (*trainyard.Job, error) {
	if old.Plan.Asked == "" || old.Plan.Asked != askedDigest(&in.Spec) {
		what := changed(old, in)
		if what != "" {
			was := old
			if old.Plan.Asked == "" { // it was stored in the words that it was sent in
				was = c.inStoredWords(ctx, old)
			}
			what = changed(was, c.inStoredWords(ctx, in))
		}
		if what != "" {
			return nil, trainyard.Conflict("job %q exists already with %s; jobs are not changed once submitted: choose another name", in.Name, what)
		}
	}
	var saved *trainyard.Job
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		j, err := tx.Job(in.Key())
		if err != nil {
			return err
		}
		if j.Plan.Serve == nil {
			j.Spec.Tags, j.Spec.IsArchived = in.Spec.Tags, in.Spec.IsArchived
		} else { // whose replica it is, is not for the model that runs in it to say
			tags := maps.Clone(in.Spec.Tags)
			if tags == nil {
				tags = map[string]string{}
			}
			tags[replicaTag] = j.Spec.Tags[replicaTag]
			j.Spec.Tags = tags
		}
		if in.Spec.DisplayName != "" {
			j.Spec.DisplayName = in.Spec.DisplayName
		}
		if in.Spec.Description != "" {
			j.Spec.Description = in.Spec.Description
		}
		if len(in.Spec.Properties) > 0 {
			merged := maps.Clone(in.Spec.Properties)
			for k, v := range j.Spec.Properties {
				if _, ok := merged[k]; !ok {
					merged[k] = v
				}
			}
			j.Spec.Properties = merged
		}
		j.Modified = c.Now()
		tx.Event(c.event(j.Scope, "job", j.Name, "updated", who.Name, ""))
		saved = j
		return tx.PutJob(j)
	})
	return saved, err
}

// Job is a job as it is now, with its timeline up to this moment.
func (c *Control) Job(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.Job, error) {
	j, err := c.Store.Job(ctx, trainyard.MakeJobKey(scope, name))
	if err != nil {
		return nil, err
	}
	return c.present(ctx, j), nil
}

// present fills in what is computed when somebody looks: the timeline, why a queued job waits, and which node of a placed one is silent.
func (c *Control) present(ctx context.Context, j *trainyard.Job) *trainyard.Job {
	j.Status.Timeline = timeline(j, c.Now())
	c.presentSteps(j)
	if why, silent := c.silence(ctx, j); silent {
		last := j.Status.Reason
		if j.Status.State == trainyard.JobCancelRequested {
			last.Message = j.Status.Canceled() // that its process is being stopped nobody knows
		}
		j.Status.Reason = trainyard.Reason{Code: codeSilent, Message: strings.TrimPrefix(last.Message+"; ", "; ") + why, Since: last.Since}
	}
	if j.Status.State == trainyard.JobQueued {
		if why := c.whyQueued(j.Key()); why.Message != "" {
			if before := j.Status.Reason; before.Code == "Preempted" || before.Code == "Retrying" { // that is the larger half of the story
				why.Message = before.Message + "; " + why.Message
			}
			why.Since = j.Status.Reason.Since
			j.Status.Reason = why
		}
	}
	if now := j.Status.Reason; now.Code == codeSilent || now.Code == codeUnseen || j.Status.State == trainyard.JobQueued {
		if n := len(j.Status.Timeline); n > 0 {
			j.Status.Timeline[n-1].Note = now.Message
		}
	}
	return j
}

// Jobs lists jobs, newest first.
func (c *Control) Jobs(ctx context.Context, q trainyard.JobQuery) (trainyard.Page[*trainyard.Job], error) {
	page, err := c.Store.Jobs(ctx, q)
	for i := range page.Items {
		page.Items[i] = c.present(ctx, page.Items[i])
	}
	return page, err
}

// whyQueued is why a job waits, by the last plan, and what stands in its way beside room. It has no message while no plan has seen the job.
func (c *Control) whyQueued(key trainyard.JobKey) trainyard.Reason {
	why, _ := c.Store.Reason(key)
	if lack := c.images.lacks(key); lack != "" && why.Message != "" {
		why.Message += "; and " + lack
	}
	return why
}

// JobPosition is how many jobs of its compute's queue come before a job, counting itself; 0 if it does not wait.
func (c *Control) JobPosition(_ context.Context, scope trainyard.Scope, name string) (int, error) {
	_, at := c.Store.Reason(trainyard.MakeJobKey(scope, name))
	return at, nil
}

// JobLives refuses the token of a job that is over or gone.
func (c *Control) JobLives(ctx context.Context, who trainyard.User) error {
	key := trainyard.MakeJobKey(who.Scope, who.Job)
	if _, live := c.Store.LiveJob(key); live {
		return nil
	}
	if j, err := c.Store.Job(ctx, key); err == nil && !j.Status.State.Terminal() {
		return nil
	}
	return trainyard.Errorf(trainyard.CodeUnknown, "this is the token of job %q, which is over; a job's token is good while the job lives", who.Job)
}

// JobEvents lists what happened to a job.
func (c *Control) JobEvents(ctx context.Context, scope trainyard.Scope, name string, after int64) ([]trainyard.Event, error) {
	return c.Store.Events(ctx, trainyard.EventQuery{Scope: scope, Kind: "job", Subject: name, After: after, Top: 1000})
}

// CancelJob asks a job to end. A waiting one ends at once, a running one is sent SIGTERM, and SIGKILL after a grace period.
func (c *Control) CancelJob(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string) error {
	return c.cancelJob(ctx, who, "", scope, name)
}

// cancelJob is CancelJob where that comes of something else that who did: as, such as "deleted compute gpu".
func (c *Control) cancelJob(ctx context.Context, who trainyard.User, as string, scope trainyard.Scope, name string) error {
	key := trainyard.MakeJobKey(scope, name)
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		j, err := tx.Job(key)
		if err != nil {
			return err
		}
		state, was := j.Status.State, j.Status.Reason
		if state.Terminal() || state == trainyard.JobCancelRequested {
			return nil // it is over, or on its way: canceling twice is no error
		}
		j.Status.CanceledBy, j.Status.CanceledAs = who.Name, as
		to, why := trainyard.JobCancelRequested, trainyard.Reason{Code: "CancelRequested", Message: j.Status.Canceled() + "; its steps are being stopped"}
		a := j.Status.Current()
		switch {
		case state == trainyard.JobQueued:
			when := " before it started"
			if a != nil {
				when = fmt.Sprintf(" before attempt %d", a.Number+1)
			}
			to, why = trainyard.JobCanceled, trainyard.Reason{Code: "Canceled", Message: j.Status.Canceled() + when}
			j.Status.Failure = &trainyard.Failure{Class: trainyard.ClassCanceled, Message: why.Message}
		case a != nil: // and no pipeline
			for i := range a.Tasks {
				a.Tasks[i].StopWhy = trainyard.ClassCanceled
			}
			why = canceling(j, a)
		}
		if err := j.MoveTo(to, why, c.Now()); err != nil {
			return err
		}
		tx.Event(c.event(scope, "job", name, eventName(to), who.Name, why.Message))
		c.noteUnseen(tx, j, was)
		return tx.PutJob(j)
	})
	if err == nil {
		c.tellNodesOf([]trainyard.JobKey{key})
	}
	return err
}

// DeleteJob forgets a job that is over, with its logs and artifacts, and the jobs of its steps. Named outputs in datastores stay.
func (c *Control) DeleteJob(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string) error {
	key := trainyard.MakeJobKey(scope, name)
	if err := c.deleteSteps(ctx, who, key); err != nil {
		return err
	}
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		j, err := tx.Job(key)
		if err != nil {
			return err
		}
		if !j.Status.State.Terminal() {
			return trainyard.Conflict("job %q is %s; cancel it first", name, j.Status.State)
		}
		if parentLives(tx, j) == nil && j.Plan.Parent != "" { // it would be taken for one that has not begun
			return trainyard.Conflict("job %q is a step of pipeline %q, which is not over; cancel that first", name, j.Plan.Parent)
		}
		tx.Event(c.event(scope, "job", name, "deleted", who.Name, ""))
		return tx.DeleteJob(key)
	})
	if err != nil {
		return err
	}
	if err := c.Blobs.DeletePrefix(ctx, trainyard.RunLog(scope, name)+"/"); err != nil { // what MLflow logged
		return err
	}
	return c.Blobs.DeletePrefix(ctx, artifacts(scope, name).Key()+"/")
}

// event makes an Event of this moment.
func (c *Control) event(scope trainyard.Scope, kind, subject, what, who, message string) trainyard.Event {
	return trainyard.Event{Time: c.Now(), Scope: scope, Kind: kind, Subject: subject, What: what, Who: who, Message: message}
}

func eventName(s trainyard.JobState) string { return strings.ToLower(string(s)) }

// scopeOf is the scope of a compute's key.
func scopeOf(key trainyard.ComputeKey) trainyard.Scope {
	p := strings.SplitN(string(key), "/", 4)
	if len(p) < 4 {
		return trainyard.Scope{}
	}
	return trainyard.Scope{Subscription: p[0], ResourceGroup: p[1], Workspace: p[2]}
}

package mlflow

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/trainyard/trainyard"
)

// Run statuses and lifecycle stages, as MLflow spells them.
const (
	running   = "RUNNING"
	scheduled = "SCHEDULED"
	finished  = "FINISHED"
	failed    = "FAILED"
	killed    = "KILLED"

	active  = "active"
	deleted = "deleted"
)

// Tags that MLflow gives a meaning.
const (
	tagName    = "mlflow.runName"
	tagUser    = "mlflow.user"
	tagParent  = "mlflow.parentRunId"
	tagSource  = "mlflow.source.type"
	tagNote    = "mlflow.note.content"
	tagModels  = "mlflow.log-model.history"
	tagContext = "mlflow.data.context" // of a dataset
)

// run is a run as it is at one moment.
type run struct {
	ID         string
	Name       string
	Experiment string
	User       string
	Status     string
	Start, End int64 // ms; End is 0 while it goes on
	Stage      string
	Location   string
	Job        bool   // it is a job
	Owner      string // the job whose token made it
	params     map[string]string
	tags       map[string]string
	metrics    map[string]metric
	inputs     []datasetInput
	uses       []modelLink
	makes      []modelLink
}

func runKey(scope trainyard.Scope, id string) string {
	return trainyard.RunLog(scope, id) + "/log.jsonl"
}

// run finds a run: one that a client made, or a job.
func (d *door) run(ctx context.Context, scope trainyard.Scope, id string) (*run, error) {
	if err := checkRunID(id); err != nil {
		return nil, err
	}
	r := &run{ID: id}
	made, hidden, untagged := false, false, map[string]bool{}
	err := d.journal.view(ctx, runKey(scope, id), func(rec *record) error {
		made, hidden, untagged = rec.Kind == kindRun, rec.Stage == deleted, maps.Clone(rec.untagged)
		r.read(rec)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if made {
		return r, d.settle(ctx, scope, r)
	}
	j, err := d.job(ctx, scope, id)
	if err != nil {
		return nil, err
	}
	r.ofJob(j, untagged)
	if hidden {
		r.Stage = deleted
	}
	return r, nil
}

// job finds the job that is a run.
func (d *door) job(ctx context.Context, scope trainyard.Scope, id string) (*trainyard.Job, error) {
	j, err := d.Jobs.Job(ctx, scope, id)
	if trainyard.IsNotFound(err) {
		return nil, trainyard.NotFound("Run with id=%s not found", id)
	}
	return j, err
}

// read takes over what the record says; nothing of it is shared.
func (r *run) read(rec *record) {
	r.Name, r.Experiment, r.User, r.Status, r.Owner = rec.Name, rec.Experiment, rec.User, rec.Status, rec.Owner
	r.Start, r.End, r.Stage, r.Location = rec.Start, rec.End, cmp.Or(rec.Stage, active), rec.Location
	r.params, r.tags, r.metrics = maps.Clone(rec.params), maps.Clone(rec.tags), maps.Clone(rec.metrics)
	r.inputs, r.uses, r.makes = slices.Clone(rec.inputs), slices.Clone(rec.uses), slices.Clone(rec.makes)
}

// ofJob fills in what the job says. Its state is the run's, whatever clients said of it.
func (r *run) ofJob(j *trainyard.Job, untagged map[string]bool) {
	r.Job, r.Experiment, r.User = true, trainyard.ExperimentID(j.Scope, j.Spec.ExperimentName), j.CreatedBy
	r.Location = "mlflow-artifacts:/" + r.Experiment + "/" + r.ID + "/artifacts"
	r.Status, r.Start, r.End = statusOf(j.Status.State), j.Created.UnixMilli(), 0
	if !j.Status.Started.IsZero() {
		r.Start = j.Status.Started.UnixMilli()
	}
	if !j.Status.Ended.IsZero() {
		r.End = j.Status.Ended.UnixMilli()
	}
	if j.Spec.IsArchived {
		r.Stage = deleted
	}
	tags := map[string]string{tagName: cmp.Or(j.Spec.DisplayName, j.Name), tagUser: j.CreatedBy, tagSource: "JOB"}
	maps.Copy(tags, j.Spec.Tags)
	if j.Spec.Description != "" {
		tags[tagNote] = j.Spec.Description
	}
	for key := range untagged {
		delete(tags, key)
	}
	maps.Copy(tags, r.tags)
	r.tags = tags
	r.Name = cmp.Or(tags[tagName], j.Name)
}

func statusOf(s trainyard.JobState) string {
	switch s {
	case trainyard.JobRunning, trainyard.JobFinalizing, trainyard.JobCancelRequested:
		return running
	case trainyard.JobCompleted:
		return finished
	case trainyard.JobFailed:
		return failed
	case trainyard.JobCanceled:
		return killed
	}
	return scheduled
}

// settle gives a run that a job made, and did not end before it was over itself, the job's end.
func (d *door) settle(ctx context.Context, scope trainyard.Scope, r *run) error {
	if r.Owner == "" || r.Status != running {
		return nil
	}
	j, err := d.Jobs.Job(ctx, scope, r.Owner)
	switch {
	case trainyard.IsNotFound(err):
		r.Status = killed
	case err != nil:
		return err
	case j.Status.State.Terminal():
		r.Status, r.End = statusOf(j.Status.State), max(j.Status.Ended.UnixMilli(), r.Start)
	}
	return nil
}

type runAsk struct {
	ID     string   `json:"run_id"`
	UUID   string   `json:"run_uuid"` // what it was called before
	Status string   `json:"status"`
	End    *integer `json:"end_time"`
	Name   string   `json:"run_name"`
}

func (a runAsk) id() string { return cmp.Or(a.ID, a.UUID) }

func (d *door) getRun(c *call) error {
	var ask runAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	r, err := d.run(c.Context(), c.scope, ask.id())
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"run": viewRun(r)})
}

func (d *door) createRun(c *call) error {
	var ask struct {
		Experiment string    `json:"experiment_id"`
		User       string    `json:"user_id"`
		Name       string    `json:"run_name"`
		Start      integer   `json:"start_time"`
		Tags       []tagView `json:"tags"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	e, err := d.activeExperiment(c.Context(), c.scope, cmp.Or(ask.Experiment, "0"))
	if err != nil {
		return err
	}
	tags, err := checkTags(ask.Tags, maxTag)
	if err != nil {
		return err
	}
	id := newID()
	i := &info{Kind: kindRun, Experiment: e.ID, User: cmp.Or(ask.User, c.who.Name), Status: running, Start: int64(ask.Start), Stage: active,
		Location: e.Location + "/" + id + "/artifacts"}
	if i.Start == 0 {
		i.Start = d.now()
	}
	if i.Name, tags, err = nameRun(ask.Name, tags, id); err != nil {
		return err
	}
	if tags, err = d.below(c, i, tags); err != nil {
		return err
	}
	err = d.journal.change(c.Context(), runKey(c.scope, id), func(*record) (*line, error) { return &line{Info: i, Tags: tags}, nil })
	if err == nil {
		err = d.book(c.scope).add(c.Context(), d, bookLine{Kind: kindRun, ID: id, Experiment: e.ID})
	}
	if err != nil {
		return err
	}
	r, err := d.run(c.Context(), c.scope, id)
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"run": viewRun(r)})
}

// nameRun makes the run's name and its tag say the same.
func nameRun(name string, tags []pair, id string) (string, []pair, error) {
	for _, t := range tags {
		if t.Key != tagName {
			continue
		}
		if name != "" && name != t.Value {
			return "", nil, trainyard.Invalid("Both 'run_name' argument and 'mlflow.runName' tag are specified, but with different values "+
				"(run_name='%s', mlflow.runName='%s').", name, t.Value)
		}
		if t.Value != "" {
			return t.Value, tags, nil
		}
	}
	name = cmp.Or(name, "run-"+id[:8])
	return name, append(tags, pair{tagName, name}), nil
}

func (d *door) updateRun(c *call) error {
	var ask runAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	if !slices.Contains([]string{"", running, scheduled, finished, failed, killed}, ask.Status) {
		return trainyard.Invalid("Invalid value %q for parameter 'status' supplied.", ask.Status)
	}
	err := d.changeRun(c, ask.id(), func(rec *record) (*line, error) {
		l := &line{Info: &info{Name: ask.Name}}
		if ask.Name != "" {
			l.Tags = []pair{{tagName, ask.Name}}
		}
		if rec.Kind == kindRun { // a job is ended by its process and not by what is said of it
			l.Info.Status = ask.Status
			if ask.End != nil {
				l.Info.End = int64(*ask.End)
			}
		}
		if *l.Info == (info{}) {
			return nil, nil
		}
		return l, nil
	})
	if err != nil {
		return err
	}
	r, err := d.run(c.Context(), c.scope, ask.id())
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"run_info": viewRun(r).Info})
}

func (d *door) deleteRun(c *call) error  { return d.stageRun(c, deleted) }
func (d *door) restoreRun(c *call) error { return d.stageRun(c, active) }

// stageRun hides a run or shows it again. A job is neither deleted nor archived by it.
func (d *door) stageRun(c *call, stage string) error {
	var ask runAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := d.mayWriteRun(c, ask.id()); err != nil {
		return err
	}
	err := d.journal.change(c.Context(), runKey(c.scope, ask.id()), func(rec *record) (*line, error) {
		if cmp.Or(rec.Stage, active) == stage {
			return nil, nil
		}
		return &line{Info: &info{Stage: stage}}, nil
	})
	if err != nil {
		return err
	}
	return c.done()
}

// changeRun changes what is known of a run that there is, is not deleted, and that the caller may write.
func (d *door) changeRun(c *call, id string, decide func(*record) (*line, error)) error {
	if err := d.mayWriteRun(c, id); err != nil {
		return err
	}
	return d.journal.change(c.Context(), runKey(c.scope, id), func(rec *record) (*line, error) {
		if rec.Stage == deleted {
			return nil, trainyard.Invalid("The run %s must be in the 'active' state. Current state is deleted.", id)
		}
		return decide(rec)
	})
}

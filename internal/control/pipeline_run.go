package control

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/pipeline"
	"github.com/trainyard/trainyard/internal/store"
)

// A pipeline goes on by looking: at its own row and at those of its steps' jobs, which are all there is to know. Whatever changes one of
// them asks for another look, and so does the start of the server, so nothing is lost by dying in between; a step's job has always the same
// name, so none is made twice.

// pipelines are those that are not over, by themselves and by the jobs that they have or will have.
type pipelines struct {
	mu sync.Mutex
	of map[trainyard.JobKey]trainyard.JobKey
}

func (p *pipelines) keep(j *trainyard.Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[trainyard.JobKey]trainyard.JobKey{}
	}
	p.of[j.Key()] = j.Key()
	for _, name := range j.Children() {
		p.of[trainyard.MakeJobKey(j.Scope, name)] = j.Key()
	}
}

func (p *pipelines) drop(j *trainyard.Job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, j.Key())
	for _, name := range j.Children() {
		delete(p.of, trainyard.MakeJobKey(j.Scope, name))
	}
}

// reserved refuses a job with the name that a step of a pipeline is going to have.
func (p *pipelines) reserved(tx *store.Tx, j *trainyard.Job) error {
	p.mu.Lock()
	of, taken := p.of[j.Key()]
	p.mu.Unlock()
	if !taken || of == j.Key() || j.Plan.Parent != "" {
		return nil
	}
	if _, err := tx.Job(j.Key()); !trainyard.IsNotFound(err) {
		return err
	}
	return trainyard.Conflict("job %q is the name of a step that pipeline %q is going to begin; choose another name", j.Name, path.Base(string(of)))
}

// touched are the pipelines that some jobs are, or are steps of.
func (p *pipelines) touched(jobs []trainyard.JobKey) (out []trainyard.JobKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.of) == 0 {
		return nil
	}
	for _, key := range jobs {
		if at, ok := p.of[key]; ok {
			out = append(out, at)
		}
	}
	return out
}

// runPipelines looks at every pipeline that is not over once, and then at those where something changed.
func (c *Control) runPipelines(ctx context.Context) error {
	q := trainyard.JobQuery{States: []trainyard.JobState{trainyard.JobQueued, trainyard.JobPreparing, trainyard.JobRunning, trainyard.JobCancelRequested}, View: trainyard.ViewAll, Top: 1000}
	for {
		page, err := c.Store.Jobs(ctx, q)
		if err != nil {
			return err
		}
		for _, j := range page.Items {
			if j.Plan.Pipeline != nil {
				c.watchPipeline(j)
			}
		}
		if q.After = page.Next; q.After == "" {
			return c.advances.Run(ctx)
		}
	}
}

// watchPipeline sees to it that a pipeline goes on.
func (c *Control) watchPipeline(j *trainyard.Job) {
	c.pipelines.keep(j)
	c.advances.Add(j.Key())
}

// advancePipeline makes what is there what should be there. It may be called at any time and any number of times.
func (c *Control) advancePipeline(ctx context.Context, key trainyard.JobKey) (time.Duration, error) {
	j, jobs, err := c.lookAtPipeline(ctx, key)
	if err != nil || j == nil {
		return 0, err
	}
	silent := c.tellPipeline(ctx, j) // that keeps nothing from beginning, or from being stopped
	next := pipeline.Decide(j, jobs)
	who := trainyard.User{Name: j.CreatedBy, Role: trainyard.RoleAdmin}
	refused := map[int]string{}
	for _, i := range next.Start {
		why, err := c.beginStep(ctx, who, j, &j.Plan.Pipeline.Steps[i], jobs)
		if err != nil {
			return 0, err
		}
		if why != "" {
			refused[i] = why
		}
	}
	if who.Name = j.Status.CanceledBy; who.Name == "" {
		who.Name = "pipeline " + j.Name + " as another step failed"
	}
	for _, name := range next.Stop {
		if err := c.CancelJob(ctx, who, j.Scope, name); err != nil && !trainyard.IsNotFound(err) {
			return 0, fmt.Errorf("stop step %s: %w", name, err)
		}
	}
	return 0, errors.Join(c.notePipeline(ctx, key, next, refused, silent), silent)
}

// lookAtPipeline reads a pipeline and the jobs of its steps, nil for those that were not made. A pipeline that is over is nil.
func (c *Control) lookAtPipeline(ctx context.Context, key trainyard.JobKey) (*trainyard.Job, []*trainyard.Job, error) {
	j, err := c.Store.Job(ctx, key)
	if trainyard.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if j.Status.State.Terminal() {
		c.pipelines.drop(j)
		return nil, nil, nil
	}
	jobs := make([]*trainyard.Job, len(j.Plan.Pipeline.Steps))
	for i, name := range j.Children() {
		one, err := c.Store.Job(ctx, trainyard.MakeJobKey(j.Scope, name))
		if err != nil && !trainyard.IsNotFound(err) {
			return nil, nil, err
		}
		if err == nil && one.Plan.Parent == j.Name {
			jobs[i] = one
		}
	}
	return j, jobs, nil
}

// beginStep submits a step's job. refused is why it cannot be, for good.
func (c *Control) beginStep(ctx context.Context, who trainyard.User, j *trainyard.Job, s *trainyard.PipelineStep, jobs []*trainyard.Job) (refused string, err error) {
	child := &trainyard.Job{Scope: j.Scope, Name: trainyard.StepJob(j.Name, s.Name), Spec: s.Spec}
	if old, err := c.Store.Job(ctx, child.Key()); err == nil && old.Plan.Parent != j.Name {
		return fmt.Sprintf("there is another job %s, which is not of this pipeline", child.Name), nil
	}
	_, _, err = c.submit(ctx, who, child, func(made *trainyard.Job) error {
		made.Plan.Parent = j.Name
		mayBeVacant(made, jobs)
		return nil
	})
	if err == nil {
		return "", nil
	}
	if now, look := c.Store.Job(ctx, j.Key()); look != nil || now.Status.State.Terminal() || now.Status.State == trainyard.JobCancelRequested {
		return "", look // the pipeline is to end: what is now is looked at next
	}
	switch trainyard.CodeOf(err) {
	case trainyard.CodeInvalid, trainyard.CodeNotFound, trainyard.CodeConflict, trainyard.CodeUnsupported:
		return err.Error(), nil
	}
	return "", fmt.Errorf("begin step %s: %w", s.Name, err)
}

// mayBeVacant lets a step begin though a step before it has left a folder empty.
func mayBeVacant(made *trainyard.Job, jobs []*trainyard.Job) {
	for name, in := range made.Plan.Inputs {
		for _, before := range jobs {
			if before == nil || in.Type == "uri_file" || in.Key == "" {
				continue
			}
			for _, out := range before.Plan.Outputs {
				in.Vacant = in.Vacant || strings.TrimSuffix(out.Key, "/") == strings.TrimSuffix(in.Key, "/")
			}
		}
		made.Plan.Inputs[name] = in
	}
}

// parentLives refuses a step's job whose pipeline is not going on any more.
func parentLives(tx *store.Tx, j *trainyard.Job) error {
	if j.Plan.Parent == "" {
		return nil
	}
	p, err := tx.Job(trainyard.MakeJobKey(j.Scope, j.Plan.Parent))
	if err != nil {
		return err
	}
	if s := p.Status.State; s.Terminal() || s == trainyard.JobCancelRequested {
		return trainyard.Conflict("pipeline %q is %s: no step of it begins", p.Name, s)
	}
	return nil
}

// deleteSteps deletes the jobs of a pipeline's steps, if it is over.
func (c *Control) deleteSteps(ctx context.Context, who trainyard.User, key trainyard.JobKey) error {
	j, err := c.Store.Job(ctx, key)
	if err != nil || !j.Status.State.Terminal() {
		return err
	}
	for _, name := range j.Children() {
		one, err := c.Store.Job(ctx, trainyard.MakeJobKey(j.Scope, name))
		if err == nil && one.Plan.Parent == j.Name {
			err = c.DeleteJob(ctx, who, j.Scope, name)
		}
		if err != nil && !trainyard.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// stepsFree refuses a pipeline with steps whose jobs would have the names of others.
func stepsFree(tx *store.Tx, j *trainyard.Job) error {
	for _, name := range j.Children() {
		switch old, err := tx.Job(trainyard.MakeJobKey(j.Scope, name)); {
		case trainyard.IsNotFound(err):
		case err != nil:
			return err
		case old.Plan.Parent != j.Name:
			return trainyard.Conflict("a step of pipeline %q would be the job %q, and there is one already: choose another name for the pipeline", j.Name, name)
		}
	}
	return nil
}

package history

import (
	"context"

	"github.com/trainyard/trainyard"
)

// find looks a run up: a job, or the step that a batch job has to clients. It returns the job, and how it is seen under the name asked for.
func (d *door) find(ctx context.Context, scope trainyard.Scope, name string, look func(context.Context, trainyard.Scope, string) (*trainyard.Job, error)) (*trainyard.Job, func(*trainyard.Job) runView, error) {
	j, err := look(ctx, scope, name)
	parent, step := trainyard.BatchJobOf(name)
	if !step || !trainyard.IsNotFound(err) {
		return j, viewOf, err
	}
	if j, perr := look(ctx, scope, parent); perr == nil && j.IsBatch() && j.Plan.Pipeline == nil {
		return j, stepOf, nil
	}
	return nil, nil, err
}

// stepOf is the one step of a batch job, in which clients look for the output with the scores. It is the job itself under another name.
func stepOf(j *trainyard.Job) runView {
	v := viewOf(j)
	v.RunID, v.RunType, v.DisplayName = trainyard.BatchStep(j.Name), "azureml.StepRun", "batchscoring"
	v.ParentRunID = &j.Name
	return v
}

package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/pipeline"
	"github.com/trainyard/trainyard/internal/store"
)

// A pipeline's log is told twice of whatever happens: first the row of the pipeline, together with what happened, then the log, at the
// offset that the row says, at each look until the row says the next. So no line is lost or doubled by dying in between. The pipeline's end
// is not seen before its log is whole, because who follows a log leaves at the job's end.

// tellPipeline writes to a pipeline's log what its row says, unless it is there.
func (c *Control) tellPipeline(ctx context.Context, j *trainyard.Job) error {
	told := j.Status.Told
	if told.Text == "" {
		return nil
	}
	add := func(offset int64, data []byte) (int64, error) {
		return c.Output.Append(ctx, j.Scope, j.Name, trainyard.PipelineLog, offset, data)
	}
	err := padLog(told.At, add)
	if err == nil {
		_, err = add(told.At, []byte(told.Text))
	}
	if err != nil {
		return fmt.Errorf("log of pipeline %s: %w", j.Name, err)
	}
	return nil
}

// notePipeline stores how a pipeline goes.
// silent is why its log could not be written: then what happened to its steps is told later, and the pipeline ends without that if it cannot
// be told for long.
func (c *Control) notePipeline(ctx context.Context, key trainyard.JobKey, next pipeline.Next, refused map[int]string, silent error) error {
	again := false
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		again = len(refused) > 0
		j, err := tx.Job(key)
		if err != nil || j.Status.State.Terminal() {
			return err
		}
		if now := j.Status.State; now == trainyard.JobCancelRequested && next.State != now && !next.State.Terminal() {
			again = true // canceled since it was looked at
			return nil
		}
		for i, why := range refused {
			j.Plan.Pipeline.Steps[i].Refused = why
		}
		giveUp := silent != nil && c.Now().Sub(lastOf(next.Steps, j.Created)) > tellPatience
		if silent != nil && next.State.Terminal() && !giveUp {
			return nil
		}
		if giveUp && next.State.Terminal() {
			j.Status.Warnings = trainyard.Warn(j.Status.Warnings, "the end of its log could not be written: "+silent.Error())
		} else if silent != nil {
			return c.movePipeline(tx, j, next)
		} else if text := pipeline.Tell(j, next.Steps, c.Now()); text != "" {
			j.Status.Told = trainyard.LogTail{At: j.Status.Told.At + int64(len(j.Status.Told.Text)), Text: text}
			again = true // it is to be written
		}
		j.Status.Steps = next.Steps
		for _, s := range next.Steps {
			if !s.Started.IsZero() && (j.Status.Started.IsZero() || s.Started.Before(j.Status.Started)) {
				j.Status.Started = s.Started
			}
		}
		if again && next.State.Terminal() {
			return tx.PutJob(j)
		}
		return c.movePipeline(tx, j, next)
	})
	if trainyard.IsNotFound(err) { // deleted meanwhile
		return nil
	}
	if err == nil && again {
		c.advances.Add(key)
	}
	return err
}

// tellPatience is how long a pipeline that is over waits for its log.
const tellPatience = 2 * time.Minute

// lastOf is when the last step ended, or otherwise, if none did.
func lastOf(steps []trainyard.StepStatus, otherwise time.Time) time.Time {
	for _, s := range steps {
		if s.Ended.After(otherwise) {
			otherwise = s.Ended
		}
	}
	return otherwise
}

func (c *Control) movePipeline(tx *store.Tx, j *trainyard.Job, next pipeline.Next) error {
	before := j.Status.State
	if next.Fail != nil {
		j.Status.Failure = next.Fail
	}
	if err := j.MoveTo(next.State, next.Why, c.Now()); err != nil {
		return err
	}
	if j.Status.State != before {
		tx.Event(c.event(j.Scope, "job", j.Name, eventName(j.Status.State), "", next.Why.Message))
	}
	if j.Status.State == trainyard.JobCompleted {
		if err := c.registerOutputs(tx, j); err != nil {
			return err
		}
	}
	return tx.PutJob(j)
}

// presentSteps says of each step that is queued why it is, now, and how each went of a pipeline that ended when that was not kept.
func (c *Control) presentSteps(j *trainyard.Job) {
	names := j.Children()
	if j.Status.State.Terminal() {
		if len(names) > 0 && len(j.Status.Steps) == 0 {
			j.Status.Steps = c.stepsThatWere(j, names)
		}
		return
	}
	if len(names) != len(j.Status.Steps) {
		return
	}
	j.Status.Steps = slices.Clone(j.Status.Steps)
	for i := range j.Status.Steps {
		if s := &j.Status.Steps[i]; s.State == trainyard.JobQueued {
			if why := c.whyQueued(trainyard.MakeJobKey(j.Scope, names[i])); why.Message != "" {
				s.Why = why.Message
			}
		}
	}
}

// stepsThatWere reads how the steps went from their jobs. It leaves it at that if that takes long: a list may have many such pipelines.
func (c *Control) stepsThatWere(j *trainyard.Job, names []string) []trainyard.StepStatus {
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	jobs := make([]*trainyard.Job, len(names))
	for i, name := range names {
		one, err := c.Store.Job(ctx, trainyard.MakeJobKey(j.Scope, name))
		if err != nil && !trainyard.IsNotFound(err) {
			return nil
		}
		if err == nil && one.Plan.Parent == j.Name {
			jobs[i] = one
		}
	}
	over := *j
	over.Status.State = trainyard.JobCancelRequested // no step begins any more
	steps := pipeline.Decide(&over, jobs).Steps
	for i := range steps {
		if jobs[i] == nil && j.Status.State == trainyard.JobCompleted { // it ran, and its job was deleted since
			steps[i] = trainyard.StepStatus{State: trainyard.JobCompleted, Why: "its job was deleted"}
		}
	}
	return steps
}

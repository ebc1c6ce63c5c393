package trainyard

import "time"

// A pipeline is a job that is its children: it has no task of its own, so the scheduler never sees it. Each of its steps becomes a job like
// any other, with the pipeline as its parent, as soon as those steps have completed that it takes outputs of.

// Tags and properties of pipelines and of the jobs of their steps, which are Azure ML's.
const (
	BatchPipelineJob = "azureml.pipelinejob"   // TagBatchJob of a batch job that is a pipeline
	PropertyPipeline = "azureml.pipelinerunid" // of a step's job: its parent
	PropertyRun      = "azureml.runsource"     // RunPipeline or RunStep
	RunPipeline      = "azureml.PipelineRun"
	RunStep          = "azureml.StepRun"
)

// PipelinePlan says which jobs a pipeline is.
type PipelinePlan struct {
	Steps    []PipelineStep `json:"steps"`              // each after those that it waits for
	Continue bool           `json:"continue,omitempty"` // when a step fails, those that do not wait for it go on
}

// PipelineStep is one job of a pipeline. Where its inputs are is known before the jobs have run that write them.
type PipelineStep struct {
	Name  string   `json:"name"`
	Spec  JobSpec  `json:"spec"`
	After []string `json:"after,omitempty"` // names of the steps that must have completed

	// Refused is why its job could not be made when its turn came.
	Refused string `json:"refused,omitempty"`
}

// StepJob is the name of the job that a step of a pipeline becomes: always the same, so that it is made once. It can be the name of a run
// for MLflow's clients, which take letters, digits, '-' and '_'.
func StepJob(pipeline, step string) string { return pipeline + "-" + step }

// Children are the names of the jobs that a pipeline has or will have; none for other jobs.
func (j *Job) Children() []string {
	if j.Plan.Pipeline == nil {
		return nil
	}
	var out []string
	for _, s := range j.Plan.Pipeline.Steps {
		out = append(out, StepJob(j.Name, s.Name))
	}
	return out
}

// PipelineLog is the name of a pipeline's own log, which is Azure ML's: a line for each step that begins, ends, or is not run.
const PipelineLog = "logs/azureml/executionlogs.txt"

// StepNotRun is the state of a step whose turn will not come; no job is ever in it.
const StepNotRun JobState = "NotRun"

// StepStatus is how a step was when its pipeline last looked: its job, or, before there is one, JobNotStarted.
type StepStatus struct {
	State   JobState  `json:"state"`
	Why     string    `json:"why,omitempty"` // what it waits for, what it does before it runs, or what went wrong
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
}

// LogTail is the end of a log: the text that begins at a byte of it. It may not be there yet.
type LogTail struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
}

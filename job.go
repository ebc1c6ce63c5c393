package trainyard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Job is what a user submits, and what became of it.
type Job struct {
	Scope     Scope
	Name      string
	Spec      JobSpec   // as submitted; changes only by update (tags, display name, archive)
	Plan      JobPlan   // what the server made of Spec at submission: everything a node needs, resolved
	Status    JobStatus // changes as the job lives
	Created   time.Time
	CreatedBy string
	Modified  time.Time
	Seq       int64 // order of submission, given by the store, unique in it
}

// ID is the job's ARM id.
func (j *Job) ID() string { return j.Scope.Child(string(KindJob), j.Name) }

// Key is unique in a server: the folded scope and the name.
func (j *Job) Key() JobKey { return MakeJobKey(j.Scope, j.Name) }

// JobKey names a job in a server.
type JobKey string

// MakeJobKey joins a scope and a job name. Job names compare with regard to case.
func MakeJobKey(s Scope, name string) JobKey { return JobKey(s.Key() + "/" + name) }

// Name is the job's, for people: they are in its workspace.
func (k JobKey) Name() string { return string(k[strings.LastIndexByte(string(k), '/')+1:]) }

// JobSpec is ARM's job "properties" as a client writes them. Fields without a Go name are kept in Extra and echoed.
type JobSpec struct {
	JobType              string                     `json:"jobType"` // Command or Pipeline; other kinds are refused by name
	DisplayName          string                     `json:"displayName,omitempty"`
	Description          string                     `json:"description,omitempty"`
	ExperimentName       string                     `json:"experimentName,omitempty"`
	ComputeID            string                     `json:"computeId,omitempty"`
	CodeID               string                     `json:"codeId,omitempty"`
	EnvironmentID        string                     `json:"environmentId,omitempty"`
	Command              string                     `json:"command,omitempty"`
	Inputs               map[string]*JobInput       `json:"inputs,omitempty"`
	Outputs              map[string]*JobOutput      `json:"outputs,omitempty"`
	EnvironmentVariables map[string]string          `json:"environmentVariables,omitempty"`
	Distribution         *Distribution              `json:"distribution,omitempty"`
	Limits               *JobLimits                 `json:"limits,omitempty"`
	Resources            *JobResources              `json:"resources,omitempty"`
	QueueSettings        *QueueSettings             `json:"queueSettings,omitempty"`
	Identity             json.RawMessage            `json:"identity,omitempty"`
	Services             map[string]json.RawMessage `json:"services,omitempty"`
	Tags                 map[string]string          `json:"tags,omitempty"`
	Properties           map[string]string          `json:"properties,omitempty"`
	IsArchived           bool                       `json:"isArchived,omitempty"`
	Extra                Extra                      `json:"-"`
}

type jobSpecFields JobSpec

var jobSpecNames = jsonNames(JobSpec{})

func (s *JobSpec) UnmarshalJSON(data []byte) error {
	extra, err := unmarshalExtra(data, (*jobSpecFields)(s), jobSpecNames)
	s.Extra = extra
	return err
}

func (s JobSpec) MarshalJSON() ([]byte, error) {
	return marshalExtra(jobSpecFields(s), s.Extra)
}

// JobInput is one input. A literal has a Value, every other type a URI and a mode (empty: the server's default, ReadOnlyMount).
type JobInput struct {
	JobInputType string `json:"jobInputType"` // literal, uri_file, uri_folder, mltable, custom_model, mlflow_model, triton_model
	Value        string `json:"value,omitempty"`
	URI          string `json:"uri,omitempty"`
	Mode         string `json:"mode,omitempty"` // ReadOnlyMount, ReadWriteMount, Download, Direct, EvalMount, EvalDownload
	Description  string `json:"description,omitempty"`
}

// JobOutput is one output. An empty URI means the default place; an AssetName registers the result as a data asset.
type JobOutput struct {
	JobOutputType string `json:"jobOutputType"`
	URI           string `json:"uri,omitempty"`
	Mode          string `json:"mode,omitempty"` // ReadWriteMount, Upload, Direct
	AssetName     string `json:"assetName,omitempty"`
	AssetVersion  string `json:"assetVersion,omitempty"`
	Description   string `json:"description,omitempty"`
}

// Distribution says how many processes make one job, and by which convention they find each other.
type Distribution struct {
	DistributionType        string `json:"distributionType"` // PyTorch, TensorFlow, Mpi, Ray
	ProcessCountPerInstance int    `json:"processCountPerInstance,omitempty"`
	WorkerCount             int    `json:"workerCount,omitempty"`
	ParameterServerCount    int    `json:"parameterServerCount,omitempty"`
}

// JobLimits bounds a job in time. Timeout is an ISO 8601 duration and counts the user's process only.
type JobLimits struct {
	JobLimitsType string `json:"jobLimitsType"`
	Timeout       string `json:"timeout,omitempty"`
}

// JobResources asks for nodes.
type JobResources struct {
	InstanceCount int             `json:"instanceCount,omitempty"`
	InstanceType  string          `json:"instanceType,omitempty"`
	ShmSize       string          `json:"shmSize,omitempty"`
	DockerArgs    string          `json:"dockerArgs,omitempty"`
	Properties    json.RawMessage `json:"properties,omitempty"`
	Locations     []string        `json:"locations,omitempty"`
}

// QueueSettings orders a queue.
type QueueSettings struct {
	JobTier  string `json:"jobTier,omitempty"`
	Priority int    `json:"priority,omitempty"` // 1 low, 2 medium, 3 high; 0 means medium
}

// JobPlan is a submitted job made ready for a node: every reference resolved, every default filled in.
type JobPlan struct {
	Compute     string                `json:"compute"`           // name, lower case
	Nodes       int                   `json:"nodes"`             // instances, at least 1
	Processes   int                   `json:"processes"`         // per node, at least 1
	Priority    int                   `json:"priority"`          // higher first: 1 to 3 in the standard tier, more in better ones, less in others
	CodeKey     string                `json:"codeKey,omitempty"` // blob prefix of the snapshot, "" for none
	CodeHash    string                `json:"codeHash,omitempty"`
	Environment *EnvironmentPlan      `json:"environment,omitempty"` // nil: the node's Python as it is
	Inputs      map[string]TaskInput  `json:"inputs,omitempty"`
	Outputs     map[string]TaskOutput `json:"outputs,omitempty"`
	Timeout     time.Duration         `json:"timeout,omitempty"`
	MaxAttempts int                   `json:"maxAttempts"`       // tries when a node is lost
	Serve       *Serve                `json:"serve,omitempty"`   // of a replica
	Limits      Resources             `json:"limits,omitzero"`   // what a task may use, where the node would let it use more
	Requests    Resources             `json:"requests,omitzero"` // what a replica on Kubernetes is placed by, where it says so

	Asked string `json:"asked,omitempty"` // digest of what was submitted, as far as it says what is run

	Pipeline *PipelinePlan `json:"pipeline,omitempty"` // of a job that is its children
	Parent   string        `json:"parent,omitempty"`   // of a step's job: the pipeline's name
}

// JobStatus is what became of a job.
type JobStatus struct {
	State      JobState  `json:"state"`
	Reason     Reason    `json:"reason,omitzero"`
	Attempts   []Attempt `json:"attempts,omitempty"`
	Timeline   []Span    `json:"timeline,omitempty"` // of all attempts, in order; gap-free from submission to end
	Started    time.Time `json:"started,omitzero"`   // first start of the user's process
	Ended      time.Time `json:"ended,omitzero"`
	ExitCode   *int      `json:"exitCode,omitempty"`
	Failure    *Failure  `json:"failure,omitempty"`
	Warnings   []string  `json:"warnings,omitempty"` // understood and not acted on, overcommitted, image not used, …
	CanceledBy string    `json:"canceledBy,omitempty"`
	CanceledAs string    `json:"canceledAs,omitempty"` // what they did of which that came, such as "deleted compute gpu"; "": they asked for it

	Steps []StepStatus `json:"steps,omitempty"` // of a pipeline, in the order of its plan
	Told  LogTail      `json:"told,omitzero"`   // of a pipeline: what its log was last told
}

// Failure says in words what ended a job badly.
type Failure struct {
	Class   Class  `json:"class"`
	Message string `json:"message"`
}

// Class sorts the ends of a task, for policy and for people.
type Class string

// The classes. Policy (control.advance) retries NodeLost and StartError within limits, Preempted always, and nothing the user's own process
// did.
const (
	ClassOK          Class = "OK"
	ClassUser        Class = "UserError"        // non-zero exit or a signal of its own
	ClassOutOfMemory Class = "OutOfMemory"      // killed at its memory limit
	ClassTimeout     Class = "Timeout"          // limits.timeout
	ClassCanceled    Class = "Canceled"         // asked to stop
	ClassEnvironment Class = "EnvironmentError" // could not be built
	ClassData        Class = "DataError"        // code or input could not be had, output could not be stored
	ClassStart       Class = "StartError"       // the driver could not start it
	ClassNodeLost    Class = "NodeLost"         // the node vanished; the task may have run
	ClassSibling     Class = "SiblingFailed"    // another rank of the gang ended the attempt
	ClassDisk        Class = "DiskFull"         // no room on the node
	ClassPreempted   Class = "Preempted"        // the node gave way to other work, or was taken away in order; no attempt of those that count
	ClassUnwell      Class = "Unwell"           // a replica that was ready stopped answering its liveness probe
)

// Attempt is one try of a job. Number counts from 1.
type Attempt struct {
	Number int       `json:"number"`
	Tasks  []RunTask `json:"tasks"`
	Placed time.Time `json:"placed"`
	Ended  time.Time `json:"ended,omitzero"`
	Class  Class     `json:"class,omitempty"`

	// Logs is how long the job's logs were, in bytes, when the attempt had ended and another was to come: the next one's begin there.
	Logs map[string]int64 `json:"logs,omitempty"`
}

// RunTask is what the server remembers of a task: where it is and how it is.
type RunTask struct {
	ID       TaskID    `json:"id"`
	Node     NodeID    `json:"node"`
	Lo       int       `json:"lo"` // ranks [Lo, Hi), counted in nodes of the gang
	Hi       int       `json:"hi"`
	State    TaskState `json:"state"`
	Result   *Result   `json:"result,omitempty"`
	Spans    []Span    `json:"spans,omitempty"`
	StopWhy  Class     `json:"stopWhy,omitempty"`  // set when the server wants it to end
	Progress string    `json:"progress,omitempty"` // what it does before it runs: "building environment sklearn-1.5"
	Away     string    `json:"away,omitempty"`     // why nothing newer is known of it: its engine cannot be asked; "": it can
	Serving  *Serving  `json:"serving,omitempty"`  // of a replica
}

// Current is the attempt that is going on or was last; nil before the first.
func (s *JobStatus) Current() *Attempt {
	if len(s.Attempts) == 0 {
		return nil
	}
	return &s.Attempts[len(s.Attempts)-1]
}

// Canceled says in words that the job was canceled, by whom, and what that came of, as far as is known.
func (s *JobStatus) Canceled() string {
	switch {
	case s.CanceledBy == "":
		return "canceled"
	case s.CanceledAs == "":
		return "canceled by " + s.CanceledBy
	}
	return fmt.Sprintf("canceled by %s (%s)", s.CanceledBy, s.CanceledAs)
}

// Clone returns a job that shares nothing that changes: stores hand out clones, so a job once read stays as it was.
func (j *Job) Clone() *Job {
	c := *j
	c.Status.Attempts = slices.Clone(j.Status.Attempts)
	for i := range c.Status.Attempts {
		c.Status.Attempts[i].Tasks = slices.Clone(j.Status.Attempts[i].Tasks)
	}
	c.Status.Timeline = slices.Clone(j.Status.Timeline)
	c.Status.Warnings = slices.Clone(j.Status.Warnings)
	c.Status.Steps = slices.Clone(j.Status.Steps)
	return &c
}

// JobState is where a job is in its life. Names are Azure ML's.
type JobState string

// Who moves a job in and out of each state.
const (
	JobNotStarted      JobState = "NotStarted"      // in: nobody yet; the zero of a job being submitted
	JobQueued          JobState = "Queued"          // in: submit, or advance after a lost node. out: the scheduler's plan
	JobPreparing       JobState = "Preparing"       // in: the plan. out: the node, when the user's process begins
	JobRunning         JobState = "Running"         // in: the node. out: the node, when the process has ended
	JobFinalizing      JobState = "Finalizing"      // in: the node: outputs are on their way. out: advance
	JobCancelRequested JobState = "CancelRequested" // in: cancel. out: advance, when every task has ended
	JobCompleted       JobState = "Completed"
	JobFailed          JobState = "Failed"
	JobCanceled        JobState = "Canceled"
)

// jobMoves is the table of legal moves.
var jobMoves = map[JobState][]JobState{
	JobNotStarted:      {JobQueued},
	JobQueued:          {JobPreparing, JobCanceled, JobFailed},
	JobPreparing:       {JobRunning, JobFinalizing, JobQueued, JobCancelRequested, JobFailed, JobCompleted},
	JobRunning:         {JobFinalizing, JobQueued, JobCancelRequested, JobFailed, JobCompleted},
	JobFinalizing:      {JobCompleted, JobFailed, JobQueued, JobCancelRequested},
	JobCancelRequested: {JobCanceled, JobCompleted, JobFailed},
}

// Terminal says whether a job in this state is over for good.
func (s JobState) Terminal() bool {
	return s == JobCompleted || s == JobFailed || s == JobCanceled
}

// CanMoveTo says whether the move is in the table. A state may always be moved to itself.
func (s JobState) CanMoveTo(to JobState) bool {
	return s == to || slices.Contains(jobMoves[s], to)
}

// MoveTo is the only way a job's state changes. It refuses a move that is not in the table. now fills Reason.Since.
func (j *Job) MoveTo(to JobState, why Reason, now time.Time) error {
	from := j.Status.State
	if from == "" {
		from = JobNotStarted
	}
	if !from.CanMoveTo(to) {
		return Conflict("job %q is %s and cannot become %s", j.Name, from, to)
	}
	if why.Since.IsZero() {
		why.Since = now
	}
	if from == to && why.Code == j.Status.Reason.Code && why.Message == j.Status.Reason.Message {
		return nil
	}
	j.Status.State, j.Status.Reason = to, why
	if to.Terminal() && j.Status.Ended.IsZero() {
		j.Status.Ended = now
	}
	return nil
}

// MakeTaskID names the task of an attempt that begins at rank lo: "{job}.{attempt}.{lo}", unique in the workspace; the scope's key is
// put before it so that it is unique in the server, and hashed where it must be a file name (see TaskID.Dir).
func MakeTaskID(job JobKey, attempt, lo int) TaskID {
	return TaskID(fmt.Sprintf("%s.%d.%d", job, attempt, lo))
}

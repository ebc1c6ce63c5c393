// Package batchrun makes the jobs of batch endpoints: what a deployment and an invocation say becomes one command job whose processes,
// runner.py on every node, score files in mini-batches. It is pure: it stores nothing, looks nothing up and starts nothing.
package batchrun

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

//go:embed runner.py
var runner string

// Runner is the program that runs on every node.
func Runner() string { return runner }

// RunnerKey is where a workspace's jobs find the runner; its content never changes.
func RunnerKey(scope trainyard.Scope) string {
	sum := sha256.Sum256([]byte(runner))
	return "codes/" + scope.Dotted() + "/batch-runner@" + hex.EncodeToString(sum[:8]) + "/runner.py"
}

// Names of the inputs that the runner needs. The first is shown with the job; the others are only in its plan.
const (
	modelInput    = "model"
	runnerInput   = "batch_runner"
	settingsInput = "batch_settings"
)

// command starts the runner in the job's environment. The variable is what staging says of the input.
const command = `exec "$(command -v python3 || command -v python)" "$AZURE_ML_INPUT_` + runnerInput + `"`

// Defaults of a deployment, which are Azure ML's.
const (
	defaultMiniBatch = 10
	defaultRetries   = 3
	defaultTimeout   = 30 * time.Second
	defaultFile      = "predictions.csv"
)

// Settings are what the runner is told.
type Settings struct {
	Inputs         []string `json:"inputs"`
	Model          string   `json:"model"`  // name of the model's file or folder; "": there is none
	Script         string   `json:"script"` // "": the model is an MLflow model and scores without one
	MiniBatchSize  int      `json:"miniBatchSize"`
	Concurrency    int      `json:"concurrency"`
	MaxRetries     int      `json:"maxRetries"`
	Timeout        float64  `json:"timeout"` // seconds
	ErrorThreshold int      `json:"errorThreshold"`
	Append         bool     `json:"append"`
	OutputFile     string   `json:"outputFile"`
	LoggingLevel   string   `json:"loggingLevel"`
}

// Complete fills a model deployment's defaults in and refuses what cannot be.
func Complete(d *trainyard.BatchDeployment) error {
	s := &d.Spec
	if s.Properties == nil {
		s.Properties = map[string]string{}
	}
	if s.Resources == nil {
		s.Resources = &trainyard.JobResources{}
	}
	if s.RetrySettings == nil {
		s.RetrySettings = &trainyard.BatchRetrySettings{}
	}
	retry := *s.RetrySettings
	s.RetrySettings = &retry
	fill(&s.Resources.InstanceCount, 1)
	fill(&s.MiniBatchSize, defaultMiniBatch)
	fill(&s.MaxConcurrencyPerInstance, 1)
	fill(&s.LoggingLevel, "Info")
	fill(&s.OutputAction, trainyard.BatchAppendRow)
	fill(&retry.Timeout, trainyard.ISODuration(defaultTimeout))
	if s.OutputAction == trainyard.BatchAppendRow {
		fill(&s.OutputFileName, defaultFile)
	}
	if retry.MaxRetries == nil {
		n := defaultRetries
		retry.MaxRetries = &n
	}
	if s.ErrorThreshold == nil {
		n := -1
		s.ErrorThreshold = &n
	}
	return check(d)
}

func fill[T comparable](v *T, otherwise T) {
	var zero T
	if *v == zero {
		*v = otherwise
	}
}

func check(d *trainyard.BatchDeployment) error {
	s := &d.Spec
	timeout, err := trainyard.ParseISODuration(s.RetrySettings.Timeout)
	switch {
	case s.OutputAction != trainyard.BatchAppendRow && s.OutputAction != trainyard.BatchSummaryOnly:
		return refuse(d, "output_action is %q; append_row and summary_only are known", s.OutputAction)
	case s.MiniBatchSize < 1:
		return refuse(d, "mini_batch_size is %d, want at least 1 file", s.MiniBatchSize)
	case s.MaxConcurrencyPerInstance < 1 || s.MaxConcurrencyPerInstance > 1024:
		return refuse(d, "max_concurrency_per_instance is %d, want 1 to 1024", s.MaxConcurrencyPerInstance)
	case *s.ErrorThreshold < -1:
		return refuse(d, "error_threshold is %d, want a number of files, or -1 for any number", *s.ErrorThreshold)
	case *s.RetrySettings.MaxRetries < 0:
		return refuse(d, "retry_settings.max_retries is %d, want 0 or more", *s.RetrySettings.MaxRetries)
	case err != nil || timeout <= 0:
		return refuse(d, "retry_settings.timeout is %q, want an ISO 8601 duration of more than zero such as PT30S", s.RetrySettings.Timeout)
	case !slices.Contains([]string{"Info", "Warning", "Debug"}, s.LoggingLevel):
		return refuse(d, "logging_level is %q; info, warning and debug are known", s.LoggingLevel)
	case !inside(s.OutputFileName):
		return refuse(d, "output_file_name is %q, want the name of a file", s.OutputFileName)
	case s.CodeConfiguration != nil && (s.CodeConfiguration.ScoringScript == "" || !inside(s.CodeConfiguration.ScoringScript)):
		return refuse(d, "scoring_script is %q, want the path of a Python file in the code folder", s.CodeConfiguration.ScoringScript)
	}
	return nil
}

func refuse(d *trainyard.BatchDeployment, format string, args ...any) error {
	return trainyard.Invalid("batch deployment %q: "+format, append([]any{d.Name}, args...)...)
}

// inside says whether a path stays in its folder.
func inside(p string) bool {
	clean := path.Clean("/" + strings.ReplaceAll(p, `\`, "/"))
	return p == "" || clean == "/"+strings.TrimPrefix(strings.ReplaceAll(p, `\`, "/"), "./") && clean != "/"
}

// Model is what a deployment's model turned out to be.
type Model struct {
	ID   string // as inputs name it
	Type string // custom_model, mlflow_model, triton_model
	Path string // of its files; the last part is the name that scripts know
}

// Job is the job that scores what an invocation names. d has been completed; m is nil where it names no model. The job has no name yet.
// Settings go into its plan with Equip, once it has been resolved.
func Job(d *trainyard.BatchDeployment, m *Model, in *trainyard.BatchInvocation) (*trainyard.Job, Settings, error) {
	d, err := replaced(d, in)
	if err != nil {
		return nil, Settings{}, err
	}
	spec, set := d.Spec, settings(d)
	inputs := map[string]*trainyard.JobInput{}
	for _, name := range slices.Sorted(maps.Keys(in.Inputs)) {
		if name == modelInput || name == runnerInput || name == settingsInput {
			return nil, set, trainyard.Invalid("an input of a batch job cannot be called %q: that name is the job's own", name)
		}
		inputs[name] = in.Inputs[name]
		if in.Inputs[name].JobInputType != "literal" {
			set.Inputs = append(set.Inputs, name)
		}
	}
	if len(set.Inputs) == 0 {
		return nil, set, trainyard.Invalid("there is nothing to score: give an input of type uri_folder or uri_file")
	}
	if m != nil {
		inputs[modelInput] = &trainyard.JobInput{JobInputType: m.Type, URI: m.ID}
		set.Model = path.Base(strings.TrimRight(m.Path, "/"))
	}
	out, err := output(in, &set)
	if err != nil {
		return nil, set, err
	}
	j := &trainyard.Job{Scope: d.Scope, Spec: trainyard.JobSpec{JobType: "Command", ComputeID: spec.Compute, EnvironmentID: spec.EnvironmentID,
		Command: command, EnvironmentVariables: spec.EnvironmentVariables, Inputs: inputs,
		Outputs: map[string]*trainyard.JobOutput{trainyard.BatchOutput: out}, Resources: spec.Resources}}
	if c := spec.CodeConfiguration; c != nil {
		j.Spec.CodeID = c.CodeID
	}
	Describe(j, d, in)
	return j, set, nil
}

// Describe gives a job its words.
func Describe(j *trainyard.Job, d *trainyard.BatchDeployment, in *trainyard.BatchInvocation) {
	j.Spec.DisplayName, j.Spec.Description, j.Spec.ExperimentName = in.DisplayName, in.Description, in.Experiment
	fill(&j.Spec.ExperimentName, d.Endpoint)
	j.Spec.Tags = maps.Clone(in.Tags)
	if j.Spec.Tags == nil {
		j.Spec.Tags = map[string]string{}
	}
	maps.Copy(j.Spec.Tags, map[string]string{trainyard.TagBatchRun: "true", trainyard.TagBatchJob: "azureml.batchjob",
		trainyard.TagBatchEndpoint: d.Endpoint, trainyard.TagBatchDeployment: d.Name})
}

// replaced is the deployment as an invocation wants it.
func replaced(d *trainyard.BatchDeployment, in *trainyard.BatchInvocation) (*trainyard.BatchDeployment, error) {
	out := *d
	s := &out.Spec
	res := *s.Resources
	s.Resources = &res
	set(&res.InstanceCount, in.Instances)
	set(&s.MaxConcurrencyPerInstance, in.Concurrency)
	set(&s.MiniBatchSize, in.MiniBatchSize)
	set(&s.LoggingLevel, in.LoggingLevel)
	set(&s.OutputFileName, in.OutputFileName)
	if in.ErrorThreshold != nil {
		s.ErrorThreshold = in.ErrorThreshold
	}
	if in.Retry != nil {
		retry := *s.RetrySettings
		set(&retry.Timeout, in.Retry.Timeout)
		if in.Retry.MaxRetries != nil {
			retry.MaxRetries = in.Retry.MaxRetries
		}
		s.RetrySettings = &retry
	}
	return &out, check(&out)
}

func set[T comparable](v *T, to T) {
	var zero T
	if to != zero {
		*v = to
	}
}

func settings(d *trainyard.BatchDeployment) Settings {
	s := &d.Spec
	timeout, _ := trainyard.ParseISODuration(s.RetrySettings.Timeout) // check has read it
	out := Settings{MiniBatchSize: s.MiniBatchSize, Concurrency: s.MaxConcurrencyPerInstance, MaxRetries: *s.RetrySettings.MaxRetries,
		Timeout: timeout.Seconds(), ErrorThreshold: *s.ErrorThreshold, Append: s.OutputAction == trainyard.BatchAppendRow,
		OutputFile: s.OutputFileName, LoggingLevel: s.LoggingLevel, Inputs: []string{}}
	if s.CodeConfiguration != nil {
		out.Script = s.CodeConfiguration.ScoringScript
	}
	return out
}

// output is the job's one output. An invocation may say where it goes: a folder, or a file whose name is then that of the rows.
func output(in *trainyard.BatchInvocation, s *Settings) (*trainyard.JobOutput, error) {
	if len(in.Outputs) > 1 {
		return nil, trainyard.Invalid("a model deployment has one output, and the invocation names %d", len(in.Outputs))
	}
	out := &trainyard.JobOutput{JobOutputType: "uri_folder"}
	for _, o := range in.Outputs {
		*out = *o
		out.JobOutputType = "uri_folder"
		if strings.EqualFold(o.JobOutputType, "uri_file") && o.URI != "" {
			dir, file := path.Split(o.URI)
			if file == "" || strings.HasSuffix(dir, "/paths/") && strings.Count(dir, "/") < 5 {
				return nil, trainyard.Invalid("the output %q is of type uri_file, want a path with a folder and a file", o.URI)
			}
			out.URI, s.OutputFile = dir, file
		}
	}
	return out, nil
}

// Equip puts what the runner needs into a resolved job's plan.
func Equip(j *trainyard.Job, s Settings) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	j.Plan.Inputs[runnerInput] = trainyard.TaskInput{Type: "uri_file", URI: "the batch runner", Key: RunnerKey(j.Scope), Mode: "ReadOnlyMount"}
	j.Plan.Inputs[settingsInput] = trainyard.TaskInput{Type: "literal", Value: string(data)}
	return nil
}

package trainyard

import (
	"encoding/json"
	"strings"
	"time"
)

// A batch endpoint is a name under which files are scored: whoever invokes it gets a job. An endpoint is stored under its name, a
// deployment under "{endpoint}/{deployment}", both as a Resource.

// Tags of the jobs of batch endpoints. The first is Azure ML's own: clients look for it to find the scores.
const (
	TagBatchRun        = "azureml.batchrun" // "true"
	TagBatchJob        = "azureml.jobtype"  // "azureml.batchjob"
	TagBatchEndpoint   = "azureml.endpointname"
	TagBatchDeployment = "azureml.deploymentname"
)

// BatchOutput is the name of the output that the scores of a batch job are in.
const BatchOutput = "score"

// batchStep is what the name of a batch job's only step ends in.
const batchStep = "-batchscoring"

// BatchStep is the name of the one step that clients see in the pipeline job which a batch job is to them.
func BatchStep(job string) string { return job + batchStep }

// BatchJobOf is the job whose step has the name.
func BatchJobOf(step string) (job string, ok bool) {
	job, ok = strings.CutSuffix(step, batchStep)
	return job, ok && job != ""
}

// IsBatch says whether the job came of a batch endpoint.
func (j *Job) IsBatch() bool {
	return strings.EqualFold(j.Spec.JobType, "Pipeline") && j.Spec.Tags[TagBatchRun] == "true"
}

// BatchEndpoint is a name under which files are scored.
type BatchEndpoint struct {
	Scope      Scope             `json:"scope"`
	Name       string            `json:"name"`
	Location   string            `json:"location,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	Identity   json.RawMessage   `json:"identity,omitempty"`
	Spec       BatchEndpointSpec `json:"spec"`
	Created    time.Time         `json:"created"`
	Modified   time.Time         `json:"modified"`
	CreatedBy  string            `json:"createdBy,omitempty"`
	ModifiedBy string            `json:"modifiedBy,omitempty"`
}

// ID is the endpoint's ARM id.
func (e *BatchEndpoint) ID() string { return e.Scope.Child("batchEndpoints", e.Name) }

// BatchEndpointSpec is ARM's batch endpoint "properties". Fields without a Go name are kept in Extra and echoed.
type BatchEndpointSpec struct {
	AuthMode    string            `json:"authMode"` // AADToken: tokens are all that there is
	Description string            `json:"description,omitempty"`
	Defaults    *BatchDefaults    `json:"defaults,omitempty"`
	Properties  map[string]string `json:"properties"`
	Extra       Extra             `json:"-"`
}

// BatchDefaults say what an invocation means that says nothing.
type BatchDefaults struct {
	DeploymentName string `json:"deploymentName,omitempty"`
}

type batchEndpointFields BatchEndpointSpec

var batchEndpointNames = jsonNames(BatchEndpointSpec{})

func (s *BatchEndpointSpec) UnmarshalJSON(data []byte) error {
	extra, err := unmarshalExtra(data, (*batchEndpointFields)(s), batchEndpointNames)
	s.Extra = extra
	return err
}

func (s BatchEndpointSpec) MarshalJSON() ([]byte, error) {
	return marshalExtra(batchEndpointFields(s), s.Extra)
}

// BatchDeployment is a model and how files are scored with it, or a component that is run on them.
type BatchDeployment struct {
	Scope      Scope               `json:"scope"`
	Endpoint   string              `json:"endpoint"`
	Name       string              `json:"name"`
	Location   string              `json:"location,omitempty"`
	Tags       map[string]string   `json:"tags,omitempty"`
	Identity   json.RawMessage     `json:"identity,omitempty"`
	Spec       BatchDeploymentSpec `json:"spec"`
	Created    time.Time           `json:"created"`
	Modified   time.Time           `json:"modified"`
	CreatedBy  string              `json:"createdBy,omitempty"`
	ModifiedBy string              `json:"modifiedBy,omitempty"`
}

// ID is the deployment's ARM id.
func (d *BatchDeployment) ID() string {
	return d.Scope.Child("batchEndpoints", d.Endpoint, "deployments", d.Name)
}

// Values of a batch deployment's OutputAction.
const (
	BatchAppendRow   = "AppendRow"   // what run() returns becomes rows of one file
	BatchSummaryOnly = "SummaryOnly" // run() writes what it will itself; what it returns is only counted
)

// BatchDeploymentSpec is ARM's batch deployment "properties". Nil and zero mean Azure's defaults: see package batchrun.
type BatchDeploymentSpec struct {
	Description               string              `json:"description,omitempty"`
	Compute                   string              `json:"compute,omitempty"` // ARM id
	Model                     *AssetReference     `json:"model,omitempty"`
	CodeConfiguration         *CodeConfiguration  `json:"codeConfiguration,omitempty"`
	EnvironmentID             string              `json:"environmentId,omitempty"`
	EnvironmentVariables      map[string]string   `json:"environmentVariables,omitempty"`
	Resources                 *JobResources       `json:"resources,omitempty"`
	MiniBatchSize             int                 `json:"miniBatchSize,omitempty"` // files
	MaxConcurrencyPerInstance int                 `json:"maxConcurrencyPerInstance,omitempty"`
	ErrorThreshold            *int                `json:"errorThreshold,omitempty"` // failed files of the whole input; -1: any number
	LoggingLevel              string              `json:"loggingLevel,omitempty"`   // Info, Warning, Debug
	OutputAction              string              `json:"outputAction,omitempty"`
	OutputFileName            string              `json:"outputFileName,omitempty"`
	RetrySettings             *BatchRetrySettings `json:"retrySettings,omitempty"`
	Configuration             *BatchConfiguration `json:"deploymentConfiguration,omitempty"` // of a deployment of a component
	Properties                map[string]string   `json:"properties"`
	Extra                     Extra               `json:"-"`
}

type batchDeploymentFields BatchDeploymentSpec

var batchDeploymentNames = jsonNames(BatchDeploymentSpec{})

func (s *BatchDeploymentSpec) UnmarshalJSON(data []byte) error {
	extra, err := unmarshalExtra(data, (*batchDeploymentFields)(s), batchDeploymentNames)
	s.Extra = extra
	return err
}

func (s BatchDeploymentSpec) MarshalJSON() ([]byte, error) {
	return marshalExtra(batchDeploymentFields(s), s.Extra)
}

// AssetReference is how some ARM properties name an asset: by its id, or by a path.
type AssetReference struct {
	ReferenceType string `json:"referenceType"` // Id, DataPath, OutputPath
	AssetID       string `json:"assetId,omitempty"`
	DatastoreID   string `json:"datastoreId,omitempty"`
	JobID         string `json:"jobId,omitempty"`
	Path          string `json:"path,omitempty"`
}

// BatchRetrySettings say how often a mini-batch is tried again, and how long a try may take (ISO 8601).
type BatchRetrySettings struct {
	MaxRetries *int   `json:"maxRetries,omitempty"`
	Timeout    string `json:"timeout,omitempty"`
}

// BatchConfiguration is of a deployment of a component instead of a model.
type BatchConfiguration struct {
	Type        string            `json:"deploymentConfigurationType"` // PipelineComponent
	ComponentID *AssetReference   `json:"componentId,omitempty"`
	Description string            `json:"description,omitempty"`
	Settings    map[string]any    `json:"settings,omitempty"` // default_compute, continue_on_step_failure, …
	Tags        map[string]string `json:"tags,omitempty"`
}

// BatchInvocation is a request to score files.
type BatchInvocation struct {
	Request     string // of the client's: the same request twice makes one job; "" is like no other
	Deployment  string // "": the endpoint's default
	Name        string // of the job; "": the server makes one
	DisplayName string
	Description string
	Experiment  string
	Tags        map[string]string
	Inputs      map[string]*JobInput
	Outputs     map[string]*JobOutput

	// What is not nil or zero replaces what the deployment says.
	Instances      int
	Concurrency    int
	MiniBatchSize  int
	ErrorThreshold *int
	LoggingLevel   string
	OutputFileName string
	Retry          *BatchRetrySettings
}

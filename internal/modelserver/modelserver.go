// Package modelserver decides what a replica of an online deployment runs: the command, its environment of packages, how it is asked
// whether it is well, and how long things may take. It is made of pure functions and embedded Python; it reads nothing, stores nothing
// and starts nothing.
package modelserver

import (
	"path"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// ModelInput is the name of the input that the commands here expect the model under.
const ModelInput = "model"

// Kinds of models, as Azure names them.
const (
	customModel = "custom_model"
	mlflowModel = "mlflow_model"
	tritonModel = "triton_model"
)

// appDir is where Azure keeps what it serves; models are in "azureml-models" below it.
const appDir = "/var/azureml-app"

// inferencePort is where the Azure inference server listens in a container.
const inferencePort = 5001

// Request is a deployment with what is known of its model and its environment.
type Request struct {
	ModelName    string // "" for a local or anonymous model: a name is made of ModelRoot
	ModelVersion string
	ModelType    string   // custom_model, mlflow_model, triton_model; "" is custom_model
	ModelRoot    string   // base name of the model's file or folder as it was registered: "model.pkl", "sklearn_mlflow"
	HasModel     bool     // the task has an input ModelInput
	ModelFiles   []string // of a folder: the paths of its files below it

	ScoringScript   string                     // path below the code; "": none
	Environment     *trainyard.EnvironmentPlan // nil: none was given
	Contained       bool                       // it runs in a container
	InferenceRoutes *Routes                    // the environment's inferenceConfig; nil: those of the Azure inference server
	ModelMountPath  string                     // modelMountPath

	MLmodel           []byte // of an MLflow model: its files MLmodel, conda.yaml and requirements.txt, as far as there are such
	ModelConda        []byte
	ModelRequirements []byte

	Env  map[string]string         // environmentVariables
	Spec *trainyard.DeploymentSpec // request settings and probes
}

// Routes are where a container of somebody's own answers: an environment's inferenceConfig.
type Routes struct {
	Liveness  *Route `json:"livenessRoute,omitempty"`
	Readiness *Route `json:"readinessRoute,omitempty"`
	Scoring   *Route `json:"scoringRoute,omitempty"`
}

// Route is a path at a port.
type Route struct {
	Path string `json:"path"`
	Port int    `json:"port"`
}

// Plan is what a replica runs.
type Plan struct {
	Command     string                     // for bash -c in a private copy of the code; uses ${{inputs.model}} if there is a model. "" if Serve.Image
	Env         map[string]string          // of the task: the deployment's own, and ours
	Environment *trainyard.EnvironmentPlan // to build or pull; Hash is right for what is in it
	Serve       trainyard.Serve            // without Endpoint, Deployment and Generation
	Code        string                     // Snapshot if the task's code is that; "": the deployment's own
	Warnings    []string
}

// Make decides what a replica runs. Errors are for the deployment's author.
func Make(r Request) (Plan, error) {
	if r.Spec == nil {
		r.Spec = &trainyard.DeploymentSpec{}
	}
	r.ModelRoot = rootName(r.ModelRoot)
	if r.ModelName == "" {
		r.ModelName, r.ModelVersion = safeName(strings.TrimSuffix(r.ModelRoot, path.Ext(r.ModelRoot))), "1"
	}
	if r.ModelVersion == "" {
		r.ModelVersion = "1"
	}
	p := Plan{Env: map[string]string{}}
	if err := p.settings(r.Spec); err != nil {
		return Plan{}, err
	}
	p.variables(r)
	return p, p.choose(r)
}

// choose finds out which of the ways to serve it is.
func (p *Plan) choose(r Request) error {
	switch {
	case r.ScoringScript != "":
		return p.script(r)
	case r.ModelType == tritonModel:
		return p.triton(r)
	case r.ModelType == mlflowModel && r.InferenceRoutes == nil:
		return p.mlflow(r)
	case r.Contained && hasImage(r.Environment):
		return p.image(r)
	case r.InferenceRoutes != nil:
		return trainyard.Errorf(trainyard.CodeUnsupported, "environment %s is a container with a server of its own (inference_config), and the replica would "+
			"run as a process: deploy it where there is a container engine, or give a code_configuration with a scoring_script", r.environmentName())
	case !r.HasModel:
		return trainyard.Invalid("the deployment has neither a model nor a code_configuration with a scoring_script: there is nothing to serve")
	}
	return trainyard.Invalid("the model %s is a %s and needs a code_configuration with a scoring_script that has init() and run(); only MLflow models "+
		"(type: mlflow_model) and containers with an inference_config are served without one", r.ModelName, customModel)
}

// script serves a scoring script under the Azure inference server.
func (p *Plan) script(r Request) error {
	script := path.Clean(strings.ReplaceAll(r.ScoringScript, `\`, "/"))
	if path.IsAbs(script) || script == ".." || strings.HasPrefix(script, "../") {
		return trainyard.Invalid("code_configuration.scoring_script is %q, want a path below code_configuration.code", r.ScoringScript)
	}
	if r.InferenceRoutes != nil {
		p.warn("inference_config is not acted on: code_configuration.scoring_script runs under the Azure inference server, which answers at / and /score of its own port")
	}
	env, err := p.scriptEnvironment(r)
	if err != nil {
		return err
	}
	p.Environment = env
	p.inference(r, script)
	return nil
}

// inference is the command and the routes of the Azure inference server.
func (p *Plan) inference(r Request, script string) {
	if r.ModelMountPath != "" {
		p.warn("model_mount_path is not acted on: it is for containers with a server of their own; a scoring script finds the model below AZUREML_MODEL_DIR")
	}
	p.Command = serverCommand(r, script, p.Serve.Drain)
	p.Serve.Scoring, p.Serve.Liveness.Path, p.Serve.Readiness.Path = "/score", "/", "/"
	if _, ok := p.Env["SCORING_TIMEOUT_MS"]; !ok {
		// A little later than the gateway gives up, so that its answer is the one that is sent.
		p.Env["SCORING_TIMEOUT_MS"] = milliseconds(p.Serve.Timeout + 250*time.Millisecond)
	}
	p.scriptCollections(r.Spec.DataCollector)
	if n := workers(p.Env); p.Serve.Concurrency > n {
		p.warn("max_concurrent_requests_per_instance is %d and a replica has %d worker: further requests wait for it; set the environment variable WORKER_COUNT to %d to "+
			"have them run at once, each worker with the model in its own memory", p.Serve.Concurrency, n, p.Serve.Concurrency)
	}
}

func (r Request) environmentName() string {
	if r.Environment == nil {
		return "(none)"
	}
	return r.Environment.Name
}

func hasImage(e *trainyard.EnvironmentPlan) bool {
	return e != nil && (e.Image != "" || e.Context != "")
}

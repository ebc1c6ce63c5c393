package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/modelserver"
)

// resolveDeployment makes a plan of a deployment's specification: every reference followed, every default filled in. All that is wrong is
// said at once.
func (c *Control) resolveDeployment(ctx context.Context, e *trainyard.OnlineEndpoint, d *trainyard.OnlineDeployment) (*trainyard.ReplicaPlan, []string, error) {
	r := &deploying{resolver: resolver{c: c, ctx: ctx, j: &trainyard.Job{Scope: d.Scope, Name: d.Name}, serves: true}, e: e, d: d}
	r.kind()
	r.sizes()
	comp := r.where()
	r.j.Spec.JobType, r.j.Spec.ExperimentName = "Replica", e.Name
	r.j.Spec.EnvironmentVariables = d.Spec.EnvironmentVariables
	r.j.Plan = trainyard.JobPlan{Compute: r.j.Plan.Compute, Nodes: 1, Processes: 1, MaxAttempts: maxAttempts, Priority: priorityReplica}
	if code := d.Spec.CodeConfiguration; code != nil {
		r.j.Spec.CodeID = code.CodeID
		r.code()
		code.CodeID = cmp.Or(r.j.Spec.CodeID, code.CodeID)
	}
	r.j.Spec.EnvironmentID = d.Spec.EnvironmentID
	r.environment(comp)
	d.Spec.EnvironmentID = r.j.Spec.EnvironmentID
	r.variables()
	r.model()
	r.limits()
	r.collections()
	if len(r.errs) == 0 {
		r.serve(comp)
	}
	if len(r.errs) == 1 {
		return nil, nil, &r.errs[0]
	}
	if len(r.errs) > 1 {
		return nil, nil, &trainyard.Error{Code: trainyard.CodeInvalid, Message: fmt.Sprintf("deployment %q has %d errors", d.Name, len(r.errs)), Target: d.Name, Details: r.errs}
	}
	return &trainyard.ReplicaPlan{Spec: r.j.Spec, Plan: r.j.Plan}, r.warnings, nil
}

// deploying resolves a deployment as a job is resolved.
type deploying struct {
	resolver
	e *trainyard.OnlineEndpoint
	d *trainyard.OnlineDeployment

	modelType, modelName, modelVersion, modelRoot string
	modelKey                                      string
	below                                         []string          // the model's files, where it is a folder
	files                                         map[string][]byte // MLmodel and what stands beside it
}

// kind fills in what the deployment is, where the file leaves it to the endpoint.
func (r *deploying) kind() {
	s := &r.d.Spec
	if s.EndpointComputeType == "" {
		s.EndpointComputeType = trainyard.ServeManaged
		if r.e.Spec.Compute != "" || s.Compute != "" {
			s.EndpointComputeType = trainyard.ServeCompute
		}
	}
	i := slices.IndexFunc(trainyard.ServeTypes, func(t string) bool { return strings.EqualFold(t, s.EndpointComputeType) })
	if i < 0 {
		r.fail("endpointComputeType is %q, want one of %s", s.EndpointComputeType, strings.Join(trainyard.ServeTypes, ", "))
		return
	}
	s.EndpointComputeType = trainyard.ServeTypes[i]
}

// sizes checks numbers.
func (r *deploying) sizes() {
	d := r.d
	if d.Instances == 0 {
		d.Instances = 1
	}
	if d.Instances < 0 || d.Instances > mostInstances {
		r.fail("instance_count is %d, want 1 to %d", d.Instances, mostInstances)
	}
	s := d.Spec.ScaleSettings
	if s == nil {
		d.Spec.ScaleSettings = &trainyard.ReplicaScaling{ScaleType: "Default"}
		return
	}
	if s.ScaleType == "" || strings.EqualFold(s.ScaleType, "Default") {
		s.ScaleType = "Default"
		return
	}
	if !strings.EqualFold(s.ScaleType, "TargetUtilization") {
		r.fail("scale_settings.type is %q, want default or target_utilization", s.ScaleType)
		return
	}
	s.ScaleType = "TargetUtilization"
	if s.MinInstances != nil && s.MaxInstances != nil && *s.MinInstances > *s.MaxInstances {
		r.fail("scale_settings: min_instances %d is more than max_instances %d", *s.MinInstances, *s.MaxInstances)
	}
	if s.MinInstances != nil && (*s.MinInstances < 0 || *s.MinInstances > mostInstances) {
		r.fail("scale_settings.min_instances is %d, want 0 to %d", *s.MinInstances, mostInstances)
	}
	if s.MaxInstances != nil && (*s.MaxInstances < 1 || *s.MaxInstances > mostInstances) {
		r.fail("scale_settings.max_instances is %d, want 1 to %d", *s.MaxInstances, mostInstances)
	}
	if m := strings.ToLower(s.Metric); !slices.Contains([]string{"", "concurrency", "rate", "cpu", "gpu", "queue"}, m) {
		r.fail("scale_settings.metric is %q, want concurrency, rate, cpu, gpu or queue", s.Metric)
	}
	if s.Target < 0 || s.TargetUtilizationPercentage < 0 || s.TargetUtilizationPercentage > 100 {
		r.fail("scale_settings: target must be more than 0, and target_utilization_percentage 1 to 100")
	}
	for name, text := range map[string]string{"stable_window": s.StableWindow, "panic_window": s.PanicWindow, "scale_to_zero_after": s.ScaleToZeroAfter, "polling_interval": s.PollingInterval} {
		if text != "" {
			if _, err := trainyard.ParseISODuration(text); err != nil {
				r.fail("scale_settings.%s: %v", name, err)
			}
		}
	}
	for _, f := range s.Schedules {
		if f.MinInstances < 0 || f.MinInstances > mostInstances {
			r.fail("scale_settings.schedules: min_instances is %d, want 0 to %d", f.MinInstances, mostInstances)
		}
	}
	if _, err := floor(s.Schedules, 0, r.c.Now()); err != nil {
		r.fail("scale_settings.%v", err)
	}
}

// where finds the compute that replicas run on.
func (r *deploying) where() *trainyard.Compute {
	s := &r.d.Spec
	res := &trainyard.JobResources{InstanceType: s.InstanceType}
	r.j.Spec.Resources = res
	switch s.EndpointComputeType {
	case trainyard.ServeManaged:
		if place := cmp.Or(r.d.Location, r.e.Location); place != "" {
			res.Locations = []string{place}
		}
		return r.serverless()
	case trainyard.ServeLocal, trainyard.ServeContainer:
		r.j.Spec.ComputeID = trainyard.LocalCompute
		comp := r.compute()
		if comp != nil && s.EndpointComputeType == trainyard.ServeContainer && !r.c.contains(r.ctx, comp) {
			r.fail("a container instance needs a container engine on this computer, and there is none: install Docker, or deploy with type local or managed")
		}
		return comp
	}
	r.j.Spec.ComputeID = cmp.Or(s.Compute, r.e.Spec.Compute)
	if r.j.Spec.ComputeID == "" {
		r.fail("a deployment of type %s needs a compute: write compute: azureml:NAME in the endpoint's or the deployment's file", s.EndpointComputeType)
		return nil
	}
	comp := r.compute()
	if comp == nil {
		return nil
	}
	kube := strings.EqualFold(comp.Spec.ComputeType, "Kubernetes")
	if s.EndpointComputeType == trainyard.ServeKubernetes && !kube {
		r.fail("compute %s is of type %s, and the deployment is for Kubernetes; attach a cluster, or write type: attached", comp.Name, comp.Spec.ComputeType)
		return nil
	}
	if kube {
		s.EndpointComputeType = trainyard.ServeKubernetes
	}
	s.Compute = comp.ID()
	return comp
}

// model finds the model's files.
func (r *deploying) model() {
	ref := r.d.Spec.Model
	if ref == "" {
		return
	}
	in := trainyard.TaskInput{Type: "custom_model", URI: ref, Mode: "ReadOnlyMount"}
	switch {
	case strings.HasPrefix(ref, "runs:/"):
		run, rest, _ := strings.Cut(strings.TrimPrefix(ref, "runs:/"), "/")
		in.URI = "azureml://jobs/" + run + "/outputs/artifacts/paths/" + rest
	case !strings.Contains(ref, "://"):
		res, err := r.asset(trainyard.KindModel, ref)
		if err != nil {
			r.failed(err)
			return
		}
		var p struct{ ModelType, ModelURI string }
		if err := json.Unmarshal(res.Properties, &p); err != nil {
			r.fail("model %s is not readable: %v", ref, err)
			return
		}
		r.modelName, r.modelVersion, r.modelType = res.Name, res.Version, strings.ToLower(p.ModelType)
		r.d.Spec.Model = r.j.Scope.Child("models", res.Name, "versions", res.Version)
		in.URI = p.ModelURI
		if strings.HasPrefix(in.URI, "runs:/") {
			run, rest, _ := strings.Cut(strings.TrimPrefix(in.URI, "runs:/"), "/")
			in.URI = "azureml://jobs/" + run + "/outputs/artifacts/paths/" + rest
		}
	}
	if err := r.locate(&in); err != nil {
		r.fail("model: %v", err)
		return
	}
	if in.Key == "" {
		r.fail("model: %s is not in this server's store; register it from a local folder or a job's output", ref)
		return
	}
	r.modelKey = strings.TrimRight(in.Key, "/")
	r.modelRoot = path.Base(r.modelKey)
	files, err := r.c.Blobs.List(r.ctx, r.modelKey)
	if err != nil {
		r.failed(err)
		return
	}
	size, single := int64(0), false
	for _, f := range files {
		if f.Key == r.modelKey {
			single = true
			size += f.Size
		} else if rest, ok := strings.CutPrefix(f.Key, r.modelKey+"/"); ok {
			r.below = append(r.below, rest)
			size += f.Size
		}
	}
	switch {
	case !single && len(r.below) == 0:
		r.fail("model: there is nothing at %s", in.URI)
	case r.d.Spec.EndpointComputeType == trainyard.ServeContainer && size >= containerModel:
		r.fail("a container instance serves models of less than 1 GB, and this one is %.1f GB; deploy with type managed for more", float64(size)/(1<<30))
	}
	r.j.Plan.Inputs = map[string]trainyard.TaskInput{"model": {Type: modelInput(single), URI: in.URI, Key: r.modelKey, Mode: "ReadOnlyMount"}}
	if !single {
		r.readModel(files)
	}
}

func modelInput(single bool) string {
	if single {
		return "uri_file"
	}
	return "custom_model"
}

// readModel fetches the few small files by which an MLflow model says what it is.
func (r *deploying) readModel(files []trainyard.BlobInfo) {
	r.files = map[string][]byte{}
	for _, f := range files {
		name := strings.TrimPrefix(f.Key, r.modelKey+"/")
		if !slices.Contains([]string{"MLmodel", "conda.yaml", "requirements.txt"}, name) || f.Size > 1<<20 {
			continue
		}
		body, _, err := r.c.Blobs.Open(r.ctx, f.Key, 0)
		if err != nil {
			r.failed(err)
			return
		}
		data, err := io.ReadAll(io.LimitReader(body, 1<<20))
		body.Close()
		if err != nil {
			r.failed(err)
			return
		}
		r.files[name] = data
	}
	if r.modelType == "" && r.files["MLmodel"] != nil {
		r.modelType = "mlflow_model"
	}
}

// serve asks what a replica runs.
func (r *deploying) serve(comp *trainyard.Compute) {
	s, p := &r.d.Spec, &r.j.Plan
	script := ""
	if s.CodeConfiguration != nil {
		script = s.CodeConfiguration.ScoringScript
	}
	if modelserver.TritonModel(r.modelType, script) {
		r.triton(comp)
	} else if s.EndpointComputeType == trainyard.ServeLocal && p.Environment != nil && p.Environment.CondaFile != "" {
		p.Environment = plan(p.Environment.Name, p.Environment.CondaFile) // a process on this computer: quicker to try out than a container
	}
	contained := p.Environment.Contained()
	if s.EndpointComputeType == trainyard.ServeContainer && !contained {
		r.fail("a container instance runs an image, and environment %s has none; write image: in it, or deploy with type local", cmp.Or(s.EnvironmentID, "(none)"))
		return
	}
	req := modelserver.Request{ModelName: r.modelName, ModelVersion: r.modelVersion, ModelType: cmp.Or(r.modelType, "custom_model"), ModelRoot: r.modelRoot,
		HasModel: r.modelKey != "", ModelFiles: r.below, ScoringScript: script, Environment: p.Environment, Contained: contained, ModelMountPath: s.ModelMountPath,
		MLmodel: r.files["MLmodel"], ModelConda: r.files["conda.yaml"], ModelRequirements: r.files["requirements.txt"],
		Env: s.EnvironmentVariables, Spec: s, InferenceRoutes: r.routes()}
	made, err := modelserver.Make(req)
	if err != nil {
		r.failed(err)
		return
	}
	for _, w := range made.Warnings {
		r.warn("%s", w)
	}
	r.j.Spec.Command = made.Command
	r.j.Spec.EnvironmentVariables = made.Env
	if s.EndpointComputeType == trainyard.ServeContainer { // it has no GPU, also where the computer has some
		if made.Env == nil {
			r.j.Spec.EnvironmentVariables = map[string]string{}
		}
		r.j.Spec.EnvironmentVariables["CUDA_VISIBLE_DEVICES"] = "-1"
	}
	p.Environment = made.Environment
	if made.Code != "" {
		p.CodeKey, p.CodeHash = ServerCode(), modelserver.Hash()
	}
	serve := made.Serve
	serve.Endpoint, serve.Deployment = r.e.Name, r.d.Name
	p.Serve = &serve
}

// triton gives a model of Triton's what its author leaves out.
func (r *deploying) triton(comp *trainyard.Compute) {
	s, p := &r.d.Spec, &r.j.Plan
	if s.EnvironmentID == "" && comp != nil && r.c.contains(r.ctx, comp) {
		p.Environment = modelserver.TritonEnvironment()
		r.warn("the deployment names no environment: the model %s is served by the image %s", r.modelName, p.Environment.Image)
	}
	if s.EndpointComputeType == trainyard.ServeKubernetes && r.j.Spec.Resources.ShmSize == "" {
		r.j.Spec.Resources.ShmSize = modelserver.TritonShm // what a pod has by itself is 64 MB, and that is for its models in Python together
	}
}

// routes are the environment's own routes and ports, of an image that serves by itself.
func (r *deploying) routes() *modelserver.Routes {
	ref := r.d.Spec.EnvironmentID
	if ref == "" || !strings.Contains(ref, "/environments/") {
		return nil
	}
	res, err := r.asset(trainyard.KindEnvironment, ref)
	if err != nil {
		return nil // said when the environment was resolved
	}
	var p struct {
		InferenceConfig *modelserver.Routes `json:"inferenceConfig"`
	}
	if err := json.Unmarshal(res.Properties, &p); err != nil {
		r.fail("environment %s: its inference_config is not readable: %v", res.Name, err)
	}
	return p.InferenceConfig
}

// ServerCode is where the code of model servers is among snapshots. It is part of this program, so every workspace may read it.
func ServerCode() string { return "codes/modelserver-" + modelserver.Hash() }

// putServerCode stores the code of model servers, so that it reaches nodes as any snapshot does.
func (c *Control) putServerCode(ctx context.Context) error {
	have, err := c.Blobs.List(ctx, ServerCode()+"/")
	if err != nil || len(have) == len(modelserver.Files()) {
		return err
	}
	for name, data := range modelserver.Files() {
		if err := c.Blobs.Put(ctx, ServerCode()+"/"+name, strings.NewReader(string(data))); err != nil {
			return fmt.Errorf("store the code of model servers: %w", err)
		}
	}
	return nil
}

package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/catalog"
)

// maxAttempts is how often a job is tried when its nodes are lost or cannot start it.
const maxAttempts = 3

// resolve makes j.Plan of j.Spec: every reference followed, every default filled in. It returns what the user should know: what was
// understood and is not acted on. All that is wrong is said at once.
func (c *Control) resolve(ctx context.Context, j *trainyard.Job) (warnings []string, err error) {
	if strings.EqualFold(j.Spec.JobType, "Pipeline") {
		return c.resolvePipeline(ctx, j)
	}
	r := &resolver{c: c, ctx: ctx, j: j}
	if !strings.EqualFold(j.Spec.JobType, "Command") {
		return nil, trainyard.Errorf(trainyard.CodeUnsupported, "jobs of type %q are not run by this build, only Command and Pipeline jobs", j.Spec.JobType)
	}
	j.Spec.JobType = "Command"
	if strings.TrimSpace(j.Spec.Command) == "" {
		r.fail("the job has no command")
	}
	j.Plan = trainyard.JobPlan{Nodes: 1, Processes: 1, MaxAttempts: maxAttempts}
	r.queue()
	comp := r.compute()
	r.shape(comp)
	r.timeout()
	r.code()
	r.environment(comp)
	r.inputs()
	r.outputs()
	r.commandNames()
	r.variables()
	r.ignored(comp)
	return r.result()
}

// result is the warnings, or all that is wrong in one error.
func (r *resolver) result() (warnings []string, err error) {
	switch len(r.errs) {
	case 0:
		return r.warnings, nil
	case 1:
		return nil, &r.errs[0]
	}
	return nil, &trainyard.Error{Code: trainyard.CodeInvalid, Message: fmt.Sprintf("job %q has %d errors", r.j.Name, len(r.errs)), Target: r.j.Name, Details: r.errs}
}

type resolver struct {
	c        *Control
	ctx      context.Context // of one call of resolve
	j        *trainyard.Job
	serves   bool // it is a deployment's replica that will be made of j
	errs     []trainyard.Error
	warnings []string
}

// word is what j is called in messages.
func (r *resolver) word() string {
	if r.serves {
		return "deployment"
	}
	return "job"
}

func (r *resolver) fail(format string, args ...any) {
	r.errs = append(r.errs, *trainyard.Invalid(format, args...))
}

func (r *resolver) failed(err error) {
	r.errs = append(r.errs, trainyard.Error{Code: trainyard.CodeOf(err), Message: err.Error()})
}

func (r *resolver) warn(format string, args ...any) {
	r.warnings = trainyard.Warn(r.warnings, fmt.Sprintf(format, args...))
}

// compute finds the target. Ids, azureml: references and bare names are all taken.
func (r *resolver) compute() *trainyard.Compute {
	ref := strings.TrimPrefix(r.j.Spec.ComputeID, "azureml:")
	name := ref
	if id, err := trainyard.ParseID(ref); err == nil && id.Kind == trainyard.KindCompute {
		name = id.Name
	} else if strings.Contains(ref, "/") {
		name = path.Base(ref)
	}
	if name == "" || strings.EqualFold(name, "serverless") {
		return r.serverless()
	}
	r.j.Plan.Compute = strings.ToLower(name)
	comp, err := r.c.Store.Compute(r.ctx, trainyard.MakeComputeKey(r.j.Scope, name))
	if trainyard.IsNotFound(err) {
		near := ""
		there := r.c.computeNames(r.ctx, r.j.Scope)
		if n := catalog.Nearest(name, there); len(n) > 0 {
			near = "; did you mean " + n[0] + "?"
		}
		r.fail("compute %q does not exist in workspace %q%s; there are: %s", name, r.j.Scope.Workspace, near, strings.Join(there, ", "))
		return nil
	}
	if err != nil {
		r.failed(err)
		return nil
	}
	r.j.Spec.ComputeID = comp.ID()
	return comp
}

// shaped says whether a compute that is not a cluster of ours has instance types of its own.
func shaped(comp *trainyard.Compute) bool {
	return strings.EqualFold(comp.Spec.ComputeType, "Kubernetes") || strings.EqualFold(comp.Spec.ComputeType, "AKS")
}

// shape works out how many nodes and processes the job is.
func (r *resolver) shape(comp *trainyard.Compute) {
	p := &r.j.Plan
	if res := r.j.Spec.Resources; res != nil {
		switch {
		case res.InstanceCount < 0 || res.InstanceCount > 10000:
			r.fail("resources.instance_count is %d, want 1 to 10000", res.InstanceCount)
		case res.InstanceCount > 0:
			p.Nodes = res.InstanceCount
		}
		if comp != nil && comp.Elastic() && res.InstanceType != "" && !strings.EqualFold(res.InstanceType, comp.Spec.Properties.VMSize) {
			r.warn("resources.instance_type %s is not acted on: the nodes of %s are %s", res.InstanceType, comp.Name, comp.Spec.Properties.VMSize)
		}
	}
	if res := r.j.Spec.Resources; comp != nil && res != nil && res.InstanceType != "" && !comp.Elastic() && !shaped(comp) {
		r.warn("resources.instance_type %s is not acted on: %s has what its machines have", res.InstanceType, comp.Name)
	}
	if comp != nil && comp.Spec.ComputeType == trainyard.ComputeLocal && p.Nodes > 1 {
		r.warn("resources.instance_count %d: local is one computer, so the processes of all %d nodes run on it side by side", p.Nodes, p.Nodes)
	}
	if comp != nil && !comp.Elastic() && !comp.Hosted() && p.Nodes > 1 {
		r.fail("resources.instance_count is %d, and %s is one machine: leave it out, or name a cluster", p.Nodes, comp.Name)
	}
	if comp != nil && comp.Elastic() && p.Nodes > maxNodes(comp) {
		r.warn("the job asks for %d nodes and %s has at most %d: it waits until max_instances is raised", p.Nodes, comp.Name, maxNodes(comp))
	}
	d := r.j.Spec.Distribution
	if d == nil {
		return
	}
	if d.ProcessCountPerInstance < 0 || d.ProcessCountPerInstance > 1024 {
		r.fail("distribution.process_count_per_instance is %d, want 1 to 1024", d.ProcessCountPerInstance)
		return
	}
	p.Processes = max(1, d.ProcessCountPerInstance)
	if strings.EqualFold(d.DistributionType, "TensorFlow") {
		total := max(d.WorkerCount, p.Nodes) + d.ParameterServerCount
		p.Processes = (total + p.Nodes - 1) / p.Nodes
	}
	switch strings.ToLower(d.DistributionType) {
	case "", "pytorch", "tensorflow", "mpi":
	default:
		r.errs = append(r.errs, *trainyard.Errorf(trainyard.CodeUnsupported, "distribution type %s is not in this build; pytorch, tensorflow and mpi are",
			strings.ToLower(d.DistributionType)))
	}
}

func (r *resolver) timeout() {
	l := r.j.Spec.Limits
	if l == nil || l.Timeout == "" {
		return
	}
	d, err := trainyard.ParseISODuration(l.Timeout)
	if err != nil || d <= 0 {
		r.fail("limits.timeout is %q, want an ISO 8601 duration of more than zero such as PT1H", l.Timeout)
		return
	}
	r.j.Plan.Timeout = d
}

// code finds the snapshot.
func (r *resolver) code() {
	ref := r.j.Spec.CodeID
	if ref == "" {
		return
	}
	res, err := r.asset(trainyard.KindCode, ref)
	if err != nil {
		r.failed(err)
		return
	}
	var props struct {
		CodeURI    string `json:"codeUri"`
		Properties struct {
			Hash string `json:"hash_sha256"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(res.Properties, &props); err != nil {
		r.fail("code %s is not readable: %v", ref, err)
		return
	}
	key, ok := blobKey(props.CodeURI)
	if !ok {
		r.fail("code %s is at %q, which is not in this server's store: upload it again", ref, props.CodeURI)
		return
	}
	r.j.Spec.CodeID = r.j.Scope.Child("codes", res.Name, "versions", res.Version)
	r.j.Plan.CodeKey, r.j.Plan.CodeHash = key, props.Properties.Hash
}

// environment finds the environment: an asset of the workspace, or a curated one of the registry.
func (r *resolver) environment(comp *trainyard.Compute) {
	ref := r.j.Spec.EnvironmentID
	if ref == "" {
		return
	}
	if catalog.IsCurated(ref) {
		cur, err := catalog.Resolve(ref)
		if err != nil {
			r.failed(err)
			return
		}
		r.j.Plan.Environment = plan(cur.Name, cur.Conda(r.c.Host.GPUs > 0)) // of our own making: its packages without its image
		return
	}
	res, err := r.asset(trainyard.KindEnvironment, ref)
	if err != nil {
		r.failed(err)
		return
	}
	var p struct {
		Image     string `json:"image"`
		CondaFile string `json:"condaFile"`
		Build     *struct {
			ContextURI string `json:"contextUri"`
			Dockerfile string `json:"dockerfilePath"`
		} `json:"build"`
	}
	if err := json.Unmarshal(res.Properties, &p); err != nil {
		r.fail("environment %s is not readable: %v", ref, err)
		return
	}
	name := res.Name + ":" + res.Version
	if res.Name == trainyard.AnonymousEnvironment {
		name = "of this " + r.word()
	}
	r.j.Spec.EnvironmentID = r.j.Scope.Child("environments", res.Name, "versions", res.Version)
	e := plan(name, p.CondaFile)
	switch {
	case comp == nil: // said already
	case p.Build != nil && p.Image == "" && comp.Engine != "" && r.c.contains(r.ctx, comp):
		r.fail("environment %s is a Docker build context, and images are not built for %s: build it, push it to a registry that the cluster reaches, and name it as the environment's image", name, comp.Name)
	case r.c.contains(r.ctx, comp):
		e.Image = p.Image
		if p.Build != nil && p.Image == "" {
			if e.Context, err = r.buildContext(res.Scope, p.Build.ContextURI); err != nil {
				r.fail("the build context of environment %s: %v", name, err)
			}
			e.Dockerfile = p.Build.Dockerfile
		}
		e.Hash = digest(e.Hash, e.Image, e.Context, e.Dockerfile)
	case p.Build != nil && p.Image == "":
		r.fail("environment %s is a Docker build context, and %s, or use an image with a conda_file, or a curated environment", name, uncontained(comp))
	case p.CondaFile == "" && r.serves:
		r.warn("the image %s of environment %s is not used, for the nodes have no container engine: if it has packages that the scoring script imports, "+
			"name them in a conda_file of the environment", p.Image, name)
		return
	case p.CondaFile == "":
		r.warn("the image %s of environment %s is not used: nodes without a container engine run the job with their own Python", p.Image, name)
		return
	case p.Image != "":
		r.warn("the image %s of environment %s is not used: nodes without a container engine build its conda_file on their own Python", p.Image, name)
	}
	r.j.Plan.Environment = e
}

// plan is an environment as nodes without containers build it.
func plan(name, conda string) *trainyard.EnvironmentPlan {
	return &trainyard.EnvironmentPlan{Name: name, Hash: digest(strings.TrimSpace(strings.ReplaceAll(conda, "\r\n", "\n"))), CondaFile: conda}
}

// digest is a hash of some texts.
func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// contains says whether a compute's nodes run containers. Until the agent of an attached machine has said what is there, that is what was
// seen when it was attached; nodes of a cluster that is at zero are taken to have what its last one had, or what this machine's own have, if that
// is where they will be.
func (c *Control) contains(ctx context.Context, comp *trainyard.Compute) bool {
	if comp.Engine != "" {
		k := c.kind(comp.Spec.ComputeType)
		return k != nil && k.Containers
	}
	local := trainyard.MakeComputeKey(trainyard.DefaultScope(), trainyard.LocalCompute)
	like, known := false, false
	for _, n := range c.Store.AllNodes() {
		switch n.Compute {
		case comp.Key():
			if known = known || n.Epoch > 0; len(n.Engines) > 0 {
				return true
			}
		case local:
			like = len(n.Engines) > 0
		}
	}
	l := c.place(comp.Where)
	return !known && (len(comp.Engines) > 0 || like && l != nil && l.Driver == "process")
}

// uncontained says why nothing on a compute runs in containers, and what could change that.
func uncontained(comp *trainyard.Compute) string {
	if comp.Engine != "" {
		return fmt.Sprintf("%s starts jobs without containers; name another compute", comp.Name)
	}
	why := fmt.Sprintf("the nodes of %s have no container engine; install Docker there", comp.Name)
	if comp.Spec.ComputeType == trainyard.ComputeCluster {
		why += " (a cluster that never had a node is not known to have it before one is up, as with min_instances 1)"
	}
	return why
}

// asset follows any spelling of a reference to a versioned asset of the job's workspace.
func (r *resolver) asset(kind trainyard.Kind, ref string) (*trainyard.Resource, error) {
	if id, err := trainyard.ParseID(ref); err == nil {
		if id.Kind != kind {
			return nil, trainyard.Invalid("%q is not one of %s", ref, kind)
		}
		version := id.Version
		if version == "" {
			version = "@" + id.Label
		}
		return r.c.Resource(r.ctx, id.Scope, kind, id.Name, version)
	}
	s := strings.TrimPrefix(ref, "azureml:")
	if name, label, ok := strings.Cut(s, "@"); ok {
		return r.c.Resource(r.ctx, r.j.Scope, kind, name, "@"+label)
	}
	name, version, ok := strings.Cut(s, ":")
	if !ok || version == "latest" {
		version = "@latest"
	}
	return r.c.Resource(r.ctx, r.j.Scope, kind, name, version)
}

// commandNames checks that the command names only inputs and outputs that exist.
func (r *resolver) commandNames() {
	for _, e := range trainyard.Expressions(r.j.Spec.Command) {
		kind, name, _ := strings.Cut(e, ".")
		name, _, _ = strings.Cut(name, ".")
		switch kind {
		case "inputs":
			switch _, ok := r.j.Spec.Inputs[name]; {
			case ok:
			case strings.Contains(r.j.Spec.Command, "$[["): // an optional one that is given nothing: its part of the command is left out
				r.j.Plan.Inputs[name] = trainyard.TaskInput{Type: "literal", Missing: true}
			default:
				r.fail("the command uses ${{%s}} and the job has no input %q; it has: %s", e, name, names(r.j.Spec.Inputs))
			}
		case "outputs":
			if _, ok := r.j.Spec.Outputs[name]; !ok {
				r.fail("the command uses ${{%s}} and the job has no output %q; it has: %s", e, name, names(r.j.Spec.Outputs))
			}
		default:
			r.fail("the command uses ${{%s}}; only inputs and outputs can stand there", e)
		}
	}
}

// variables checks what the operating system would refuse.
func (r *resolver) variables() {
	for _, name := range slices.Sorted(maps.Keys(r.j.Spec.EnvironmentVariables)) {
		if name == "" || strings.ContainsAny(name, "=\x00 \t\n") {
			r.fail("environment_variables: %q cannot be a variable's name: no '=', no blanks, not empty", name)
		}
		if strings.Contains(r.j.Spec.EnvironmentVariables[name], "\x00") {
			r.fail("environment_variables.%s holds a NUL character", name)
		}
	}
	if strings.Contains(r.j.Spec.Command, "\x00") {
		r.fail("the command holds a NUL character")
	}
}

func names[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

// ignored says which fields were understood and are not acted on.
func (r *resolver) ignored(comp *trainyard.Compute) {
	s := &r.j.Spec
	for _, name := range slices.Sorted(maps.Keys(s.Services)) {
		r.warn("services.%s is not acted on: interactive services are not in this build", name)
	}
	if len(s.Identity) > 0 && string(s.Identity) != "null" {
		r.warn("identity is not acted on: the job runs as the node's own user")
	}
	r.containerOptions(comp)
	if q := s.QueueSettings; q != nil && strings.EqualFold(q.JobTier, "spot") && comp != nil && !comp.Serverless && !comp.LowPriority() {
		r.warn("queue_settings.job_tier spot puts the job behind all others of %s and changes nothing about its nodes; for low-priority ones name a cluster that has them, or no compute", comp.Name)
	}
	if d := s.Distribution; d != nil && strings.EqualFold(d.DistributionType, "Mpi") {
		r.warn("distribution mpi: the processes are started with OMPI_COMM_WORLD_* set, not by mpirun")
	}
	for _, k := range slices.Sorted(maps.Keys(s.Extra)) {
		if v := string(s.Extra[k]); v != "null" && v != "{}" && v != "[]" && v != `""` && k != "status" && k != "parameters" && k != "componentId" {
			r.warn("%s is kept and not acted on", k)
		}
	}
}

// containerOptions says which settings of containers are not acted on where the job runs.
func (r *resolver) containerOptions(comp *trainyard.Compute) {
	res, env := r.j.Spec.Resources, r.j.Plan.Environment
	if res == nil || comp == nil {
		return
	}
	pods := comp.Engine != "" && r.c.contains(r.ctx, comp) // all its tasks run in containers, which are not Docker's
	contained := pods || env.Contained()
	if res.ShmSize != "" && !contained {
		r.warn("resources.shm_size is not acted on: it bounds containers, and the job runs as a process")
	}
	switch {
	case res.DockerArgs == "" || contained && !pods:
	case pods:
		r.warn("resources.docker_args is not acted on: Docker does not run the containers of %s", comp.Name)
	default:
		r.warn("resources.docker_args is not acted on: the job runs as a process")
	}
}

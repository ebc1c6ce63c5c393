package spec

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Job is a job ready to be sent, once every Upload is done, what it brings along is registered, and Finish, if there is one, was called.
type Job struct {
	Name        string // "" if the file has none: the caller makes one
	Spec        *trainyard.JobSpec
	Uploads     []Upload // of the code, the inputs, and Environment's build context
	Environment *Asset   // written inside the job; Spec.EnvironmentID names it already. Its Uploads are in Uploads
	Warnings    []string

	// Of a pipeline: the environments that its steps bring along, and its component, which may have no name: see BatchDeployment.
	Environments []*Asset
	Component    *Asset
	SetComponent func(id string)
	Finish       func()
}

// Job translates a command or pipeline job for the workspace of the scope.
func (d *Document) Job(scope trainyard.Scope) (*Job, error) {
	if d.Kind == PipelineJob {
		return d.pipelineJob(scope)
	}
	f, err := d.reader(CommandJob)
	if err != nil {
		return nil, err
	}
	j := &Job{Spec: &trainyard.JobSpec{JobType: "Command"}}
	t := jobTranslator{f, scope, d.limit, j}
	t.names()
	t.code()
	j.Spec.ComputeID = f.compute("compute", scope)
	t.environment()
	t.inputs()
	t.outputs()
	t.command()
	t.distribution()
	t.resources()
	t.limits()
	t.queue()
	t.unacted()
	if err := d.end(f); err != nil {
		return nil, err
	}
	j.Warnings = f.p.notes
	return j, nil
}

type jobTranslator struct {
	*fields
	scope trainyard.Scope
	limit int64 // of a build context, in bytes
	job   *Job
}

func (t *jobTranslator) names() {
	t.silent("$schema", "id", "type", "status", "creation_context", "log_files", "parameters")
	t.job.Name = t.name("name")
	s := t.job.Spec
	s.DisplayName = t.text("display_name")
	s.Description = t.text("description")
	s.ExperimentName = t.text("experiment_name")
	s.Tags = t.texts("tags", false)
	s.Properties = t.texts("properties", false)
	s.EnvironmentVariables = t.texts("environment_variables", true)
}

func (t *jobTranslator) code() {
	n := t.get("code")
	if n == nil {
		return
	}
	text := t.text("code")
	if n.kind != scalar {
		return
	}
	if strings.HasPrefix(text, "azureml:") || strings.HasPrefix(text, "/subscriptions/") {
		t.job.Spec.CodeID = t.assetID(n, "code", t.scope, trainyard.KindCode)
		return
	}
	if strings.HasPrefix(text, "git+") || strings.HasPrefix(text, "git@") || remote(text) {
		t.wrong(n, "code", "a folder or a file on this machine: fetch it first")
		return
	}
	if path, isDir, ok := t.local(n, "code"); ok {
		spec := t.job.Spec
		t.job.Uploads = append(t.job.Uploads, Upload{Field: "code", Path: path, IsDir: isDir, What: "code", Set: func(uri string) { spec.CodeID = uri }})
	}
}

func (t *jobTranslator) distribution() {
	f := t.sub("distribution")
	if f.n == nil {
		return
	}
	f.need("type")
	d := &trainyard.Distribution{DistributionType: f.choice("type", "pytorch", "PyTorch", "tensorflow", "TensorFlow", "mpi", "Mpi", "ray", "Ray", "tensor_flow", "(TensorFlow)")}
	switch d.DistributionType {
	case "TensorFlow":
		d.WorkerCount = or(f.integer("worker_count", 1), 0)
		d.ParameterServerCount = or(f.integer("parameter_server_count", 0), 0)
	case "Ray":
		for _, name := range []string{"port", "address", "include_dashboard", "dashboard_port", "head_node_additional_args", "worker_node_additional_args"} {
			f.noted(name, "ranks of a Ray job start as those of an MPI job do")
		}
	case "": // a problem was said; the fields of every type are known
		f.silent("worker_count", "parameter_server_count")
		fallthrough
	default:
		d.ProcessCountPerInstance = or(f.integer("process_count_per_instance", 1), 0)
	}
	f.done()
	t.job.Spec.Distribution = d
}

var shmPattern = regexp.MustCompile(`(?i)^[1-9][0-9]*[bkmg]?$`)

func (t *jobTranslator) resources() {
	f := t.sub("resources")
	if f.n == nil {
		return
	}
	r := &trainyard.JobResources{InstanceCount: or(f.integer("instance_count", 1), 0), InstanceType: f.text("instance_type")}
	if n := f.get("shm_size"); n != nil {
		r.ShmSize = n.text
		if n.kind != scalar || !shmPattern.MatchString(n.text) {
			f.wrong(n, "shm_size", "a size such as 2g or 512m")
		}
	}
	if n := f.get("docker_args"); n != nil {
		r.DockerArgs = n.text
		if n.kind == list {
			r.DockerArgs = strings.Join(f.list("docker_args"), " ")
		}
	}
	if f.has("locations") {
		r.Locations = f.list("locations")
	}
	if n := f.noted("properties", "nothing here reads them"); n != nil {
		r.Properties = asJSON(n.plain())
	}
	f.noted("max_instance_count", "a job has the nodes that instance_count asks for")
	f.done()
	t.job.Spec.Resources = r
}

// list is a field that is a list of strings.
func (f *fields) list(name string) []string {
	n := f.get(name)
	if n == nil || n.kind != list {
		if n != nil {
			f.wrong(n, name, "a list")
		}
		return nil
	}
	var all []string
	for _, v := range n.values {
		if v.kind != scalar {
			f.wrong(v, name, "a list of strings")
		}
		all = append(all, v.text)
	}
	return all
}

func (t *jobTranslator) limits() {
	f := t.sub("limits")
	if f.n == nil {
		return
	}
	if n := f.get("timeout"); n != nil {
		seconds, ok := n.whole()
		if !ok || seconds < 1 {
			f.wrong(n, "timeout", "whole seconds, at least 1, such as 3600")
		} else {
			t.job.Spec.Limits = &trainyard.JobLimits{JobLimitsType: "Command", Timeout: trainyard.ISODuration(time.Duration(seconds) * time.Second)}
		}
	}
	f.done()
}

func (t *jobTranslator) queue() {
	f := t.sub("queue_settings")
	if f.n == nil {
		return
	}
	q := &trainyard.QueueSettings{}
	if f.has("job_tier") {
		q.JobTier = f.choice("job_tier", "spot", "Spot", "basic", "Basic", "standard", "Standard", "premium", "Premium", "null", "(Null)")
	}
	q.Priority = slices.Index([]string{"", "low", "medium", "high"}, f.choice("priority", "low", "low", "medium", "medium", "high", "high"))
	f.done()
	t.job.Spec.QueueSettings = q
}

// unacted reads what is kept with the job and shown, and changes nothing about how it runs.
func (t *jobTranslator) unacted() {
	if f := t.sub("identity"); f.n != nil {
		t.p.note("identity is kept and not acted on: jobs here run as the user of the node's agent")
		m := map[string]any{"identityType": f.choice("type", "user_identity", "UserIdentity", "managed", "Managed", "managed_identity", "Managed", "aml_token", "AMLToken")}
		for field, key := range map[string]string{"client_id": "clientId", "object_id": "objectId", "msi_resource_id": "resourceId"} {
			if text := f.text(field); text != "" {
				m[key] = text
			}
		}
		f.need("type")
		f.done()
		t.job.Spec.Identity = asJSON(m)
	}
	t.each("services", func(k, v *node, path string) {
		if s := t.service(v, path); s != nil {
			if t.job.Spec.Services == nil {
				t.job.Spec.Services = map[string]json.RawMessage{}
			}
			t.job.Spec.Services[k.text] = s
		}
	})
	if n := t.noted("parent_job_name", "jobs have no parents here"); n != nil {
		t.job.Spec.Extra = trainyard.Extra{"parentJobName": asJSON(t.text("parent_job_name"))}
	}
}

func (t *jobTranslator) service(v *node, path string) json.RawMessage {
	if v.kind != mapping {
		t.p.at(v.place, path, "got %s, want a map with type and perhaps port", v.words())
		return nil
	}
	f := &fields{p: t.p, n: v, path: path}
	kind := f.choice("type", "ssh", "SSH", "tensor_board", "TensorBoard", "vs_code", "VSCode", "jupyter_lab", "JupyterLab", "custom", "(Custom)",
		"tracking", "(Tracking)", "studio", "(Studio)", "tensorboard", "(TensorBoard)", "vscode", "(VSCode)", "jupyterlab", "(JupyterLab)")
	t.p.note("%s is kept and not acted on: this build opens no services beside a running job", path)
	m, props := map[string]any{"jobServiceType": kind}, map[string]any{}
	if port := f.integer("port", 0); port != nil {
		m["port"] = *port
	}
	if nodes := f.choice("nodes", "all", "All"); nodes != "" {
		m["nodes"] = map[string]any{"nodesValueType": nodes}
	}
	if dir := f.text("log_dir"); dir != "" {
		props["logDir"] = dir
	}
	if keys := f.text("ssh_public_keys"); keys != "" {
		props["sshPublicKeys"] = keys
	}
	for k, v := range f.texts("properties", false) {
		props[k] = v
	}
	if len(props) > 0 {
		m["properties"] = props
	}
	f.silent("endpoint", "status", "error_message")
	f.done()
	return asJSON(m)
}

func or(n *int, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return *n
}

// asJSON encodes what came of a document: maps, lists, strings, booleans and numbers, which always can be encoded.
func asJSON(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return data
}

package spec

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/trainyard/trainyard"
)

// OnlineDeployment is a deployment ready to be sent once every Upload is done, and Environment, Model and Data, where they are there, are
// registered.
type OnlineDeployment struct {
	Name      string // "" if the file has none
	Endpoint  string // "" if the file has none
	Location  string
	Tags      map[string]string
	Instances int
	Spec      trainyard.DeploymentSpec

	// Model is one that the deployment brings along. Its name is "" where the file has none: the caller names it for its content. SetModel
	// puts its ARM id where it belongs.
	Model       *Asset
	SetModel    func(id string)
	Environment *Asset   // written in place; Spec.EnvironmentID names it already. Its uploads are in Uploads
	Data        []*Asset // data assets that collections are kept in; Spec names them already
	Uploads     []Upload // of the code and the environment's build context; Model's are its own
	Typed       bool     // the file says of what kind the deployment is
	Warnings    []string
}

// serveWords are the values of a deployment's type, as files and ARM spell them.
var serveWords = []string{"managed", trainyard.ServeManaged, "kubernetes", trainyard.ServeKubernetes, "attached", trainyard.ServeCompute,
	"container_instance", trainyard.ServeContainer, "local", trainyard.ServeLocal, "azuremlcompute", "(" + trainyard.ServeCompute + ")",
	"containerinstance", "(" + trainyard.ServeContainer + ")"}

// OnlineDeployment translates an online deployment of any kind.
func (d *Document) OnlineDeployment(scope trainyard.Scope) (*OnlineDeployment, error) {
	f, err := d.reader(Deployment)
	if err != nil {
		return nil, err
	}
	f.silent("$schema", "id", "kind", "provisioning_state", "creation_context", "package_model", "with_package")
	dep := &OnlineDeployment{Name: f.endpointName("name", "deployment"), Endpoint: f.endpointName("endpoint_name", "endpoint"), Location: f.text("location"),
		Tags: f.texts("tags", false), Instances: or(f.integer("instance_count", 1), 1)}
	t := &deploymentTranslator{fields: f, scope: scope, limit: d.limit, dep: dep}
	s := &dep.Spec
	s.EndpointComputeType = t.kind(d.schemaName())
	s.Description = f.text("description")
	s.Properties = f.texts("properties", false)
	s.EnvironmentVariables = f.texts("environment_variables", true)
	s.InstanceType = f.text("instance_type")
	s.Compute = f.compute("compute", scope)
	s.ModelMountPath = f.text("model_mount_path")
	t.model()
	t.code()
	t.environment()
	t.requests()
	s.LivenessProbe, s.ReadinessProbe, s.StartupProbe = t.probe("liveness_probe"), t.probe("readiness_probe"), t.probe("startup_probe")
	t.scaling()
	t.containers()
	t.collector()
	t.unacted()
	if err := d.end(f); err != nil {
		return nil, err
	}
	dep.Warnings = f.p.notes
	return dep, nil
}

type deploymentTranslator struct {
	*fields
	scope trainyard.Scope
	limit int64 // of a build context, in bytes
	dep   *OnlineDeployment
}

// kind is where the deployment runs: as it says, as its $schema says, or as its fields show.
func (t *deploymentTranslator) kind(schema string) string {
	said := t.choice("type", serveWords...)
	t.dep.Typed = true
	switch {
	case said != "":
		return said
	case schema == "kubernetesonlinedeployment":
		return trainyard.ServeKubernetes
	case t.has("compute"):
		return trainyard.ServeCompute
	}
	t.dep.Typed = schema != ""
	return trainyard.ServeManaged
}

// model reads a reference to a model, an address of one, or one that is written in place or lies on this machine.
func (t *deploymentTranslator) model() {
	n := t.get("model")
	s := &t.dep.Spec
	switch {
	case n == nil:
		return
	case n.kind == list:
		t.wrong(n, "model", "azureml:NAME:VERSION, azureml:NAME@latest, a path, or a map with path")
		return
	case n.kind == scalar && remote(n.text):
		s.Model = t.uri(n, "model")
		return
	case n.kind == scalar && (strings.HasPrefix(n.text, "azureml:") || strings.HasPrefix(n.text, "/subscriptions/")):
		s.Model = t.assetID(n, "model", t.scope, trainyard.KindModel)
		return
	}
	f := &fields{p: t.p, n: n, path: "model"}
	if n.kind == scalar {
		if f.n = t.modelAlone(n); f.n == nil {
			return
		}
	}
	a := f.model()
	f.done()
	a.Properties["isAnonymous"] = a.Name == ""
	if uri, there := a.Properties["modelUri"].(string); there && a.Name == "" {
		s.Model = uri
		return
	}
	t.dep.Model, t.dep.SetModel = a, func(id string) { s.Model = id }
}

// modelAlone is a path of a model, alone, as the map that it is short for; nil, with a problem said, where nothing is there.
func (t *deploymentTranslator) modelAlone(n *node) *node {
	path := onDisk(n.text, n.src.dir)
	if _, err := os.Stat(path); err != nil {
		t.wrong(n, "model", "azureml:NAME:VERSION, azureml:NAME@latest, the address of a model, or a path on this machine"+placeholderHint(n.text))
		return nil
	}
	kind := "custom_model"
	if _, err := os.Stat(filepath.Join(path, mlmodel)); err == nil {
		kind = "mlflow_model"
	}
	word := func(text string) *node { return &node{place: n.place, text: text, value: text} }
	return &node{place: n.place, kind: mapping, keys: []*node{word("path"), word("type")}, values: []*node{n, word(kind)}}
}

// code reads code_configuration: a snapshot and the script in it.
func (t *deploymentTranslator) code() {
	f := t.sub("code_configuration")
	if f.n == nil {
		return
	}
	c := &trainyard.CodeConfiguration{ScoringScript: f.text("scoring_script")}
	t.dep.Spec.CodeConfiguration = c
	f.need("code")
	f.need("scoring_script")
	n := f.get("code")
	f.done()
	switch {
	case n == nil || n.kind != scalar:
	case strings.HasPrefix(n.text, "azureml:") || strings.HasPrefix(n.text, "/subscriptions/"):
		c.CodeID = f.assetID(n, "code", t.scope, trainyard.KindCode)
	case strings.HasPrefix(n.text, "git+") || strings.HasPrefix(n.text, "git@") || remote(n.text):
		f.wrong(n, "code", "a folder or a file on this machine: fetch it first")
	default:
		path, isDir, ok := f.local(n, "code")
		if !ok {
			return
		}
		if text := c.ScoringScript; isDir && text != "" {
			if _, _, there := (&fields{p: &problems{}}).local(&node{place: place{src: &source{dir: path}}, text: text}, ""); !there {
				f.p.at(f.place("scoring_script"), f.at("scoring_script"), "there is no %q in %s%s", text, path, placeholderHint(text))
			}
		}
		t.dep.Uploads = append(t.dep.Uploads, Upload{Field: f.at("code"), Path: path, IsDir: isDir, What: "code", Set: func(id string) { c.CodeID = id }})
	}
}

// environment reads what jobs read too.
func (t *deploymentTranslator) environment() {
	j := &jobTranslator{t.fields, t.scope, t.limit, &Job{Spec: &trainyard.JobSpec{}}}
	j.environment()
	t.dep.Spec.EnvironmentID, t.dep.Environment = j.job.Spec.EnvironmentID, j.job.Environment
	t.dep.Uploads = append(t.dep.Uploads, j.job.Uploads...)
}

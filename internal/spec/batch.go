package spec

import (
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// BatchEndpoint translates a batch endpoint.
func (d *Document) BatchEndpoint(trainyard.Scope) (*Asset, error) {
	f, err := d.reader(BatchEndpoint)
	if err != nil {
		return nil, err
	}
	f.silent("$schema", "id", "kind", "provisioning_state", "scoring_uri", "openapi_uri", "creation_context")
	f.need("name")
	a := &Asset{Kind: trainyard.KindBatchEndpoint, Name: f.endpointName("name", "endpoint"), Location: f.text("location"), Tags: f.texts("tags", false)}
	s := trainyard.BatchEndpointSpec{Description: f.text("description"), Properties: f.texts("properties", false),
		AuthMode: f.choice("auth_mode", "aad_token", trainyard.AuthAADToken, "aadtoken", "("+trainyard.AuthAADToken+")")}
	if s.AuthMode == "" {
		s.AuthMode = trainyard.AuthAADToken
	}
	if s.Properties == nil {
		s.Properties = map[string]string{}
	}
	f.noted("identity", "jobs run as the user of the node's agent")
	f.noted("traffic", "an invocation goes to the deployment that it names, or to defaults.deployment_name")
	if def := f.sub("defaults"); def.n != nil {
		s.Defaults = &trainyard.BatchDefaults{DeploymentName: def.endpointName("deployment_name", "deployment")}
		def.done()
	}
	if err := d.end(f); err != nil {
		return nil, err
	}
	a.Properties = map[string]any{"authMode": s.AuthMode, "properties": s.Properties}
	if s.Description != "" {
		a.Properties["description"] = s.Description
	}
	if s.Defaults != nil {
		a.Properties["defaults"] = s.Defaults
	}
	a.Warnings = f.p.notes
	return a, nil
}

// BatchDeployment is a batch deployment ready to be sent once every Upload is done, and Environment, Model and Component, where they are
// there, are registered.
type BatchDeployment struct {
	Name     string // "" if the file has none
	Endpoint string // "" if the file has none
	Location string
	Tags     map[string]string
	Spec     trainyard.BatchDeploymentSpec

	// Model and Component are brought along by the file. The names of either may be "": the caller names it for its content. SetModel and
	// SetComponent put an ARM id where it belongs.
	Model        *Asset
	SetModel     func(id string)
	Component    *Asset
	SetComponent func(id string)
	Environments []*Asset // written in place; what uses them names them already
	Uploads      []Upload // Model's are its own
	Warnings     []string
}

// BatchDeployment translates a batch deployment, of a model or of a component.
func (d *Document) BatchDeployment(scope trainyard.Scope) (*BatchDeployment, error) {
	f, err := d.reader(BatchScoring)
	if err != nil {
		return nil, err
	}
	f.silent("$schema", "id", "kind", "provisioning_state", "creation_context")
	dep := &BatchDeployment{Name: f.endpointName("name", "deployment"), Endpoint: f.endpointName("endpoint_name", "endpoint"), Location: f.text("location"),
		Tags: f.texts("tags", false)}
	t := &batchTranslator{fields: f, scope: scope, limit: d.limit, dep: dep}
	dep.Spec.Description = f.text("description")
	dep.Spec.Properties = f.texts("properties", false)
	if dep.Spec.Properties == nil {
		dep.Spec.Properties = map[string]string{}
	}
	kind := f.choice("type", "model", "model", "pipeline", "pipeline")
	if kind == "pipeline" || kind == "" && (f.has("component") || f.has("job_definition")) {
		t.component()
	} else {
		t.model()
	}
	if err := d.end(f); err != nil {
		return nil, err
	}
	dep.Warnings = f.p.notes
	return dep, nil
}

type batchTranslator struct {
	*fields
	scope trainyard.Scope
	limit int64 // of a build context, in bytes
	dep   *BatchDeployment
}

// model reads a deployment of a model: what online deployments have as well, and how files are scored.
func (t *batchTranslator) model() {
	s := &t.dep.Spec
	o := &OnlineDeployment{}
	shared := &deploymentTranslator{fields: t.fields, scope: t.scope, limit: t.limit, dep: o}
	shared.model()
	shared.code()
	shared.environment()
	t.dep.Model, t.dep.Uploads = o.Model, o.Uploads
	t.dep.SetModel = func(id string) {
		s.Model = &trainyard.AssetReference{ReferenceType: "Id", AssetID: id}
	}
	if o.Spec.Model != "" {
		t.dep.SetModel(o.Spec.Model)
	}
	if o.Environment != nil {
		t.dep.Environments = append(t.dep.Environments, o.Environment)
	}
	s.CodeConfiguration, s.EnvironmentID = o.Spec.CodeConfiguration, o.Spec.EnvironmentID
	s.EnvironmentVariables = t.texts("environment_variables", true)
	s.Compute = t.compute("compute", t.scope)
	j := &jobTranslator{t.fields, t.scope, t.limit, &Job{Spec: &trainyard.JobSpec{}}}
	j.resources()
	s.Resources = j.job.Spec.Resources
	t.settings(t.fields)
	if f := t.sub("settings"); f.n != nil {
		t.settings(f)
		if n := f.integer("instance_count", 1); n != nil {
			s.Resources = &trainyard.JobResources{InstanceCount: *n}
		}
		for k, v := range f.texts("environment_variables", true) {
			if s.EnvironmentVariables == nil {
				s.EnvironmentVariables = map[string]string{}
			}
			s.EnvironmentVariables[k] = v
		}
		f.done()
	}
	if n := t.integer("instance_count", 1); n != nil && s.Resources == nil {
		s.Resources = &trainyard.JobResources{InstanceCount: *n}
	}
}

// settings reads how files are scored; older files have these fields outside of settings.
func (t *batchTranslator) settings(f *fields) {
	s := &t.dep.Spec
	s.MiniBatchSize = or(f.integer("mini_batch_size", 1), s.MiniBatchSize)
	s.MaxConcurrencyPerInstance = or(f.integer("max_concurrency_per_instance", 1), s.MaxConcurrencyPerInstance)
	if a := f.choice("output_action", "append_row", trainyard.BatchAppendRow, "summary_only", trainyard.BatchSummaryOnly,
		"appendrow", "("+trainyard.BatchAppendRow+")", "summaryonly", "("+trainyard.BatchSummaryOnly+")"); a != "" {
		s.OutputAction = a
	}
	if name := f.text("output_file_name"); name != "" {
		s.OutputFileName = name
	}
	if l := f.choice("logging_level", "info", "Info", "warning", "Warning", "debug", "Debug"); l != "" {
		s.LoggingLevel = l
	}
	if n := f.get("error_threshold"); n != nil {
		if v, ok := n.whole(); ok {
			s.ErrorThreshold = &v
		} else if n.kind == scalar && strings.TrimSpace(n.text) == "-1" {
			v := -1
			s.ErrorThreshold = &v
		} else {
			f.wrong(n, "error_threshold", "a number of files, or -1 for any number")
		}
	}
	if r := f.sub("retry_settings"); r.n != nil {
		s.RetrySettings = &trainyard.BatchRetrySettings{MaxRetries: r.integer("max_retries", 0), Timeout: r.lasting("timeout", time.Second)}
		r.done()
	}
}

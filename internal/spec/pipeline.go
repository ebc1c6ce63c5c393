package spec

import (
	"encoding/json"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/pipeline"
)

// stepFields are the fields of a pipeline's step that is a command.
var stepFields = []string{"$schema", "name", "type", "component", "command", "code", "environment", "environment_variables", "inputs", "outputs", "compute",
	"resources", "limits", "distribution", "display_name", "description", "tags", "properties", "comment", "experiment_name", "identity", "services",
	"queue_settings", "is_deterministic", "additional_includes"}

// pipelineJob translates a pipeline job: steps in place, or a component that is one.
func (d *Document) pipelineJob(scope trainyard.Scope) (*Job, error) {
	f, err := d.reader(PipelineJob)
	if err != nil {
		return nil, err
	}
	j := &Job{Spec: &trainyard.JobSpec{JobType: "Pipeline"}}
	t := jobTranslator{f, scope, d.limit, j}
	t.names()
	j.Spec.ComputeID = f.compute("compute", scope)
	t.inputs()
	t.outputs()
	t.queue()
	t.unacted()
	b := &batchTranslator{fields: f, scope: scope, limit: d.limit, dep: &BatchDeployment{}}
	settings := map[string]any{}
	f.each("settings", func(k, v *node, _ string) { settings[k.text] = setting(k.text, v) })
	if j.Spec.Extra == nil {
		j.Spec.Extra = trainyard.Extra{}
	}
	j.Spec.Extra["settings"] = asJSON(settings)
	switch jobs := f.get("jobs"); {
	case f.has("component") && jobs != nil:
		f.wrong(jobs, "jobs", "either jobs or a component, not both")
	case f.has("component"):
		b.dep.SetComponent = func(id string) { j.Spec.Extra["componentId"] = asJSON(id) }
		b.componentRef()
		j.Component, j.SetComponent = b.dep.Component, b.dep.SetComponent
	case jobs == nil || jobs.kind != mapping:
		f.p.at(f.place("jobs"), "jobs", "it is missing: want the pipeline's steps, a map by name, or a component")
	default:
		steps, _ := jobs.plain().(map[string]any)
		before := len(f.p.list)
		b.steps(jobs, steps)
		if len(f.p.list) == before {
			whole, _ := d.root.plain().(map[string]any)
			b.graph(d.root, map[string]any{"type": "pipeline", "inputs": whole["inputs"], "outputs": whole["outputs"], "jobs": steps})
		}
		j.Finish = func() { j.Spec.Extra["jobs"] = asJSON(steps) }
	}
	if err := d.end(f); err != nil {
		return nil, err
	}
	j.Uploads, j.Environments = append(j.Uploads, b.dep.Uploads...), b.dep.Environments
	j.Warnings = f.p.notes
	return j, nil
}

// setting is a pipeline's setting as the API has it.
func setting(name string, v *node) any {
	if name == "default_compute" && v.kind == scalar {
		return strings.TrimSpace(strings.TrimPrefix(v.text, "azureml:"))
	}
	return v.plain()
}

// steps reads the steps of a pipeline.
func (t *batchTranslator) steps(jobs *node, steps map[string]any) {
	for i, k := range jobs.keys {
		step, _ := steps[k.text].(map[string]any)
		if step == nil {
			t.p.at(jobs.values[i].place, "jobs."+k.text, "got %s, want a map with type, component or command, inputs and outputs", jobs.values[i].words())
			continue
		}
		t.step(jobs.values[i], step, "jobs."+k.text)
	}
}

// step reads a step and its component.
func (t *batchTranslator) step(n *node, step map[string]any, at string) {
	f := &fields{p: t.p, n: n, path: at}
	if kind := n.get("type"); !kind.null() && !strings.EqualFold(kind.text, "command") {
		t.p.at(kind.place, f.at("type"), "steps of type %s are not run by this build: its steps are commands", kind.words())
		return
	}
	f.silent(stepFields...)
	f.done()
	for _, name := range []string{"identity", "services", "queue_settings"} {
		f.noted(name, "steps run as jobs with the defaults of their compute")
		delete(step, name)
	}
	t.codeOf(n, step, at)
	t.environmentOf(n, step)
	t.given(f, step)
	c := n.get("component")
	if c.null() {
		return
	}
	if text := c.text; c.kind == scalar && strings.HasPrefix(text, "azureml:") {
		delete(step, "component")
		step["componentId"] = f.assetID(c, "component", t.scope, trainyard.KindComponent)
		return
	}
	if inner := t.componentOf(f, c, "component"); inner != nil {
		step["component"] = inner
	}
}

// given lets what a step's inputs name on this machine be uploaded.
func (t *batchTranslator) given(f *fields, step map[string]any) {
	inputs, _ := step["inputs"].(map[string]any)
	f.each("inputs", func(k, v *node, at string) {
		one, _ := inputs[k.text].(map[string]any)
		n := v.get("path")
		if one == nil || n.null() || n.kind != scalar || strings.Contains(n.text, "${{") || strings.HasPrefix(n.text, "azureml:") || strings.HasPrefix(n.text, "/subscriptions/") || remote(n.text) {
			return
		}
		in := &fields{p: t.p, n: v, path: at}
		p, isDir, ok := in.local(n, "path")
		if !ok {
			return
		}
		one["type"] = in.fits(n, "path", in.text("type"), isDir)
		t.dep.Uploads = append(t.dep.Uploads, Upload{Field: in.at("path"), Path: p, IsDir: isDir, What: "input", Set: func(uri string) { one["path"] = uri }})
	})
}

// graph checks how the steps of a pipeline hang together, as far as that can be known here: a registered component is not.
func (t *batchTranslator) graph(n *node, spec map[string]any) {
	_, problems := pipeline.Read(asJSON(spec), func(string) (json.RawMessage, error) { return nil, nil })
	for _, p := range problems {
		at := n
		for _, name := range p.Path {
			next := at.get(name)
			if next == nil {
				break
			}
			at = next
		}
		t.p.at(at.place, strings.Join(p.Path, "."), "%s", p.Text)
	}
}

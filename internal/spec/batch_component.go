package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"

	"github.com/trainyard/trainyard"
)

// AnonymousComponent is the name under which clients register components that have none.
const AnonymousComponent = "azureml_anonymous"

// component reads a deployment of a component: a reference, or a file that is registered with it.
func (t *batchTranslator) component() {
	c := &trainyard.BatchConfiguration{Type: "PipelineComponent", Settings: map[string]any{}}
	t.dep.Spec.Configuration = c
	t.dep.SetComponent = func(id string) { c.ComponentID = &trainyard.AssetReference{ReferenceType: "Id", AssetID: id} }
	t.each("settings", func(k, v *node, _ string) { c.Settings[k.text] = setting(k.text, v) })
	if n := t.get("job_definition"); n != nil {
		t.dep.Spec.Extra = trainyard.Extra{"jobDefinition": asJSON(t.text("job_definition"))}
	}
	if t.has("component") || !t.has("job_definition") {
		t.componentRef()
	}
}

// componentRef reads the component that a deployment or a pipeline job is of.
func (t *batchTranslator) componentRef() {
	n := t.get("component")
	switch {
	case n == nil:
		t.p.at(t.place("component"), "component", "it is missing")
	case n.kind == scalar && (strings.HasPrefix(n.text, "azureml:") || strings.HasPrefix(n.text, "/subscriptions/")):
		if !strings.HasPrefix(n.text, "azureml://") {
			t.dep.SetComponent(t.assetID(n, "component", t.scope, trainyard.KindComponent))
			return
		}
		t.wrong(n, "component", "azureml:NAME:VERSION, azureml:NAME@latest, or the path of a component's file: there are no registries of components here")
	default:
		spec := t.componentOf(t.fields, n, "component")
		if spec == nil {
			return
		}
		name, _ := spec["name"].(string)
		version := ""
		if v, ok := spec["version"]; ok {
			version = textOf(v)
		}
		t.dep.Component = &Asset{Kind: trainyard.KindComponent, Name: name, Version: version, Properties: map[string]any{"componentSpec": spec, "isAnonymous": name == ""}}
	}
}

func textOf(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return strings.Trim(string(asJSON(v)), `"`)
}

// componentOf is a component as the API has it, of a file or of a map; nil, with a problem said, where it cannot be read.
func (t *batchTranslator) componentOf(f *fields, n *node, field string) map[string]any {
	if n.kind == scalar {
		path, isDir, ok := f.local(n, field)
		if !ok {
			return nil
		}
		if isDir {
			f.wrong(n, field, "a component's file, and it is a folder")
			return nil
		}
		data, err := slurp(path)
		if err != nil {
			f.p.at(n.place, f.at(field), "%v", err)
			return nil
		}
		root := read(&source{name: filepath.Join(filepath.Dir(n.src.name), n.text), dir: filepath.Dir(path)}, data, f.p)
		if root == nil {
			return nil
		}
		n = root
	}
	if n.kind != mapping {
		f.wrong(n, field, "a component: a map with type, inputs, outputs, and command or jobs")
		return nil
	}
	if field != "" {
		inner := &fields{p: f.p, n: n, path: f.at(field)}
		inner.silent(append([]string{"name", "version", "type"}, componentFields...)...)
		inner.done()
	}
	before := len(f.p.list)
	spec, _ := n.plain().(map[string]any)
	delete(spec, "$schema")
	t.codeOf(n, spec, f.at(field))
	t.environmentOf(n, spec)
	jobs := n.get("jobs")
	if jobs == nil || jobs.kind != mapping {
		return spec
	}
	steps, _ := spec["jobs"].(map[string]any)
	t.steps(jobs, steps)
	if len(f.p.list) == before {
		t.graph(n, spec)
	}
	return spec
}

// codeOf lets a component's code be uploaded, and name it then.
func (t *batchTranslator) codeOf(n *node, spec map[string]any, at string) {
	f := &fields{p: t.p, n: n, path: at}
	code := n.get("code")
	if code.null() || code.kind != scalar || strings.HasPrefix(code.text, "azureml:") {
		return
	}
	if path, isDir, ok := f.local(code, "code"); ok {
		t.dep.Uploads = append(t.dep.Uploads, Upload{Field: f.at("code"), Path: path, IsDir: isDir, What: "code", Set: func(id string) { spec["code"] = id }})
	}
}

// environmentOf names a component's environment, which may be written in place.
func (t *batchTranslator) environmentOf(n *node, spec map[string]any) {
	if n.get("environment").null() {
		return
	}
	j := &jobTranslator{&fields{p: t.p, n: n}, t.scope, t.limit, &Job{Spec: &trainyard.JobSpec{}}}
	j.environment()
	spec["environment"] = j.job.Spec.EnvironmentID
	if e := j.job.Environment; e != nil {
		t.dep.Environments = append(t.dep.Environments, e)
	}
	t.dep.Uploads = append(t.dep.Uploads, j.job.Uploads...)
}

// Named gives what has no name or version one that stands for its content; call it when every upload is done.
func (a *Asset) Named(anonymous string) {
	sum := sha256.Sum256(a.JSON())
	if a.Name == "" {
		a.Name, a.Version = anonymous, ""
	}
	if a.Version == "" {
		a.Version = hex.EncodeToString(sum[:16])
	}
}

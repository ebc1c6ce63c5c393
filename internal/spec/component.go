package spec

import "github.com/trainyard/trainyard"

// Component is a component ready to be registered once every Upload is done and Environments are registered.
type Component struct {
	*Asset
	Environments []*Asset // written in place; what uses them names them already
}

// componentFields are the fields of commandComponent and pipelineComponent.
var componentFields = []string{"$schema", "id", "creation_context", "latest_version", "display_name", "description", "tags", "inputs", "outputs", "is_deterministic",
	"command", "code", "environment", "environment_variables", "distribution", "resources", "limits", "additional_includes", "properties", "intellectual_property",
	"jobs", "settings"}

// Component translates a component of one command, or of steps.
func (d *Document) Component(scope trainyard.Scope) (*Component, error) {
	f, err := d.reader(ComponentFile)
	if err != nil {
		return nil, err
	}
	f.need("name")
	a := &Asset{Kind: trainyard.KindComponent, Name: f.name("name"), Version: f.version("version"), Properties: map[string]any{"isAnonymous": false, "isArchived": false}}
	f.choice("type", "command", "command", "pipeline", "pipeline")
	f.silent(componentFields...)
	if text := f.text("description"); text != "" {
		a.Properties["description"] = text
	}
	if tags := f.texts("tags", false); len(tags) > 0 {
		a.Tags, a.Properties["tags"] = tags, tags
	}
	if want := map[string]string{"": "command", "command": "command", "pipeline": "jobs"}[f.text("type")]; want != "" && !f.has(want) {
		f.p.at(f.place(want), want, "it is missing")
	}
	t := &batchTranslator{fields: f, scope: scope, limit: d.limit, dep: &BatchDeployment{}}
	spec := t.componentOf(f, d.root, "")
	if err := d.end(f); err != nil {
		return nil, err
	}
	if spec["type"] == nil {
		spec["type"] = "command"
	}
	a.Properties["componentSpec"] = spec
	a.Uploads, a.Warnings = t.dep.Uploads, f.p.notes
	return &Component{a, t.dep.Environments}, nil
}

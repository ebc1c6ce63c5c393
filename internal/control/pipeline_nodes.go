package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/pipeline"
)

// anonymousComponent is the name that Azure's clients give to components without one.
const anonymousComponent = "azureml_anonymous"

// shelveSteps writes a pipeline job's steps as its clients read them. Components that are written in place become ones of the workspace,
// without a name of their own.
func (c *Control) shelveSteps(ctx context.Context, who trainyard.User, j *trainyard.Job) error {
	return c.inNodes(ctx, j, func(r *trainyard.Resource) error {
		if _, err := c.Store.Resource(ctx, r.Scope, r.Kind, r.Name, r.Version); !trainyard.IsNotFound(err) {
			return err
		}
		_, _, err := c.PutResource(ctx, who, r)
		return err
	})
}

// inStoredWords is a job as it would be stored, as far as its steps go, for comparing; what cannot be read stays as it is.
func (c *Control) inStoredWords(ctx context.Context, in *trainyard.Job) *trainyard.Job {
	j := in.Clone()
	if c.inNodes(ctx, j, func(*trainyard.Resource) error { return nil }) != nil {
		return in
	}
	return j
}

// inNodes rewrites the steps of a pipeline job; put is told of each component that was written in place.
func (c *Control) inNodes(ctx context.Context, j *trainyard.Job, put func(*trainyard.Resource) error) error {
	jobs := j.Spec.Extra["jobs"]
	if len(jobs) == 0 {
		return nil
	}
	spec, err := c.pipelineSpec(ctx, j, pipelineWords{jobs: jobs})
	if err != nil {
		return err
	}
	p, problems := pipeline.Read(spec, func(ref string) (json.RawMessage, error) { return c.componentSpec(ctx, j.Scope, ref) })
	if err := told(fmt.Sprintf("pipeline %q", j.Name), problems); err != nil {
		return err
	}
	nodes, err := p.Nodes(jobs, func(component map[string]any) (string, error) {
		props, err := json.Marshal(map[string]any{"componentSpec": component, "isAnonymous": true, "isArchived": false})
		if err != nil {
			return "", err
		}
		r := &trainyard.Resource{Scope: j.Scope, Kind: trainyard.KindComponent, Name: anonymousComponent, Version: digest(string(props)), Properties: props}
		return j.Scope.Child(string(trainyard.KindComponent), r.Name, "versions", r.Version), put(r)
	})
	if err != nil {
		return err
	}
	j.Spec.Extra = maps.Clone(j.Spec.Extra)
	j.Spec.Extra["jobs"] = nodes
	return nil
}

// bareComponent is a component without what it is called and where it came from. Clients that register a step of a pipeline without a name
// call it by its file's name at one time and by none at another, under one version that is a digest of the rest.
func bareComponent(spec json.RawMessage) json.RawMessage {
	var c map[string]json.RawMessage
	if json.Unmarshal(spec, &c) != nil {
		return spec
	}
	for _, name := range []string{"name", "version", "_source"} {
		delete(c, name)
	}
	out, err := json.Marshal(c)
	if err != nil {
		return spec
	}
	return out
}

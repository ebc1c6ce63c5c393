package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

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

// shelf keeps the components of a pipeline job's steps; put is told of each that was written in place.
type shelf struct {
	r   *resolver
	put func(*trainyard.Resource) error
}

func (s *shelf) Keep(component map[string]any) (string, error) {
	props, err := json.Marshal(map[string]any{"componentSpec": component, "isAnonymous": true, "isArchived": false})
	if err != nil {
		return "", err
	}
	in := s.r.j.Scope
	r := &trainyard.Resource{Scope: in, Kind: trainyard.KindComponent, Name: anonymousComponent, Version: digest(string(props)), Properties: props}
	return in.Child(string(trainyard.KindComponent), r.Name, "versions", r.Version), s.put(r)
}

// ID is the id of a component, compute or datastore as Azure's clients know it. A label becomes the version that it stands for now.
func (s *shelf) ID(kind trainyard.Kind, ref string) (string, error) {
	in, name := s.r.j.Scope, strings.TrimPrefix(ref, "azureml:")
	id, err := trainyard.ParseID(ref)
	whole := err == nil && id.Kind == kind
	switch {
	case whole && (id.Version != "" || kind == trainyard.KindDatastore):
		return id.String(), nil
	case kind == trainyard.KindComponent:
		r, err := s.r.asset(kind, ref)
		if err != nil {
			return "", err
		}
		return r.Scope.Child(string(kind), r.Name, "versions", r.Version), nil
	case strings.EqualFold(name, "serverless"):
		return ref, nil
	case strings.Contains(name, "/"):
		name = path.Base(name) // as the resolver reads it
	}
	if kind == trainyard.KindCompute {
		if comp, err := s.r.c.Store.Compute(s.r.ctx, trainyard.MakeComputeKey(in, name)); err == nil {
			name = comp.Name
		}
	}
	return in.Child(string(kind), name), nil
}

// inNodes rewrites the steps of a pipeline job, and what else of it names something; put is told of each component that was written in place.
func (c *Control) inNodes(ctx context.Context, j *trainyard.Job, put func(*trainyard.Resource) error) error {
	jobs := j.Spec.Extra["jobs"]
	if len(jobs) == 0 && !strings.EqualFold(j.Spec.JobType, "Pipeline") {
		return nil
	}
	s := &shelf{&resolver{c: c, ctx: ctx, j: j}, put}
	if err := s.settings(); err != nil {
		return err
	}
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
	nodes, err := p.Nodes(jobs, s)
	if err != nil {
		return err
	}
	j.Spec.Extra = maps.Clone(j.Spec.Extra)
	j.Spec.Extra["jobs"] = nodes
	return nil
}

// settings writes the compute and the datastore of steps that name none by their ids.
func (s *shelf) settings() (err error) {
	spec := &s.r.j.Spec
	if spec.ComputeID != "" {
		if spec.ComputeID, err = s.ID(trainyard.KindCompute, spec.ComputeID); err != nil {
			return err
		}
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(spec.Extra["settings"], &all) != nil || len(all) == 0 {
		return nil
	}
	for _, name := range slices.Collect(maps.Keys(all)) {
		kind, ref := settingKinds[strings.ReplaceAll(strings.ToLower(name), "_", "")], ""
		if kind == "" || json.Unmarshal(all[name], &ref) != nil || ref == "" {
			continue
		}
		if ref, err = s.ID(kind, ref); err != nil {
			return err
		}
		if all[name], err = json.Marshal(ref); err != nil {
			return err
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	spec.Extra = maps.Clone(spec.Extra)
	spec.Extra["settings"] = data
	return nil
}

// settingKinds are the settings that name something.
var settingKinds = map[string]trainyard.Kind{"defaultcompute": trainyard.KindCompute, "defaultdatastore": trainyard.KindDatastore}

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

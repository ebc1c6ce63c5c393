package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/batchrun"
	"github.com/trainyard/trainyard/internal/pipeline"
)

// probeComponent looks whether the component of a deployment is one that can be run: as a job, with inputs such as its own would be.
func (c *Control) probeComponent(ctx context.Context, d *trainyard.BatchDeployment) error {
	spec, err := c.batchComponent(ctx, d)
	if err != nil {
		return err
	}
	p, problems := pipeline.Read(spec, func(ref string) (json.RawMessage, error) { return c.componentSpec(ctx, d.Scope, ref) })
	if err := told(fmt.Sprintf("the component of batch deployment %q", d.Name), problems); err != nil {
		return err
	}
	in := &trainyard.BatchInvocation{Inputs: map[string]*trainyard.JobInput{}}
	for name, port := range p.Inputs {
		if port.Default == nil && !port.Optional {
			in.Inputs[name] = port.Sample()
		}
	}
	j, _, err := c.componentJob(ctx, d, in)
	if err == nil {
		j.Name = "probe"
		_, err = c.resolve(ctx, j)
	}
	return err
}

// componentJob is the job of an invocation of a component deployment: a pipeline, or, of a component of one command, that command.
func (c *Control) componentJob(ctx context.Context, d *trainyard.BatchDeployment, in *trainyard.BatchInvocation) (*trainyard.Job, func(*trainyard.Job) error, error) {
	if in.Instances > 0 {
		return nil, nil, trainyard.Invalid("batch deployment %q runs a component, whose steps say how many nodes they have: an invocation cannot", d.Name)
	}
	spec, err := c.batchComponent(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	j := &trainyard.Job{Scope: d.Scope, Spec: trainyard.JobSpec{JobType: "Pipeline", Inputs: maps.Clone(in.Inputs), Outputs: maps.Clone(in.Outputs)}}
	batchrun.Describe(j, d, in)
	var all map[string]any // not a struct, which would take "Type" for "type", as package pipeline does not
	if err := json.Unmarshal(spec, &all); err != nil {
		return nil, nil, trainyard.Invalid("the component of batch deployment %q cannot be read: %v", d.Name, err)
	}
	if kind, _ := all["type"].(string); strings.EqualFold(kind, "pipeline") {
		j.Spec.Tags[trainyard.TagBatchJob] = trainyard.BatchPipelineJob
		settings, err := json.Marshal(d.Spec.Configuration.Settings)
		if err != nil {
			return nil, nil, err
		}
		j.Spec.Extra = trainyard.Extra{"component": spec, "settings": settings}
		return j, func(j *trainyard.Job) error {
			if ref := d.Spec.Configuration.ComponentID; ref != nil && ref.AssetID != "" { // which says it in fewer words to those who look
				id, err := json.Marshal(ref.AssetID)
				delete(j.Spec.Extra, "component")
				j.Spec.Extra["componentId"] = id
				return err
			}
			return nil
		}, nil
	}
	p, problems := pipeline.Read(spec, nil)
	if len(problems) == 0 {
		problems = p.Fill(&j.Spec)
	}
	if err := told(fmt.Sprintf("the component of batch deployment %q", d.Name), problems); err != nil {
		return nil, nil, err
	}
	compute, _ := d.Spec.Configuration.Settings["default_compute"].(string)
	one := p.Jobs(j, compute)[0].Spec
	j.Spec.JobType, j.Spec.Command, j.Spec.CodeID, j.Spec.EnvironmentID, j.Spec.ComputeID = "Command", one.Command, one.CodeID, one.EnvironmentID, one.ComputeID
	j.Spec.EnvironmentVariables, j.Spec.Resources, j.Spec.Distribution, j.Spec.Limits = one.EnvironmentVariables, one.Resources, one.Distribution, one.Limits
	return j, asPipeline, nil
}

// batchComponent reads the component that a deployment names, or that of the pipeline job which it is made of.
func (c *Control) batchComponent(ctx context.Context, d *trainyard.BatchDeployment) (json.RawMessage, error) {
	if ref := d.Spec.Configuration.ComponentID; ref != nil && ref.AssetID != "" {
		return c.componentSpec(ctx, d.Scope, ref.AssetID)
	}
	raw, ok := d.Spec.Extra["jobDefinition"]
	if !ok {
		return nil, trainyard.Invalid("batch deployment %q names no component", d.Name)
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, trainyard.Invalid("job_definition of batch deployment %q: want the name of a pipeline job", d.Name)
	}
	name := strings.TrimPrefix(text[strings.LastIndexByte(text, '/')+1:], "azureml:")
	name, _, _ = strings.Cut(name, ":") // of azureml:NAME:VERSION; jobs have no versions
	j, err := c.Store.Job(ctx, trainyard.MakeJobKey(d.Scope, name))
	if err != nil {
		return nil, err
	}
	if j.Plan.Pipeline == nil {
		return nil, trainyard.Invalid("batch deployment %q is made of job %q, which is no pipeline: name a pipeline job, or deploy a component", d.Name, name)
	}
	return c.ofJob(ctx, j)
}

// ofJob is a pipeline job as a component: what it was given are the defaults.
func (c *Control) ofJob(ctx context.Context, j *trainyard.Job) (json.RawMessage, error) {
	w, err := wordsOf(&j.Spec)
	if err != nil {
		return nil, err
	}
	spec, err := c.pipelineSpec(ctx, j, w)
	if err != nil {
		return nil, err
	}
	var all map[string]any
	if err := json.Unmarshal(spec, &all); err != nil {
		return nil, trainyard.Invalid("the component of job %q cannot be read: %v", j.Name, err)
	}
	ports, _ := all["inputs"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(j.Spec.Inputs)) {
		in := j.Spec.Inputs[name]
		if port, ok := ports[name].(map[string]any); ok {
			if port["default"] = in.Value; in.JobInputType != "literal" {
				port["default"] = in.URI
			}
		}
	}
	return json.Marshal(all)
}

func (c *Control) componentSpec(ctx context.Context, scope trainyard.Scope, ref string) (json.RawMessage, error) {
	r := &resolver{c: c, ctx: ctx, j: &trainyard.Job{Scope: scope}}
	res, err := r.asset(trainyard.KindComponent, ref)
	if err != nil {
		return nil, err
	}
	var p struct {
		Spec json.RawMessage `json:"componentSpec"`
	}
	if err := json.Unmarshal(res.Properties, &p); err != nil {
		return nil, fmt.Errorf("read component %s: %w", res.Name, err)
	}
	return p.Spec, nil
}

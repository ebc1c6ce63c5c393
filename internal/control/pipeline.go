package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/pipeline"
)

// pipelineWords are the members of a pipeline job that clients write and that have no Go name in JobSpec.
type pipelineWords struct {
	component string          // by reference
	inline    json.RawMessage // the component itself, of a deployment's job: so that it stays what it was
	jobs      json.RawMessage
	settings  map[string]any
}

func wordsOf(s *trainyard.JobSpec) (w pipelineWords, err error) {
	if raw, ok := s.Extra["componentId"]; ok {
		_ = json.Unmarshal(raw, &w.component) // null is none
	}
	if raw, ok := s.Extra["settings"]; ok {
		if err := json.Unmarshal(raw, &w.settings); err != nil {
			return w, trainyard.Invalid("settings: want a map: %v", err)
		}
	}
	w.jobs, w.inline = s.Extra["jobs"], s.Extra["component"]
	return w, nil
}

// resolvePipeline makes the plan of a job that is its children: the jobs of its steps, each of which could be submitted now.
func (c *Control) resolvePipeline(ctx context.Context, j *trainyard.Job) (warnings []string, err error) {
	j.Spec.JobType = "Pipeline"
	w, err := wordsOf(&j.Spec)
	if err != nil {
		return nil, err
	}
	spec, err := c.pipelineSpec(ctx, j, w)
	if err != nil {
		return nil, err
	}
	p, problems := pipeline.Read(spec, func(ref string) (json.RawMessage, error) { return c.componentSpec(ctx, j.Scope, ref) })
	if len(problems) == 0 {
		problems = p.Fill(&j.Spec)
	}
	if err := told(fmt.Sprintf("pipeline %q", j.Name), problems); err != nil {
		return nil, err
	}
	j.Plan = trainyard.JobPlan{Nodes: 1, Processes: 1, MaxAttempts: 1, Pipeline: &trainyard.PipelinePlan{}}
	if j.Spec.ExperimentName == "" {
		j.Spec.ExperimentName = "Default"
	}
	j.Spec.Properties = maps.Clone(j.Spec.Properties)
	if j.Spec.Properties == nil {
		j.Spec.Properties = map[string]string{}
	}
	j.Spec.Properties[trainyard.PropertyRun] = trainyard.RunPipeline
	r := &resolver{c: c, ctx: ctx, j: j}
	r.queue()
	compute := r.settings(w.settings)
	r.inputs()
	r.outputs()
	if len(r.errs) == 0 {
		r.steps(p.Jobs(j, compute))
	}
	return r.result()
}

// pipelineSpec is the component that a pipeline job is of: the one that it names, or what it is itself.
func (c *Control) pipelineSpec(ctx context.Context, j *trainyard.Job, w pipelineWords) (json.RawMessage, error) {
	if w.component != "" {
		return c.componentSpec(ctx, j.Scope, w.component)
	}
	if len(w.inline) > 0 {
		return w.inline, nil
	}
	if len(w.jobs) == 0 {
		return nil, trainyard.Invalid("pipeline job %q has neither jobs nor a component", j.Name)
	}
	in, out := map[string]any{}, map[string]any{}
	for name, i := range j.Spec.Inputs {
		if i != nil {
			in[name] = map[string]any{"type": i.JobInputType}
		}
	}
	for name, o := range j.Spec.Outputs {
		one := map[string]any{}
		if o != nil && o.JobOutputType != "uri_folder" { // which is what clients say where nothing is said
			one["type"] = o.JobOutputType
		}
		out[name] = one
	}
	return json.Marshal(map[string]any{"type": "pipeline", "inputs": in, "outputs": out, "jobs": w.jobs})
}

// told is an error with all problems in it; nil where there are none.
func told(what string, problems []pipeline.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	e := &trainyard.Error{Code: trainyard.CodeInvalid, Message: fmt.Sprintf("%s has %d errors", what, len(problems)), Target: strings.Join(problems[0].Path, ".")}
	for _, p := range problems {
		at := strings.Join(p.Path, ".")
		one := trainyard.Error{Code: trainyard.CodeInvalid, Message: p.Text, Target: at}
		if at != "" {
			one.Message = at + ": " + p.Text
		}
		e.Details = append(e.Details, one)
	}
	if len(problems) == 1 {
		return &e.Details[0]
	}
	return e
}

// settings reads a pipeline's settings and returns the compute of steps that name none.
func (r *resolver) settings(all map[string]any) (compute string) {
	compute = r.j.Spec.ComputeID
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text := fmt.Sprint(all[name])
		if all[name] == nil || text == "" {
			continue
		}
		switch strings.ReplaceAll(strings.ToLower(name), "_", "") {
		case "defaultcompute":
			compute = text
		case "continueonstepfailure", "continuerunonstepfailure":
			if !strings.EqualFold(text, "true") && !strings.EqualFold(text, "false") {
				r.fail("settings.%s is %q, want true or false", name, text)
			}
			r.j.Plan.Pipeline.Continue = strings.EqualFold(text, "true")
		case "forcererun", "source": // every step is run each time, whether or not its outputs are there
		default:
			r.warn("settings.%s is not acted on", name)
		}
	}
	return compute
}

// steps resolves the jobs of all steps as they would be if they began now, so that what is wrong with one is said before any begins.
func (r *resolver) steps(all []trainyard.PipelineStep) {
	for i := range all {
		s := &all[i]
		child := &trainyard.Job{Scope: r.j.Scope, Name: trainyard.StepJob(r.j.Name, s.Name), Spec: s.Spec}
		if !jobName.MatchString(child.Name) {
			r.fail("step %s: its job would be called %q, which is too long: choose a shorter name for the pipeline job", s.Name, child.Name)
			continue
		}
		warnings, err := r.c.resolve(r.ctx, child)
		if err != nil {
			r.failed(fmt.Errorf("step %s: %w", s.Name, err))
			continue
		}
		for _, w := range warnings {
			r.warn("step %s: %s", s.Name, w)
		}
		s.Spec = child.Spec
		r.j.Plan.Pipeline.Steps = append(r.j.Plan.Pipeline.Steps, *s)
	}
}

package pipeline

import (
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// Fill completes what a pipeline is given by the defaults of its inputs, names all its outputs, and says what is missing or of the wrong
// type.
func (p *Pipeline) Fill(spec *trainyard.JobSpec) (problems []Problem) {
	r := &reader{p: p}
	r.fillInputs(spec)
	r.fillOutputs(spec)
	return r.problems
}

func (r *reader) fillInputs(spec *trainyard.JobSpec) {
	p, given := r.p, spec.Inputs
	spec.Inputs = map[string]*trainyard.JobInput{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !has(p.Inputs, name) {
			r.wrong([]string{"inputs", name}, "the pipeline has no input %s; it has: %s", name, names(p.Inputs))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Inputs)) {
		port, in := p.Inputs[name], given[name]
		path := []string{"inputs", name}
		switch {
		case in != nil:
			r.takes(path, name, port, in)
			spec.Inputs[name] = in
		case port.Default != nil:
			spec.Inputs[name] = port.value(plain(port.Default), "")
		case !port.Optional:
			r.wrong(path, "the pipeline needs an input %s (%s): give it", name, port.Type)
		}
	}
}

// takes checks what an input of the pipeline is given.
func (r *reader) takes(path []string, name string, port Port, in *trainyard.JobInput) {
	literal := in.JobInputType == "" || in.JobInputType == "literal"
	switch {
	case port.Type == "":
	case literal && isData(port.Type):
		r.wrong(path, "the input %s got a value, want %s", name, typeWords(port.Type))
	case !literal && !isData(port.Type):
		r.wrong(path, "the input %s got %s, want %s", name, typeWords(in.JobInputType), typeWords(port.Type))
	case literal:
		if why := port.refuses(in.Value); why != "" {
			r.wrong(path, "the input %s %s", name, why)
		}
	default:
		r.fits(path, in.JobInputType, port.Type)
	}
}

func (r *reader) fillOutputs(spec *trainyard.JobSpec) {
	p, to := r.p, spec.Outputs
	spec.Outputs = map[string]*trainyard.JobOutput{}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if !has(p.Outputs, name) {
			r.wrong([]string{"outputs", name}, "the pipeline has no output %s; it has: %s", name, names(p.Outputs))
		}
	}
	for name, port := range p.Outputs {
		out := &trainyard.JobOutput{}
		if to[name] != nil {
			*out = *to[name]
		}
		if port.Type != "" {
			out.JobOutputType = port.Type
		} else if kind := p.writes(name); out.JobOutputType == "" && kind != "" {
			out.JobOutputType = kind
		}
		if out.JobOutputType == "" {
			out.JobOutputType = "uri_folder"
		}
		if out.Mode == "" && !strings.EqualFold(port.Mode, "direct") {
			out.Mode = mode(port.Mode)
		}
		spec.Outputs[name] = out
	}
}

// writes is the type of the step's output that is the pipeline's.
func (p *Pipeline) writes(output string) string {
	for _, s := range p.Steps {
		for name, b := range s.outputs {
			if b.outer == output {
				return s.outs[name].Type
			}
		}
	}
	return ""
}

// Jobs are the steps of a pipeline as jobs. Its inputs are complete, see Fill, and its outputs have their places.
func (p *Pipeline) Jobs(parent *trainyard.Job, compute string) []trainyard.PipelineStep {
	var out []trainyard.PipelineStep
	for _, s := range p.Steps {
		spec := s.spec
		if spec.ComputeID == "" {
			spec.ComputeID = compute
		}
		spec.ExperimentName = parent.Spec.ExperimentName
		spec.Properties = map[string]string{trainyard.PropertyPipeline: parent.Name, trainyard.PropertyRun: trainyard.RunStep}
		spec.Inputs, spec.Outputs = map[string]*trainyard.JobInput{}, map[string]*trainyard.JobOutput{}
		for _, name := range slices.Sorted(maps.Keys(s.ins)) {
			if in := p.given(parent, s, name); in != nil {
				spec.Inputs[name] = in
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.outs)) {
			spec.Outputs[name] = s.written(parent, name)
		}
		out = append(out, trainyard.PipelineStep{Name: s.Name, Spec: spec, After: s.After})
	}
	return out
}

// given is what a step's input is; nil for an optional one that is given nothing.
func (p *Pipeline) given(parent *trainyard.Job, s *Step, name string) *trainyard.JobInput {
	port := s.ins[name]
	b, ok := s.inputs[name]
	if ok && b.mode != "" {
		port.Mode = b.mode
	}
	var in *trainyard.JobInput
	switch {
	case b.outer != "":
		if outer := parent.Spec.Inputs[b.outer]; outer != nil {
			one := *outer
			if m := mode(port.Mode); m != "" && one.JobInputType != "literal" {
				one.Mode = m
			}
			in = &one
		}
	case b.step != "":
		from := p.named(b.step)
		out := from.written(parent, b.out)
		in = &trainyard.JobInput{JobInputType: out.JobOutputType, URI: out.URI, Mode: mode(port.Mode)}
		if in.URI == "" {
			in.URI = place(parent, b.step, b.out)
		}
	case ok:
		text, err := trainyard.Render(b.text, func(e string) (string, bool, error) {
			if outer := parent.Spec.Inputs[strings.TrimPrefix(e, "parent.inputs.")]; outer != nil {
				return outer.Value, true, nil
			}
			return "", true, nil
		})
		if err != nil {
			text = b.text
		}
		in = port.value(text, b.kind)
	}
	if in == nil && port.Default != nil {
		in = port.value(plain(port.Default), "")
	}
	return in
}

// written is where a step's output goes; without a URI, to its job's own place.
func (s *Step) written(parent *trainyard.Job, name string) *trainyard.JobOutput {
	port, b := s.outs[name], s.outputs[name]
	out := &trainyard.JobOutput{JobOutputType: port.Type, Mode: mode(port.Mode), AssetName: b.asset, AssetVersion: b.vers}
	if isData(b.kind) {
		out.JobOutputType = b.kind
	}
	if out.JobOutputType == "" {
		out.JobOutputType = "uri_folder"
	}
	if b.mode != "" {
		out.Mode = mode(b.mode)
	}
	if b.outer != "" {
		out.URI = parent.Plan.Outputs[b.outer].URI
	} else if b.text != "" {
		out.URI = strings.NewReplacer("${{name}}", trainyard.StepJob(parent.Name, s.Name), "${{output_name}}", name, "${{default_datastore}}", trainyard.BlobDatastore).Replace(b.text)
	}
	return out
}

// place is where a job's output goes that names no place.
func place(parent *trainyard.Job, step, output string) string {
	at := trainyard.DataPath{Scope: parent.Scope, Datastore: trainyard.BlobDatastore, Path: "azureml/" + trainyard.StepJob(parent.Name, step) + "/" + output + "/"}
	return at.String()
}

package batchrun

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// Component is a command component, or a pipeline component whose one step is a command: what can be run as one job.
type Component struct {
	Type        string                   `json:"type"`
	Command     string                   `json:"command"`
	Code        string                   `json:"code"`
	Environment string                   `json:"environment"`
	Inputs      map[string]componentPort `json:"inputs"`
	Outputs     map[string]componentPort `json:"outputs"`
	Resources   *componentResources      `json:"resources"`
	Jobs        map[string]componentStep `json:"jobs"`

	compute   string
	variables map[string]string
	from      map[string]string // of the step's inputs: expression or value
	to        map[string]string // of the step's outputs: the pipeline's
	outer     map[string]componentPort
}

type componentPort struct {
	Type     string `json:"type"`
	Default  any    `json:"default"`
	Optional any    `json:"optional"`
	Mode     string `json:"mode"`
}

type componentResources struct {
	InstanceCount any    `json:"instance_count"`
	InstanceType  string `json:"instance_type"`
}

type componentStep struct {
	Type      string                     `json:"type"`
	ID        string                     `json:"componentId"`
	Component json.RawMessage            `json:"component"`
	Compute   string                     `json:"computeId"`
	Inputs    map[string]json.RawMessage `json:"inputs"`
	Outputs   map[string]json.RawMessage `json:"outputs"`
	Variables map[string]string          `json:"environment_variables"`
	Resources *componentResources        `json:"resources"`
}

// ReadComponent reads a componentSpec. find reads another by its reference. What would take more than one job is refused.
func ReadComponent(spec json.RawMessage, find func(ref string) (json.RawMessage, error)) (*Component, error) {
	c := &Component{}
	if err := json.Unmarshal(spec, c); err != nil {
		return nil, trainyard.Invalid("the component cannot be read: %v", err)
	}
	switch strings.ToLower(c.Type) {
	case "command", "":
		if c.Command == "" {
			return nil, trainyard.Invalid("the component has no command")
		}
		return c, nil
	case "pipeline":
		return c.single(find)
	}
	return nil, trainyard.Errorf(trainyard.CodeUnsupported, "components of type %q are not run by this build: batch deployments run command components, and pipeline components of one command step", c.Type)
}

// single is a pipeline's only step as a component with the pipeline's ports.
func (c *Component) single(find func(ref string) (json.RawMessage, error)) (*Component, error) {
	if len(c.Jobs) != 1 {
		return nil, trainyard.Errorf(trainyard.CodeUnsupported, "the pipeline component has %d steps (%s), and this build has no pipeline engine: it runs pipeline components of one command step",
			len(c.Jobs), strings.Join(slices.Sorted(maps.Keys(c.Jobs)), ", "))
	}
	var name string
	var step componentStep
	for name, step = range c.Jobs {
	}
	if t := strings.ToLower(step.Type); t != "" && t != "command" {
		return nil, trainyard.Errorf(trainyard.CodeUnsupported, "step %q of the pipeline component is of type %q, and this build runs only command steps", name, step.Type)
	}
	inner := step.Component
	if ref := step.reference(); ref != "" {
		var err error
		if inner, err = find(ref); err != nil {
			return nil, err
		}
	}
	out := &Component{}
	if len(inner) == 0 || json.Unmarshal(inner, out) != nil || out.Command == "" {
		return nil, trainyard.Errorf(trainyard.CodeUnsupported, "step %q of the pipeline component is not a command component", name)
	}
	out.compute, out.variables, out.outer = step.Compute, step.Variables, c.Inputs
	if step.Resources != nil {
		out.Resources = step.Resources
	}
	out.from, out.to = bindings(step.Inputs), bindings(step.Outputs)
	return out, nil
}

func (s *componentStep) reference() string {
	var text string
	if s.ID != "" {
		return s.ID
	}
	_ = json.Unmarshal(s.Component, &text) // an object is the component itself
	return text
}

// bindings are what a step's ports are bound to, in any of their spellings.
func bindings(in map[string]json.RawMessage) map[string]string {
	out := map[string]string{}
	for name, raw := range in {
		var value any
		if json.Unmarshal(raw, &value) != nil {
			continue
		}
		if m, ok := value.(map[string]any); ok {
			value = m["value"]
			if value == nil {
				value = m["path"]
			}
			if value == nil {
				value = m["uri"]
			}
		}
		if value != nil {
			out[name] = plain(value)
		}
	}
	return out
}

// plain is a value as Python writes it, which is how literals come from files.
func plain(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case bool:
		if x {
			return "True"
		}
		return "False"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(data)
}

// parent is the name of the pipeline's input or output that an expression names.
func parent(expr, kind string) (string, bool) {
	names := trainyard.Expressions(expr)
	if len(names) != 1 || strings.TrimSpace(expr) != expr || !strings.HasPrefix(expr, "${{") {
		return "", false
	}
	return strings.CutPrefix(names[0], "parent."+kind+".")
}

// ComponentJob is the job of a component deployment, without a name.
func ComponentJob(d *trainyard.BatchDeployment, c *Component, in *trainyard.BatchInvocation) (*trainyard.Job, error) {
	compute, _ := d.Spec.Configuration.Settings["default_compute"].(string)
	if c.compute != "" {
		compute = c.compute
	}
	j := &trainyard.Job{Scope: d.Scope, Spec: trainyard.JobSpec{JobType: "Command", Command: c.Command, CodeID: c.Code, EnvironmentID: c.Environment,
		ComputeID: compute, EnvironmentVariables: c.variables, Inputs: map[string]*trainyard.JobInput{}, Outputs: map[string]*trainyard.JobOutput{}}}
	if err := c.inputs(j, in); err != nil {
		return nil, err
	}
	c.outputs(j, in)
	if r := c.Resources; r != nil {
		res := &trainyard.JobResources{InstanceType: r.InstanceType}
		if n, ok := r.InstanceCount.(float64); ok {
			res.InstanceCount = int(n)
		}
		j.Spec.Resources = res
	}
	if in.Instances > 0 {
		j.Spec.Resources = &trainyard.JobResources{InstanceCount: in.Instances}
	}
	describe(j, d, in)
	return j, nil
}

// inputs gives the command's inputs what was given, what is bound, or their defaults.
func (c *Component) inputs(j *trainyard.Job, in *trainyard.BatchInvocation) error {
	known := c.Inputs
	if c.outer != nil || c.from != nil {
		known = c.outer
	}
	for _, name := range slices.Sorted(maps.Keys(in.Inputs)) {
		if _, ok := known[name]; !ok {
			return trainyard.Invalid("the deployment's component has no input %q; it has: %s", name, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Inputs)) {
		port, source := c.Inputs[name], name
		if c.from != nil {
			bound, ok := c.from[name]
			if outer, is := parent(bound, "inputs"); is {
				source = outer
				if v := c.outer[outer].Default; v != nil {
					port.Default = v
				}
			} else if ok {
				j.Spec.Inputs[name] = port.value(bound)
				continue
			} else {
				source = ""
			}
		}
		switch given := in.Inputs[source]; {
		case given != nil:
			one := *given
			if port.Mode != "" && one.Mode == "" && one.JobInputType != "literal" {
				one.Mode = modes[port.Mode]
			}
			j.Spec.Inputs[name] = &one
		case port.Default != nil:
			j.Spec.Inputs[name] = port.value(plain(port.Default))
		case plain(port.Optional) != "True" && plain(port.Optional) != "true":
			return trainyard.Invalid("the deployment's component needs an input %q (%s): give it", source, port.Type)
		}
	}
	return nil
}

var modes = map[string]string{"ro_mount": "ReadOnlyMount", "rw_mount": "ReadWriteMount", "download": "Download", "direct": "Direct"}

// value is a port's input of a text: a literal, or the address of data.
func (p componentPort) value(text string) *trainyard.JobInput {
	switch p.Type {
	case "uri_file", "uri_folder", "mltable", "custom_model", "mlflow_model", "triton_model":
		return &trainyard.JobInput{JobInputType: p.Type, URI: text, Mode: modes[p.Mode]}
	}
	return &trainyard.JobInput{JobInputType: "literal", Value: text}
}

// outputs gives the command's outputs the places that the invocation names.
func (c *Component) outputs(j *trainyard.Job, in *trainyard.BatchInvocation) {
	for name, port := range c.Outputs {
		out := &trainyard.JobOutput{JobOutputType: port.Type}
		source := name
		if outer, is := parent(c.to[name], "outputs"); is {
			source = outer
		}
		if given := in.Outputs[source]; given != nil {
			*out = *given
		}
		if out.JobOutputType == "" {
			out.JobOutputType = "uri_folder"
		}
		j.Spec.Outputs[name] = out
	}
}

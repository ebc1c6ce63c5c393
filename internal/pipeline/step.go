package pipeline

import (
	"cmp"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

var (
	stepName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,99}$`)
	outerExpr = regexp.MustCompile(`^\$\{\{\s*parent\.(inputs|outputs)\.([A-Za-z0-9_]+)\s*\}\}$`)
	stepExpr  = regexp.MustCompile(`^\$\{\{\s*parent\.jobs\.([A-Za-z0-9_]+)\.outputs\.([A-Za-z0-9_]+)\s*\}\}$`)
)

// step reads a step with its component.
func (r *reader) step(name string, o object) {
	path := []string{"jobs", name}
	s := &Step{Name: name, inputs: map[string]binding{}, outputs: map[string]binding{}}
	if !stepName.MatchString(name) {
		r.wrong(path, "the name of a step is made of at most 100 letters, digits and _, and begins with a letter")
	}
	if kind := strings.ToLower(o.text("type")); kind != "" && kind != "command" {
		r.wrong(append(path, "type"), "steps of type %q are not run by this build: its steps are commands", kind)
		return
	}
	inner, inline := r.inner(path, o)
	if inner == nil && !inline {
		return
	}
	r.p.Steps = append(r.p.Steps, s)
	for in, v := range o.object("inputs") {
		b, given := bound(v)
		if given {
			s.inputs[in] = b
		}
		if b.step != "" && !slices.Contains(s.After, b.step) {
			s.After = append(s.After, b.step)
		}
	}
	slices.Sort(s.After)
	for out, v := range o.object("outputs") {
		s.outputs[out], _ = bound(v)
	}
	switch {
	case inline && inner == nil: // registered elsewhere
	case inline:
		s.known, s.ins, s.outs = true, ports(inner.object("inputs")), ports(inner.object("outputs"))
		for in, p := range s.ins {
			p.Default = nil // it is the binding
			s.ins[in] = p
		}
	default:
		s.known, s.ins, s.outs = true, ports(inner.object("inputs")), ports(inner.object("outputs"))
	}
	s.spec = jobSpec(name, o, inner)
}

// inner is the component of a step; inline says that the step is one itself, or with nil, that its component is not known here.
func (r *reader) inner(path []string, o object) (c object, inline bool) {
	ref, v := o.text("componentId"), o["component"]
	if text, ok := v.(string); ok {
		ref = text
	} else if m, ok := v.(map[string]any); ok {
		c = m
	}
	path = append(slices.Clip(path), "component")
	switch {
	case ref != "":
		data, err := r.find(ref)
		if err != nil {
			r.wrong(path, "%v", err)
			return nil, false
		}
		if data == nil {
			return nil, true
		}
		if r.size += len(data); r.size > mostRead {
			r.wrong(path, "the components of the steps up to here have more than %d MiB together", mostRead>>20)
			return nil, false
		}
		if c, err = decode(data); err != nil {
			r.wrong(path, "component %s cannot be read: %v", ref, err)
			return nil, false
		}
	case c == nil && o.text("command") != "":
		return o, true
	case c == nil:
		r.wrong(path, "it is missing: want a component, or a command")
		return nil, false
	}
	if kind := strings.ToLower(c.text("type")); kind != "" && kind != "command" || c.text("command") == "" {
		r.wrong(path, "it is a component of type %q, and the steps of a pipeline are commands in this build", kind)
		return nil, false
	}
	return c, false
}

// bound reads a binding in any of its spellings; given is false where it says nothing.
func bound(v any) (b binding, given bool) {
	if m, ok := v.(map[string]any); ok {
		o := object(m)
		b.kind, b.mode = lowerType(o.text("type", "job_input_type", "jobInputType", "job_output_type", "jobOutputType")), o.text("mode")
		b.asset, b.vers = o.text("name", "assetName"), o.text("version", "assetVersion")
		v = o.get("value", "path", "uri", "default")
	}
	if v == nil {
		return b, false
	}
	b.text = plain(v)
	text := strings.TrimSpace(b.text)
	if m := outerExpr.FindStringSubmatch(text); m != nil {
		b.outer = m[2]
	} else if m := stepExpr.FindStringSubmatch(text); m != nil {
		b.step, b.out = m[1], m[2]
	}
	return b, true
}

// lowerType is a type as files spell it; what only says that something is bound is none.
func lowerType(t string) string {
	if t = strings.ToLower(t); t == "literal" || t == "path" {
		return ""
	}
	return t
}

// jobSpec is what a step's job is, all but its inputs and outputs. What the step says goes before what its component says.
func jobSpec(name string, step, inner object) trainyard.JobSpec {
	either := func(names ...string) any {
		if v := step.get(names...); v != nil {
			return v
		}
		return inner.get(names...)
	}
	s := trainyard.JobSpec{JobType: "Command", DisplayName: step.text("display_name", "displayName"), Description: step.text("description"), Tags: step.texts("tags"),
		ComputeID: step.text("compute", "computeId"), Command: inner.text("command"), CodeID: plain(either("code", "codeId")), EnvironmentID: plain(either("environment", "environmentId"))}
	if s.DisplayName == "" {
		s.DisplayName = name
	}
	s.EnvironmentVariables = inner.texts("environment_variables", "environmentVariables")
	maps.Copy(s.EnvironmentVariables, step.texts("environment_variables", "environmentVariables"))
	if m, ok := either("resources").(map[string]any); ok {
		o := object(m)
		s.Resources = &trainyard.JobResources{InstanceCount: o.whole("instance_count", "instanceCount"), InstanceType: o.text("instance_type", "instanceType"),
			ShmSize: o.text("shm_size", "shmSize"), DockerArgs: o.text("docker_args", "dockerArgs")}
	}
	if m, ok := either("distribution").(map[string]any); ok {
		o := object(m)
		kind := o.text("type", "distribution_type", "distributionType")
		s.Distribution = &trainyard.Distribution{DistributionType: cmp.Or(distributions[strings.ToLower(kind)], kind),
			ProcessCountPerInstance: o.whole("process_count_per_instance", "processCountPerInstance"), WorkerCount: o.whole("worker_count", "workerCount"),
			ParameterServerCount: o.whole("parameter_server_count", "parameterServerCount")}
	}
	if m, ok := either("limits").(map[string]any); ok {
		if text := object(m).text("timeout"); text != "" {
			if seconds, err := strconv.Atoi(text); err == nil {
				text = trainyard.ISODuration(time.Duration(seconds) * time.Second)
			}
			s.Limits = &trainyard.JobLimits{JobLimitsType: "Command", Timeout: text}
		}
	}
	return s
}

var distributions = map[string]string{"pytorch": "PyTorch", "tensorflow": "TensorFlow", "tensor_flow": "TensorFlow", "mpi": "Mpi", "ray": "Ray"}

// object is a map of JSON whose members have more than one spelling.
type object map[string]any

// get is the first member that is there.
func (o object) get(names ...string) any {
	for _, n := range names {
		if v := o[n]; v != nil {
			return v
		}
	}
	return nil
}

func (o object) text(names ...string) string { return plain(o.get(names...)) }

func (o object) object(name string) object {
	m, _ := o[name].(map[string]any)
	return m
}

func (o object) whole(names ...string) int {
	n, _ := strconv.Atoi(o.text(names...)) // what is no number was refused by who read the file, or is none
	return n
}

func (o object) texts(names ...string) map[string]string {
	out := map[string]string{}
	m, _ := o.get(names...).(map[string]any)
	for k, v := range m {
		out[k] = plain(v)
	}
	return out
}

// plain is a value as Python writes it, which is how literals come from files.
func plain(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
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

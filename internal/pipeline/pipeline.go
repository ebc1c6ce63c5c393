// Package pipeline works out which jobs a pipeline is, what each of them is given, and which are to begin next. It is pure: it stores
// nothing, looks up only through the function that it is handed, and starts nothing.
package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// Problem is one thing that is wrong with a component, at a path of its members: jobs, train, inputs, data.
type Problem struct {
	Path []string
	Text string
}

// Find reads the componentSpec of a registered component. Nil without an error means that it cannot be known here, and then what would
// need it is not checked.
type Find func(ref string) (json.RawMessage, error)

// Pipeline is a component that was read: a graph of steps.
type Pipeline struct {
	Inputs  map[string]Port
	Outputs map[string]Port
	Steps   []*Step // each after those that it waits for
}

// Port is an input or an output of a component. Type is "" where anything fits.
type Port struct {
	Type     string
	Mode     string
	Default  any
	Optional bool
	Enum     []string
}

// Step is one step and what it is bound to.
type Step struct {
	Name  string
	After []string

	spec    trainyard.JobSpec // without inputs and outputs
	known   bool              // its component could be read, so ins and outs are all its ports
	ins     map[string]Port
	outs    map[string]Port
	inputs  map[string]binding
	outputs map[string]binding
}

// binding is what a step's input is given, or where its output goes.
type binding struct {
	outer string // the pipeline's input or output
	step  string // the step whose output it is
	out   string
	text  string // a value, a template of one, or an address
	kind  string // type, as the binding says it
	mode  string
	asset string // of an output: the name to register it under
	vers  string
}

type reader struct {
	find     Find
	p        *Pipeline
	problems []Problem
	size     int // of the components that were found
}

// Most bounds the steps of a pipeline, and mostProblems what is said to be wrong with one: each may name all that there is.
const (
	Most         = 500
	mostProblems = 50
	mostRead     = 32 << 20 // bytes of registered components, each counted as often as steps name it
)

func (r *reader) wrong(path []string, format string, args ...any) {
	if len(r.problems) == mostProblems {
		return
	}
	r.problems = append(r.problems, Problem{path, fmt.Sprintf(format, args...)})
}

// Read reads a componentSpec. A component of one command is a pipeline of one step, which has the component's ports. All that is wrong is
// said at once.
func Read(spec json.RawMessage, find Find) (*Pipeline, []Problem) {
	r := &reader{find: find, p: &Pipeline{}}
	c, err := decode(spec)
	if err != nil {
		r.wrong(nil, "the component cannot be read: %v", err)
		return nil, r.problems
	}
	switch kind := strings.ToLower(c.text("type")); kind {
	case "pipeline":
	case "command", "":
		c = wrapped(c)
	default:
		r.wrong([]string{"type"}, "components of type %q are not run by this build: it runs command components, and pipeline components of them", kind)
		return nil, r.problems
	}
	r.p.Inputs, r.p.Outputs = ports(c.object("inputs")), ports(c.object("outputs"))
	jobs := c.object("jobs")
	if len(jobs) == 0 {
		r.wrong([]string{"jobs"}, "the pipeline has no steps: name at least one below jobs")
	}
	if len(jobs) > Most {
		r.wrong([]string{"jobs"}, "the pipeline has %d steps, and at most %d are run", len(jobs), Most)
		return nil, r.problems
	}
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		step, ok := jobs[name].(map[string]any)
		if !ok {
			r.wrong([]string{"jobs", name}, "it is not a step: want a map with type, component or command, inputs and outputs")
			continue
		}
		r.step(name, object(step))
	}
	r.connect()
	return r.p, r.problems
}

// Only is the name of the step that a component of one command becomes.
const Only = "main"

// wrapped is a component of one command as a pipeline with the same ports.
func wrapped(c object) object {
	in, out := map[string]any{}, map[string]any{}
	for name := range c.object("inputs") {
		in[name] = "${{parent.inputs." + name + "}}"
	}
	for name := range c.object("outputs") {
		out[name] = "${{parent.outputs." + name + "}}"
	}
	step := map[string]any{"type": "command", "component": map[string]any(c), "inputs": in, "outputs": out}
	return object{"inputs": map[string]any(c.object("inputs")), "outputs": map[string]any(c.object("outputs")), "jobs": map[string]any{Only: step}}
}

// connect looks along every binding, and puts the steps in an order in which they can run.
func (r *reader) connect() {
	made := map[string]string{}
	for _, s := range r.p.Steps {
		for _, name := range slices.Sorted(maps.Keys(s.inputs)) {
			r.input(s, name)
		}
		for _, name := range slices.Sorted(maps.Keys(s.outputs)) {
			r.output(s, name, made)
		}
		for _, name := range slices.Sorted(maps.Keys(s.ins)) {
			if _, given := s.inputs[name]; s.known && !given && s.ins[name].Default == nil && !s.ins[name].Optional {
				r.wrong([]string{"jobs", s.Name, "inputs"}, "the input %s of step %s (%s) is given no value", name, s.Name, s.ins[name].Type)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.p.Outputs)) {
		if made[name] == "" {
			r.wrong([]string{"outputs", name}, "no step writes the pipeline's output %s: bind a step's output to it with ${{parent.outputs.%s}}", name, name)
		}
	}
	r.order()
}

// input checks what a step's input is bound to.
func (r *reader) input(s *Step, name string) {
	path := []string{"jobs", s.Name, "inputs", name}
	port, ok := s.ins[name]
	if !ok && s.known {
		r.wrong(path, "step %s has no input %s; it has: %s", s.Name, name, names(s.ins))
		return
	}
	b := s.inputs[name]
	switch {
	case b.outer != "":
		outer, ok := r.p.Inputs[b.outer]
		if !ok {
			r.wrong(path, "the pipeline has no input %s; it has: %s", b.outer, names(r.p.Inputs))
			return
		}
		if outer.Optional && outer.Default == nil && s.known && !port.Optional && port.Default == nil {
			r.wrong(path, "the pipeline's input %s is optional, and the input %s of step %s needs a value", b.outer, name, s.Name)
		}
		r.fits(path, outer.Type, port.Type)
	case b.step != "":
		from := r.p.named(b.step)
		switch {
		case from == nil:
			r.wrong(path, "there is no step %s; there are: %s", b.step, r.p.names())
		case from.known && !has(from.outs, b.out):
			r.wrong(path, "step %s has no output %s; it has: %s", b.step, b.out, names(from.outs))
		default:
			kind := from.outs[b.out].Type
			if kind == "" {
				kind = "uri_folder"
			}
			if from.known {
				r.fits(path, kind, port.Type)
			}
		}
	case len(trainyard.Expressions(b.text)) > 0 || strings.Contains(b.text, "${{"):
		r.template(path, b.text, port.Type)
	case !isData(b.kind) && !isData(port.Type):
		if why := port.refuses(b.text); why != "" {
			r.wrong(path, "%s", why)
		}
	}
}

// template checks a value that is put together of texts and the pipeline's inputs.
func (r *reader) template(path []string, text, kind string) {
	all := trainyard.Expressions(text)
	if len(all) == 0 {
		r.wrong(path, "%s: a ${{ is not closed with }}, or something other than a name is in it", text)
	}
	for _, e := range all {
		name, ok := strings.CutPrefix(e, "parent.inputs.")
		outer, known := r.p.Inputs[name]
		switch {
		case !ok:
			r.wrong(path, "${{%s}}: want ${{parent.inputs.NAME}}, or ${{parent.jobs.STEP.outputs.NAME}} alone", e)
		case !known:
			r.wrong(path, "the pipeline has no input %s; it has: %s", name, names(r.p.Inputs))
		case isData(outer.Type) || isData(kind):
			r.wrong(path, "${{%s}}: data cannot be a part of a text: bind the whole input to it", e)
		}
	}
}

// output checks where a step's output goes.
func (r *reader) output(s *Step, name string, made map[string]string) {
	path, b := []string{"jobs", s.Name, "outputs", name}, s.outputs[name]
	port, ok := s.outs[name]
	if !ok && s.known {
		r.wrong(path, "step %s has no output %s; it has: %s", s.Name, name, names(s.outs))
		return
	}
	if b.outer == "" {
		if b.step != "" || strings.Contains(b.text, "${{parent.") {
			r.wrong(path, "an output is bound to ${{parent.outputs.NAME}}, or to an address in a datastore")
		}
		return
	}
	outer, ok := r.p.Outputs[b.outer]
	switch {
	case !ok:
		r.wrong(path, "the pipeline has no output %s; it has: %s", b.outer, names(r.p.Outputs))
	case made[b.outer] != "":
		r.wrong(path, "the pipeline's output %s is written by %s already", b.outer, made[b.outer])
	default:
		made[b.outer] = "step " + s.Name
		if s.known && port.Type != "" {
			r.fits(path, port.Type, outer.Type)
		}
	}
}

// fits says so where data or a value of one type cannot be of another.
func (r *reader) fits(path []string, from, to string) {
	if from == "" || to == "" || from == to {
		return
	}
	switch {
	case isData(from) != isData(to):
		r.wrong(path, "got %s, want %s", typeWords(from), typeWords(to))
	case isData(from) && (from == "uri_file") != (to == "uri_file"):
		r.wrong(path, "got %s, want %s", typeWords(from), typeWords(to))
	case !isData(from) && to != "string" && !(from == "integer" && to == "number"):
		if from != "string" { // a text may hold a number; it is looked at when it is there
			r.wrong(path, "got %s, want %s", typeWords(from), typeWords(to))
		}
	}
}

// order sorts the steps so that each comes after those that it waits for; a circle is a problem.
func (r *reader) order() {
	var sorted []*Step
	done := map[string]bool{}
	left := slices.Clone(r.p.Steps)
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(s *Step) bool {
			return !slices.ContainsFunc(s.After, func(n string) bool { return !done[n] && r.p.named(n) != nil })
		})
		if i < 0 {
			r.circle(left)
			return
		}
		done[left[i].Name] = true
		sorted = append(sorted, left[i])
		left = slices.Delete(left, i, i+1)
	}
	r.p.Steps = sorted
}

// circle says which steps wait for one another.
func (r *reader) circle(left []*Step) {
	within := map[string]*Step{}
	for _, s := range left {
		within[s.Name] = s
	}
	var way []string
	at := left[0].Name
	for !slices.Contains(way, at) {
		way = append(way, at)
		for _, n := range within[at].After {
			if within[n] != nil {
				at = n
				break
			}
		}
	}
	way = append(way[slices.Index(way, at):], at)
	for _, name := range slices.Sorted(maps.Keys(within[at].inputs)) {
		if within[at].inputs[name].step == way[1] {
			r.wrong([]string{"jobs", at, "inputs", name}, "steps wait for each other in a circle: %s", strings.Join(way, " waits for "))
			return
		}
	}
}

func (p *Pipeline) named(step string) *Step {
	for _, s := range p.Steps {
		if s.Name == step {
			return s
		}
	}
	return nil
}

func (p *Pipeline) names() string {
	var all []string
	for _, s := range p.Steps {
		all = append(all, s.Name)
	}
	return strings.Join(all, ", ")
}

func decode(data json.RawMessage) (object, error) {
	var o object
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err := d.Decode(&o)
	return o, err
}

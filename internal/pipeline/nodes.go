package pipeline

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Shelf is where components are kept, and what knows the id of each thing.
type Shelf interface {
	// Keep keeps a component that is written in place, and returns its id.
	Keep(component map[string]any) (id string, err error)
	// ID is the whole id of what a reference names. A text that names nothing stays as it is.
	ID(kind trainyard.Kind, ref string) (string, error)
}

// Nodes are the steps of a pipeline job in the one form that Azure's clients read and can send back: bindings as literals, components and
// computes by their ids.
func (p *Pipeline) Nodes(jobs json.RawMessage, shelf Shelf) (json.RawMessage, error) {
	all, err := decode(jobs)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, s := range p.Steps {
		o, _ := all[s.Name].(map[string]any)
		if out[s.Name], err = p.node(s, o, shelf); err != nil {
			return nil, fmt.Errorf("step %s: %w", s.Name, err)
		}
	}
	return json.Marshal(out)
}

// notNodes are members of a step in a file that a node does not have, or has by another name; and where clients say a step came from.
var notNodes = []string{"$schema", "comment", "experiment_name", "is_deterministic", "additional_includes", "component", "compute", "_source"}

func (p *Pipeline) node(s *Step, o object, shelf Shelf) (object, error) {
	n := maps.Clone(o)
	for _, name := range notNodes {
		delete(n, name)
	}
	inner := o["component"]
	id := o.text("componentId")
	if text, ok := inner.(string); ok && id == "" {
		id = text
	}
	var err error
	if id != "" {
		id, err = shelf.ID(trainyard.KindComponent, id)
	} else {
		component, ok := inner.(map[string]any)
		if !ok {
			component = p.inPlace(s, o)
			for _, name := range []string{"command", "code", "codeId", "environment", "environmentId"} {
				delete(n, name)
			}
		}
		id, err = shelf.Keep(component)
	}
	if err != nil {
		return nil, err
	}
	n["name"], n["type"], n["componentId"] = s.Name, "command", id
	if compute := o.text("compute", "computeId"); compute != "" {
		if n["computeId"], err = shelf.ID(trainyard.KindCompute, compute); err != nil {
			return nil, err
		}
	}
	in, out := object{}, object{}
	for name, b := range s.inputs {
		in[name] = b.inputNode(s.ins[name])
	}
	for name, b := range s.outputs {
		out[name] = b.outputNode(s.outs[name])
	}
	n["inputs"], n["outputs"] = in, out
	n.likeAPI()
	return n, nil
}

// likeAPI spells what files spell otherwise: durations and kinds of distribution.
func (o object) likeAPI() {
	if m := o.object("limits"); m != nil {
		timeout := m.text("timeout")
		if seconds, err := strconv.Atoi(timeout); err == nil {
			timeout = trainyard.ISODuration(time.Duration(seconds) * time.Second)
		}
		o["limits"] = object{"job_limits_type": "Command", "timeout": timeout}
	}
	if m := maps.Clone(o.object("distribution")); m != nil {
		kind := m.text("type", "distribution_type", "distributionType")
		delete(m, "type")
		delete(m, "distributionType")
		m["distribution_type"] = cmp.Or(distributions[strings.ToLower(kind)], kind)
		o["distribution"] = m
	}
}

func (b binding) inputNode(port Port) object {
	n := object{"job_input_type": "literal", "value": b.text}
	if kind := cmp.Or(b.kind, port.Type); isData(kind) && !strings.Contains(b.text, "${{") {
		n = object{"job_input_type": kind, "uri": b.text}
	}
	if b.mode != "" {
		n["mode"] = mode(b.mode)
	}
	return n
}

func (b binding) outputNode(port Port) object {
	n := object{}
	switch {
	case b.outer != "":
		n["type"], n["value"] = "literal", b.text
	default:
		n["job_output_type"] = "uri_folder"
		if kind := cmp.Or(b.kind, port.Type); isData(kind) {
			n["job_output_type"] = kind
		}
		if b.text != "" {
			n["uri"] = b.text
		}
	}
	for name, text := range map[string]string{"mode": mode(b.mode), "name": b.asset, "version": b.vers} {
		if text != "" {
			n[name] = text
		}
	}
	return n
}

// inPlace is a step that is a command itself as a component of its own.
func (p *Pipeline) inPlace(s *Step, o object) map[string]any {
	c := map[string]any{"type": "command", "display_name": cmp.Or(o.text("display_name", "displayName"), s.Name), "command": o.text("command")}
	for to, from := range map[string][]string{"environment": {"environment", "environmentId"}, "code": {"code", "codeId"}} {
		if v := o.get(from...); v != nil {
			c[to] = v
		}
	}
	in, out := map[string]any{}, map[string]any{}
	for name, b := range s.inputs {
		kind := b.kind
		if b.outer != "" && kind == "" {
			kind = p.Inputs[b.outer].Type
		} else if b.step != "" {
			if kind = p.named(b.step).outs[b.out].Type; kind == "" {
				kind = cmp.Or(p.named(b.step).outputs[b.out].kind, "uri_folder")
			}
		}
		if !isData(kind) {
			kind = "string"
		}
		in[name] = map[string]any{"type": kind}
	}
	for name, b := range s.outputs {
		kind := cmp.Or(b.kind, p.Outputs[b.outer].Type)
		if !isData(kind) {
			kind = "uri_folder"
		}
		out[name] = map[string]any{"type": kind}
	}
	c["inputs"], c["outputs"] = in, out
	return c
}

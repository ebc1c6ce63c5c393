package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// ports reads the inputs or outputs of a component. One that is only a value has no type of its own.
func ports(o object) map[string]Port {
	out := map[string]Port{}
	for name, v := range o {
		p := Port{}
		if m, ok := v.(map[string]any); ok {
			d := object(m)
			p.Type, p.Mode, p.Default = lowerType(d.text("type", "jobInputType", "jobOutputType")), d.text("mode"), d["default"]
			p.Optional = strings.EqualFold(d.text("optional"), "true")
			if all, ok := d["enum"].([]any); ok {
				for _, e := range all {
					p.Enum = append(p.Enum, plain(e))
				}
			}
		}
		out[name] = p
	}
	return out
}

var dataTypes = []string{"uri_file", "uri_folder", "mltable", "custom_model", "mlflow_model", "triton_model"}

func isData(kind string) bool { return slices.Contains(dataTypes, kind) }

func typeWords(kind string) string {
	if isData(kind) {
		return "data of type " + kind
	}
	return "a value of type " + kind
}

// refuses says why a port does not take a value; "" if it does.
func (p Port) refuses(text string) string {
	var err error
	switch p.Type {
	case "integer":
		_, err = strconv.ParseInt(text, 10, 64)
	case "number":
		_, err = strconv.ParseFloat(text, 64)
	case "boolean":
		if !strings.EqualFold(text, "true") && !strings.EqualFold(text, "false") {
			err = strconv.ErrSyntax
		}
	}
	switch {
	case err != nil:
		return fmt.Sprintf("got %q, want %s", text, typeWords(p.Type))
	case len(p.Enum) > 0 && !slices.Contains(p.Enum, text):
		return fmt.Sprintf("got %q, want one of %s", text, strings.Join(p.Enum, ", "))
	}
	return ""
}

var modes = map[string]string{"ro_mount": "ReadOnlyMount", "rw_mount": "ReadWriteMount", "download": "Download", "direct": "Direct",
	"upload": "Upload", "eval_mount": "EvalMount", "eval_download": "EvalDownload"}

// mode is a mode as ARM spells it.
func mode(m string) string {
	if arm, ok := modes[strings.ToLower(m)]; ok {
		return arm
	}
	return m
}

// Sample is an input such as the port takes, for trying whether a job could be made.
func (p Port) Sample() *trainyard.JobInput {
	if isData(p.Type) {
		return &trainyard.JobInput{JobInputType: p.Type, URI: "https://localhost/nothing"}
	}
	text := map[string]string{"integer": "1", "number": "1", "boolean": "true"}[p.Type]
	if len(p.Enum) > 0 {
		text = p.Enum[0]
	}
	return &trainyard.JobInput{JobInputType: "literal", Value: text}
}

// value is a port's input of a text: a literal, or the address of data.
func (p Port) value(text, kind string) *trainyard.JobInput {
	if isData(p.Type) && !isData(kind) {
		kind = p.Type
	}
	if isData(kind) {
		return &trainyard.JobInput{JobInputType: kind, URI: text, Mode: mode(p.Mode)}
	}
	return &trainyard.JobInput{JobInputType: "literal", Value: text}
}

func names[V any](m map[string]V) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

func has[V any](m map[string]V, name string) bool {
	_, ok := m[name]
	return ok
}

package spec

import (
	"path"
	"regexp"
	"strings"

	"github.com/trainyard/trainyard"
)

var keyPattern = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// dataTypes are the types of inputs, outputs and data that are places, as files and ARM spell them.
var dataTypes = []string{"uri_file", "uri_file", "uri_folder", "uri_folder", "mltable", "mltable", "custom_model", "custom_model",
	"mlflow_model", "mlflow_model", "triton_model", "triton_model", "path", "(path)"}

// literalTypes are the types of inputs that are values.
var literalTypes = []string{"string", "(literal)", "integer", "(literal)", "number", "(literal)", "boolean", "(literal)", "literal", "(literal)"}

const (
	inputModes  = "ro_mount ReadOnlyMount rw_mount ReadWriteMount download Download direct Direct upload Upload eval_mount EvalMount eval_download EvalDownload mount (ReadOnlyMount)"
	outputModes = "rw_mount ReadWriteMount upload Upload direct Direct mount (ReadWriteMount)"
)

func (t *jobTranslator) inputs() {
	t.each("inputs", func(k, v *node, path string) {
		if !keyPattern.MatchString(k.text) {
			t.p.at(k.place, path, "the name of an input is made of letters, digits and _")
		}
		var in *trainyard.JobInput
		switch {
		case v.null(): // declared and not given: only $[[ … ]] may use it
		case v.kind == mapping:
			in = t.inputMap(v, path)
		case v.kind == list:
			t.p.at(v.place, path, "got a list, want a value, or a map with type and path")
		case v.typ == isString && remote(v.text) || isAssetRef(v):
			in = t.address(v, path)
		default:
			in = &trainyard.JobInput{JobInputType: "literal", Value: v.value}
		}
		if in != nil {
			if t.job.Spec.Inputs == nil {
				t.job.Spec.Inputs = map[string]*trainyard.JobInput{}
			}
			t.job.Spec.Inputs[k.text] = in
		}
	})
}

// isAssetRef says whether a literal is a reference to an asset with its version or label.
func isAssetRef(v *node) bool {
	rest, ok := strings.CutPrefix(v.text, "azureml:")
	if !ok || v.typ != isString {
		return false
	}
	m := assetRef.FindStringSubmatch(rest)
	return m != nil && m[2] != "" || strings.HasPrefix(rest, "/subscriptions/")
}

// address makes an input of a literal that is an address: the job gets the bytes, not the address.
func (t *jobTranslator) address(v *node, at string) *trainyard.JobInput {
	in := &trainyard.JobInput{JobInputType: "uri_folder", URI: v.text}
	f := &fields{p: t.p, n: v, path: at}
	if !remote(v.text) {
		in.URI = f.assetID(v, "", t.scope, trainyard.KindData)
		return in
	}
	f.uri(v, "")
	if !strings.HasSuffix(v.text, "/") && (strings.HasPrefix(strings.ToLower(v.text), "http") || path.Ext(path.Base(v.text)) != "") {
		in.JobInputType = "uri_file"
	}
	t.p.note("%s: the job gets a path to what %s holds; to give it the address itself, write {value: …}", at, v.text)
	return in
}

func (t *jobTranslator) inputMap(v *node, at string) *trainyard.JobInput {
	f := &fields{p: t.p, n: v, path: at}
	defer f.done()
	f.silent("optional", "default", "value", "path")
	kind := f.choice("type", append(dataTypes, literalTypes...)...)
	description := f.text("description")
	if value := v.get("value"); kind == "literal" || !value.null() {
		if value.null() {
			value = v.get("default")
		}
		return t.literal(f, value, description)
	}
	in := &trainyard.JobInput{JobInputType: kind, Description: description, Mode: f.choice("mode", strings.Fields(inputModes)...)}
	f.noted("path_on_compute", "inputs are staged where the node puts them")
	datastore := f.datastore()
	n := f.get("path")
	if n == nil {
		if b := f.boolean("optional"); b == nil || !*b {
			t.p.at(v.place, join(at, "path"), "it is missing")
		}
		return nil
	}
	if n.kind != scalar {
		f.wrong(n, "path", "a path or an address")
		return in
	}
	if kind == "path" {
		t.p.note("%s: path is an old spelling: write uri_folder or uri_file", join(at, "type"))
	}
	t.inputPath(f, n, in, datastore)
	if in.JobInputType == "path" || in.JobInputType == "" {
		in.JobInputType = "uri_folder"
	}
	return in
}

func (t *jobTranslator) literal(f *fields, value *node, description string) *trainyard.JobInput {
	f.silent("mode")
	switch {
	case value.null():
		if b := f.boolean("optional"); b == nil || !*b {
			t.p.at(f.n.place, f.at("value"), "it is missing")
		}
		return nil
	case value.kind != scalar:
		f.wrong(value, "value", "a string, a number or a boolean")
	}
	return &trainyard.JobInput{JobInputType: "literal", Value: value.value, Description: description}
}

// inputPath fills an input's URI in, now or by an upload, and its type where that follows from what is on disk.
func (t *jobTranslator) inputPath(f *fields, n *node, in *trainyard.JobInput, datastore string) {
	switch {
	case strings.HasPrefix(n.text, "azureml://") || remote(n.text):
		in.URI = f.uri(n, "path")
	case strings.HasPrefix(n.text, "azureml:") || strings.HasPrefix(n.text, "/subscriptions/"):
		kind := trainyard.KindData
		if strings.HasSuffix(in.JobInputType, "_model") {
			kind = trainyard.KindModel
		}
		in.URI = f.assetID(n, "path", t.scope, kind)
	case strings.Contains(n.text, "${{"):
		f.wrong(n, "path", "a path or an address: expressions are for pipelines")
	default:
		p, isDir, ok := f.local(n, "path")
		if !ok {
			return
		}
		in.JobInputType = f.fits(n, "path", in.JobInputType, isDir)
		t.job.Uploads = append(t.job.Uploads, Upload{Field: f.at("path"), Path: p, IsDir: isDir, What: "input", Datastore: datastore,
			Set: func(uri string) { in.URI = uri }})
	}
}

// fits checks that what is on disk is of the type that is said, or says the type that it is of.
func (f *fields) fits(n *node, field, kind string, isDir bool) string {
	switch {
	case kind == "" || kind == "path":
		if isDir {
			return "uri_folder"
		}
		return "uri_file"
	case kind == "uri_file" && isDir:
		f.p.at(n.place, f.at(field), "%s is a folder, and the type is uri_file: write type: uri_folder", n.words())
	case (kind == "uri_folder" || kind == "mltable") && !isDir:
		f.p.at(n.place, f.at(field), "%s is a file, and the type is %s: write type: uri_file", n.words(), kind)
	}
	return kind
}

func (t *jobTranslator) outputs() {
	t.each("outputs", func(k, v *node, path string) {
		if !keyPattern.MatchString(k.text) {
			t.p.at(k.place, path, "the name of an output is made of letters, digits and _")
		}
		out := &trainyard.JobOutput{JobOutputType: "uri_folder"}
		switch {
		case v.null():
		case v.kind == mapping:
			t.outputMap(&fields{p: t.p, n: v, path: path}, out)
		default:
			t.p.at(v.place, path, "got %s, want nothing, or a map with type, mode and path", v.words())
		}
		if t.job.Spec.Outputs == nil {
			t.job.Spec.Outputs = map[string]*trainyard.JobOutput{}
		}
		t.job.Spec.Outputs[k.text] = out
	})
}

func (t *jobTranslator) outputMap(f *fields, out *trainyard.JobOutput) {
	switch kind := f.choice("type", dataTypes...); kind {
	case "":
	case "path":
		t.p.note("%s: path is an old spelling: write uri_folder or uri_file", f.at("type"))
	default:
		out.JobOutputType = kind
	}
	out.Mode = f.choice("mode", strings.Fields(outputModes)...)
	out.AssetName = f.name("name")
	out.AssetVersion = f.version("version")
	out.Description = f.text("description")
	if out.AssetVersion != "" && out.AssetName == "" {
		t.p.at(f.place("version"), f.at("version"), "a version without a name: write the name under which to register the output")
	}
	if n := f.get("path"); n != nil {
		if n.kind != scalar || !remote(n.text) || strings.HasPrefix(strings.ToLower(n.text), "http") {
			f.wrong(n, "path", "azureml://datastores/NAME/paths/PATH; without a path the output goes to the default place")
		} else {
			out.URI = f.uri(n, "path")
		}
	}
	f.done()
}

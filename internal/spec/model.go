package spec

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/trainyard/trainyard"
)

// modelTypes are the types of models, as files and ARM spell them.
var modelTypes = []string{"custom_model", "custom_model", "mlflow_model", "mlflow_model", "triton_model", "triton_model"}

// mlmodel is the file that says of a folder that it is an MLflow model, and how it can be loaded.
const mlmodel = "MLmodel"

// Model translates a model.
func (d *Document) Model(trainyard.Scope) (*Asset, error) {
	f, err := d.reader(Model)
	if err != nil {
		return nil, err
	}
	f.need("name")
	a := f.model()
	if err := d.end(f); err != nil {
		return nil, err
	}
	a.Warnings = f.p.notes
	return a, nil
}

// model reads the fields that every model has, in a file of its own or in a deployment.
func (f *fields) model() *Asset {
	f.silent("$schema", "id", "creation_context", "latest_version", "intellectual_property", "default_deployment_template", "allowed_deployment_templates")
	a := &Asset{Kind: trainyard.KindModel, Name: f.name("name"), Version: f.version("version"), Tags: f.texts("tags", false),
		Properties: map[string]any{"isAnonymous": false, "isArchived": false}}
	for field, key := range map[string]string{"description": "description", "stage": "stage", "job_name": "jobName"} {
		if text := f.text(field); text != "" {
			a.Properties[key] = text
		}
	}
	if len(a.Tags) > 0 {
		a.Properties["tags"] = a.Tags
	}
	if props := f.looseTexts("properties"); len(props) > 0 {
		a.Properties["properties"] = props
	}
	f.noted("auto_delete_setting", "nothing is deleted by itself here")
	f.silent("system_metadata")
	kind := f.choice("type", modelTypes...)
	if kind == "" {
		kind = "custom_model"
	}
	a.Properties["modelType"] = kind
	if flavors := f.get("flavors"); flavors != nil {
		if flavors.kind != mapping {
			f.wrong(flavors, "flavors", "a map of flavors")
		}
		a.Properties["flavors"] = flavorsOf(flavors)
	}
	datastore := f.datastore()
	f.need("path")
	f.modelPath(a, kind, datastore)
	return a
}

// looseTexts is a map of strings in which a value may be a map or a list too: it is kept as JSON text.
func (f *fields) looseTexts(name string) map[string]string {
	all := map[string]string{}
	f.each(name, func(k, v *node, _ string) {
		switch {
		case v.null():
			all[k.text] = ""
		case v.kind == scalar:
			all[k.text] = v.text
		default:
			all[k.text] = string(asJSON(v.plain()))
		}
	})
	return all
}

// flavorsOf is ARM's shape of flavors: texts under "data".
func flavorsOf(n *node) map[string]any {
	all := map[string]any{}
	for i, k := range n.keys {
		data, v := map[string]string{}, n.values[i]
		if inner := v.get("data"); inner != nil && inner.kind == mapping {
			v = inner
		}
		if v.kind == mapping {
			for j, name := range v.keys {
				if one := v.values[j]; one.kind == scalar && !one.null() {
					data[name.text] = one.text
				}
			}
		}
		all[k.text] = map[string]any{"data": data}
	}
	return all
}

// modelPath fills in where a model is, now or by an upload.
func (f *fields) modelPath(a *Asset, kind, datastore string) {
	n := f.get("path")
	switch {
	case n == nil:
	case n.kind != scalar:
		f.wrong(n, "path", "a path on this machine, or an address")
	case remote(n.text):
		a.Properties["modelUri"] = f.uri(n, "path")
	case strings.HasPrefix(n.text, "azureml:"):
		f.wrong(n, "path", "a path on this machine, or an address such as azureml://jobs/JOB/outputs/NAME/paths/PATH or runs:/RUN/PATH")
	default:
		path, isDir, ok := f.local(n, "path")
		if !ok {
			return
		}
		f.fitsModel(n, a, kind, path, isDir)
		a.Uploads = append(a.Uploads, Upload{Field: f.at("path"), Path: path, IsDir: isDir, What: "model", Datastore: datastore,
			Set: func(uri string) { a.Properties["modelUri"] = uri }})
	}
}

// fitsModel checks that what is on disk is of the type that is said, and reads an MLflow model's flavors.
func (f *fields) fitsModel(n *node, a *Asset, kind, path string, isDir bool) {
	data, err := os.ReadFile(filepath.Join(path, mlmodel))
	there := isDir && err == nil
	switch {
	case kind == "mlflow_model" && !isDir:
		f.p.at(n.place, f.at("path"), "%s is a file, and a model of type mlflow_model is a folder with a file %s", n.words(), mlmodel)
	case kind == "mlflow_model" && !there:
		f.p.at(n.place, f.at("path"), "there is no file %s in %s: a model of type mlflow_model has one", mlmodel, path)
	case kind == "triton_model" && !isDir:
		f.p.at(n.place, f.at("path"), "%s is a file, and a model of type triton_model is a folder: a model repository", n.words())
	case kind == "custom_model" && there:
		f.p.note("%s holds a file %s: with type: mlflow_model it could be served without code", f.at("path"), mlmodel)
	}
	if kind != "mlflow_model" || !there || a.Properties["flavors"] != nil {
		return
	}
	if root := read(&source{name: filepath.Join(path, mlmodel), dir: path}, data, &problems{}); root != nil && !root.get("flavors").null() {
		a.Properties["flavors"] = flavorsOf(root.get("flavors"))
	}
}

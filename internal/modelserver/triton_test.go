package modelserver

import (
	"reflect"
	"strings"
	"testing"
)

func TestWhereTritonFindsModels(t *testing.T) {
	for _, c := range []struct {
		name  string
		files string
		want  repository
	}{
		{"a repository of two models", "a/config.pbtxt a/1/model.py b/1/model.onnx b/labels.txt README.md", repository{dir: "root", models: []string{"a", "b"}}},
		{"a model without its configuration", "a/3/model.savedmodel/saved_model.pb", repository{dir: "root", models: []string{"a"}}},
		{"an ensemble, whose version has no file", "both/config.pbtxt a/1/model.py", repository{dir: "root", models: []string{"a", "both"}, bare: []string{"both"}}},
		{"one model itself", "config.pbtxt 1/model.py", repository{models: []string{"root"}}},
		{"one model itself without its configuration", "1/model.onnx", repository{models: []string{"root"}}},
		{"one model itself without a version", "config.pbtxt", repository{models: []string{"root"}, bare: []string{"root"}}},
		{"a model whose name is a number", "7/1/model.onnx", repository{dir: "root", models: []string{"7"}}},
		{"a configured model whose name is a number", "7/config.pbtxt 7/1/model.onnx", repository{dir: "root", models: []string{"7"}}},
		{"the older layout", "triton/a/1/model.onnx triton/b/config.pbtxt", repository{dir: "root/triton", models: []string{"a", "b"}, bare: []string{"b"}}},
		{"a model called triton", "triton/1/model.onnx", repository{dir: "root", models: []string{"triton"}}},
		{"a model called triton among others", "triton/1/model.onnx a/1/model.onnx", repository{dir: "root", models: []string{"a", "triton"}}},
		{"files in no version", "a/model.onnx", repository{dir: "root"}},
		{"no file", "", repository{dir: "root"}},
	} {
		if got := repositoryOf("root", strings.Fields(c.files)); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestTritonGetsTheVersionsThatNoFileMakes(t *testing.T) {
	for root, want := range map[string]string{
		"a/1/model.py both/config.pbtxt": `mkdir -p "$AZUREML_MODEL_DIR"/'it'\''s'/'both'/1`,
		"config.pbtxt":                   `mkdir -p "$AZUREML_MODEL_DIR"/'it'\''s'/1`,
	} {
		p, err := Make(ask(func(r *Request) {
			r.ScoringScript, r.ModelType, r.Contained, r.Environment, r.ModelRoot, r.ModelFiles = "", tritonModel, true, TritonEnvironment(), "it's", strings.Fields(root)
		}))
		if err != nil || !strings.Contains(p.Command, want) || strings.Count(p.Command, "mkdir -p") != 2 {
			t.Errorf("of %s: %v\n%s", root, err, p.Command)
		}
	}
}

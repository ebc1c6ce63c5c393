package modelserver

import (
	"reflect"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
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
		{"a folder of notes by year beside a model", "2024/notes.txt resnet/1/model.onnx", repository{dir: "root", models: []string{"resnet"}}},
		{"a number beside a configured model", "1/readme.txt halves/config.pbtxt halves/1/model.py", repository{dir: "root", models: []string{"halves"}}},
		{"one model itself with what it reads", "1/model.onnx words/2024/a.txt", repository{models: []string{"root"}}},
		{"what editors and archives leave", "a/1/model.onnx .ipynb_checkpoints/config.pbtxt __MACOSX/config.pbtxt", repository{dir: "root", models: []string{"a"}}},
		{"files in no version", "a/model.onnx", repository{dir: "root"}},
		{"no file", "", repository{dir: "root"}},
		{"leftovers alone", ".git/config.pbtxt __MACOSX/1/model.onnx", repository{dir: "root"}},
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

func TestAModelsNameIsOnePartOfItsPath(t *testing.T) {
	named := func(name string) (Plan, error) {
		return Make(ask(func(r *Request) {
			r.ScoringScript, r.ModelType, r.Contained, r.Environment, r.ModelFiles = "", tritonModel, true, TritonEnvironment(), []string{name + "/config.pbtxt"}
		}))
	}
	for _, name := range []string{"name_of-version.2@now", "h,1", "h%41"} { // as Triton compares them
		if p, err := named(name); err != nil || p.Serve.Scoring != "/v2/models/"+name+"/infer" {
			t.Errorf("%q is asked at %q, %v", name, p.Serve.Scoring, err)
		}
	}
	for _, name := range []string{"my model", "what?x=1", "a#b", "a\r\nX: 1", "a\x7f", "käse"} {
		if p, err := named(name); trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), "call that folder by") {
			t.Errorf("%q is asked at %q, %v", name, p.Serve.Scoring, err)
		}
	}
}

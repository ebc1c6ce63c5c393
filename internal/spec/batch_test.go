package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/spec"
)

// inFolder writes files into a folder and returns the path of the one called name.
func inFolder(t *testing.T, name string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for f, text := range files {
		path := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, name)
}

func batchDeployment(t *testing.T, name string, files map[string]string, sets ...string) (*spec.BatchDeployment, error) {
	t.Helper()
	doc, err := spec.Load(inFolder(t, name, files), spec.Options{Noun: "batch-deployment", Set: sets})
	if err != nil {
		return nil, err
	}
	return doc.BatchDeployment(trainyard.DefaultScope())
}

const modelDeployment = `
name: classifier-xgboost-custom
endpoint_name: heart-classifier-batch
type: model
model: azureml:heart-classifier-sklpipe@latest
code_configuration:
  code: code
  scoring_script: batch_driver.py
environment: azureml:batch-env:2
compute: azureml:batch-cluster
resources:
  instance_count: 2
`

const batchSettings = `max_concurrency_per_instance: 2
mini_batch_size: 3
output_action: summary_only
retry_settings:
  max_retries: 4
  timeout: 300
error_threshold: -1
logging_level: info
`

func TestSettingsOfABatchDeploymentMeanTheSameInBothOfTheirPlaces(t *testing.T) {
	var got []string
	for _, settings := range []string{batchSettings, "settings:\n  " + strings.ReplaceAll(strings.TrimSpace(batchSettings), "\n", "\n  ")} {
		d, err := batchDeployment(t, "d.yml", map[string]string{"d.yml": modelDeployment + settings, "code/batch_driver.py": ""})
		if err != nil {
			t.Fatal(err)
		}
		if d.Name != "classifier-xgboost-custom" || d.Endpoint != "heart-classifier-batch" || len(d.Uploads) != 1 || d.Uploads[0].What != "code" || d.Model != nil {
			t.Errorf("deployment %+v", d)
		}
		d.Uploads[0].Set("the-code")
		data, err := json.Marshal(d.Spec)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(data))
	}
	scope := trainyard.DefaultScope()
	want := `{"compute":"` + scope.Child("computes", "batch-cluster") + `","model":{"referenceType":"Id","assetId":"` + scope.Child("models", "heart-classifier-sklpipe", "labels", "latest") +
		`"},"codeConfiguration":{"codeId":"the-code","scoringScript":"batch_driver.py"},"environmentId":"` + scope.Child("environments", "batch-env", "versions", "2") +
		`","resources":{"instanceCount":2},"miniBatchSize":3,"maxConcurrencyPerInstance":2,"errorThreshold":-1,"loggingLevel":"Info","outputAction":"SummaryOnly",` +
		`"retrySettings":{"maxRetries":4,"timeout":"PT5M"},"properties":{}}`
	for _, g := range got {
		if diff := cmp.Diff(want, g); diff != "" {
			t.Errorf("- want, + got: %s", diff)
		}
	}
}

func TestABatchDeploymentBringsItsModelAndItsComponentAlong(t *testing.T) {
	d, err := batchDeployment(t, "d.yml", map[string]string{"d.yml": "name: dep\nendpoint_name: scoring\ncompute: cpu\nmodel:\n  name: digits\n  path: model\n", "model/m.bin": "x"})
	if err != nil {
		t.Fatal(err)
	}
	d.Model.Uploads[0].Set("azureml://there")
	d.Model.Named("other")
	d.SetModel("its-id")
	if d.Model.Name != "digits" || len(d.Model.Version) != 32 || d.Model.Properties["modelUri"] != "azureml://there" || d.Spec.Model.AssetID != "its-id" {
		t.Errorf("model %+v, %+v", d.Model, d.Spec.Model)
	}

	files := map[string]string{"d.yml": "name: dep\nendpoint_name: scoring\ntype: pipeline\ncomponent: c/pipeline.yml\nsettings:\n  default_compute: azureml:cpu\n  continue_on_step_failure: false\n",
		"c/pipeline.yml": "type: pipeline\njobs:\n  one:\n    type: command\n    component: ./step.yml\n",
		"c/step.yml":     "name: step\ntype: command\ncode: src\nenvironment: azureml:env:1\ncommand: python a.py\n", "c/src/a.py": ""}
	if d, err = batchDeployment(t, "d.yml", files); err != nil {
		t.Fatal(err)
	}
	d.Uploads[0].Set("its-code")
	d.Component.Named(spec.AnonymousComponent)
	got := string(d.Component.JSON())
	for _, want := range []string{`"code":"its-code"`, `"command":"python a.py"`, `versions/1"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the component lacks %s: %s", want, got)
		}
	}
	if d.Component.Name != "azureml_anonymous" || d.Spec.Configuration.Settings["default_compute"] != "cpu" || d.Spec.Configuration.Settings["continue_on_step_failure"] != false {
		t.Errorf("component %s, settings %v", d.Component.Name, d.Spec.Configuration.Settings)
	}
}

func TestBatchFilesThatAreWrongAreToldSo(t *testing.T) {
	for text, want := range map[string]string{
		"name: dep\nendpoint_name: scoring\nmini_batch_size: 0\n":                       "want an integer of at least 1",
		"name: dep\nendpoint_name: scoring\nsettings: {output_action: print}\n":         "one of append_row, summary_only",
		"name: dep\nendpoint_name: scoring\nsettings: {error_threshold: many}\n":        "a number of files, or -1 for any number",
		"name: dep\nendpoint_name: scoring\nminibatch_size: 3\n":                        "there is no such field; did you mean mini_batch_size?",
		"name: dep\nendpoint_name: scoring\ntype: pipeline\ncomponent: nowhere.yml\n":   "there is no file or folder",
		"name: dep\nendpoint_name: scoring\ntype: pipeline\nsettings: {a: b}\n":         "component: it is missing",
		"name: d\nendpoint_name: scoring\ncode_configuration: {scoring_script: a.py}\n": "3 to 32 letters",
	} {
		if _, err := batchDeployment(t, "d.yml", map[string]string{"d.yml": text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	// A deployment of a job is read; the server says what it lacks.
	d, err := batchDeployment(t, "d.yml", map[string]string{"d.yml": "name: dep\nendpoint_name: scoring\ntype: pipeline\njob_definition: azureml:some-job\nsettings: {default_compute: cpu}\n"})
	if err != nil || string(d.Spec.Extra["jobDefinition"]) != `"azureml:some-job"` {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestABatchEndpointIsRead(t *testing.T) {
	file := inFolder(t, "e.yml", map[string]string{"e.yml": "$schema: https://azuremlschemas.azureedge.net/latest/batchEndpoint.schema.json\nname: mnist-batch\ndescription: digits\nauth_mode: aad_token\ntags: {type: deep-learning}\ndefaults: {deployment_name: blue}\n"})
	doc, err := spec.Load(file, spec.Options{Noun: "batch-endpoint"})
	if err != nil {
		t.Fatal(err)
	}
	e, err := doc.BatchEndpoint(trainyard.DefaultScope())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(e.JSON()); e.Name != "mnist-batch" || e.Tags["type"] != "deep-learning" || got != `{"authMode":"AADToken","defaults":{"deploymentName":"blue"},"description":"digits","properties":{}}` {
		t.Errorf("%s, %v, %s", e.Name, e.Tags, got)
	}
}

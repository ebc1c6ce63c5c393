package mlflow_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// house makes a registered model with three versions, the artifacts of a job.
func house(t *testing.T) *world {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobCompleted)
	w.ok("POST", "mlflow/registered-models/create", `{"name":"House","description":"of ours","tags":[{"key":"kind","value":"tree"}]}`)
	for _, source := range []string{"mlflow-artifacts:/7/j/artifacts/model", "runs:/j/model", "https://h/mlflow/v1.0/x/api/2.0/mlflow-artifacts/artifacts/7/j/artifacts/model"} {
		v := w.ok("POST", "mlflow/model-versions/create", fmt.Sprintf(`{"name":"house","source":%q,"tags":[{"key":"a","value":"b"}]}`, source))
		w.want(v, map[string]string{"model_version.name": "House", "model_version.status": "READY", "model_version.run_id": "j", "model_version.source": source,
			"model_version.current_stage": "None"})
	}
	return w
}

func TestVersionsAreAssets(t *testing.T) {
	w := house(t)
	r, err := w.Resource(t.Context(), scope, trainyard.KindModel, "house", "2")
	if err != nil {
		t.Fatal(err)
	}
	var p map[string]any
	if err := json.Unmarshal(r.Properties, &p); err != nil {
		t.Fatal(err)
	}
	w.want(p, map[string]string{"modelType": "mlflow_model", "jobName": "j", "tags.a": "b",
		"modelUri": "azureml://subscriptions/s/resourcegroups/RG/workspaces/ws/datastores/workspaceartifactstore/paths/ExperimentRun/dcid.j/model"})
	at, err := trainyard.ParseDataPath(scope, p["modelUri"].(string))
	if err != nil || !strings.HasSuffix(at.Key(), "workspaceartifactstore/ExperimentRun/dcid.j/model") {
		t.Errorf("the key is %s, %v", at.Key(), err)
	}
	// What the proxy hands out for it is where the files are.
	w.ok("PUT", proxied+"7/j/artifacts/model/MLmodel", "x")
	uri := w.ok("GET", "mlflow/model-versions/get-download-uri?name=house&version=2", nil).dig("artifact_uri").(string)
	if a := w.do("GET", proxied+strings.TrimPrefix(uri, "mlflow-artifacts:/")+"/MLmodel", ""); a.body != "x" {
		t.Errorf("%s leads to %s %q", uri, a.Status, a.body)
	}
	// Fields that MLflow has no word for stay.
	r.Properties = json.RawMessage(strings.Replace(string(r.Properties), "{", `{"extra":{"onnx":{"data":{}}},`, 1))
	if _, _, err := w.PutResource(t.Context(), trainyard.User{Name: "eve"}, r); err != nil {
		t.Fatal(err)
	}
	w.ok("PATCH", "mlflow/model-versions/update", `{"name":"house","version":"2","description":"second"}`)
	w.ok("POST", "mlflow/model-versions/set-tag", `{"name":"house","version":"2","key":"c","value":"d"}`)
	w.ok("DELETE", "mlflow/model-versions/delete-tag", `{"name":"house","version":"2","key":"a"}`)
	if r, _ = w.Resource(t.Context(), scope, trainyard.KindModel, "house", "2"); !strings.Contains(string(r.Properties), `"onnx"`) {
		t.Errorf("properties: %s", r.Properties)
	}
	v := w.ok("GET", "mlflow/model-versions/get?name=house&version=2", nil)
	w.want(v, map[string]string{"model_version.description": "second"})
	if got := v.pairs("model_version.tags"); got != "c=d" {
		t.Errorf("tags: %s", got)
	}
}

// Models that other clients made are registered models too.
func TestAssetsOfOthersAreRegisteredModels(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobCompleted).Plan.Outputs = map[string]trainyard.TaskOutput{"best": {URI: "azureml://datastores/workspaceblobstore/paths/azureml/j/best/"}}
	put := func(version, uri string) {
		doc := fmt.Sprintf(`{"modelUri":%q,"modelType":"mlflow_model","stage":"Development","tags":null}`, uri)
		if _, _, err := w.PutResource(t.Context(), trainyard.User{Name: "eve"}, &trainyard.Resource{Scope: scope, Kind: trainyard.KindModel, Name: "Flat", Version: version, Properties: json.RawMessage(doc)}); err != nil {
			t.Fatal(err)
		}
	}
	put("9", "azureml://datastores/workspaceblobstore/paths/LocalUpload/1f/model")
	put("10", "azureml://jobs/j/outputs/best/paths/model")
	put("v2-final", "https://example.com/model")
	put("7", "azureml://jobs/j/outputs/artifacts/paths/model")
	for version, want := range map[string]string{"9": "mlflow-artifacts:/datastores/workspaceblobstore/LocalUpload/1f/model", "v2-final": "https://example.com/model",
		"10": "mlflow-artifacts:/datastores/workspaceblobstore/azureml/j/best/model", "7": "mlflow-artifacts:/datastores/workspaceartifactstore/ExperimentRun/dcid.j/model"} {
		v := w.ok("GET", "mlflow/model-versions/get-download-uri?name=flat&version="+version, nil)
		w.want(v, map[string]string{"artifact_uri": want})
	}
	if got := w.search("mlflow/registered-models/get-latest-versions", "model_versions", "version", `{"name":"flat"}`); got != "10" {
		t.Errorf("latest: %s", got)
	}
	m := w.ok("GET", "mlflow/registered-models/get?name=flat", nil)
	w.want(m, map[string]string{"registered_model.name": "Flat", "registered_model.user_id": "eve", "registered_model.latest_versions.0.version": "10"})
	w.ok("POST", "mlflow/registered-models/alias", `{"name":"flat","alias":"champion","version":"9"}`)
	w.want(w.ok("GET", "mlflow/registered-models/alias?name=flat&alias=champion", nil), map[string]string{"model_version.version": "9", "model_version.aliases.0": "champion"})
	w.restart()
	w.want(w.ok("GET", "mlflow/registered-models/get?name=FLAT", nil), map[string]string{"registered_model.name": "Flat", "registered_model.aliases.0.version": "9"})
	v := w.ok("POST", "mlflow/model-versions/create", `{"name":"flat","source":"models:/flat/9"}`)
	w.want(v, map[string]string{"model_version.version": "11"})
	w.want(w.ok("GET", "mlflow/model-versions/get-download-uri?name=flat&version=11", nil), map[string]string{"artifact_uri": "mlflow-artifacts:/datastores/workspaceblobstore/LocalUpload/1f/model"})
}

func TestStagesAndAliases(t *testing.T) {
	w := house(t)
	move := func(version, stage string, archive bool) {
		w.ok("POST", "mlflow/model-versions/transition-stage", fmt.Sprintf(`{"name":"house","version":%q,"stage":%q,"archive_existing_versions":%t}`, version, stage, archive))
	}
	move("1", "production", false)
	move("2", "Staging", true)
	move("3", "Production", true)
	if got := w.search("mlflow/registered-models/get-latest-versions", "model_versions", "version", `{"name":"house","stages":["production","Archived"]}`); got != "3 1" {
		t.Errorf("production and archived: %s", got)
	}
	w.fails("INVALID_PARAMETER_VALUE", "Invalid Model Version stage", "POST", "mlflow/model-versions/transition-stage", `{"name":"house","version":"1","stage":"Moon"}`)
	w.fails("INVALID_PARAMETER_VALUE", "not an Active stage", "POST", "mlflow/model-versions/transition-stage", `{"name":"house","version":"1","stage":"None","archive_existing_versions":true}`)
	for _, alias := range []string{"champion", "best"} {
		w.ok("POST", "mlflow/registered-models/alias", `{"name":"house","alias":"`+alias+`","version":"1"}`)
	}
	w.ok("POST", "mlflow/registered-models/alias", `{"name":"house","alias":"champion","version":"2"}`)
	w.restart()
	w.want(w.ok("GET", "mlflow/registered-models/alias?name=house&alias=champion", nil), map[string]string{"model_version.version": "2"})
	w.want(w.ok("GET", "mlflow/registered-models/alias?name=house&alias=best", nil), map[string]string{"model_version.version": "1"})
	w.want(w.ok("GET", "mlflow/registered-models/alias?name=house&alias=latest", nil), map[string]string{"model_version.version": "3"})
	w.ok("DELETE", "mlflow/model-versions/delete", `{"name":"house","version":"1"}`)
	w.fails("INVALID_PARAMETER_VALUE", "alias best not found", "GET", "mlflow/registered-models/alias?name=house&alias=best", "")
	w.ok("DELETE", "mlflow/registered-models/alias", `{"name":"house","alias":"champion"}`)
	w.fails("INVALID_PARAMETER_VALUE", "alias champion not found", "GET", "mlflow/registered-models/alias?name=house&alias=champion", "")
	for alias, words := range map[string]string{"": "cannot be empty", "a b": "Invalid alias name", "Latest": "reserved", "v7": "reserved"} {
		w.fails("INVALID_PARAMETER_VALUE", words, "POST", "mlflow/registered-models/alias", `{"name":"house","alias":"`+alias+`","version":"2"}`)
	}
	w.fails("RESOURCE_DOES_NOT_EXIST", "version=1) not found", "POST", "mlflow/registered-models/alias", `{"name":"house","alias":"a","version":"1"}`)
}

func TestRegisteredModels(t *testing.T) {
	w := house(t)
	w.fails("RESOURCE_ALREADY_EXISTS", "Registered Model (name=House) already exists", "POST", "mlflow/registered-models/create", `{"name":"HOUSE"}`)
	w.fails("INVALID_PARAMETER_VALUE", "Invalid model name", "POST", "mlflow/registered-models/create", `{"name":"a/b"}`)
	w.fails("INVALID_PARAMETER_VALUE", "required parameter 'name'", "POST", "mlflow/registered-models/create", `{"name":" "}`)
	w.fails("RESOURCE_DOES_NOT_EXIST", "Registered Model with name=none not found", "POST", "mlflow/model-versions/create", `{"name":"none","source":"runs:/j/m"}`)
	for source, words := range map[string]string{"": "'source'", "/tmp/x": "does not see the client's files", "file:///etc/passwd": "does not see", "runs:/j/../k": "Invalid path",
		"mlflow-artifacts:/x": "no artifacts at", "azureml://subscriptions/o/resourcegroups/o/workspaces/o/datastores/d/paths/x": "another workspace"} {
		w.fails("INVALID_PARAMETER_VALUE", words, "POST", "mlflow/model-versions/create", fmt.Sprintf(`{"name":"house","source":%q}`, source))
	}
	w.want(w.ok("GET", "mlflow/model-versions/get-download-uri?name=house&version="+w.ok("POST", "mlflow/model-versions/create",
		`{"name":"house","source":"s3://bucket/m"}`).dig("model_version.version").(string), nil), map[string]string{"artifact_uri": "s3://bucket/m"})
	w.ok("PATCH", "mlflow/registered-models/update", `{"name":"house","description":"new words"}`)
	w.ok("POST", "mlflow/registered-models/set-tag", `{"name":"house","key":"x","value":"y"}`)
	w.ok("DELETE", "mlflow/registered-models/delete-tag", `{"name":"house","key":"kind"}`)
	w.ok("POST", "mlflow/registered-models/create", `{"name":"empty","tags":[{"key":"mlflow.prompt.is_prompt","value":"true"}]}`)
	w.restart()
	m := w.ok("GET", "mlflow/registered-models/get?name=house", nil)
	w.want(m, map[string]string{"registered_model.description": "new words", "registered_model.name": "House", "registered_model.user_id": "ada"})
	if got := m.pairs("registered_model.tags"); got != "x=y" {
		t.Errorf("tags: %s", got)
	}
	for query, want := range map[string]string{
		"": "[empty House]", "?filter=name='House'": "[House]", "?filter=name+ILIKE+'%25OUS%25'": "[House]", "?order_by=creation_timestamp": "[House empty]",
		"?filter=tags.`mlflow.prompt.is_prompt`+!=+'true'": "[House]", "?filter=tags.`mlflow.prompt.is_prompt`+=+'true'": "[empty]",
	} {
		var names []string
		for i := range 5 {
			if name := w.ok("GET", "mlflow/registered-models/search"+query, nil).dig(fmt.Sprintf("registered_models.%d.name", i)); name != nil {
				names = append(names, name.(string))
			}
		}
		if got := fmt.Sprint(names); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	for query, want := range map[string]string{
		"?filter=name='House'": "4 3 2 1", "?filter=run_id='j'&order_by=version_number+ASC": "1 2 3", "?filter=name='House'+and+version_number+%3E+2": "4 3",
		"?filter=source_path+LIKE+'s3:%25'": "4", "?filter=tags.a='b'&max_results=1": "3", "?filter=name='none'": "",
	} {
		v := w.ok("GET", "mlflow/model-versions/search"+query, nil)
		var got []string
		for i := range v["model_versions"].([]any) {
			got = append(got, fmt.Sprint(v.dig(fmt.Sprintf("model_versions.%d.version", i))))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: %s, want %s", query, text, want)
		}
	}
}

func TestRenameAndDelete(t *testing.T) {
	w := house(t)
	w.ok("POST", "mlflow/registered-models/alias", `{"name":"house","alias":"best","version":"2"}`)
	w.ok("POST", "mlflow/registered-models/create", `{"name":"other"}`)
	w.fails("RESOURCE_ALREADY_EXISTS", "already exists", "POST", "mlflow/registered-models/rename", `{"name":"house","new_name":"other"}`)
	w.fails("INVALID_PARAMETER_VALUE", "without regard to case", "POST", "mlflow/registered-models/rename", `{"name":"house","new_name":"HOUSE"}`)
	v := w.ok("POST", "mlflow/registered-models/rename", `{"name":"house","new_name":"Villa"}`)
	w.want(v, map[string]string{"registered_model.name": "Villa", "registered_model.description": "of ours", "registered_model.aliases.0.version": "2"})
	if got := v.pairs("registered_model.tags"); got != "kind=tree" {
		t.Errorf("tags: %s", got)
	}
	w.restart()
	w.fails("RESOURCE_DOES_NOT_EXIST", "name=house not found", "GET", "mlflow/registered-models/get?name=house", "")
	w.want(w.ok("GET", "mlflow/model-versions/get?name=villa&version=2", nil), map[string]string{"model_version.run_id": "j", "model_version.aliases.0": "best"})
	w.ok("DELETE", "mlflow/registered-models/delete", `{"name":"villa"}`)
	w.fails("RESOURCE_DOES_NOT_EXIST", "name=villa not found", "GET", "mlflow/registered-models/get?name=villa", "")
	if len(w.assets) > 0 {
		t.Errorf("%d assets are left", len(w.assets))
	}
	// Its name is free again, and nothing of the old one is back.
	v = w.ok("POST", "mlflow/registered-models/create", `{"name":"villa"}`)
	if len(v.pairs("registered_model.tags")) > 0 || v.dig("registered_model.aliases.0") != nil {
		t.Errorf("a new model: %v", v)
	}
}

// A job may register what it made, where that is allowed, and nothing else.
func TestAJobRegistersItsOwnArtifacts(t *testing.T) {
	w := newWorld(t)
	w.config.JobsRegister = true
	w.restart()
	w.submit("j", "exp", trainyard.JobRunning)
	w.submit("other", "exp", trainyard.JobRunning)
	w.ok("POST", "mlflow/registered-models/create", `{"name":"m"}`, as("j"))
	w.ok("POST", "mlflow/model-versions/create", `{"name":"m","source":"runs:/j/model"}`, as("j"))
	id := w.ok("POST", "mlflow/logged-models", `{"experiment_id":"0","source_run_id":"j"}`, as("j")).dig("model.info.model_id").(string)
	v := w.ok("POST", "mlflow/model-versions/create", `{"name":"m","source":"models:/`+id+`"}`, as("j"))
	w.want(v, map[string]string{"model_version.version": "2", "model_version.model_id": id, "model_version.run_id": "j"})
	for _, source := range []string{"runs:/other/model", "s3://b/x", "azureml://datastores/workspaceblobstore/paths/x",
		"azureml://datastores/workspaceartifactstore/paths/ExperimentRun/dcid.other/model"} {
		w.fails("PERMISSION_DENIED", "the token of job \"j\"", "POST", "mlflow/model-versions/create", fmt.Sprintf(`{"name":"m","source":%q}`, source), as("j"))
	}
	w.fails("PERMISSION_DENIED", "user's token", "POST", "mlflow/registered-models/alias", `{"name":"m","alias":"a","version":"1"}`, as("j"))
	w.fails("PERMISSION_DENIED", "user's token", "POST", "mlflow/model-versions/transition-stage", `{"name":"m","version":"1","stage":"Production"}`, as("j"))
}

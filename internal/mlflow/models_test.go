package mlflow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/output"
)

func TestLoggedModels(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	e := trainyard.ExperimentID(scope, "exp")
	made := w.ok("POST", "mlflow/logged-models", `{"experiment_id":"`+e+`","name":"tree","source_run_id":"j","model_type":"sk",
		"params":[{"key":"depth","value":"3"}],"tags":[{"key":"a","value":"b"}]}`, as("j"))
	id := made.dig("model.info.model_id").(string)
	w.want(made, map[string]string{"model.info.status": "LOGGED_MODEL_PENDING", "model.info.source_run_id": "j", "model.info.experiment_id": e,
		"model.info.artifact_uri": "mlflow-artifacts:/" + e + "/j/artifacts/models/" + id})
	w.want(w.ok("PATCH", "mlflow/logged-models/"+id, `{"model_id":"`+id+`","status":"LOGGED_MODEL_READY"}`, as("j")), map[string]string{"model.info.status": "LOGGED_MODEL_READY"})
	w.ok("POST", "mlflow/logged-models/"+id+"/params", `{"params":[{"key":"width","value":"4"}]}`, as("j"))
	w.ok("PATCH", "mlflow/logged-models/"+id+"/tags", `{"tags":[{"key":"c","value":"d"},{"key":"e","value":"f"}]}`, as("j"))
	w.ok("DELETE", "mlflow/logged-models/"+id+"/tags/e", nil, as("j"))
	// A run's metrics that name the model are the model's too, and are the run's once.
	w.ok("POST", "mlflow/runs/log-metric", `{"run_id":"j","key":"acc","value":0.5,"timestamp":1,"step":0}`, as("j"))
	w.ok("POST", "mlflow/runs/log-metric", `{"run_id":"j","key":"acc","value":0.6,"timestamp":2,"step":1}`, as("j"))
	w.ok("POST", "mlflow/runs/log-batch", `{"run_id":"j","metrics":[{"key":"acc","value":0.5,"timestamp":1,"step":0,"model_id":"`+id+`","dataset_name":"test"},
		{"key":"acc","value":0.6,"timestamp":2,"step":1,"model_id":"`+id+`"},{"key":"f1","value":"NaN","timestamp":2,"model_id":"`+id+`"}]}`, as("j"))
	w.ok("PUT", proxied+e+"/j/artifacts/models/"+id+"/MLmodel", "x", as("j"))
	w.restart()
	m := w.ok("GET", "mlflow/logged-models/"+id, nil)
	w.want(m, map[string]string{"model.info.status": "LOGGED_MODEL_READY", "model.info.model_type": "sk", "model.info.name": "tree"})
	for path, want := range map[string]string{"model.info.tags": "a=b c=d", "model.data.params": "depth=3 width=4", "model.data.metrics": "acc=0.6 acc=0.5 f1=NaN"} {
		if got := m.pairs(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := w.ok("GET", "mlflow/metrics/get-history?run_id=j&metric_key=acc", nil).pairs("metrics"); got != "acc=0.5 acc=0.6" {
		t.Errorf("the run's history: %s", got)
	}
	w.want(w.ok("GET", "mlflow/logged-models/"+id+"/artifacts/directories", nil), map[string]string{"files.0.path": "MLmodel"})
	if _, err := w.blobs.Stat(t.Context(), output.Artifacts(scope, "j")+"/models/"+id+"/MLmodel"); err != nil {
		t.Error(err)
	}
	w.ok("DELETE", "mlflow/logged-models/"+id, nil, as("j"))
	w.fails("RESOURCE_DOES_NOT_EXIST", "not found", "GET", "mlflow/logged-models/"+id, "")
	w.fails("RESOURCE_DOES_NOT_EXIST", "not found", "GET", "mlflow/logged-models/..%2Fx", "")
	w.fails("INVALID_PARAMETER_VALUE", "Invalid model name", "POST", "mlflow/logged-models", `{"experiment_id":"0","name":"a/b"}`)
	w.fails("RESOURCE_DOES_NOT_EXIST", "Run with id=x", "POST", "mlflow/logged-models", `{"experiment_id":"0","source_run_id":"x"}`)
}

func TestSearchLoggedModels(t *testing.T) {
	w := newWorld(t)
	run := w.run(`{"experiment_id":"0"}`)
	for i, name := range []string{"a", "b", "c"} {
		id := w.ok("POST", "mlflow/logged-models", fmt.Sprintf(`{"experiment_id":"0","name":%q,"params":[{"key":"n","value":"%d"}]}`, name, i)).dig("model.info.model_id").(string)
		w.ok("POST", "mlflow/runs/log-metric", fmt.Sprintf(`{"run_id":%q,"key":"acc","value":0.%d,"timestamp":1,"model_id":%q}`, run, i, id))
		w.ok("PUT", proxied+"0/models/"+id+"/artifacts/MLmodel", "x")
	}
	for body, want := range map[string]string{
		`{"experiment_ids":["0"]}`:                                                                  "c b a",
		`{"experiment_ids":["0"],"filter":"name = 'b'"}`:                                            "b",
		`{"experiment_ids":["0"],"filter":"metrics.acc > 0.05 AND params.n IN ('1','2')"}`:          "c b",
		`{"experiment_ids":["0"],"filter":"attributes.status = 'PENDING'","max_results":2}`:         "c b",
		`{"experiment_ids":["0"],"order_by":[{"field_name":"metrics.acc","ascending":true}]}`:       "a b c",
		`{"experiment_ids":["0"],"order_by":[{"field_name":"name","ascending":false}]}`:             "c b a",
		`{"experiment_ids":["0"],"order_by":[{"field_name":"creation_timestamp"}]}`:                 "a b c",
		`{"experiment_ids":["1"]}`:                                                                  "",
		`{"experiment_ids":["0"],"filter":"creation_timestamp_ms > 1 AND source_run_id LIKE 'x%'"}`: "",
	} {
		if got := w.search("mlflow/logged-models/search", "models", "info.name", body); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	w.fails("INVALID_PARAMETER_VALUE", "Invalid entity type", "POST", "mlflow/logged-models/search", `{"experiment_ids":["0"],"filter":"tag.a = 'b'"}`)
}

// MLflow 2's clients keep a list of the models among a run's artifacts in a tag.
func TestLogModel(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	for _, path := range []string{"a", "b"} {
		w.ok("POST", "mlflow/runs/log-model", fmt.Sprintf(`{"run_id":"j","model_json":%q}`, `{"artifact_path":"`+path+`","flavors":{},"utc_time_created":"x","run_id":"j"}`))
	}
	tags := w.ok("GET", "mlflow/runs/get?run_id=j", nil).pairs("run.data.tags")
	if !strings.Contains(tags, `mlflow.log-model.history=[{"artifact_path":"a",`) || !strings.Contains(tags, `{"artifact_path":"b",`) {
		t.Errorf("tags: %s", tags)
	}
	w.fails("INVALID_PARAMETER_VALUE", "mandatory fields: flavors", "POST", "mlflow/runs/log-model", `{"run_id":"j","model_json":"{\"artifact_path\":\"a\"}"}`)
	w.fails("INVALID_PARAMETER_VALUE", "not valid JSON", "POST", "mlflow/runs/log-model", `{"run_id":"j","model_json":"{"}`)
}

func TestTracesOfBothForms(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	v3 := strings.Replace(base, "2.0", "3.0", 1) + "mlflow/traces"
	first := w.ok("POST", v3, `{"trace":{"trace_info":{"trace_id":"tr-1","trace_location":{"type":"MLFLOW_EXPERIMENT","mlflow_experiment":{"experiment_id":"0"}},
		"request_time":"2026-01-02T03:04:05.678Z","execution_duration":"1.500s","state":"OK","trace_metadata":{"mlflow.sourceRun":"j"},"tags":{"mlflow.traceName":"f"}}}}`, as("j"))
	w.want(first, map[string]string{"trace.trace_info.trace_id": "tr-1", "trace.trace_info.state": "OK",
		"trace.trace_info.execution_duration": "1.500s", "trace.trace_info.request_time": "2026-01-02T03:04:05.678Z"})
	at := first.dig("trace.trace_info.tags").(map[string]any)["mlflow.artifactLocation"].(string)
	w.ok("PUT", proxied+strings.TrimPrefix(at, "mlflow-artifacts:/")+"/traces.json", `{"spans":[]}`, as("j"))
	started := w.ok("POST", "mlflow/traces", `{"experiment_id":"0","timestamp_ms":1000,"request_metadata":[{"key":"m","value":"n"}],"tags":[{"key":"a","value":"b"}]}`)
	id := started.dig("trace_info.request_id").(string)
	w.want(started, map[string]string{"trace_info.status": "IN_PROGRESS", "trace_info.timestamp_ms": "1000"})
	w.ok("PATCH", "mlflow/traces/"+id, `{"timestamp_ms":66000,"status":"ERROR","tags":[{"key":"c","value":"d"}]}`)
	w.ok("PATCH", "mlflow/traces/"+id+"/tags", `{"key":"e","value":"f"}`)
	w.ok("DELETE", "mlflow/traces/"+id+"/tags", `{"key":"a"}`)
	w.restart()
	v := w.ok("GET", "mlflow/traces/"+id+"/info", nil)
	w.want(v, map[string]string{"trace_info.status": "ERROR", "trace_info.execution_time_ms": "65000"})
	if got := v.pairs("trace_info.tags"); !strings.HasPrefix(got, "c=d e=f mlflow.artifactLocation=") {
		t.Errorf("tags: %s", got)
	}
	w.want(w.ok("GET", v3+"/"+id, nil), map[string]string{"trace.trace_info.execution_duration": "65.000s"})
	w.fails("RESOURCE_DOES_NOT_EXIST", "Trace with ID 'get' not found", "GET", v3+"/get?trace_id=x", "")
	for filter, want := range map[string]string{"": "tr-1 " + id, "tags.e = 'f'": id, "metadata.m = 'n'": id, "trace.status = 'OK'": "tr-1", "name RLIKE '^f$'": "tr-1",
		"run_id = 'j' AND timestamp_ms > 1": "tr-1", "execution_time_ms > 2000": id, "attributes.end_time_ms < 70000": id} {
		body := map[string]any{"locations": []any{map[string]any{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": map[string]string{"experiment_id": "0"}}}, "filter": filter}
		if got := w.search(v3+"/search", "traces", "trace_id", body); got != want {
			t.Errorf("%s: %q, want %q", filter, got, want)
		}
	}
	old := w.ok("GET", "mlflow/traces?experiment_ids=0&max_results=1&order_by=timestamp_ms+ASC", nil)
	w.want(old, map[string]string{"traces.0.request_id": id})
	w.want(w.ok("POST", v3+"/batchGetInfos", `{"trace_ids":["tr-1","none"]}`), map[string]string{"trace_infos.0.trace_id": "tr-1", "trace_infos.1": "<nil>"})
	w.submit("other", "exp", trainyard.JobRunning)
	w.fails("PERMISSION_DENIED", "may not change trace", "PATCH", "mlflow/traces/tr-1/tags", `{"key":"a","value":"b"}`, as("other"))
	w.fails("PERMISSION_DENIED", "may not change trace", "PUT", proxied+"0/traces/tr-1/artifacts/traces.json", "x", as("other"))
	w.want(w.ok("POST", "mlflow/traces/delete-traces", `{"experiment_id":"0","request_ids":["tr-1"]}`), map[string]string{"traces_deleted": "1"})
	w.want(w.ok("POST", "mlflow/traces/delete-traces", `{"experiment_id":"0","max_timestamp_millis":"2000","max_traces":5}`), map[string]string{"traces_deleted": "1"})
	if got := w.search(v3+"/search", "traces", "trace_id", `{"locations":[{"mlflow_experiment":{"experiment_id":"0"}}]}`); got != "" {
		t.Errorf("left: %s", got)
	}
	w.fails("RESOURCE_DOES_NOT_EXIST", "no artifact", "GET", proxied+"0/traces/tr-1/artifacts/traces.json", "")
}

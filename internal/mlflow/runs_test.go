package mlflow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestAJobIsARun(t *testing.T) {
	w := newWorld(t)
	exp := trainyard.ExperimentID(scope, "exp")
	for state, status := range map[trainyard.JobState]string{
		trainyard.JobQueued: "SCHEDULED", trainyard.JobPreparing: "SCHEDULED", trainyard.JobRunning: "RUNNING", trainyard.JobFinalizing: "RUNNING",
		trainyard.JobCancelRequested: "RUNNING", trainyard.JobCompleted: "FINISHED", trainyard.JobFailed: "FAILED", trainyard.JobCanceled: "KILLED",
	} {
		w.submit("job-"+string(state), "exp", state)
		v := w.ok("GET", "mlflow/runs/get?run_id=job-"+string(state), nil)
		w.want(v, map[string]string{"run.info.status": status, "run.info.run_id": "job-" + string(state), "run.info.experiment_id": exp,
			"run.info.artifact_uri": "mlflow-artifacts:/" + exp + "/job-" + string(state) + "/artifacts", "run.info.lifecycle_stage": "active"})
	}
	v := w.ok("GET", "mlflow/runs/get?run_uuid=job-Completed", nil)
	if got := v.pairs("run.data.tags"); got != "mlflow.runName=Train job-Completed mlflow.source.type=JOB mlflow.user=ada team=blue" {
		t.Errorf("tags: %s", got)
	}
	if v.dig("run.info.start_time").(float64) >= v.dig("run.info.end_time").(float64) {
		t.Errorf("times: %v", v.dig("run.info"))
	}
	w.want(w.ok("GET", "mlflow/experiments/get-by-name?experiment_name=exp", nil), map[string]string{"experiment.experiment_id": exp, "experiment.name": "exp"})
	w.want(w.ok("GET", "mlflow/experiments/get?experiment_id="+exp, nil), map[string]string{"experiment.name": "exp", "experiment.lifecycle_stage": "active"})
}

func TestWhatAClientSaysEndsNoJob(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	for _, status := range []string{"FINISHED", "FAILED", "KILLED"} {
		v := w.ok("POST", "mlflow/runs/update", `{"run_id":"j","status":"`+status+`","end_time":5}`, as("j"))
		w.want(v, map[string]string{"run_info.status": "RUNNING", "run_info.end_time": "<nil>"})
	}
	w.ok("POST", "mlflow/runs/update", `{"run_id":"j","run_name":"mine"}`)
	v := w.ok("GET", "mlflow/runs/get?run_id=j", nil)
	w.want(v, map[string]string{"run.info.run_name": "mine"})
	w.state("j", trainyard.JobFailed)
	w.want(w.ok("GET", "mlflow/runs/get?run_id=j", nil), map[string]string{"run.info.status": "FAILED"})
}

// Everything that is acknowledged is there after the server was killed.
func TestLoggedIsKept(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	w.ok("POST", "mlflow/runs/log-metric", `{"run_id":"j","key":"loss","value":0.5,"timestamp":"1000","step":1}`, as("j"))
	w.ok("POST", "mlflow/runs/log-metric", `{"run_uuid":"j","key":"loss","value":0.25,"timestamp":2000,"step":"2"}`, as("j"))
	w.ok("POST", "mlflow/runs/log-metric", `{"run_id":"j","key":"loss","value":9,"timestamp":3000,"step":0}`, as("j"))
	w.ok("POST", "mlflow/runs/log-parameter", `{"run_id":"j","key":"lr","value":"0.1"}`, as("j"))
	w.ok("POST", "mlflow/runs/set-tag", `{"run_id":"j","key":"a tag","value":"é"}`, as("j"))
	w.ok("POST", "mlflow/runs/log-batch", `{"run_id":"j","metrics":[{"key":"nan","value":"NaN","timestamp":1},{"key":"inf","value":"Infinity","timestamp":1},
		{"key":"low","value":"-Infinity","timestamp":1}],"params":[{"key":"p","value":""}],"tags":[{"key":"t","value":"u"}]}`, as("j"))
	w.ok("POST", "mlflow/runs/delete-tag", `{"run_id":"j","key":"team"}`, as("j"))
	w.ok("POST", "mlflow/runs/log-inputs", `{"run_id":"j","datasets":[{"tags":[{"key":"mlflow.data.context","value":"train"}],
		"dataset":{"name":"iris","digest":"d1","source_type":"local","source":"{}"}}],"models":[{"model_id":"m-1"}]}`, as("j"))
	w.ok("POST", "mlflow/runs/outputs", `{"run_id":"j","models":[{"model_id":"m-2","step":"3"}]}`, as("j"))
	check := func() {
		t.Helper()
		v := w.ok("GET", "mlflow/runs/get?run_id=j", nil)
		if got := v.pairs("run.data.metrics"); got != "inf=Infinity loss=0.25 low=-Infinity nan=NaN" {
			t.Errorf("metrics: %s", got)
		}
		if got := v.pairs("run.data.params"); got != "lr=0.1 p=" {
			t.Errorf("params: %s", got)
		}
		if got := v.pairs("run.data.tags"); got != "a tag=é mlflow.runName=Train j mlflow.source.type=JOB mlflow.user=ada t=u" {
			t.Errorf("tags: %s", got)
		}
		w.want(v, map[string]string{"run.inputs.dataset_inputs.0.dataset.name": "iris", "run.inputs.dataset_inputs.0.tags.0.value": "train",
			"run.inputs.model_inputs.0.model_id": "m-1", "run.outputs.model_outputs.0.step": "3"})
		h := w.ok("GET", "mlflow/metrics/get-history?run_id=j&metric_key=loss", nil)
		if got := h.pairs("metrics"); got != "loss=0.5 loss=0.25 loss=9" {
			t.Errorf("history: %s", got)
		}
	}
	check()
	w.restart()
	check()
	// The job goes, and what was logged to it. Another one of the same name begins anew.
	w.delete("j")
	w.fails("RESOURCE_DOES_NOT_EXIST", "Run with id=j not found", "GET", "mlflow/runs/get?run_id=j", "")
	w.submit("j", "exp", trainyard.JobRunning)
	if got := w.ok("GET", "mlflow/runs/get?run_id=j", nil).pairs("run.data.metrics"); got != "" {
		t.Errorf("a new job has metrics: %s", got)
	}
	w.ok("POST", "mlflow/runs/log-metric", `{"run_id":"j","key":"acc","value":1,"timestamp":1}`)
	if got := w.ok("GET", "mlflow/runs/get?run_id=j", nil).pairs("run.data.metrics"); got != "acc=1" {
		t.Errorf("metrics: %s", got)
	}
}

func TestRunsOfClients(t *testing.T) {
	w := newWorld(t)
	e := w.ok("POST", "mlflow/experiments/create", `{"name":"laptop"}`).dig("experiment_id").(string)
	id := w.run(`{"experiment_id":"` + e + `","run_name":"by hand","start_time":1700000000000,"tags":[{"key":"mlflow.user","value":"bob"}]}`)
	v := w.ok("GET", "mlflow/runs/get?run_id="+id, nil)
	w.want(v, map[string]string{"run.info.status": "RUNNING", "run.info.run_name": "by hand", "run.info.start_time": "1700000000000", "run.info.experiment_id": e})
	if got := v.pairs("run.data.tags"); got != "mlflow.runName=by hand mlflow.user=bob" {
		t.Errorf("tags: %s", got)
	}
	w.ok("POST", "mlflow/runs/update", `{"run_id":"`+id+`","status":"FINISHED","end_time":"1700000001000","run_name":"again"}`)
	w.restart()
	v = w.ok("GET", "mlflow/runs/get?run_id="+id, nil)
	w.want(v, map[string]string{"run.info.status": "FINISHED", "run.info.end_time": "1700000001000", "run.info.run_name": "again"})
	w.ok("POST", "mlflow/runs/delete", `{"run_id":"`+id+`"}`)
	w.want(w.ok("GET", "mlflow/runs/get?run_id="+id, nil), map[string]string{"run.info.lifecycle_stage": "deleted"})
	w.fails("INVALID_PARAMETER_VALUE", "must be in the 'active' state", "POST", "mlflow/runs/log-metric", `{"run_id":"`+id+`","key":"a","value":1,"timestamp":1}`)
	w.ok("POST", "mlflow/runs/restore", `{"run_id":"`+id+`"}`)
	w.ok("POST", "mlflow/runs/log-metric", `{"run_id":"`+id+`","key":"a","value":1,"timestamp":1}`)
	// Of two names one must be wrong.
	w.fails("INVALID_PARAMETER_VALUE", "different values", "POST", "mlflow/runs/create", `{"experiment_id":"0","run_name":"a","tags":[{"key":"mlflow.runName","value":"b"}]}`)
	w.fails("RESOURCE_DOES_NOT_EXIST", "No Experiment with id=77 exists", "POST", "mlflow/runs/create", `{"experiment_id":"77"}`)
	if first, second := w.run(`{}`), w.run(`{}`); first == second {
		t.Error("two runs have one ID")
	}
}

// A job's script that starts a run inside its own, and dies: the run ends as the job did.
func TestNestedRuns(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	nested := w.run(`{"experiment_id":"`+trainyard.ExperimentID(scope, "exp")+`","tags":[{"key":"mlflow.parentRunId","value":"j"}]}`, as("j"))
	plain := w.run(`{"experiment_id":"0"}`, as("j"))
	deeper := w.run(`{"experiment_id":"0","tags":[{"key":"mlflow.parentRunId","value":"`+nested+`"}]}`, as("j"))
	for _, id := range []string{nested, plain, deeper} {
		w.ok("POST", "mlflow/runs/log-metric", `{"run_id":"`+id+`","key":"a","value":1,"timestamp":1}`, as("j"))
	}
	if got := w.ok("GET", "mlflow/runs/get?run_id="+plain, nil).pairs("run.data.tags"); !strings.Contains(got, "mlflow.parentRunId=j") {
		t.Errorf("a run that a job made has the tags %s", got)
	}
	w.ok("POST", "mlflow/runs/update", `{"run_id":"`+deeper+`","status":"FINISHED","end_time":1}`, as("j"))
	w.state("j", trainyard.JobCanceled)
	for id, status := range map[string]string{nested: "KILLED", plain: "KILLED", deeper: "FINISHED"} {
		w.want(w.ok("GET", "mlflow/runs/get?run_id="+id, nil), map[string]string{"run.info.status": status})
	}
}

// A job is not trusted: its token writes its own run and those below.
func TestAJobsTokenWritesItsOwnRuns(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	w.submit("other", "exp", trainyard.JobRunning)
	free := w.run(`{"experiment_id":"0"}`)
	theirs := w.run(`{"experiment_id":"0"}`, as("other"))
	ours := w.run(`{"experiment_id":"0","tags":[{"key":"mlflow.parentRunId","value":"j"}]}`) // made outside, and put below the job
	w.ok("POST", "mlflow/runs/set-tag", `{"run_id":"`+ours+`","key":"a","value":"b"}`, as("j"))
	model := w.ok("POST", "mlflow/logged-models", `{"experiment_id":"0","name":"x"}`).dig("model.info.model_id").(string)
	w.ok("POST", "mlflow/registered-models/create", `{"name":"house"}`)
	for _, id := range []string{"other", free, theirs} {
		for path, body := range map[string]string{
			"log-metric": `"key":"a","value":1,"timestamp":1`, "log-parameter": `"key":"a","value":"1"`, "set-tag": `"key":"a","value":"1"`,
			"log-batch": `"metrics":[{"key":"a","value":1,"timestamp":1}]`, "log-inputs": `"models":[{"model_id":"m-1"}]`, "delete": `"x":1`,
			"outputs": `"models":[{"model_id":"m-1"}]`, "update": `"status":"FAILED"`, "restore": `"x":1`,
		} {
			w.fails("PERMISSION_DENIED", "may write its own run and runs nested below it", "POST", "mlflow/runs/"+path, `{"run_id":"`+id+`",`+body+`}`, as("j"))
		}
		w.fails("PERMISSION_DENIED", "nested below it", "PUT", "mlflow-artifacts/artifacts/0/"+id+"/artifacts/a.txt", "x", as("j"))
		w.fails("PERMISSION_DENIED", "nested below it", "DELETE", "mlflow-artifacts/artifacts/0/"+id+"/artifacts/a.txt", "", as("j"))
		w.fails("PERMISSION_DENIED", "nested below it", "POST", "mlflow/runs/create", `{"experiment_id":"0","tags":[{"key":"mlflow.parentRunId","value":"`+id+`"}]}`, as("j"))
		w.fails("PERMISSION_DENIED", "nested below it", "POST", "mlflow/logged-models", `{"experiment_id":"0","source_run_id":"`+id+`"}`, as("j"))
	}
	for _, c := range []struct{ method, path, body string }{
		{"POST", "mlflow/experiments/create", `{"name":"x"}`}, {"POST", "mlflow/experiments/update", `{"experiment_id":"0","new_name":"x"}`},
		{"POST", "mlflow/experiments/delete", `{"experiment_id":"0"}`}, {"POST", "mlflow/experiments/set-experiment-tag", `{"experiment_id":"0","key":"a","value":"b"}`},
		{"PATCH", "mlflow/logged-models/" + model, `{"status":"LOGGED_MODEL_READY"}`}, {"DELETE", "mlflow/logged-models/" + model, ``},
		{"PUT", "mlflow-artifacts/artifacts/0/models/" + model + "/artifacts/a", "x"},
		{"POST", "mlflow/registered-models/create", `{"name":"y"}`}, {"PATCH", "mlflow/registered-models/update", `{"name":"house"}`},
		{"DELETE", "mlflow/registered-models/delete", `{"name":"house"}`}, {"POST", "mlflow/registered-models/rename", `{"name":"house","new_name":"z"}`},
		{"POST", "mlflow/registered-models/alias", `{"name":"house","alias":"a","version":"1"}`},
		{"POST", "mlflow/model-versions/create", `{"name":"house","source":"runs:/j/m"}`},
		{"PATCH", "mlflow/model-versions/update", `{"name":"house","version":"1"}`},
		{"POST", "mlflow/model-versions/transition-stage", `{"name":"house","version":"1","stage":"Staging"}`},
		{"POST", "mlflow/traces/delete-traces", `{"experiment_id":"0","request_ids":["tr-1"]}`},
	} {
		w.fails("PERMISSION_DENIED", "the token of job \"j\" may write its own run", c.method, c.path, c.body, as("j"))
	}
	// It reads all of its workspace, and nothing of another.
	w.ok("GET", "mlflow/runs/get?run_id="+free, nil, as("j"))
	w.fails("PERMISSION_DENIED", "not workspace", "GET", strings.Replace(base, "/ws/", "/else/", 1)+"mlflow/runs/get?run_id=j", "", as("j"))
	w.fails("PERMISSION_DENIED", "a reader may not write", "POST", "mlflow/runs/create", `{}`, "Authorization: Bearer r")
	w.ok("POST", "mlflow/runs/search", `{"experiment_ids":["0"]}`, "Authorization: Bearer r")
	w.fails("UNAUTHENTICATED", "who are you", "GET", "mlflow/runs/get?run_id=j", "", "Authorization: Bearer x")
	if w.log.Len() > 0 {
		t.Errorf("users' errors are in the log: %s", w.log.String())
	}
}

func TestBatchesAreCheckedAsMLflowDoes(t *testing.T) {
	w := newWorld(t)
	id := w.run(`{"experiment_id":"0"}`)
	list := func(n int, item string) string {
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(item, "#", fmt.Sprint(i)))
		}
		return strings.Join(all, ",")
	}
	batch := func(parts string) string { return `{"run_id":"` + id + `",` + parts + `}` }
	metrics, params, tags := `{"key":"m","value":#,"timestamp":1,"step":#}`, `{"key":"p#","value":"#"}`, `{"key":"t#","value":"#"}`
	w.ok("POST", "mlflow/runs/log-batch", batch(`"metrics":[`+list(1000, metrics)+`]`))
	w.ok("POST", "mlflow/runs/log-batch", batch(`"metrics":[`+list(800, metrics)+`],"params":[`+list(100, params)+`],"tags":[`+list(100, tags)+`]`))
	for words, body := range map[string]string{
		"at most 1000 metrics. Got 1001":                   batch(`"metrics":[` + list(1001, metrics) + `]`),
		"at most 100 params. Got 101":                      batch(`"params":[` + list(101, params) + `]`),
		"at most 100 tags. Got 101":                        batch(`"tags":[` + list(101, tags) + `]`),
		"at most 1000 metrics, params, and tags. Got 1001": batch(`"metrics":[` + list(950, metrics) + `],"tags":[` + list(51, tags) + `]`),
		"Duplicate parameter keys":                         batch(`"params":[{"key":"a","value":"1"},{"key":"a","value":"1"}]`),
		"already logged with value='7'":                    batch(`"metrics":[{"key":"never","value":1,"timestamp":1}],"params":[{"key":"p7","value":"8"}]`),
		"'key' exceeds the maximum length of 250":          batch(`"params":[{"key":"` + strings.Repeat("k", 251) + `","value":"1"}]`),
		"'name' exceeds the maximum length of 250":         batch(`"metrics":[{"key":"` + strings.Repeat("k", 251) + `","value":1,"timestamp":1}]`),
		"Names may only contain":                           batch(`"tags":[{"key":"a\u0000b","value":"1"}]`),
		"would resolve to":                                 batch(`"tags":[{"key":"../a","value":"1"}]`),
		"parameter 'value'":                                batch(`"metrics":[{"key":"a","timestamp":1}]`),
		"nonnegative long":                                 batch(`"metrics":[{"key":"a","value":1,"timestamp":-1}]`),
		"is not a number":                                  batch(`"metrics":[{"key":"a","value":"x","timestamp":1}]`),
		"is not the JSON object":                           `{"run_id":`,
		"required parameter 'run_id'":                      `{"metrics":[]}`,
		"parameter 'run_id' supplied":                      `{"run_id":"../x","metrics":[{"key":"a","value":1,"timestamp":1}]}`,
	} {
		w.fails("INVALID_PARAMETER_VALUE", words, "POST", "mlflow/runs/log-batch", body)
	}
	w.fails("RESOURCE_DOES_NOT_EXIST", "Run with id=none not found", "POST", "mlflow/runs/log-batch", `{"run_id":"none","tags":[{"key":"a","value":"b"}]}`)
	v := w.ok("GET", "mlflow/runs/get?run_id="+id, nil)
	if got := v.pairs("run.data.metrics"); got != "m=999" { // nothing of a batch that was refused
		t.Errorf("metrics: %s", got)
	}
	// The same value again is no change; long values are cut.
	w.ok("POST", "mlflow/runs/log-batch", batch(`"params":[{"key":"p7","value":"7"},{"key":"long","value":"`+strings.Repeat("é", 6001)+`"}]`))
	w.ok("POST", "mlflow/runs/log-batch", batch(`"params":[{"key":"long","value":"`+strings.Repeat("é", 6001)+`"}]`))
	if got := w.ok("GET", "mlflow/runs/get?run_id="+id, nil).pairs("run.data.params"); !strings.HasPrefix(got, "long="+strings.Repeat("é", 6000)+" p0") {
		t.Errorf("params: %.100s", got)
	}
}

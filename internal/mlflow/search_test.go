package mlflow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// search returns the names of the runs that a search finds, in order.
func (w *world) search(path, list, name string, body any) string {
	w.t.Helper()
	v := w.ok("POST", path, body)
	found, _ := v[list].([]any)
	var names []string
	for _, x := range found {
		names = append(names, fmt.Sprint(object(x.(map[string]any)).dig(name)))
	}
	return strings.Join(names, " ")
}

func (w *world) runs(filter string, more ...any) string {
	w.t.Helper()
	body := map[string]any{"experiment_ids": []string{"0", trainyard.ExperimentID(scope, "exp")}, "filter": filter}
	for i := 0; i+1 < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	return w.search("mlflow/runs/search", "runs", "info.run_name", body)
}

// zoo makes runs of all sorts: two jobs, and three of clients.
func zoo(t *testing.T) *world {
	w := newWorld(t)
	w.submit("j1", "exp", trainyard.JobCompleted).Spec.DisplayName = "j1"
	w.submit("j2", "exp", trainyard.JobRunning).Spec.DisplayName = "j2"
	w.submit("elsewhere", "other", trainyard.JobRunning)
	for i, name := range []string{"a", "b", "c"} {
		id := w.run(fmt.Sprintf(`{"experiment_id":"0","run_name":"%s","start_time":%d,"user_id":"u%d"}`, name, 1000-i, i))
		w.ok("POST", "mlflow/runs/log-batch", fmt.Sprintf(`{"run_id":"%s","metrics":[{"key":"val loss","value":%d,"timestamp":1}],
			"params":[{"key":"model","value":"ResNet_%d"}],"tags":[{"key":"odd.tag/x","value":"it's %d%%"}]}`, id, i, i, i))
	}
	nan := w.run(`{"experiment_id":"0","run_name":"nan","start_time":1}`)
	w.ok("POST", "mlflow/runs/log-metric", `{"run_id":"`+nan+`","key":"val loss","value":"NaN","timestamp":1}`)
	w.ok("POST", "mlflow/runs/log-inputs", `{"run_id":"`+nan+`","datasets":[{"tags":[{"key":"mlflow.data.context","value":"train"}],
		"dataset":{"name":"iris","digest":"d1","source_type":"local","source":"{}"}},{"tags":[],"dataset":{"name":"wine","digest":"d2","source_type":"local","source":"{}"}}]}`)
	w.ok("POST", "mlflow/runs/set-tag", `{"run_id":"j1","key":"best","value":"yes"}`)
	return w
}

func TestFilters(t *testing.T) {
	w := zoo(t)
	for filter, want := range map[string]string{
		"":                         "j2 j1 a b c nan",
		"  \n ":                    "j2 j1 a b c nan",
		"metrics.`val loss` < 2":   "a b",
		"metric.\"val loss\" >= 1": "b c",
		"metrics.`val loss` != 1":  "a c nan",
		"metrics.`val loss` > -1e0 and metrics.`val loss` <= .5":   "a",
		"params.model = 'ResNet_1'":                                "b",
		"param.model != 'ResNet_1'":                                "a c",
		"parameters.model LIKE 'ResNet%'":                          "a b c",
		"params.model LIKE 'resnet%'":                              "",
		"params.model ilike 'resnet__'":                            "a b c",
		"params.model IN ('ResNet_0', \"ResNet_2\")":               "a c",
		"params.model NOT IN ('ResNet_0',)":                        "b c",
		"params.model IS NULL":                                     "j2 j1 nan",
		"tags.best IS NOT NULL":                                    "j1",
		"tags.`odd.tag/x` = 'it''s 1%'":                            "b",
		"tag.odd.tag/x = \"it's 1%\"":                              "b",
		"`tags`.best = 'yes'":                                      "j1",
		"tags.mlflow.user = 'ada'":                                 "j2 j1",
		"tags.team='blue'AND status='FINISHED'":                    "j1",
		"attributes.status = 'RUNNING'":                            "j2 a b c nan",
		"attr.run_name = 'b'":                                      "b",
		"run_name LIKE 'j%' AND user_id='ada'":                     "j2 j1",
		"run.start_time < 1000":                                    "b c nan",
		"Created >= 1000 AND end_time > 0":                         "j1",
		"attributes.run_id = 'j1'":                                 "j1",
		"run_id IN ('j1', 'j2', 'elsewhere')":                      "j2 j1",
		"run_id = 'none'":                                          "",
		"dataset.name = 'wine'":                                    "nan",
		"datasets.context LIKE 'tr%' AND dataset.digest IN ('d1')": "nan",
		"params.none = 'x'":                                        "",
		"metrics.none != 1":                                        "",
		"artifact_uri LIKE '%/j2/artifacts'":                       "j2",
	} {
		if got := w.runs(filter); got != want {
			t.Errorf("%s: %q, want %q", filter, got, want)
		}
	}
	for filter, words := range map[string]string{
		"metrics.a ~ 1":                    "want a comparator",
		"metrics.a = 'x'":                  "Expected numeric value type for metric 'a'",
		"metrics.a LIKE 'x'":               "it is a number",
		"params.a > 'x'":                   "it is a text",
		"params.a = 1":                     "want a text in quotes",
		"params.a = x":                     "want a text in quotes",
		"params.a = 'x":                    "the end of a quoted text",
		"params.`a = 'x'":                  "the end of a quoted name",
		"params.a = 'x' OR params.b = 'y'": "want AND",
		"params.a = 'x' AND":               "something after AND",
		"(params.a = 'x')":                 "a name such as",
		"params.a IN 'x'":                  "want a list",
		"params.a IN ()":                   "want a text in quotes",
		"params.a IN ('x'":                 "the end of a list",
		"params.a NOT 'x'":                 "IN after NOT",
		"run_id IS NULL":                   "only supported for tags",
		"animals.a = 'x'":                  "Invalid entity type 'animals'",
		"attributes.colour = 'x'":          "Invalid attribute key 'colour'",
		"dataset.colour = 'x'":             "Invalid dataset key 'colour'",
		"'a' = 'a'":                        "a name such as",
		"1 = 1":                            "Invalid attribute key '1'",
	} {
		body := fmt.Sprintf(`{"experiment_ids":["0"],"filter":%q}`, filter)
		w.fails("INVALID_PARAMETER_VALUE", words, "POST", "mlflow/runs/search", body)
	}
}

func TestOrderAndPages(t *testing.T) {
	w := zoo(t)
	for order, want := range map[string]string{
		"metrics.`val loss`":            "a b c nan j2 j1", // what is no number comes late, what is nothing last
		"metrics.`val loss` DESC":       "c b a nan j2 j1",
		"params.model desc":             "c b a j2 j1 nan",
		"tags.mlflow.runName ASC":       "a b c j1 j2 nan",
		"attributes.start_time":         "nan c b a j1 j2",
		"end_time DESC":                 "j1 j2 a b c nan",
		"experiment_id, run_name":       "",
		"run_name SIDEWAYS":             "",
		"attributes.colour":             "",
		"dataset.name":                  "",
		"metrics.`val loss` DESC, x":    "",
		"metrics.`val loss` DESC NULLS": "",
	} {
		body := fmt.Sprintf(`{"experiment_ids":["0",%q],"order_by":[%q]}`, trainyard.ExperimentID(scope, "exp"), order)
		if want == "" {
			w.fails("INVALID_PARAMETER_VALUE", "", "POST", "mlflow/runs/search", body)
		} else if got := w.search("mlflow/runs/search", "runs", "info.run_name", body); got != want {
			t.Errorf("%s: %q, want %q", order, got, want)
		}
	}
	if got := w.runs("", "order_by", []string{"attributes.status", "run_name DESC"}); got != "j1 nan j2 c b a" {
		t.Errorf("two keys: %s", got)
	}
	seen, token := "", ""
	for range 10 {
		v := w.ok("POST", "mlflow/runs/search", map[string]any{"experiment_ids": []string{"0"}, "max_results": 3, "page_token": token})
		for i := range v["runs"].([]any) {
			seen += fmt.Sprint(v.dig(fmt.Sprintf("runs.%d.info.run_name", i)), " ")
		}
		if token, _ = v["next_page_token"].(string); token == "" {
			break
		}
	}
	if seen != "a b c nan " {
		t.Errorf("page by page: %s", seen)
	}
	w.fails("INVALID_PARAMETER_VALUE", "page token", "POST", "mlflow/runs/search", `{"experiment_ids":["0"],"page_token":"x"}`)
	w.fails("INVALID_PARAMETER_VALUE", "max_results", "POST", "mlflow/runs/search", `{"experiment_ids":["0"],"max_results":50001}`)
	w.fails("INVALID_PARAMETER_VALUE", "max_results", "POST", "mlflow/runs/search", `{"experiment_ids":["0"],"max_results":-1}`)
}

func TestViewsOfRuns(t *testing.T) {
	w := zoo(t)
	w.jobs["j2"].Spec.IsArchived = true
	w.ok("POST", "mlflow/runs/delete", `{"run_id":"j1"}`)
	if got := w.runs(""); got != "a b c nan" {
		t.Errorf("active: %s", got)
	}
	if got := w.runs("", "run_view_type", "DELETED_ONLY"); got != "j2 j1" {
		t.Errorf("deleted: %s", got)
	}
	if got := w.runs("", "run_view_type", "ALL"); got != "j2 j1 a b c nan" {
		t.Errorf("all: %s", got)
	}
	w.ok("POST", "mlflow/experiments/delete", `{"experiment_id":"`+trainyard.ExperimentID(scope, "exp")+`"}`)
	w.ok("POST", "mlflow/runs/restore", `{"run_id":"j1"}`)
	if got := w.runs(""); got != "a b c nan" { // an experiment takes its runs along
		t.Errorf("active: %s", got)
	}
	w.delete("j1")
	if got := w.runs("", "run_view_type", "ALL"); got != "j2 a b c nan" {
		t.Errorf("after a job was deleted: %s", got)
	}
	w.submit("j3", "exp", trainyard.JobRunning) // and one that came later is found
	if got := w.runs("run_id = 'j3'", "run_view_type", "ALL"); got != "Train j3" {
		t.Errorf("a new job: %s", got)
	}
	v := w.ok("POST", "mlflow/experiments/search-datasets", `{"experiment_ids":["0"]}`)
	w.want(v, map[string]string{"dataset_summaries.0.name": "iris", "dataset_summaries.0.context": "train", "dataset_summaries.1.name": "wine"})
}

func TestExperiments(t *testing.T) {
	w := newWorld(t)
	w.want(w.ok("GET", "mlflow/experiments/get?experiment_id=0", nil), map[string]string{"experiment.name": "Default"})
	w.submit("j", "of jobs", trainyard.JobRunning)
	id := w.ok("POST", "mlflow/experiments/create", `{"name":"mine","tags":[{"key":"a","value":"b"}]}`).dig("experiment_id").(string)
	if id != trainyard.ExperimentID(scope, "mine") {
		t.Errorf("an experiment has the ID %s, and its jobs would have another", id)
	}
	for _, name := range []string{"mine", "of jobs", "Default"} {
		w.fails("RESOURCE_ALREADY_EXISTS", "Experiment(name="+name+") already exists", "POST", "mlflow/experiments/create", `{"name":"`+name+`"}`)
	}
	w.fails("RESOURCE_DOES_NOT_EXIST", "Could not find experiment with name 'x'", "GET", "mlflow/experiments/get-by-name?experiment_name=x", "")
	w.fails("RESOURCE_DOES_NOT_EXIST", "No Experiment with id=5", "GET", "mlflow/experiments/get?experiment_id=5", "")
	w.fails("INVALID_PARAMETER_VALUE", "experiment name", "POST", "mlflow/experiments/create", `{"name":""}`)
	w.fails("INVALID_PARAMETER_VALUE", "Artifact location", "POST", "mlflow/experiments/create", `{"name":"y","artifact_location":"runs:/x"}`)
	w.ok("POST", "mlflow/experiments/set-experiment-tag", `{"experiment_id":"`+trainyard.ExperimentID(scope, "of jobs")+`","key":"kind","value":"jobs"}`)
	search := func(body string) string {
		return w.search("mlflow/experiments/search", "experiments", "name", body)
	}
	w.restart()
	for body, want := range map[string]string{
		`{"max_results":10}`:                                            "of jobs mine Default",
		`{"max_results":10,"order_by":["name DESC"]}`:                   "of jobs mine Default",
		`{"max_results":10,"filter":"tags.kind = 'jobs'"}`:              "of jobs",
		`{"max_results":10,"filter":"name ILIKE 'M%'"}`:                 "mine",
		`{"max_results":10,"filter":"attribute.creation_time > 1"}`:     "of jobs mine",
		`{"max_results":10,"view_type":"DELETED_ONLY"}`:                 "",
		`{"max_results":10,"filter":"experiment_id IN ('` + id + `')"}`: "mine",
	} {
		if got := search(body); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	// A new name, under which it is found; jobs of the old one still belong to it.
	w.ok("POST", "mlflow/experiments/update", `{"experiment_id":"`+id+`","new_name":"yours"}`)
	w.want(w.ok("GET", "mlflow/experiments/get-by-name?experiment_name=yours", nil), map[string]string{"experiment.experiment_id": id, "experiment.tags.0.value": "b"})
	w.fails("RESOURCE_DOES_NOT_EXIST", "mine", "GET", "mlflow/experiments/get-by-name?experiment_name=mine", "")
	w.fails("RESOURCE_ALREADY_EXISTS", "was renamed to 'yours'", "POST", "mlflow/experiments/create", `{"name":"mine"}`)
	w.fails("RESOURCE_ALREADY_EXISTS", "already exists", "POST", "mlflow/experiments/update", `{"experiment_id":"`+id+`","new_name":"of jobs"}`)
	w.submit("late", "mine", trainyard.JobRunning)
	if got := w.search("mlflow/runs/search", "runs", "info.run_id", `{"experiment_ids":["`+id+`"]}`); got != "late" {
		t.Errorf("runs of a renamed experiment: %q", got)
	}
	w.ok("POST", "mlflow/experiments/delete", `{"experiment_id":"`+id+`"}`)
	w.restart()
	w.want(w.ok("GET", "mlflow/experiments/get?experiment_id="+id, nil), map[string]string{"experiment.lifecycle_stage": "deleted", "experiment.name": "yours"})
	w.fails("INVALID_PARAMETER_VALUE", "must be in the 'active' state", "POST", "mlflow/runs/create", `{"experiment_id":"`+id+`"}`)
	w.fails("RESOURCE_ALREADY_EXISTS", "in deleted state", "POST", "mlflow/experiments/create", `{"name":"yours"}`)
	w.ok("POST", "mlflow/experiments/restore", `{"experiment_id":"`+id+`"}`)
	w.ok("POST", "mlflow/experiments/delete-experiment-tag", `{"experiment_id":"`+id+`","key":"a"}`)
	w.fails("RESOURCE_DOES_NOT_EXIST", "No tag with name: a", "POST", "mlflow/experiments/delete-experiment-tag", `{"experiment_id":"`+id+`","key":"a"}`)
	w.fails("INVALID_PARAMETER_VALUE", "default", "POST", "mlflow/experiments/delete", `{"experiment_id":"0"}`)
	w.run(`{"experiment_id":"` + id + `"}`)
}

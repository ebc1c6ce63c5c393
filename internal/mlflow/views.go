package mlflow

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Views of runs, as MLflow's service.proto has them.
type (
	runView struct {
		Info    runInfo   `json:"info"`
		Data    runData   `json:"data"`
		Inputs  runInputs `json:"inputs"`
		Outputs struct {
			Models []modelLink `json:"model_outputs"`
		} `json:"outputs"`
	}
	runInfo struct {
		ID         string `json:"run_id"`
		UUID       string `json:"run_uuid"`
		Name       string `json:"run_name"`
		Experiment string `json:"experiment_id"`
		User       string `json:"user_id"`
		Status     string `json:"status"`
		Start      int64  `json:"start_time"`
		End        int64  `json:"end_time,omitempty"`
		Location   string `json:"artifact_uri"`
		Stage      string `json:"lifecycle_stage"`
	}
	runData struct {
		Metrics []metricView `json:"metrics"`
		Params  []tagView    `json:"params"`
		Tags    []tagView    `json:"tags"`
	}
	runInputs struct {
		Datasets []datasetInput `json:"dataset_inputs"`
		Models   []modelLink    `json:"model_inputs"`
	}
	tagView struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	metricView struct {
		Key     string  `json:"key"`
		Value   *double `json:"value"`
		Time    integer `json:"timestamp"`
		Step    integer `json:"step"`
		Model   string  `json:"model_id,omitempty"`
		Dataset string  `json:"dataset_name,omitempty"`
		Digest  string  `json:"dataset_digest,omitempty"`
		Run     string  `json:"run_id,omitempty"`
	}
)

func viewRun(r *run) runView {
	v := runView{Info: runInfo{ID: r.ID, UUID: r.ID, Name: r.Name, Experiment: r.Experiment, User: r.User, Status: r.Status,
		Start: r.Start, End: r.End, Location: r.Location, Stage: r.Stage},
		Data:   runData{Metrics: viewMetrics(r.metrics, ""), Params: viewPairs(r.params), Tags: viewPairs(r.tags)},
		Inputs: runInputs{Datasets: r.inputs, Models: r.uses}}
	v.Outputs.Models = r.makes
	return v
}

func viewPairs(m map[string]string) []tagView {
	list := make([]tagView, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, tagView{key, m[key]})
	}
	return list
}

func viewMetrics(m map[string]metric, run string) []metricView {
	list := make([]metricView, 0, len(m))
	for _, x := range m {
		list = append(list, x.view(run))
	}
	slices.SortFunc(list, func(a, b metricView) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Dataset, b.Dataset), strings.Compare(a.Digest, b.Digest))
	})
	return list
}

func (m metric) view(run string) metricView {
	return metricView{Key: m.Key, Value: &m.Value, Time: integer(m.Time), Step: integer(m.Step), Model: m.Model, Dataset: m.Dataset, Digest: m.Digest, Run: run}
}

func (m *metricView) metric() metric {
	return metric{Key: m.Key, Value: *m.Value, Time: int64(m.Time), Step: int64(m.Step), Model: m.Model, Dataset: m.Dataset, Digest: m.Digest}
}

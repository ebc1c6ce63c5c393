package mlflow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// logAsk is what the calls that log to a run have in common.
type logAsk struct {
	ID   string `json:"run_id"`
	UUID string `json:"run_uuid"`
}

func (a logAsk) id() string { return runAsk{ID: a.ID, UUID: a.UUID}.id() }

func (d *door) logMetric(c *call) error {
	var ask struct {
		metricView
		UUID string `json:"run_uuid"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	return d.log(c, cmp.Or(ask.Run, ask.UUID), []metricView{ask.metricView}, nil, nil)
}

func (d *door) logParam(c *call) error {
	var ask struct {
		logAsk
		tagView
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	return d.log(c, ask.id(), nil, []tagView{ask.tagView}, nil)
}

func (d *door) setTag(c *call) error {
	var ask struct {
		logAsk
		tagView
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	return d.log(c, ask.id(), nil, nil, []tagView{ask.tagView})
}

func (d *door) logBatch(c *call) error {
	var ask struct {
		ID      string       `json:"run_id"`
		Metrics []metricView `json:"metrics"`
		Params  []tagView    `json:"params"`
		Tags    []tagView    `json:"tags"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	return d.log(c, ask.ID, ask.Metrics, ask.Params, ask.Tags)
}

// log writes down what a client logged at once: all of it or, if any of it is wrong, nothing.
func (d *door) log(c *call, id string, metrics []metricView, params, tags []tagView) error {
	l, err := checkLog(metrics, params, tags)
	if err != nil {
		return err
	}
	err = d.changeRun(c, id, func(rec *record) (*line, error) {
		next := *l
		if next.Params, err = newParams(id, rec, l.Params); err != nil {
			return nil, err
		}
		if next.Metrics, err = d.newMetrics(c.Context(), c.scope, id, rec, l.Metrics); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(l.Tags, func(t pair) bool { return t.Key == tagName }); i >= 0 {
			next.Info = &info{Name: l.Tags[i].Value}
		}
		if len(next.Metrics)+len(next.Params)+len(next.Tags) == 0 {
			return nil, nil
		}
		return &next, nil
	})
	if err == nil {
		err = d.logToModels(c, l.Metrics)
	}
	if err != nil {
		return err
	}
	return c.done()
}

func checkLog(metrics []metricView, params, tags []tagView) (*line, error) {
	var l line
	for i := range metrics {
		if err := checkMetric(&metrics[i]); err != nil {
			return nil, err
		}
		l.Metrics = append(l.Metrics, metrics[i].metric())
	}
	var err error
	if l.Params, err = checkParams(params); err != nil {
		return nil, err
	}
	if l.Tags, err = checkTags(tags, maxTag); err != nil {
		return nil, err
	}
	for _, b := range []struct {
		what    string
		n, most int
	}{{"metrics", len(metrics), maxMetrics}, {"params", len(params), maxParams}, {"tags", len(tags), maxTags},
		{"metrics, params, and tags", len(metrics) + len(params) + len(tags), maxEntities}} {
		if err := checkBatch(b.what, b.n, b.most); err != nil {
			return nil, err
		}
	}
	return &l, nil
}

// newParams are those that the run does not have. One that it has with another value is refused: parameters do not change.
func newParams(id string, rec *record, params []pair) ([]pair, error) {
	var fresh []pair
	var wrong []string
	for _, p := range params {
		old, there := rec.params[p.Key]
		switch {
		case !there:
			fresh = append(fresh, p)
		case old != p.Value:
			wrong = append(wrong, fmt.Sprintf("Param with key='%s' was already logged with value='%s' for run ID='%s'. Attempted logging new value '%s'.",
				p.Key, old, id, p.Value))
		}
	}
	if len(wrong) > 0 {
		return nil, trainyard.Invalid("Changing param values is not allowed. %s Use a nested run for another value.", strings.Join(wrong, " "))
	}
	return fresh, nil
}

func (d *door) deleteTag(c *call) error {
	var ask struct {
		logAsk
		Key string `json:"key"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	r, err := d.run(c.Context(), c.scope, ask.id())
	if err != nil {
		return err
	}
	if _, there := r.tags[ask.Key]; !there {
		return trainyard.NotFound("No tag with name: %s in run with id %s", ask.Key, ask.id())
	}
	err = d.changeRun(c, ask.id(), func(*record) (*line, error) { return &line{Untag: []string{ask.Key}}, nil })
	if err != nil {
		return err
	}
	return c.done()
}

func (d *door) logInputs(c *call) error {
	var ask struct {
		logAsk
		Datasets []datasetInput `json:"datasets"`
		Models   []modelLink    `json:"models"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := checkBatch("datasets", len(ask.Datasets), maxEntities); err != nil {
		return err
	}
	for _, in := range ask.Datasets {
		if in.Dataset.Name == "" || in.Dataset.Digest == "" || in.Dataset.SourceType == "" {
			return trainyard.Invalid("A dataset needs a name, a digest, a source_type and a source.")
		}
	}
	err := d.changeRun(c, ask.id(), func(rec *record) (*line, error) {
		l := &line{Uses: ask.Models}
		for _, in := range ask.Datasets {
			same := func(have datasetInput) bool {
				return have.Dataset.Name == in.Dataset.Name && have.Dataset.Digest == in.Dataset.Digest && slices.Equal(have.Tags, in.Tags)
			}
			if !slices.ContainsFunc(rec.inputs, same) && !slices.ContainsFunc(l.Inputs, same) {
				l.Inputs = append(l.Inputs, in)
			}
		}
		if len(l.Inputs)+len(l.Uses) == 0 {
			return nil, nil
		}
		return l, nil
	})
	if err != nil {
		return err
	}
	return c.done()
}

func (d *door) logOutputs(c *call) error {
	var ask struct {
		logAsk
		Models []modelLink `json:"models"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	err := d.changeRun(c, ask.id(), func(*record) (*line, error) {
		if len(ask.Models) == 0 {
			return nil, nil
		}
		return &line{Makes: ask.Models}, nil
	})
	if err != nil {
		return err
	}
	return c.done()
}

// logModel takes note of a model among the run's artifacts, as clients before 3 do: in a tag.
func (d *door) logModel(c *call) error {
	var ask struct {
		logAsk
		Model string `json:"model_json"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	var model map[string]json.RawMessage
	if err := json.Unmarshal([]byte(ask.Model), &model); err != nil {
		return trainyard.Invalid("Malformed model info. \n %s \n is not valid JSON: %v", cut(ask.Model, 200), err)
	}
	for _, field := range []string{"artifact_path", "flavors", "utc_time_created", "run_id"} {
		if len(model[field]) == 0 {
			return trainyard.Invalid("Model json is missing mandatory fields: %s", field)
		}
	}
	err := d.changeRun(c, ask.id(), func(rec *record) (*line, error) {
		var all []json.RawMessage
		if old := rec.tags[tagModels]; old != "" {
			_ = json.Unmarshal([]byte(old), &all) // what a client wrote there itself is replaced
		}
		text, err := json.Marshal(append(all, json.RawMessage(ask.Model)))
		if err != nil {
			return nil, err
		}
		return &line{Tags: []pair{{tagModels, string(text)}}}, nil
	})
	if err != nil {
		return err
	}
	return c.done()
}

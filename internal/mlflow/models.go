package mlflow

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// Logged models: what MLflow 3 makes of every model that a run logs. They are no registered models; their files are among the run's artifacts.

// Statuses of logged models.
const (
	modelPending = "LOGGED_MODEL_PENDING"
	modelReady   = "LOGGED_MODEL_READY"
	modelFailed  = "LOGGED_MODEL_UPLOAD_FAILED"
)

type loggedModel struct {
	ID string
	info
	modified int64
	params   map[string]string
	tags     map[string]string
	metrics  map[string]metric
}

func modelKey(scope trainyard.Scope, id string) string {
	return container(scope) + "models/" + id + ".jsonl"
}

// model finds a logged model, unless it is deleted.
func (d *door) model(ctx context.Context, scope trainyard.Scope, id string) (*loggedModel, error) {
	missing := trainyard.NotFound("Logged model with ID '%s' not found.", id)
	if !recordID.MatchString(id) {
		return nil, missing
	}
	m := &loggedModel{ID: id}
	err := d.journal.view(ctx, modelKey(scope, id), func(rec *record) error {
		m.info, m.modified = rec.info, rec.modified
		m.params, m.tags, m.metrics = maps.Clone(rec.params), maps.Clone(rec.tags), maps.Clone(rec.metrics)
		return nil
	})
	if err == nil && (m.Kind != kindModel || m.Stage == deleted) {
		err = missing
	}
	return m, err
}

func (m *loggedModel) view() map[string]any {
	return map[string]any{
		"info": map[string]any{"model_id": m.ID, "experiment_id": m.Experiment, "name": m.Name, "creation_timestamp_ms": m.Start,
			"last_updated_timestamp_ms": m.modified, "artifact_uri": m.Location, "status": m.Status, "model_type": m.Type,
			"source_run_id": m.Run, "tags": viewPairs(m.tags), "registrations": []any{}},
		"data": map[string]any{"params": viewPairs(m.params), "metrics": viewMetrics(m.metrics, m.Run)},
	}
}

func (m *loggedModel) look(of, key string) []value {
	switch of {
	case ofParam:
		return lookIn(m.params, key)
	case ofTag:
		return lookIn(m.tags, key)
	case ofMetric:
		var best *metric
		for _, x := range m.metrics {
			if x.Key == key && (best == nil || x.after(*best)) {
				best = &x
			}
		}
		if best == nil {
			return nil
		}
		return numberOf(float64(best.Value))
	}
	switch key {
	case "name":
		return textOf(m.Name)
	case "model_id":
		return textOf(m.ID)
	case "model_type":
		return textOf(m.Type)
	case "status":
		return textOf(strings.TrimPrefix(m.Status, "LOGGED_MODEL_"))
	case "source_run_id":
		return textOf(m.Run)
	case "experiment_id":
		return textOf(m.Experiment)
	case "creation_timestamp":
		return numberOf(float64(m.Start))
	}
	return numberOf(float64(m.modified))
}

type modelAsk struct {
	Experiment string    `json:"experiment_id"`
	Name       string    `json:"name"`
	Type       string    `json:"model_type"`
	Run        string    `json:"source_run_id"`
	Params     []tagView `json:"params"`
	Tags       []tagView `json:"tags"`
}

func (d *door) createModel(c *call) error {
	var ask modelAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	e, err := d.activeExperiment(c.Context(), c.scope, cmp.Or(ask.Experiment, "0"))
	if err != nil {
		return err
	}
	id := "m-" + newID()
	l, err := d.newModel(c, id, e, &ask)
	if err != nil {
		return err
	}
	err = d.journal.change(c.Context(), modelKey(c.scope, id), func(*record) (*line, error) { return l, nil })
	if err == nil {
		err = d.book(c.scope).add(c.Context(), d, bookLine{Kind: kindModel, ID: id, Experiment: e.ID})
	}
	if err != nil {
		return err
	}
	return d.showModel(c, id)
}

// newModel is the first line of a logged model. The files of one that a run makes are among the run's.
func (d *door) newModel(c *call, id string, e *experiment, ask *modelAsk) (l *line, err error) {
	if strings.ContainsAny(ask.Name, "/:.%\"'") {
		return nil, trainyard.Invalid("Invalid model name '%s': it must not contain / : . %% \" '", ask.Name)
	}
	l = &line{At: d.now()}
	if l.Params, err = checkParams(ask.Params); err != nil {
		return nil, err
	}
	if l.Tags, err = checkTags(ask.Tags, maxTag); err != nil {
		return nil, err
	}
	l.Info = &info{Kind: kindModel, Name: cmp.Or(ask.Name, "model-"+id[2:10]), Experiment: e.ID, User: c.who.Name, Status: modelPending, Start: l.At,
		Stage: active, Run: ask.Run, Type: ask.Type, Location: e.Location + "/models/" + id + "/artifacts"}
	if c.who.Role == trainyard.RoleJob {
		l.Info.Owner = c.who.Job
	}
	if ask.Run == "" {
		return l, nil
	}
	if err := d.mayWriteRun(c, ask.Run); err != nil {
		return nil, err
	}
	r, err := d.run(c.Context(), c.scope, ask.Run)
	if err != nil {
		return nil, err
	}
	l.Info.Location = r.Location + "/models/" + id
	return l, nil
}

func (d *door) showModel(c *call, id string) error {
	m, err := d.model(c.Context(), c.scope, id)
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"model": m.view()})
}

func (d *door) getModel(c *call) error { return d.showModel(c, c.id) }

// changeModel changes the logged model of the path, if the caller may.
func (d *door) changeModel(c *call, decide func(*record) (*line, error)) error {
	m, err := d.model(c.Context(), c.scope, c.id)
	if err != nil {
		return err
	}
	if err := d.mayWrite(c, "logged model \""+c.id+"\"", m.Owner, m.Run); err != nil {
		return err
	}
	return d.journal.change(c.Context(), modelKey(c.scope, c.id), func(rec *record) (*line, error) {
		l, err := decide(rec)
		if l != nil {
			l.At = d.now()
		}
		return l, err
	})
}

func (d *door) finalizeModel(c *call) error {
	var ask struct {
		Status string `json:"status"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	if !slices.Contains([]string{modelPending, modelReady, modelFailed}, ask.Status) {
		return trainyard.Invalid("Invalid value %q for parameter 'status' supplied: want %s or %s.", ask.Status, modelReady, modelFailed)
	}
	if err := d.changeModel(c, func(*record) (*line, error) { return &line{Info: &info{Status: ask.Status}}, nil }); err != nil {
		return err
	}
	return d.showModel(c, c.id)
}

func (d *door) deleteModel(c *call) error {
	if err := d.changeModel(c, func(*record) (*line, error) { return &line{Info: &info{Stage: deleted}}, nil }); err != nil {
		return err
	}
	return c.done()
}

func (d *door) setModelTags(c *call) error {
	var ask struct {
		Tags []tagView `json:"tags"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	tags, err := checkTags(ask.Tags, maxTag)
	if err != nil {
		return err
	}
	if err := d.changeModel(c, func(*record) (*line, error) { return &line{Tags: tags}, nil }); err != nil {
		return err
	}
	return d.showModel(c, c.id)
}

func (d *door) deleteModelTag(c *call) error {
	err := d.changeModel(c, func(rec *record) (*line, error) {
		if _, there := rec.tags[c.key]; !there {
			return nil, trainyard.NotFound("No tag with key '%s' found for model with ID '%s'.", c.key, c.id)
		}
		return &line{Untag: []string{c.key}}, nil
	})
	if err != nil {
		return err
	}
	return c.done()
}

func (d *door) logModelParams(c *call) error {
	var ask struct {
		Params []tagView `json:"params"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	params, err := checkParams(ask.Params)
	if err != nil {
		return err
	}
	err = d.changeModel(c, func(rec *record) (*line, error) {
		fresh, err := newParams(c.id, rec, params)
		if err != nil || len(fresh) == 0 {
			return nil, err
		}
		return &line{Params: fresh}, nil
	})
	if err != nil {
		return err
	}
	return c.done()
}

// logToModels gives the metrics of a run that name a logged model to it as well.
func (d *door) logToModels(c *call, metrics []metric) error {
	of := map[string][]metric{}
	for _, m := range metrics {
		if m.Model != "" {
			of[m.Model] = append(of[m.Model], m)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(of)) {
		if _, err := d.model(c.Context(), c.scope, id); err != nil {
			if isMissing(err) {
				continue // the run has it, as it would have any name
			}
			return err
		}
		err := d.journal.change(c.Context(), modelKey(c.scope, id), func(*record) (*line, error) { return &line{Metrics: of[id]}, nil })
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *door) searchModels(c *call) error {
	var ask struct {
		Experiments []string `json:"experiment_ids"`
		Filter      string   `json:"filter"`
		Max         integer  `json:"max_results"`
		Token       string   `json:"page_token"`
		OrderBy     []struct {
			Field     string `json:"field_name"`
			Ascending *bool  `json:"ascending"`
		} `json:"order_by"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	as := searchAsk{Filter: ask.Filter, Max: ask.Max, Token: ask.Token}
	for _, o := range ask.OrderBy {
		if o.Ascending != nil && !*o.Ascending {
			o.Field += " DESC"
		}
		as.OrderBy = append(as.OrderBy, o.Field)
	}
	page, next, err := answer(&modelGrammar, as, 100, mostRuns, func(clauses []clause) ([]*loggedModel, error) {
		return d.modelsOf(c.Context(), c.scope, ask.Experiments, clauses)
	})
	if err != nil {
		return err
	}
	return c.reply(withToken(map[string]any{"models": viewsOf(page, (*loggedModel).view)}, next))
}

// modelsOf lists those of some experiments' logged models that the clauses hold for, the newest first.
func (d *door) modelsOf(ctx context.Context, scope trainyard.Scope, experiments []string, clauses []clause) ([]*loggedModel, error) {
	var all []*loggedModel
	for _, experiment := range experiments {
		ids, err := d.book(scope).list(ctx, d, kindModel, experiment)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			m, err := d.model(ctx, scope, id)
			if isMissing(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if holds(clauses, m) {
				all = append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b *loggedModel) int { return cmp.Or(cmp.Compare(b.Start, a.Start), strings.Compare(a.ID, b.ID)) })
	return all, nil
}

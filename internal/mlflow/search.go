package mlflow

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// mostRuns is how many runs a search answers with at most, as MLflow's own.
const mostRuns = 50_000

func (r *run) look(of, key string) []value {
	switch of {
	case ofMetric:
		if m, there := r.metrics[key]; there {
			return numberOf(float64(m.Value))
		}
	case ofParam:
		return lookIn(r.params, key)
	case ofTag:
		return lookIn(r.tags, key)
	case ofDataset:
		return r.lookDatasets(key)
	}
	if of != ofAttribute {
		return nil
	}
	switch key {
	case "run_id":
		return textOf(r.ID)
	case "run_name":
		return textOf(r.Name)
	case "user_id":
		return textOf(r.User)
	case "status":
		return textOf(r.Status)
	case "artifact_uri":
		return textOf(r.Location)
	case "experiment_id":
		return textOf(r.Experiment)
	case "start_time":
		return numberOf(float64(r.Start))
	case "end_time":
		if r.End != 0 {
			return numberOf(float64(r.End))
		}
	}
	return nil
}

func (r *run) lookDatasets(key string) []value {
	var all []value
	for _, in := range r.inputs {
		switch key {
		case "name":
			all = append(all, value{text: in.Dataset.Name})
		case "digest":
			all = append(all, value{text: in.Dataset.Digest})
		default:
			for _, t := range in.Tags {
				if t.Key == tagContext {
					all = append(all, value{text: t.Value})
				}
			}
		}
	}
	return all
}

func lookIn(m map[string]string, key string) []value {
	if v, there := m[key]; there {
		return textOf(v)
	}
	return nil
}

// views says which lifecycle stages a view type shows.
func views(viewType string) (func(stage string) bool, error) {
	switch viewType {
	case "", "ACTIVE_ONLY":
		return func(s string) bool { return s != deleted }, nil
	case "DELETED_ONLY":
		return func(s string) bool { return s == deleted }, nil
	case "ALL":
		return func(string) bool { return true }, nil
	}
	return nil, trainyard.Invalid("Invalid view type %q: want ACTIVE_ONLY, DELETED_ONLY or ALL", viewType)
}

func (d *door) searchRuns(c *call) error {
	var ask struct {
		searchAsk
		Experiments []string `json:"experiment_ids"`
		View        string   `json:"run_view_type"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	shown, err := views(ask.View)
	if err != nil {
		return err
	}
	page, next, err := answer(&runGrammar, ask.searchAsk, 1000, mostRuns, func(clauses []clause) (all []*run, err error) {
		for _, id := range slices.Compact(slices.Sorted(slices.Values(ask.Experiments))) {
			if all, err = d.runsOf(c.Context(), c.scope, id, clauses, shown, all); err != nil {
				return nil, err
			}
		}
		slices.SortFunc(all, func(a, b *run) int { return cmp.Or(cmp.Compare(b.Start, a.Start), strings.Compare(a.ID, b.ID)) })
		return all, nil
	})
	if err != nil {
		return err
	}
	return c.reply(withToken(map[string]any{"runs": viewsOf(page, viewRun)}, next))
}

func withToken(body map[string]any, token string) map[string]any {
	if token != "" {
		body["next_page_token"] = token
	}
	return body
}

// runsOf adds those of an experiment's runs that are asked for: its jobs, and what clients made.
func (d *door) runsOf(ctx context.Context, scope trainyard.Scope, experiment string, clauses []clause, shown func(string) bool, all []*run) ([]*run, error) {
	e, err := d.experiment(ctx, scope, experiment)
	if isMissing(err) {
		return all, nil // as MLflow does: nothing is found in what is not there
	}
	if err != nil {
		return nil, err
	}
	jobs, err := d.book(scope).jobsOf(ctx, d, e.ID)
	if err != nil {
		return nil, err
	}
	made, err := d.book(scope).list(ctx, d, kindRun, e.ID)
	if err != nil {
		return nil, err
	}
	only := named(clauses)
	for _, id := range append(jobs, made...) {
		if only != nil && !slices.Contains(only, id) {
			continue
		}
		r, err := d.run(ctx, scope, id)
		if isMissing(err) {
			continue // deleted since it was listed
		}
		if err != nil {
			return nil, err
		}
		if e.Stage == deleted {
			r.Stage = deleted
		}
		if shown(r.Stage) && holds(clauses, r) {
			all = append(all, r)
		}
	}
	return all, nil
}

// named are the run IDs that a filter names, if it does: no others need be looked at.
func named(clauses []clause) []string {
	for _, cl := range clauses {
		switch {
		case cl.of != ofAttribute || cl.key != "run_id":
		case cl.op == "=":
			return []string{cl.text}
		case cl.op == "IN":
			return cl.list
		}
	}
	return nil
}

// searchDatasets lists the datasets that an experiment's runs used.
func (d *door) searchDatasets(c *call) error {
	var ask struct {
		Experiments []string `json:"experiment_ids"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	type summary struct {
		Experiment string `json:"experiment_id"`
		Name       string `json:"name"`
		Digest     string `json:"digest"`
		Context    string `json:"context,omitempty"`
	}
	list := []summary{}
	for _, id := range ask.Experiments {
		runs, err := d.runsOf(c.Context(), c.scope, id, nil, func(s string) bool { return s != deleted }, nil)
		if err != nil {
			return err
		}
		for _, r := range runs {
			for _, in := range r.inputs {
				s := summary{Experiment: id, Name: in.Dataset.Name, Digest: in.Dataset.Digest}
				for _, t := range in.Tags {
					if t.Key == tagContext {
						s.Context = t.Value
					}
				}
				if !slices.Contains(list, s) && len(list) < 1000 {
					list = append(list, s)
				}
			}
		}
	}
	return c.reply(map[string]any{"dataset_summaries": list})
}

package mlflow

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

func (d *door) tracesOf(ctx context.Context, scope trainyard.Scope, experiment string) ([]*trace, error) {
	ids, err := d.book(scope).list(ctx, d, kindTrace, experiment)
	if err != nil {
		return nil, err
	}
	var all []*trace
	for _, id := range ids {
		t, err := d.trace(ctx, scope, id)
		if isMissing(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func (t *trace) look(of, key string) []value {
	switch of {
	case ofTag:
		return lookIn(t.Tags, key)
	case ofMetadata:
		return lookIn(t.Metadata, key)
	}
	switch key {
	case "request_id", "trace_id":
		return textOf(t.ID)
	case "client_request_id":
		return textOf(t.Client)
	case "status":
		return textOf(t.State)
	case "name":
		return lookIn(t.Tags, "mlflow.traceName")
	case "run_id":
		return lookIn(t.Metadata, "mlflow.sourceRun")
	case "experiment_id":
		return textOf(t.Place.In.ID)
	case "timestamp":
		return numberOf(float64(t.Time.UnixMilli()))
	case "execution_time":
		return numberOf(float64(t.took()))
	}
	return numberOf(float64(t.Time.UnixMilli() + t.took()))
}

func (d *door) searchTraces(c *call) error {
	var ask struct {
		searchAsk
		Experiments []string        `json:"experiment_ids"`
		Places      []traceLocation `json:"locations"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	for _, p := range ask.Places {
		ask.Experiments = append(ask.Experiments, p.In.ID)
	}
	page, next, err := answer(&traceGrammar, ask.searchAsk, 100, mostRuns, func(clauses []clause) ([]*trace, error) {
		var all []*trace
		for _, experiment := range slices.Compact(slices.Sorted(slices.Values(ask.Experiments))) {
			of, err := d.tracesOf(c.Context(), c.scope, experiment)
			if err != nil {
				return nil, err
			}
			all = append(all, slices.DeleteFunc(of, func(t *trace) bool { return !holds(clauses, t) })...)
		}
		slices.SortFunc(all, func(a, b *trace) int { return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.ID, b.ID)) })
		return all, nil
	})
	if err != nil {
		return err
	}
	var list any = viewsOf(page, (*trace).v2)
	if c.third() {
		list = append([]*trace{}, page...)
	}
	return c.reply(withToken(map[string]any{"traces": list}, next))
}

func (d *door) traceInfos(c *call) error {
	var ask struct {
		IDs []string `json:"trace_ids"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	list := []*trace{}
	for _, id := range ask.IDs {
		t, err := d.trace(c.Context(), c.scope, id)
		if isMissing(err) {
			continue
		}
		if err != nil {
			return err
		}
		list = append(list, t)
	}
	return c.reply(map[string]any{"trace_infos": list})
}

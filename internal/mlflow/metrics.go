package mlflow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/trainyard/trainyard"
)

// historyPage is how many values of a metric are sent at once, and mostHistory how many may be asked for.
const (
	historyPage   = 25_000
	mostHistory   = 1_000_000
	mostIntervals = 2500
)

// errEnough ends a reading early.
var errEnough = errors.New("enough")

// place is where in a run's file a reading goes on: at a line, and at one of the values of the key in it.
type place struct {
	Line int64 `json:"l"`
	At   int   `json:"n"`
}

func (d *door) metricHistory(c *call) error {
	var ask struct {
		runAsk
		Key   string  `json:"metric_key"`
		Token string  `json:"page_token"`
		Max   integer `json:"max_results"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	if ask.Key == "" {
		return trainyard.Invalid("Missing value for required parameter 'metric_key'.")
	}
	from, err := parsePlace(ask.Token)
	if err != nil {
		return err
	}
	if _, err := d.run(c.Context(), c.scope, ask.id()); err != nil {
		return err
	}
	most := int(min(ask.Max, mostHistory))
	if most <= 0 {
		most = historyPage
	}
	list := []metricView{}
	next, err := d.history(c.Context(), c.scope, ask.id(), ask.Key, from, func(m metric) bool {
		if len(list) == most {
			return false
		}
		list = append(list, m.view(""))
		return true
	})
	if err != nil {
		return err
	}
	token := ""
	if next != nil {
		text, err := json.Marshal(next)
		if err != nil {
			return err
		}
		token = base64.RawURLEncoding.EncodeToString(text)
	}
	return c.reply(withToken(map[string]any{"metrics": list}, token))
}

func parsePlace(token string) (p place, err error) {
	if token == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || json.Unmarshal(text, &p) != nil || p.Line < 0 || p.At < 0 {
		return p, trainyard.Invalid("Invalid page token %q: begin the history again", cut(token, 80))
	}
	return p, nil
}

// history calls do with the values of a metric in the order in which they were logged, until it says false: then the place of the value
// that it did not take is returned.
func (d *door) history(ctx context.Context, scope trainyard.Scope, run, key string, from place, do func(metric) bool) (*place, error) {
	r, _, err := d.Blobs.OpenRange(ctx, runKey(scope, run), from.Line, -1)
	if trainyard.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	name, err := json.Marshal(key)
	if err != nil {
		return nil, err
	}
	name = append([]byte(`"k":`), name...) // as the encoder wrote it
	var stop *place
	at, skip := from.Line, from.At
	err = eachLine(r, func(text []byte, whole bool) error {
		here := at
		at += int64(len(text))
		var l line
		if !whole || !bytes.Contains(text, name) || json.Unmarshal(text, &l) != nil {
			return nil
		}
		n := 0
		for _, m := range l.Metrics {
			if m.Key != key {
				continue
			}
			if n++; n <= skip {
				continue
			}
			if !do(m) {
				stop = &place{here, n - 1}
				return errEnough
			}
		}
		skip = 0
		return nil
	})
	if err != nil && err != errEnough {
		return nil, fmt.Errorf("read the history of run %s: %w", run, err)
	}
	return stop, nil
}

// newMetrics leaves out values that the run has and that only name a logged model besides: when MLflow 3 logs a model it sends what the run
// measured again, for the model. A value later than the latest of its key is new for certain, so that the file is seldom read.
func (d *door) newMetrics(ctx context.Context, scope trainyard.Scope, run string, rec *record, metrics []metric) ([]metric, error) {
	var fresh []metric
	seen := map[string]map[metric]bool{} // key → bare values
	for _, m := range metrics {
		old, there := rec.metrics[m.Key]
		if m.Model == "" || !there || m.Step > old.Step || m.Step == old.Step && m.Time > old.Time {
			fresh = append(fresh, m)
			continue
		}
		if seen[m.Key] == nil {
			seen[m.Key] = map[metric]bool{}
			_, err := d.history(ctx, scope, run, m.Key, place{}, func(have metric) bool {
				seen[m.Key][have.bare()] = true
				return len(seen[m.Key]) < mostHistory
			})
			if err != nil {
				return nil, err
			}
		}
		if !seen[m.Key][m.bare()] {
			fresh = append(fresh, m)
		}
	}
	return fresh, nil
}

// bare is the metric without what it was measured of. Values that are not a number are all the same.
func (m metric) bare() metric {
	if math.IsNaN(float64(m.Value)) {
		return metric{Key: m.Key + "\n", Time: m.Time, Step: m.Step}
	}
	return metric{Key: m.Key, Value: m.Value, Time: m.Time, Step: m.Step}
}

type intervalAsk struct {
	Runs  []string `json:"run_ids"`
	Key   string   `json:"metric_key"`
	Start *integer `json:"start_step"`
	End   *integer `json:"end_step"`
	Max   integer  `json:"max_results"`
}

func (a *intervalAsk) check() error {
	switch {
	case len(a.Runs) == 0 || len(a.Runs) > 100:
		return trainyard.Invalid("GetMetricHistoryBulkInterval request must specify between 1 and 100 run_ids. Got %d.", len(a.Runs))
	case a.Key == "":
		return trainyard.Invalid("GetMetricHistoryBulkInterval request must specify a metric_key.")
	case (a.Start == nil) != (a.End == nil):
		return trainyard.Invalid("If either start step or end step are specified, both must be specified.")
	case a.Start != nil && *a.Start > *a.End:
		return trainyard.Invalid("end_step must be greater than start_step. Found start_step=%d and end_step=%d.", *a.Start, *a.End)
	case a.Max < 0 || a.Max > mostIntervals:
		return trainyard.Invalid("max_results must be between 1 and %d. Found: %d.", mostIntervals, a.Max)
	}
	return nil
}

// metricIntervals answers with some values of a metric of several runs, spread over a range of steps: what a plot needs.
func (d *door) metricIntervals(c *call) error {
	var ask intervalAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := ask.check(); err != nil {
		return err
	}
	most := int(ask.Max)
	if most == 0 {
		most = mostIntervals
	}
	list := []metricView{}
	for _, id := range ask.Runs {
		if _, err := d.run(c.Context(), c.scope, id); err != nil {
			return err
		}
		var values []metricView
		_, err := d.history(c.Context(), c.scope, id, ask.Key, place{}, func(m metric) bool {
			if ask.Start == nil || m.Step >= int64(*ask.Start) && m.Step <= int64(*ask.End) {
				values = append(values, m.view(id))
			}
			return len(values) < mostHistory
		})
		if err != nil {
			return err
		}
		slices.SortStableFunc(values, func(a, b metricView) int { return cmp.Compare(a.Step, b.Step) })
		list = append(list, spread(values, most)...)
	}
	return c.reply(map[string]any{"metrics": list})
}

// spread picks at most n of a list, evenly, the first and the last among them.
func spread(list []metricView, n int) []metricView {
	if len(list) <= n {
		return list
	}
	if n == 1 {
		return list[len(list)-1:]
	}
	picked := make([]metricView, 0, n)
	for i := range n {
		picked = append(picked, list[i*(len(list)-1)/(n-1)])
	}
	return picked
}

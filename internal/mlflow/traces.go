package mlflow

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Traces come in two forms: clients of MLflow 3 send a trace when it is over, those before start it and end it. Their spans are files
// that the client stores at the trace's artifact location.

const tagLocation = "mlflow.artifactLocation"

// trace is a trace as it is at one moment.
type trace struct {
	ID         string            `json:"trace_id"`
	Client     string            `json:"client_request_id,omitempty"`
	Place      traceLocation     `json:"trace_location"`
	Request    string            `json:"request_preview,omitempty"`
	Response   string            `json:"response_preview,omitempty"`
	Time       time.Time         `json:"request_time"`
	Duration   string            `json:"execution_duration,omitempty"` // "1.5s"
	State      string            `json:"state"`
	Metadata   map[string]string `json:"trace_metadata"`
	Tags       map[string]string `json:"tags"`
	Assessment []json.RawMessage `json:"assessments,omitempty"`
	owner      string
}

type traceLocation struct {
	Type string          `json:"type"`
	In   traceExperiment `json:"mlflow_experiment"`
}

type traceExperiment struct {
	ID string `json:"experiment_id"`
}

// traceV2 is the older form. Numbers are milliseconds.
type traceV2 struct {
	ID         string    `json:"request_id"`
	Experiment string    `json:"experiment_id"`
	Time       integer   `json:"timestamp_ms"`
	Duration   integer   `json:"execution_time_ms"`
	Status     string    `json:"status"`
	Metadata   []tagView `json:"request_metadata"`
	Tags       []tagView `json:"tags"`
}

func traceKey(scope trainyard.Scope, id string) string {
	return container(scope) + "traces/" + id + "/log.jsonl"
}

// took is how long the trace took, in milliseconds.
func (t *trace) took() int64 {
	d, err := time.ParseDuration(t.Duration)
	if err != nil {
		return 0
	}
	return d.Milliseconds()
}

func (t *trace) v2() traceV2 {
	return traceV2{ID: t.ID, Experiment: t.Place.In.ID, Time: integer(t.Time.UnixMilli()), Duration: integer(t.took()), Status: t.State,
		Metadata: viewPairs(t.Metadata), Tags: viewPairs(t.Tags)}
}

// trace finds a trace.
func (d *door) trace(ctx context.Context, scope trainyard.Scope, id string) (*trace, error) {
	missing := trainyard.NotFound("Trace with ID '%s' not found.", id)
	if !recordID.MatchString(id) {
		return nil, missing
	}
	var t trace
	err := d.journal.view(ctx, traceKey(scope, id), func(rec *record) error {
		if rec.Kind != kindTrace || rec.Stage == deleted {
			return missing
		}
		if err := json.Unmarshal(rec.doc, &t); err != nil {
			return err
		}
		t.owner, t.Tags = rec.Owner, maps.Clone(rec.tags)
		return nil
	})
	return &t, err
}

// third says whether a call is of MLflow 3's form of the API.
func (c *call) third() bool { return strings.Contains(c.URL.Path, "/api/3.0/") }

func (d *door) startTrace(c *call) error {
	var ask struct {
		traceV2
		Trace *struct {
			Info json.RawMessage `json:"trace_info"`
		} `json:"trace"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	t := &trace{ID: "tr-" + newID(), Place: placeIn(ask.Experiment), Time: time.UnixMilli(int64(ask.Time)).UTC(), State: "IN_PROGRESS",
		Metadata: asMap(ask.Metadata), Tags: asMap(ask.Tags)}
	if ask.Trace != nil {
		t = &trace{}
		if err := json.Unmarshal(ask.Trace.Info, t); err != nil {
			return trainyard.Invalid("trace_info is not the object that is wanted: %v", err)
		}
	}
	if err := d.keepTrace(c, t); err != nil {
		return err
	}
	return d.showTrace(c, t.ID)
}

func placeIn(experiment string) traceLocation {
	return traceLocation{"MLFLOW_EXPERIMENT", traceExperiment{experiment}}
}

func asMap(list []tagView) map[string]string {
	m := map[string]string{}
	for _, t := range list {
		m[t.Key] = t.Value
	}
	return m
}

// keepTrace writes a trace down; what was known under its ID is replaced.
func (d *door) keepTrace(c *call, t *trace) error {
	if !recordID.MatchString(t.ID) {
		return trainyard.Invalid("Invalid value %q for parameter 'trace_id' supplied.", cut(t.ID, 80))
	}
	e, err := d.activeExperiment(c.Context(), c.scope, t.Place.In.ID)
	if err != nil {
		return err
	}
	old, err := d.trace(c.Context(), c.scope, t.ID)
	if err != nil && !isMissing(err) {
		return err
	}
	if err == nil {
		err = d.mayWrite(c, "trace \""+t.ID+"\"", old.owner, "")
	} else if run := t.Metadata["mlflow.sourceRun"]; run != "" {
		err = d.mayWriteRun(c, run)
	} else {
		err = nil
	}
	if err != nil {
		return err
	}
	if t.Tags == nil {
		t.Tags = map[string]string{}
	}
	t.Tags[tagLocation] = "mlflow-artifacts:/" + e.ID + "/traces/" + t.ID + "/artifacts"
	l := &line{At: d.now(), Info: &info{Kind: kindTrace, Experiment: e.ID, Stage: active}}
	if c.who.Role == trainyard.RoleJob {
		l.Info.Owner = c.who.Job
	}
	for _, key := range slices.Sorted(maps.Keys(t.Tags)) {
		l.Tags = append(l.Tags, pair{key, cut(t.Tags[key], maxTag)})
	}
	if l.Doc, err = json.Marshal(t); err != nil {
		return err
	}
	err = d.journal.change(c.Context(), traceKey(c.scope, t.ID), func(*record) (*line, error) { return l, nil })
	if err == nil && old.Place.In.ID != e.ID {
		err = d.book(c.scope).add(c.Context(), d, bookLine{Kind: kindTrace, ID: t.ID, Experiment: e.ID})
	}
	return err
}

func (d *door) showTrace(c *call, id string) error {
	t, err := d.trace(c.Context(), c.scope, id)
	if err != nil {
		return err
	}
	if c.third() {
		return c.reply(map[string]any{"trace": map[string]any{"trace_info": t}})
	}
	return c.reply(map[string]any{"trace_info": t.v2(), "trace": map[string]any{"trace_info": t}})
}

func (d *door) getTrace(c *call) error { return d.showTrace(c, c.id) }

func (d *door) endTrace(c *call) error {
	var ask traceV2
	if err := c.decode(&ask); err != nil {
		return err
	}
	t, err := d.trace(c.Context(), c.scope, c.id)
	if err != nil {
		return err
	}
	t.State = cmp.Or(ask.Status, "OK")
	t.Duration = strconv.FormatFloat(float64(max(0, int64(ask.Time)-t.Time.UnixMilli()))/1000, 'f', 3, 64) + "s" // as protocol buffers write it
	if t.Metadata == nil {
		t.Metadata = map[string]string{}
	}
	maps.Copy(t.Metadata, asMap(ask.Metadata))
	maps.Copy(t.Tags, asMap(ask.Tags))
	if err := d.keepTrace(c, t); err != nil {
		return err
	}
	return d.showTrace(c, c.id)
}

func (d *door) setTraceTag(c *call) error {
	var ask tagView
	if err := c.decode(&ask); err != nil {
		return err
	}
	tags, err := checkTags([]tagView{ask}, maxTag)
	if err != nil {
		return err
	}
	return d.changeTrace(c, c.id, &line{Tags: tags})
}

func (d *door) deleteTraceTag(c *call) error {
	var ask tagView
	if err := c.decode(&ask); err != nil {
		return err
	}
	return d.changeTrace(c, c.id, &line{Untag: []string{ask.Key}})
}

func (d *door) changeTrace(c *call, id string, l *line) error {
	t, err := d.trace(c.Context(), c.scope, id)
	if err == nil {
		err = d.mayWrite(c, "trace \""+id+"\"", t.owner, "")
	}
	if err == nil {
		err = d.journal.change(c.Context(), traceKey(c.scope, id), func(*record) (*line, error) { return l, nil })
	}
	if err != nil {
		return err
	}
	return c.done()
}

// deleteTraces takes traces away for good: those named, or the oldest up to a time.
func (d *door) deleteTraces(c *call) error {
	var ask struct {
		Experiment string   `json:"experiment_id"`
		Until      *integer `json:"max_timestamp_millis"`
		Max        integer  `json:"max_traces"`
		IDs        []string `json:"request_ids"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := d.noJob(c, "delete traces"); err != nil {
		return err
	}
	if (ask.Until == nil) == (len(ask.IDs) == 0) {
		return trainyard.Invalid("Either max_timestamp_millis or request_ids must be specified, and not both.")
	}
	all, err := d.tracesOf(c.Context(), c.scope, ask.Experiment)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b *trace) int { return a.Time.Compare(b.Time) })
	n := 0
	for _, t := range all {
		if ask.Until != nil && (t.Time.UnixMilli() > int64(*ask.Until) || ask.Max > 0 && n >= int(ask.Max)) || ask.Until == nil && !slices.Contains(ask.IDs, t.ID) {
			continue
		}
		if err := d.book(c.scope).add(c.Context(), d, bookLine{Kind: kindTrace, ID: t.ID, Gone: true}); err != nil {
			return err
		}
		if err := d.Blobs.DeletePrefix(c.Context(), strings.TrimSuffix(traceKey(c.scope, t.ID), "log.jsonl")); err != nil {
			return err
		}
		n++
	}
	return c.reply(map[string]int{"traces_deleted": n})
}

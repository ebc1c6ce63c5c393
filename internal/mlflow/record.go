package mlflow

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"hash/fnv"
	"io"
	"math"
)

// A record is one file of lines, each a JSON object that says what changed: a run, an experiment, a logged model, a trace, a registered
// model. Lines are only ever added. What a record is now is what its lines say one after the other.

// line is one change, all of which holds or none. Names are short because there are many.
type line struct {
	Info    *info           `json:"i,omitempty"`
	At      int64           `json:"at,omitempty"` // ms; not for runs
	Metrics []metric        `json:"m,omitempty"`
	Params  []pair          `json:"p,omitempty"` // of a registered model: its aliases
	Unset   []string        `json:"x,omitempty"` // keys of params that are gone
	Tags    []pair          `json:"t,omitempty"`
	Untag   []string        `json:"u,omitempty"`
	Inputs  []datasetInput  `json:"in,omitempty"`
	Uses    []modelLink     `json:"mi,omitempty"` // logged models that are a run's input
	Makes   []modelLink     `json:"mo,omitempty"` // and its output
	Doc     json.RawMessage `json:"doc,omitempty"`
}

// Kinds of records.
const (
	kindRun        = "run" // made by a client; what is logged to a job's run has no kind
	kindExperiment = "exp"
	kindModel      = "model" // logged, not registered
	kindTrace      = "trace"
	kindRegistered = "reg"
)

// info holds what a record has one of. Empty fields of a line change nothing.
type info struct {
	Kind       string `json:"k,omitempty"`
	Name       string `json:"n,omitempty"`
	Experiment string `json:"e,omitempty"`
	User       string `json:"u,omitempty"`
	Owner      string `json:"o,omitempty"` // the job whose token made it
	Status     string `json:"s,omitempty"`
	Start      int64  `json:"b,omitempty"` // ms; of all but runs, when it was made
	End        int64  `json:"z,omitempty"` // ms
	Stage      string `json:"l,omitempty"` // lifecycle: active or deleted
	Location   string `json:"a,omitempty"` // of artifacts
	Run        string `json:"r,omitempty"` // of a logged model: the run that made it
	Type       string `json:"y,omitempty"` // of a logged model
	About      string `json:"d,omitempty"` // description; noText for none any more
}

type metric struct {
	Key     string `json:"k"`
	Value   double `json:"v"`
	Time    int64  `json:"t"`
	Step    int64  `json:"s,omitempty"`
	Model   string `json:"m,omitempty"`
	Dataset string `json:"d,omitempty"`
	Digest  string `json:"g,omitempty"`
}

type pair struct {
	Key   string `json:"k"`
	Value string `json:"v"`
}

type datasetInput struct {
	Tags    []tagView `json:"tags"`
	Dataset dataset   `json:"dataset"`
}

type dataset struct {
	Name       string `json:"name"`
	Digest     string `json:"digest"`
	SourceType string `json:"source_type"`
	Source     string `json:"source"`
	Schema     string `json:"schema,omitempty"`
	Profile    string `json:"profile,omitempty"`
}

type modelLink struct {
	ID   string  `json:"model_id"`
	Step integer `json:"step"`
}

// record is what the lines of a file come to. The history of metrics stays in the file.
type record struct {
	info
	modified int64 // ms
	params   map[string]string
	tags     map[string]string
	untagged map[string]bool // tags of the job that were deleted
	metrics  map[string]metric
	inputs   []datasetInput
	uses     []modelLink
	makes    []modelLink
	doc      json.RawMessage

	size   int64 // of the file, a torn end and all
	torn   bool  // the file does not end with the end of a line
	last   uint64
	weight int64 // about how much memory this takes
}

func newRecord() *record {
	return &record{params: map[string]string{}, tags: map[string]string{}, untagged: map[string]bool{}, metrics: map[string]metric{}, weight: 600}
}

// apply makes the record what it is after one more line.
func (r *record) apply(l *line) {
	if l.Info != nil {
		r.info.merge(l.Info)
	}
	r.modified = max(r.modified, l.At)
	for _, m := range l.Metrics {
		r.see(m)
	}
	for _, p := range l.Params {
		r.weight += weigh(r.params, p)
		r.params[p.Key] = p.Value
	}
	for _, k := range l.Unset {
		delete(r.params, k)
	}
	for _, p := range l.Tags {
		r.weight += weigh(r.tags, p)
		r.tags[p.Key] = p.Value
		delete(r.untagged, p.Key)
	}
	for _, k := range l.Untag {
		delete(r.tags, k)
		r.untagged[k] = true
	}
	for _, in := range l.Inputs {
		r.weight += int64(len(in.Dataset.Profile) + len(in.Dataset.Schema) + len(in.Dataset.Source) + 200)
		r.inputs = append(r.inputs, in)
	}
	r.uses = link(r.uses, l.Uses)
	r.makes = link(r.makes, l.Makes)
	if len(l.Doc) > 0 {
		r.weight += int64(len(l.Doc) - len(r.doc))
		r.doc = l.Doc
	}
}

func weigh(m map[string]string, p pair) int64 {
	if old, there := m[p.Key]; there {
		return int64(len(p.Value) - len(old))
	}
	return int64(len(p.Key) + len(p.Value) + 64)
}

// link adds what is not there yet; of a model that is, the step is replaced.
func link(have, more []modelLink) []modelLink {
next:
	for _, m := range more {
		for i := range have {
			if have[i].ID == m.ID {
				have[i].Step = m.Step
				continue next
			}
		}
		have = append(have, m)
	}
	return have
}

// see takes a metric for the latest of its key, unless there is one of a later step, time or, those being equal, a greater value.
func (r *record) see(m metric) {
	key := m.Key
	if r.Kind == kindModel {
		key += "\n" + m.Dataset + "\n" + m.Digest
	}
	old, there := r.metrics[key]
	if !there {
		r.weight += int64(2*len(m.Key) + 160)
	}
	if !there || m.after(old) {
		r.metrics[key] = m
	}
}

func (m metric) after(old metric) bool {
	switch {
	case m.Step != old.Step:
		return m.Step > old.Step
	case m.Time != old.Time:
		return m.Time > old.Time
	}
	return m.Value > old.Value || math.IsNaN(float64(old.Value))
}

// noText stands for a text that was taken away: an empty one would change nothing.
const noText = "\x00"

func (i *info) merge(n *info) {
	for _, f := range []struct{ to, from *string }{{&i.Kind, &n.Kind}, {&i.Name, &n.Name}, {&i.Experiment, &n.Experiment}, {&i.User, &n.User},
		{&i.Owner, &n.Owner}, {&i.Status, &n.Status}, {&i.Stage, &n.Stage}, {&i.Location, &n.Location}, {&i.Run, &n.Run}, {&i.Type, &n.Type},
		{&i.About, &n.About}} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
	if n.Start != 0 {
		i.Start = n.Start
	}
	if n.End != 0 {
		i.End = n.End
	}
	if i.About == noText {
		i.About = ""
	}
}

// replay reads a record's file. A line that is no change, because it was torn or because a disk lost it, is passed over.
func replay(r io.Reader) (*record, error) {
	rec := newRecord()
	err := eachLine(r, func(text []byte, whole bool) error {
		rec.size += int64(len(text))
		rec.torn = !whole
		var l line
		if whole && json.Unmarshal(text, &l) == nil {
			rec.apply(&l)
			rec.last = fingerprint(text)
		}
		return nil
	})
	return rec, err
}

// eachLine calls do with every line, its end included; the last one may lack it, and is then not whole. What do is given is its own only
// until it returns.
func eachLine(r io.Reader, do func(text []byte, whole bool) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var long []byte
	for {
		text, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, text...)
			continue
		}
		if err != nil && err != io.EOF {
			return err
		}
		if len(long) > 0 {
			text = append(long, text...)
			long = long[:0]
		}
		if len(text) > 0 {
			if err := do(text, bytes.HasSuffix(text, []byte("\n"))); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

func fingerprint(text []byte) uint64 {
	h := fnv.New64a()
	h.Write(text)
	return h.Sum64()
}

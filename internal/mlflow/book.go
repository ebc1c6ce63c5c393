package mlflow

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/trainyard/trainyard"
)

// book is the index of a workspace: what records there are, and which jobs are in which experiment. What clients made stands in a file of
// lines like a record's; the jobs are asked for as they come, from the newest back to the last one known.
type book struct {
	scope trainyard.Scope

	mu     sync.Mutex
	loaded bool
	size   int64
	torn   bool
	made   map[string]map[string][]string // kind → experiment → IDs, in the order of their making
	gone   map[string]bool                // kind/ID of traces and registered models that were deleted
	names  map[string]string              // experiment → name, of those with a record
	ids    map[string]string              // and the other way round

	jobs map[string][]string // experiment → names of jobs
	born map[string]string   // experiment → the name that its jobs know it by
	from map[string]int64    // experiment → when its first job was submitted, ms
	mark int64               // Seq of the newest job known
}

// bookLine is a line of the index.
type bookLine struct {
	Kind       string `json:"k"`
	ID         string `json:"id"`
	Experiment string `json:"e,omitempty"`
	Name       string `json:"n,omitempty"` // of an experiment; the last line about it counts
	Gone       bool   `json:"g,omitempty"`
}

// book returns the index of a workspace. Looking at one costs nothing until it is read.
func (d *door) book(scope trainyard.Scope) *book {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.books[scope.Key()]
	if b == nil {
		b = &book{scope: scope}
		d.books[scope.Key()] = b
	}
	return b
}

// container is where a workspace's records are, with a slash at its end.
func container(scope trainyard.Scope) string {
	return strings.TrimSuffix(trainyard.RunLog(scope, ""), "runs/")
}

func (b *book) key() string { return container(b.scope) + "index.jsonl" }

// load reads the index if that was not done yet. The caller holds mu.
func (b *book) load(ctx context.Context, d *door) error {
	if b.loaded {
		return nil
	}
	b.size, b.torn = 0, false
	b.made, b.gone = map[string]map[string][]string{}, map[string]bool{}
	b.names, b.ids = map[string]string{}, map[string]string{}
	if b.jobs == nil {
		b.jobs, b.born, b.from = map[string][]string{}, map[string]string{}, map[string]int64{}
	}
	r, _, err := d.Blobs.OpenRange(ctx, b.key(), 0, -1)
	if trainyard.IsNotFound(err) {
		b.loaded = true
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	err = eachLine(r, func(text []byte, whole bool) error {
		b.size += int64(len(text))
		b.torn = !whole
		var l bookLine
		if whole && json.Unmarshal(text, &l) == nil && l.ID != "" {
			b.apply(l)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the index of workspace %s: %w", b.scope.Workspace, err)
	}
	b.loaded = true
	return nil
}

func (b *book) apply(l bookLine) {
	switch {
	case l.Gone:
		b.gone[l.Kind+"/"+l.ID] = true
	case l.Kind == kindExperiment:
		if old, there := b.names[l.ID]; there && b.ids[old] == l.ID {
			delete(b.ids, old)
		}
		b.names[l.ID], b.ids[l.Name] = l.Name, l.ID
	default:
		if b.gone[l.Kind+"/"+l.ID] { // a name that is used again
			delete(b.gone, l.Kind+"/"+l.ID)
			if slices.Contains(b.made[l.Kind][l.Experiment], l.ID) {
				return
			}
		}
		of := b.made[l.Kind]
		if of == nil {
			of = map[string][]string{}
			b.made[l.Kind] = of
		}
		of[l.Experiment] = append(of[l.Experiment], l.ID)
	}
}

// add writes a line to the index.
func (b *book) add(ctx context.Context, d *door, l bookLine) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(ctx, d); err != nil {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if b.torn {
		text = append([]byte(tornEnd), text...)
	}
	text = append(text, '\n')
	want := b.size + int64(len(text))
	size, err := d.Blobs.Append(ctx, b.key(), b.size, text)
	if err != nil || size != want {
		b.loaded = false // what is there is read again
		if err == nil {
			err = fmt.Errorf("append to %s: it has %d bytes and not %d", b.key(), size, want)
		}
		return err
	}
	b.apply(l)
	b.size, b.torn = size, false
	return nil
}

// list returns the IDs of a kind in an experiment, in the order of their making.
func (b *book) list(ctx context.Context, d *door, kind, experiment string) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(ctx, d); err != nil {
		return nil, err
	}
	var ids []string
	for _, id := range b.made[kind][experiment] {
		if !b.gone[kind+"/"+id] {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// experiments returns the names of all experiments by their IDs, with those of jobs and the default one.
func (b *book) experiments(ctx context.Context, d *door) (map[string]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.look(ctx, d); err != nil {
		return nil, err
	}
	all := map[string]string{"0": trainyard.DefaultExperiment}
	for id, name := range b.born {
		all[id] = name
	}
	for id, name := range b.names {
		all[id] = name
	}
	return all, nil
}

// nameOf returns the name of an experiment, "" if there is none, and when its first job was submitted, if that is known. Jobs are asked for
// only if it is not known without.
func (b *book) nameOf(ctx context.Context, d *door, id string) (name string, from int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(ctx, d); err != nil {
		return "", 0, err
	}
	if b.known(id) == "" {
		if err := b.look(ctx, d); err != nil {
			return "", 0, err
		}
	}
	return b.known(id), b.from[id], nil
}

// name writes an experiment's name down, unless it stands there.
func (b *book) name(ctx context.Context, d *door, id, name string) error {
	b.mu.Lock()
	err := b.load(ctx, d)
	same := b.names[id] == name
	b.mu.Unlock()
	if err != nil || same {
		return err
	}
	return b.add(ctx, d, bookLine{Kind: kindExperiment, ID: id, Name: name})
}

func (b *book) known(id string) string {
	switch {
	case b.names[id] != "":
		return b.names[id]
	case id == "0":
		return trainyard.DefaultExperiment
	}
	return b.born[id]
}

// idOf returns the ID of the experiment of that name, "" if there is none. taken is one that had the name, and has another now.
func (b *book) idOf(ctx context.Context, d *door, name string) (id, taken string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.load(ctx, d); err != nil {
		return "", "", err
	}
	if id := b.ids[name]; id != "" {
		return id, "", nil
	}
	own := trainyard.ExperimentID(b.scope, name)
	if b.names[own] != "" {
		return "", own, nil
	}
	if b.known(own) == "" {
		if err := b.look(ctx, d); err != nil {
			return "", "", err
		}
	}
	if b.known(own) == "" {
		return "", "", nil
	}
	return own, "", nil
}

// jobsOf returns the names of an experiment's jobs. Some may have been deleted since.
func (b *book) jobsOf(ctx context.Context, d *door, experiment string) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.look(ctx, d); err != nil {
		return nil, err
	}
	return slices.Clone(b.jobs[experiment]), nil
}

// look takes in the jobs that were submitted since it last did. The caller holds mu.
func (b *book) look(ctx context.Context, d *door) error {
	if err := b.load(ctx, d); err != nil {
		return err
	}
	q := trainyard.JobQuery{Scope: b.scope, View: trainyard.ViewAll, Top: 1}
	var fresh []*trainyard.Job
	for {
		page, err := d.Jobs.Jobs(ctx, q)
		if err != nil {
			return err
		}
		for _, j := range page.Items {
			if j.Seq <= b.mark {
				page.Next = ""
				break
			}
			fresh = append(fresh, &trainyard.Job{Name: j.Name, Seq: j.Seq, Created: j.Created, Spec: trainyard.JobSpec{ExperimentName: j.Spec.ExperimentName}})
		}
		if page.Next == "" {
			break
		}
		q.After, q.Top = page.Next, 1000 // the first page only finds out that there is nothing new, which is the rule
	}
	for _, j := range slices.Backward(fresh) {
		id := trainyard.ExperimentID(b.scope, j.Spec.ExperimentName)
		if b.born[id] == "" {
			b.born[id], b.from[id] = experimentName(j), j.Created.UnixMilli()
		}
		b.jobs[id] = append(b.jobs[id], j.Name)
		b.mark = max(b.mark, j.Seq)
	}
	return nil
}

func experimentName(j *trainyard.Job) string {
	if j.Spec.ExperimentName == "" {
		return trainyard.DefaultExperiment
	}
	return j.Spec.ExperimentName
}

package mlflow

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
)

// experiment is an experiment as it is at one moment: with a record, or only the name that jobs gave it.
type experiment struct {
	ID, Name, Location, Stage string
	Created, Updated          int64 // ms
	tags                      map[string]string
}

func experimentKey(scope trainyard.Scope, id string) string {
	return container(scope) + "experiments/" + id + ".jsonl"
}

// experiment finds an experiment by its ID.
func (d *door) experiment(ctx context.Context, scope trainyard.Scope, id string) (*experiment, error) {
	missing := trainyard.NotFound("No Experiment with id=%s exists", id)
	if !recordID.MatchString(id) {
		return nil, missing
	}
	name, since, err := d.book(scope).nameOf(ctx, d, id)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, missing
	}
	e := &experiment{ID: id, Name: name}
	err = d.journal.view(ctx, experimentKey(scope, id), func(rec *record) error {
		e.Stage, e.Location = cmp.Or(rec.Stage, active), cmp.Or(rec.Location, "mlflow-artifacts:/"+id)
		e.Created = cmp.Or(rec.Start, since)
		e.Updated, e.tags = max(rec.modified, e.Created), maps.Clone(rec.tags)
		return nil
	})
	return e, err
}

// activeExperiment is experiment, but for one that is deleted.
func (d *door) activeExperiment(ctx context.Context, scope trainyard.Scope, id string) (*experiment, error) {
	e, err := d.experiment(ctx, scope, id)
	if err == nil && e.Stage != active {
		err = trainyard.Invalid("The experiment %s must be in the 'active' state. Current state is %s.", id, e.Stage)
	}
	return e, err
}

func (e *experiment) view() map[string]any {
	return map[string]any{"experiment_id": e.ID, "name": e.Name, "artifact_location": e.Location, "lifecycle_stage": e.Stage,
		"creation_time": e.Created, "last_update_time": e.Updated, "tags": viewPairs(e.tags)}
}

func (e *experiment) look(of, key string) []value {
	if of == ofTag {
		return lookIn(e.tags, key)
	}
	switch key {
	case "name":
		return textOf(e.Name)
	case "experiment_id":
		return textOf(e.ID)
	case "creation_time":
		return numberOf(float64(e.Created))
	}
	return numberOf(float64(e.Updated))
}

type experimentAsk struct {
	ID    string `json:"experiment_id"`
	Name  string `json:"new_name"`
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (d *door) createExperiment(c *call) error {
	var ask struct {
		Name     string    `json:"name"`
		Location string    `json:"artifact_location"`
		Tags     []tagView `json:"tags"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := checkExperimentName(ask.Name); err != nil {
		return err
	}
	if err := d.noJob(c, "create experiment \""+ask.Name+"\" (leave set_experiment out: the run is in its job's experiment)"); err != nil {
		return err
	}
	tags, err := checkTags(ask.Tags, maxTag)
	if err != nil {
		return err
	}
	if err := checkLocation(ask.Location); err != nil {
		return err
	}
	if err := d.freeName(c, ask.Name); err != nil {
		return err
	}
	id := trainyard.ExperimentID(c.scope, ask.Name)
	i := &info{Kind: kindExperiment, Start: d.now(), Stage: active, Location: strings.TrimRight(ask.Location, "/")}
	// The index first: it has the names, and an experiment in it without a record is one all the same.
	if err := d.book(c.scope).add(c.Context(), d, bookLine{Kind: kindExperiment, ID: id, Name: ask.Name}); err != nil {
		return err
	}
	err = d.journal.change(c.Context(), experimentKey(c.scope, id), func(rec *record) (*line, error) {
		if rec.Kind != "" {
			return nil, exists("Experiment(name=%s) already exists.", ask.Name) // another client was faster
		}
		return &line{Info: i, At: d.now(), Tags: tags}, nil
	})
	if err != nil {
		return err
	}
	return c.reply(map[string]string{"experiment_id": id})
}

func checkExperimentName(name string) error {
	if name == "" || !utf8.ValidString(name) || utf8.RuneCountInString(name) > maxName {
		return trainyard.Invalid("Invalid experiment name: '%s': want 1 to %d characters", cut(name, 80), maxName)
	}
	return nil
}

// checkLocation lets artifacts be kept elsewhere, where the client puts them itself; what goes through this server has its places.
func checkLocation(uri string) error {
	scheme, _, _ := strings.Cut(uri, ":")
	if uri == "" || !slices.Contains([]string{"runs", "mlflow-artifacts", "models"}, scheme) {
		return nil
	}
	return trainyard.Invalid("Artifact location cannot be %q: leave artifact_location out to keep artifacts on this server, or give a store of your own (s3://…)", uri)
}

// freeName refuses the name of an experiment that there is.
func (d *door) freeName(c *call, name string) error {
	id, taken, err := d.book(c.scope).idOf(c.Context(), d, name)
	if err != nil || id == "" && taken == "" {
		return err
	}
	e, err := d.experiment(c.Context(), c.scope, cmp.Or(id, taken))
	switch {
	case err != nil:
		return err
	case taken != "":
		return exists("Experiment(name=%s) was renamed to '%s', and jobs of the old name belong to it: choose another name.", name, e.Name)
	case e.Stage == deleted:
		return exists("Experiment(name=%s) already exists in deleted state. You can restore the experiment, or choose another name.", name)
	}
	return exists("Experiment(name=%s) already exists.", name)
}

func (d *door) getExperiment(c *call) error {
	var ask experimentAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	e, err := d.experiment(c.Context(), c.scope, ask.ID)
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"experiment": e.view()})
}

func (d *door) getExperimentByName(c *call) error {
	var ask struct {
		Name string `json:"experiment_name"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	id, _, err := d.book(c.scope).idOf(c.Context(), d, ask.Name)
	if err != nil {
		return err
	}
	if id == "" {
		return trainyard.NotFound("Could not find experiment with name '%s'", ask.Name)
	}
	e, err := d.experiment(c.Context(), c.scope, id)
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"experiment": e.view()})
}

func (d *door) searchExperiments(c *call) error {
	var ask struct {
		searchAsk
		View string `json:"view_type"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	shown, err := views(ask.View)
	if err != nil {
		return err
	}
	page, next, err := answer(&experimentGrammar, ask.searchAsk, 1000, mostRuns, func(clauses []clause) (all []*experiment, err error) {
		ids, err := d.book(c.scope).experiments(c.Context(), d)
		if err != nil {
			return nil, err
		}
		for id := range ids {
			e, err := d.experiment(c.Context(), c.scope, id)
			if err != nil {
				return nil, err
			}
			if shown(e.Stage) && holds(clauses, e) {
				all = append(all, e)
			}
		}
		slices.SortFunc(all, func(a, b *experiment) int {
			return cmp.Or(cmp.Compare(b.Created, a.Created), strings.Compare(b.ID, a.ID))
		})
		return all, nil
	})
	if err != nil {
		return err
	}
	return c.reply(withToken(map[string]any{"experiments": viewsOf(page, (*experiment).view)}, next))
}

// changeExperiment changes an experiment; one of jobs gets a record by it.
func (d *door) changeExperiment(c *call, decide func(*experiment) (*line, error)) error {
	var ask experimentAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	return d.changeExperimentOf(c, ask.ID, decide)
}

func (d *door) changeExperimentOf(c *call, id string, decide func(*experiment) (*line, error)) error {
	if err := d.noJob(c, "change experiment \""+id+"\""); err != nil {
		return err
	}
	e, err := d.experiment(c.Context(), c.scope, id)
	if err != nil {
		return err
	}
	l, err := decide(e)
	if err != nil {
		return err
	}
	name := e.Name
	if l.Info != nil {
		name = cmp.Or(l.Info.Name, name)
	}
	if err := d.book(c.scope).name(c.Context(), d, id, name); err != nil {
		return err
	}
	err = d.journal.change(c.Context(), experimentKey(c.scope, id), func(rec *record) (*line, error) {
		next := *l
		next.At = d.now()
		if rec.Kind == "" { // so far only jobs knew it
			next.Info = &info{Kind: kindExperiment, Start: cmp.Or(e.Created, d.now())}
			if l.Info != nil {
				next.Info.merge(l.Info)
			}
		}
		return &next, nil
	})
	if err != nil {
		return err
	}
	return c.done()
}

func (d *door) updateExperiment(c *call) error {
	var ask experimentAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := checkExperimentName(ask.Name); err != nil {
		return err
	}
	if err := d.freeName(c, ask.Name); err != nil {
		return err
	}
	return d.changeExperimentOf(c, ask.ID, func(e *experiment) (*line, error) {
		if e.Stage != active {
			return nil, trainyard.Invalid("The experiment %s must be in the 'active' state. Current state is %s.", e.ID, e.Stage)
		}
		return &line{Info: &info{Name: ask.Name}}, nil
	})
}

func (d *door) deleteExperiment(c *call) error {
	return d.changeExperiment(c, func(e *experiment) (*line, error) {
		if e.ID == "0" {
			return nil, trainyard.Invalid("The experiment '%s' is the default one and cannot be deleted.", e.Name)
		}
		return &line{Info: &info{Stage: deleted}}, nil
	})
}

func (d *door) restoreExperiment(c *call) error {
	return d.changeExperiment(c, func(*experiment) (*line, error) { return &line{Info: &info{Stage: active}}, nil })
}

func (d *door) setExperimentTag(c *call) error {
	var ask experimentAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	tags, err := checkTags([]tagView{{ask.Key, ask.Value}}, 20_000)
	if err != nil {
		return err
	}
	return d.changeExperimentOf(c, ask.ID, func(*experiment) (*line, error) { return &line{Tags: tags}, nil })
}

func (d *door) deleteExperimentTag(c *call) error {
	var ask experimentAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	return d.changeExperimentOf(c, ask.ID, func(e *experiment) (*line, error) {
		if _, there := e.tags[ask.Key]; !there {
			return nil, trainyard.NotFound("No tag with name: %s in experiment with id %s", ask.Key, ask.ID)
		}
		return &line{Untag: []string{ask.Key}}, nil
	})
}

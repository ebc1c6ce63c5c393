package mlflow

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// A registered model is the workspace's model asset of that name. What a model has that its versions have not (a description, tags, aliases)
// is a record; models that were not made by MLflow have none, and are registered models all the same.

type registered struct {
	Name             string
	Created, Updated int64 // ms
	User, About      string
	tags, aliases    map[string]string
	versions         []*version // newest first
	record           bool       // it has one
}

// registeredKey is where a model's record is. Assets' names compare without regard to case.
func registeredKey(scope trainyard.Scope, name string) string {
	return container(scope) + "registry/" + strings.ToLower(name) + "/log.jsonl"
}

// registered finds a registered model with its versions.
func (d *door) registered(ctx context.Context, scope trainyard.Scope, name string) (*registered, error) {
	if strings.TrimSpace(name) == "" {
		return nil, checkModelName(name)
	}
	missing := trainyard.NotFound("Registered Model with name=%s not found", name)
	if !assetName.MatchString(name) {
		return nil, missing
	}
	m := &registered{Name: name}
	err := d.journal.view(ctx, registeredKey(scope, name), func(rec *record) error {
		if m.record = rec.Kind == kindRegistered; m.record {
			m.Name, m.Created, m.Updated, m.User, m.About = rec.Name, rec.Start, max(rec.modified, rec.Start), rec.User, rec.About
			m.tags, m.aliases = maps.Clone(rec.tags), maps.Clone(rec.params)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if m.versions, err = d.versions(ctx, scope, name); err != nil {
		return nil, err
	}
	if !m.record && len(m.versions) == 0 {
		return nil, missing
	}
	m.fill()
	return m, nil
}

// fill takes from the versions what the record does not say, and tells them of their aliases.
func (m *registered) fill() {
	for _, v := range m.versions {
		if !m.record {
			m.Name = v.Name
		}
		if m.Created == 0 || v.Created < m.Created {
			m.Created = v.Created
		}
		m.Updated, m.User = max(m.Updated, v.Updated), cmp.Or(m.User, v.User)
		for _, alias := range slices.Sorted(maps.Keys(m.aliases)) {
			if m.aliases[alias] == v.Version {
				v.Aliases = append(v.Aliases, alias)
			}
		}
	}
}

// latest are the newest versions of the stages; of none, of every stage that a version is in.
func (m *registered) latest(stages []string) []*version {
	var list []*version
	for _, v := range m.versions {
		of := func(o *version) bool { return o.Stage == v.Stage }
		if (len(stages) == 0 || slices.Contains(stages, v.Stage)) && !slices.ContainsFunc(list, of) {
			list = append(list, v)
		}
	}
	return list
}

func (m *registered) view() map[string]any {
	latest, aliases := []*version{}, []map[string]string{}
	latest = append(latest, m.latest(nil)...)
	for _, a := range slices.Sorted(maps.Keys(m.aliases)) {
		aliases = append(aliases, map[string]string{"alias": a, "version": m.aliases[a]})
	}
	return map[string]any{"name": m.Name, "creation_timestamp": m.Created, "last_updated_timestamp": m.Updated, "user_id": m.User,
		"description": m.About, "latest_versions": latest, "tags": viewPairs(m.tags), "aliases": aliases}
}

// tagPrompt marks models that are prompts. One that has no such tag is none.
const tagPrompt = "mlflow.prompt.is_prompt"

func lookTag(tags map[string]string, key string) []value {
	if _, there := tags[key]; !there && key == tagPrompt {
		return textOf("false")
	}
	return lookIn(tags, key)
}

func (m *registered) look(of, key string) []value {
	if of == ofTag {
		return lookTag(m.tags, key)
	}
	switch key {
	case "name":
		return textOf(m.Name)
	case "creation_timestamp":
		return numberOf(float64(m.Created))
	}
	return numberOf(float64(m.Updated))
}

// registeredAsk is what the calls on registered models have in common.
type registeredAsk struct {
	Name    string    `json:"name"`
	NewName string    `json:"new_name"`
	About   *string   `json:"description"`
	Tags    []tagView `json:"tags"`
	Key     string    `json:"key"`
	Value   string    `json:"value"`
	Alias   string    `json:"alias"`
	Version string    `json:"version"`
	Stages  []string  `json:"stages"`
}

func (d *door) createRegistered(c *call) error {
	var ask registeredAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := checkModelName(ask.Name); err != nil {
		return err
	}
	if !d.JobsRegister {
		if err := d.noJob(c, "register model \""+ask.Name+"\""); err != nil {
			return err
		}
	}
	tags, err := checkTags(ask.Tags, maxText)
	if err != nil {
		return err
	}
	there, err := d.registered(c.Context(), c.scope, ask.Name)
	if err == nil {
		return exists("Registered Model (name=%s) already exists.", there.Name)
	}
	if !isMissing(err) {
		return err
	}
	i := &info{Kind: kindRegistered, Name: ask.Name, User: c.who.Name, Start: d.now()}
	if ask.About != nil {
		i.About = *ask.About
	}
	if err := d.book(c.scope).add(c.Context(), d, bookLine{Kind: kindRegistered, ID: strings.ToLower(ask.Name)}); err != nil {
		return err
	}
	err = d.journal.change(c.Context(), registeredKey(c.scope, ask.Name), func(rec *record) (*line, error) {
		if rec.Kind != "" {
			return nil, exists("Registered Model (name=%s) already exists.", ask.Name) // another client was faster
		}
		return &line{Info: i, At: i.Start, Tags: tags}, nil
	})
	if err != nil {
		return err
	}
	return d.showRegistered(c, ask.Name)
}

func (d *door) showRegistered(c *call, name string) error {
	m, err := d.registered(c.Context(), c.scope, name)
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"registered_model": m.view()})
}

func (d *door) getRegistered(c *call) error {
	var ask registeredAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	return d.showRegistered(c, ask.Name)
}

// changeRegistered changes a model's record; a model that has none gets one.
func (d *door) changeRegistered(c *call, name string, decide func(*registered) (*line, error)) error {
	if err := d.noJob(c, "change registered model \""+name+"\""); err != nil {
		return err
	}
	m, err := d.registered(c.Context(), c.scope, name)
	if err != nil {
		return err
	}
	l, err := decide(m)
	if err != nil {
		return err
	}
	if l.At = d.now(); !m.record {
		if err := d.book(c.scope).add(c.Context(), d, bookLine{Kind: kindRegistered, ID: strings.ToLower(m.Name)}); err != nil {
			return err
		}
	}
	return d.journal.change(c.Context(), registeredKey(c.scope, name), func(rec *record) (*line, error) {
		next := *l
		if rec.Kind == "" {
			next.Info = &info{Kind: kindRegistered, Name: m.Name, User: m.User, Start: m.Created}
			if l.Info != nil {
				next.Info.About = l.Info.About
			}
		}
		return &next, nil
	})
}

func (d *door) updateRegistered(c *call) error {
	var ask registeredAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	about := noText
	if ask.About != nil && *ask.About != "" {
		about = *ask.About
	}
	err := d.changeRegistered(c, ask.Name, func(*registered) (*line, error) { return &line{Info: &info{About: about}}, nil })
	if err != nil {
		return err
	}
	return d.showRegistered(c, ask.Name)
}

func (d *door) setRegisteredTag(c *call) error {
	var ask registeredAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	tags, err := checkTags([]tagView{{ask.Key, ask.Value}}, maxText)
	if err != nil {
		return err
	}
	if err := d.changeRegistered(c, ask.Name, func(*registered) (*line, error) { return &line{Tags: tags}, nil }); err != nil {
		return err
	}
	return c.done()
}

func (d *door) deleteRegisteredTag(c *call) error {
	var ask registeredAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := d.changeRegistered(c, ask.Name, func(*registered) (*line, error) { return &line{Untag: []string{ask.Key}}, nil }); err != nil {
		return err
	}
	return c.done()
}

func (d *door) latestVersions(c *call) error {
	var ask registeredAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	m, err := d.registered(c.Context(), c.scope, ask.Name)
	if err != nil {
		return err
	}
	for i := range ask.Stages {
		if ask.Stages[i], err = canonStage(ask.Stages[i]); err != nil {
			return err
		}
	}
	return c.reply(map[string]any{"model_versions": append([]*version{}, m.latest(ask.Stages)...)})
}

func (d *door) searchRegistered(c *call) error {
	var ask searchAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	page, next, err := answer(&registeredGrammar, ask, 100, mostRuns, func(clauses []clause) (all []*registered, err error) {
		names, err := d.modelNames(c.Context(), c.scope)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			m, err := d.registered(c.Context(), c.scope, name)
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
		return all, nil
	})
	if err != nil {
		return err
	}
	return c.reply(withToken(map[string]any{"registered_models": viewsOf(page, (*registered).view)}, next))
}

// modelNames are the names of all registered models, folded, in order.
func (d *door) modelNames(ctx context.Context, scope trainyard.Scope) ([]string, error) {
	names, err := d.book(scope).list(ctx, d, kindRegistered, "")
	if err != nil {
		return nil, err
	}
	q := trainyard.ResourceQuery{Scope: scope, Kind: trainyard.KindModel, Top: 1000}
	for {
		page, err := d.Models.Resources(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Items {
			names = append(names, strings.ToLower(r.Name))
		}
		if page.Next == "" {
			slices.Sort(names)
			return slices.Compact(names), nil
		}
		q.After = page.Next
	}
}

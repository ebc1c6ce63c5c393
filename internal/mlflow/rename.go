package mlflow

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// deleteRegistered deletes a model and all its versions. The files that they name stay where they are.
func (d *door) deleteRegistered(c *call) error {
	var ask registeredAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := d.noJob(c, "delete registered model \""+ask.Name+"\""); err != nil {
		return err
	}
	m, err := d.registered(c.Context(), c.scope, ask.Name)
	if err != nil {
		return err
	}
	for _, v := range m.versions {
		err := d.Models.DeleteResource(c.Context(), c.who, c.scope, trainyard.KindModel, m.Name, v.Version)
		if err != nil && !isMissing(err) {
			return err
		}
	}
	if err := d.forgetRegistered(c, m); err != nil {
		return err
	}
	return c.done()
}

// forgetRegistered takes a model's record away.
func (d *door) forgetRegistered(c *call, m *registered) error {
	if !m.record {
		return nil
	}
	if err := d.Blobs.DeletePrefix(c.Context(), strings.TrimSuffix(registeredKey(c.scope, m.Name), "log.jsonl")); err != nil {
		return err
	}
	return d.book(c.scope).add(c.Context(), d, bookLine{Kind: kindRegistered, ID: strings.ToLower(m.Name), Gone: true})
}

// renameRegistered gives a model another name: its versions are stored again under the new one, then the old ones go. If that is cut off
// half way, asking for the same again completes it.
func (d *door) renameRegistered(c *call) error {
	var ask registeredAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := d.noJob(c, "rename registered model \""+ask.Name+"\""); err != nil {
		return err
	}
	if err := checkModelName(ask.NewName); err != nil {
		return err
	}
	m, err := d.registered(c.Context(), c.scope, ask.Name)
	if err != nil {
		return err
	}
	if strings.EqualFold(m.Name, ask.NewName) {
		return trainyard.Invalid("Registered model '%s' cannot be renamed to '%s': names of assets compare without regard to case.", m.Name, ask.NewName)
	}
	there, err := d.registered(c.Context(), c.scope, ask.NewName)
	if err == nil && there.tags[tagRenaming] != m.Name {
		return exists("Registered Model (name=%s) already exists.", there.Name)
	}
	if err != nil && !isMissing(err) {
		return err
	}
	if err := d.copyRegistered(c, m, ask.NewName); err != nil {
		return err
	}
	for _, v := range m.versions {
		err := d.Models.DeleteResource(c.Context(), c.who, c.scope, trainyard.KindModel, m.Name, v.Version)
		if err != nil && !isMissing(err) {
			return err
		}
	}
	if err := d.forgetRegistered(c, m); err != nil {
		return err
	}
	err = d.journal.change(c.Context(), registeredKey(c.scope, ask.NewName), func(*record) (*line, error) {
		return &line{At: d.now(), Untag: []string{tagRenaming}}, nil
	})
	if err != nil {
		return err
	}
	return d.showRegistered(c, ask.NewName)
}

// tagRenaming is on a model that is being renamed, and says from what.
const tagRenaming = "trainyard.renaming"

// copyRegistered makes a model of another name that is as m.
func (d *door) copyRegistered(c *call, m *registered, name string) error {
	if err := d.book(c.scope).add(c.Context(), d, bookLine{Kind: kindRegistered, ID: strings.ToLower(name)}); err != nil {
		return err
	}
	l := &line{At: d.now(), Info: &info{Kind: kindRegistered, Name: name, User: m.User, Start: m.Created, About: m.About}, Tags: []pair{{tagRenaming, m.Name}}}
	for _, t := range viewPairs(m.tags) {
		l.Tags = append(l.Tags, pair(t))
	}
	for _, a := range viewPairs(m.aliases) {
		l.Params = append(l.Params, pair(a))
	}
	err := d.journal.change(c.Context(), registeredKey(c.scope, name), func(*record) (*line, error) { return l, nil })
	if err != nil {
		return err
	}
	for _, v := range slices.Backward(m.versions) {
		next := *v.asset
		next.Name, next.Properties = name, slices.Clone(json.RawMessage(v.asset.Properties))
		if _, _, err := d.Models.PutResource(c.Context(), c.who, &next); err != nil {
			return err
		}
	}
	return nil
}

package mlflow

import (
	"strings"

	"github.com/trainyard/trainyard"
)

// Aliases are a registered model's own: names such as "champion" for one of its versions each.

func (d *door) setAlias(c *call) error {
	var ask registeredAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := checkAlias(ask.Alias); err != nil {
		return err
	}
	err := d.changeRegistered(c, ask.Name, func(m *registered) (*line, error) {
		v, err := m.version(ask.Version)
		if err != nil {
			return nil, err
		}
		return &line{Params: []pair{{ask.Alias, v.Version}}}, nil
	})
	if err != nil {
		return err
	}
	return c.done()
}

func (d *door) deleteAlias(c *call) error {
	var ask registeredAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	err := d.changeRegistered(c, ask.Name, func(*registered) (*line, error) { return &line{Unset: []string{ask.Alias}}, nil })
	if err != nil {
		return err
	}
	return c.done()
}

func (d *door) getAlias(c *call) error {
	var ask registeredAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	m, err := d.registered(c.Context(), c.scope, ask.Name)
	if err != nil {
		return err
	}
	number, there := m.aliases[ask.Alias]
	if strings.EqualFold(ask.Alias, "latest") && len(m.versions) > 0 {
		number, there = m.versions[0].Version, true
	}
	if !there {
		return trainyard.Invalid("Registered model alias %s not found.", ask.Alias) // the code that MLflow's own server has for it
	}
	v, err := m.version(number)
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"model_version": v})
}

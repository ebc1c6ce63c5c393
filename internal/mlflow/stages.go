package mlflow

import (
	"encoding/json"

	"github.com/trainyard/trainyard"
)

// What may change of a model version: its description, its tags, its stage.

// changeVersion changes what may change of a version's asset. The rest of it stays as it is.
func (d *door) changeVersion(c *call, name, number string, change func(p *assetProps)) error {
	if err := d.noJob(c, "change version "+number+" of model \""+name+"\""); err != nil {
		return err
	}
	d.registers.Lock()
	defer d.registers.Unlock()
	v, err := d.version(c.Context(), c.scope, name, number)
	if err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(v.asset.Properties, &all); err != nil {
		return err
	}
	var p assetProps
	_ = json.Unmarshal(v.asset.Properties, &p)
	if p.Tags == nil {
		p.Tags = map[string]string{}
	}
	change(&p)
	for key, member := range map[string]any{"description": p.About, "stage": p.Stage, "tags": p.Tags} {
		if all[key], err = json.Marshal(member); err != nil {
			return err
		}
	}
	next := *v.asset
	if next.Properties, err = json.Marshal(all); err != nil {
		return err
	}
	_, _, err = d.Models.PutResource(c.Context(), c.who, &next)
	return err
}

func (d *door) updateVersion(c *call) error {
	var ask versionAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	err := d.changeVersion(c, ask.Name, ask.Version, func(p *assetProps) {
		if p.About = ""; ask.About != nil {
			p.About = *ask.About
		}
	})
	if err != nil {
		return err
	}
	return d.showVersion(c, ask.Name, ask.Version)
}

func (d *door) moveStage(c *call) error {
	var ask versionAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	stage, err := canonStage(ask.Stage)
	if err != nil {
		return err
	}
	if ask.Archive && stage != "Staging" && stage != "Production" {
		return trainyard.Invalid("Model version transition cannot archive existing model versions because '%s' is not an Active stage. "+
			"Valid stages are Staging, Production", stage)
	}
	if err := d.changeVersion(c, ask.Name, ask.Version, func(p *assetProps) { p.Stage = stage }); err != nil {
		return err
	}
	if ask.Archive {
		m, err := d.registered(c.Context(), c.scope, ask.Name)
		if err != nil {
			return err
		}
		for _, v := range m.versions {
			if v.Version == ask.Version || v.Stage != stage {
				continue
			}
			if err := d.changeVersion(c, m.Name, v.Version, func(p *assetProps) { p.Stage = "Archived" }); err != nil {
				return err
			}
		}
	}
	return d.showVersion(c, ask.Name, ask.Version)
}

func (d *door) setVersionTag(c *call) error {
	var ask versionAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	tags, err := checkTags([]tagView{{ask.Key, ask.Value}}, maxText)
	if err != nil {
		return err
	}
	if err := d.changeVersion(c, ask.Name, ask.Version, func(p *assetProps) { p.Tags[tags[0].Key] = tags[0].Value }); err != nil {
		return err
	}
	return c.done()
}

func (d *door) deleteVersionTag(c *call) error {
	var ask versionAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := d.changeVersion(c, ask.Name, ask.Version, func(p *assetProps) { delete(p.Tags, ask.Key) }); err != nil {
		return err
	}
	return c.done()
}

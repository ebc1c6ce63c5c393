package mlflow

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// version is a version of a registered model as MLflow shows it, and the asset that it is.
type version struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Created int64     `json:"creation_timestamp"`
	Updated int64     `json:"last_updated_timestamp"`
	User    string    `json:"user_id"`
	Stage   string    `json:"current_stage"`
	About   string    `json:"description"`
	Source  string    `json:"source"`
	Run     string    `json:"run_id,omitempty"`
	Status  string    `json:"status"`
	Tags    []tagView `json:"tags"`
	RunLink string    `json:"run_link,omitempty"`
	Aliases []string  `json:"aliases,omitempty"`
	Model   string    `json:"model_id,omitempty"`

	asset *trainyard.Resource
	tags  map[string]string
	uri   string // modelUri of the asset
}

// Names in an asset's "properties" of what MLflow knows of a version and an asset has no place for.
const (
	propSource = "mlflow.source"
	propRun    = "mlflow.runId"
	propLink   = "mlflow.runLink"
	propModel  = "mlflow.modelId"
)

// assetProps are the members of a model asset's properties that MLflow has a word for.
type assetProps struct {
	About      string            `json:"description"`
	URI        string            `json:"modelUri"`
	Job        string            `json:"jobName"`
	Stage      string            `json:"stage"`
	Tags       map[string]string `json:"tags"`
	Properties map[string]string `json:"properties"`
}

func (d *door) viewVersion(r *trainyard.Resource) *version {
	var p assetProps
	_ = json.Unmarshal(r.Properties, &p) // a member of another type is one that is not there
	stage, err := canonStage(p.Stage)
	if err != nil {
		stage = p.Stage // Azure ML's stages are any text
	}
	v := &version{Name: r.Name, Version: r.Version, Created: r.Created.UnixMilli(), Updated: r.Modified.UnixMilli(), User: r.CreatedBy, Stage: stage,
		About: p.About, Run: cmp.Or(p.Properties[propRun], p.Job), Status: "READY", Tags: viewPairs(p.Tags), RunLink: p.Properties[propLink],
		Model: p.Properties[propModel], asset: r, tags: p.Tags, uri: p.URI}
	v.Source = cmp.Or(p.Properties[propSource], p.URI)
	return v
}

// versions lists a model's versions: the highest number first, and then what is no number.
func (d *door) versions(ctx context.Context, scope trainyard.Scope, name string) ([]*version, error) {
	var all []*version
	q := trainyard.ResourceQuery{Scope: scope, Kind: trainyard.KindModel, Name: name, Top: 1000}
	for {
		page, err := d.Models.Resources(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Items {
			all = append(all, d.viewVersion(r))
		}
		if page.Next == "" {
			break
		}
		q.After = page.Next
	}
	slices.SortStableFunc(all, func(a, b *version) int { return cmp.Compare(b.number(), a.number()) })
	return all, nil
}

// number is the version's; -1 for one that is none.
func (v *version) number() float64 {
	n, err := strconv.ParseUint(v.Version, 10, 63)
	if err != nil {
		return -1
	}
	return float64(n)
}

func (m *registered) version(number string) (*version, error) {
	for _, v := range m.versions {
		if v.Version == number {
			return v, nil
		}
	}
	return nil, trainyard.NotFound("Model Version (name=%s, version=%s) not found", m.Name, number)
}

func (v *version) look(of, key string) []value {
	if of == ofTag {
		return lookTag(v.tags, key)
	}
	switch key {
	case "name":
		return textOf(v.Name)
	case "run_id":
		if v.Run == "" {
			return nil
		}
		return textOf(v.Run)
	case "source_path":
		return textOf(v.Source)
	case "current_stage":
		return textOf(v.Stage)
	case "version_number":
		return numberOf(v.number())
	case "creation_timestamp":
		return numberOf(float64(v.Created))
	}
	return numberOf(float64(v.Updated))
}

// canonStage gives a stage its right spelling.
func canonStage(stage string) (string, error) {
	for _, s := range []string{"None", "Staging", "Production", "Archived"} {
		if strings.EqualFold(s, cmp.Or(stage, "None")) {
			return s, nil
		}
	}
	return "", trainyard.Invalid("Invalid Model Version stage: %s. Value must be one of None, Staging, Production, Archived.", cut(stage, 80))
}

type newVersion struct {
	Name    string    `json:"name"`
	Source  string    `json:"source"`
	Run     string    `json:"run_id"`
	Tags    []tagView `json:"tags"`
	RunLink string    `json:"run_link"`
	About   string    `json:"description"`
	Model   string    `json:"model_id"`
}

func (d *door) createVersion(c *call) error {
	var ask newVersion
	if err := c.decode(&ask); err != nil {
		return err
	}
	if _, err := checkTags(ask.Tags, maxText); err != nil {
		return err
	}
	m, err := d.registered(c.Context(), c.scope, ask.Name)
	if err != nil {
		return err
	}
	src, err := d.source(c.Context(), c.scope, ask.Source)
	if err != nil {
		return err
	}
	if err := d.mayRegister(c, m.Name, src); err != nil {
		return err
	}
	number, err := d.number(c, m.Name, ask.asset(src))
	if err != nil {
		return err
	}
	return d.showVersion(c, m.Name, number)
}

// asset is the properties of the asset that the version will be.
func (a *newVersion) asset(src source) map[string]any {
	props := map[string]string{}
	for key, value := range map[string]string{propSource: a.Source, propRun: cmp.Or(a.Run, src.run), propLink: a.RunLink,
		propModel: cmp.Or(a.Model, src.model)} {
		if value != "" {
			props[key] = value
		}
	}
	doc := map[string]any{"modelUri": src.uri, "modelType": "mlflow_model", "description": a.About, "flavors": map[string]any{}, "isAnonymous": false,
		"tags": asMap(a.Tags), "properties": props}
	if run := props[propRun]; run != "" {
		doc["jobName"] = run
	}
	return doc
}

// number stores a version under the next number that is free.
func (d *door) number(c *call, name string, asset map[string]any) (string, error) {
	props, err := json.Marshal(asset)
	if err != nil {
		return "", err
	}
	d.registers.Lock()
	defer d.registers.Unlock()
	_, next, err := d.Models.NextVersion(c.Context(), c.scope, trainyard.KindModel, name)
	if err != nil {
		return "", err
	}
	_, _, err = d.Models.PutResource(c.Context(), c.who, &trainyard.Resource{Scope: c.scope, Kind: trainyard.KindModel, Name: name, Version: next,
		Properties: props})
	return next, err
}

// mayRegister lets a job's token register what is its own run's, if jobs may register at all.
func (d *door) mayRegister(c *call, name string, src source) error {
	if c.who.Role != trainyard.RoleJob {
		return nil
	}
	if !d.JobsRegister || src.run == "" {
		return d.noJob(c, "register a version of model \""+name+"\" from what is not an artifact of its run")
	}
	return d.mayWriteRun(c, src.run)
}

type versionAsk struct {
	Name    string  `json:"name"`
	Version string  `json:"version"`
	About   *string `json:"description"`
	Stage   string  `json:"stage"`
	Archive bool    `json:"archive_existing_versions"`
	Key     string  `json:"key"`
	Value   string  `json:"value"`
}

// version finds a version of a registered model.
func (d *door) version(ctx context.Context, scope trainyard.Scope, name, number string) (*version, error) {
	m, err := d.registered(ctx, scope, name)
	if err != nil {
		return nil, err
	}
	return m.version(number)
}

func (d *door) showVersion(c *call, name, number string) error {
	v, err := d.version(c.Context(), c.scope, name, number)
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"model_version": v})
}

func (d *door) getVersion(c *call) error {
	var ask versionAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	return d.showVersion(c, ask.Name, ask.Version)
}

// downloadURI says where a client fetches a version's files from.
func (d *door) downloadURI(c *call) error {
	var ask versionAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	v, err := d.version(c.Context(), c.scope, ask.Name, ask.Version)
	if err != nil {
		return err
	}
	uri, err := d.fetchURI(c.Context(), c.scope, v.uri)
	if err != nil {
		return err
	}
	return c.reply(map[string]string{"artifact_uri": uri})
}

// deleteVersion deletes a version. Aliases that name it go with it.
func (d *door) deleteVersion(c *call) error {
	var ask versionAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	if err := d.noJob(c, "delete version "+ask.Version+" of model \""+ask.Name+"\""); err != nil {
		return err
	}
	m, err := d.registered(c.Context(), c.scope, ask.Name)
	if err != nil {
		return err
	}
	v, err := m.version(ask.Version)
	if err != nil {
		return err
	}
	// The model stays when its last version goes, so it needs a record of its own.
	err = d.changeRegistered(c, m.Name, func(*registered) (*line, error) { return &line{Unset: v.Aliases}, nil })
	if err == nil {
		err = d.Models.DeleteResource(c.Context(), c.who, c.scope, trainyard.KindModel, m.Name, v.Version)
	}
	if err != nil {
		return err
	}
	return c.done()
}

func (d *door) searchVersions(c *call) error {
	var ask searchAsk
	if err := c.decode(&ask); err != nil {
		return err
	}
	page, next, err := answer(&versionGrammar, ask, 10_000, 200_000, func(clauses []clause) ([]*version, error) {
		return d.versionsOf(c.Context(), c.scope, clauses)
	})
	if err != nil {
		return err
	}
	return c.reply(withToken(map[string]any{"model_versions": append([]*version{}, page...)}, next))
}

// versionsOf lists the versions that the clauses hold for, the last changed first.
func (d *door) versionsOf(ctx context.Context, scope trainyard.Scope, clauses []clause) (all []*version, err error) {
	var names []string
	for _, cl := range clauses {
		if cl.of == ofAttribute && cl.key == "name" && cl.op == "=" {
			names = []string{cl.text}
		}
	}
	if names == nil {
		if names, err = d.modelNames(ctx, scope); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		m, err := d.registered(ctx, scope, name)
		if isMissing(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(m.versions, func(v *version) bool { return !holds(clauses, v) })...)
	}
	slices.SortStableFunc(all, func(a, b *version) int {
		return cmp.Or(cmp.Compare(b.Updated, a.Updated), strings.Compare(a.Name, b.Name), cmp.Compare(b.number(), a.number()))
	})
	return all, nil
}

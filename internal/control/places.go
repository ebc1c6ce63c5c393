package control

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/catalog"
	"github.com/trainyard/trainyard/internal/store"
)

// everyHosted is the topic that rises when there is a node that an agent in the server should host, and does not yet.
const everyHosted trainyard.NodeID = "hosted nodes"

// Boot makes what every server has from its first start: the default workspace and what belongs to it. Later starts look after clusters
// whose location is gone.
func (c *Control) Boot(ctx context.Context) error {
	if err := c.settle(ctx); err != nil {
		return err
	}
	if err := c.loadServed(ctx); err != nil {
		return err
	}
	if err := c.putServerCode(ctx); err != nil {
		return err
	}
	scope := trainyard.DefaultScope()
	if _, err := c.Store.Resource(ctx, scope, trainyard.KindWorkspace, scope.Workspace, ""); err == nil {
		return nil
	} else if !trainyard.IsNotFound(err) {
		return err
	}
	props, err := json.Marshal(map[string]any{"friendlyName": "default", "description": "the workspace every server starts with"})
	if err != nil {
		return err
	}
	_, _, err = c.PutResource(ctx, trainyard.User{Name: "trainyard", Role: trainyard.RoleAdmin},
		&trainyard.Resource{Scope: scope, Kind: trainyard.KindWorkspace, Name: scope.Workspace, Location: trainyard.DefaultLocation, Properties: props})
	return err
}

// Hosted is a node whose agent the server itself is.
type Hosted struct {
	Node     trainyard.NodeID
	Engine   string          // kind of target; "": this computer's own
	Settings json.RawMessage // of the engine
}

// HostedNodes lists the nodes that the server's own agents host; it waits until there may be others than after.
func (c *Control) HostedNodes(ctx context.Context, after int64) ([]Hosted, int64) {
	rev := c.nodes.wait(ctx, everyHosted, after, pollHold)
	var out []Hosted
	for _, n := range c.Store.AllNodes() {
		if comp, err := c.Store.Compute(ctx, n.Compute); err == nil && comp.Hosted() {
			out = append(out, Hosted{n.ID, comp.Engine, comp.Settings})
		}
	}
	return out, rev
}

// HostedAgain is h with what its compute says now.
func (c *Control) HostedAgain(ctx context.Context, h Hosted) Hosted {
	n, err := c.Store.Node(ctx, h.Node)
	if err != nil {
		return h
	}
	if comp, err := c.Store.Compute(ctx, n.Compute); err == nil {
		h.Engine, h.Settings = comp.Engine, comp.Settings
	}
	return h
}

// where is the location of ours that a location in a file means: its own name, or the default.
func (c *Control) where(name string) string {
	same := func(s string) bool { return strings.EqualFold(s, name) }
	for _, l := range c.Locations {
		if same(l.Name) {
			return l.Name
		}
	}
	for _, l := range c.Locations {
		if slices.ContainsFunc(l.Regions, same) {
			return l.Name
		}
	}
	return c.Locations[0].Name
}

// AllLocations lists the locations; the first is the default.
func (c *Control) AllLocations(context.Context) ([]trainyard.Location, error) {
	out := make([]trainyard.Location, len(c.Locations))
	for i := range c.Locations {
		out[i] = *c.place(c.Locations[i].Name)
	}
	return out, nil
}

// settle looks after clusters whose location the configuration does not name any more: one without nodes moves to the location that its
// own word means now, one with nodes keeps the old place, as it was, until they are gone.
func (c *Control) settle(ctx context.Context) error {
	known := map[string]string{} // driver by location, of all that there ever were
	if data, err := c.Store.Setting(ctx, settingLocations); err == nil && len(data) > 0 {
		if err := json.Unmarshal(data, &known); err != nil {
			return err
		}
	}
	for _, l := range c.Locations {
		known[l.Name] = l.Driver
	}
	comps, err := c.Store.Computes(ctx, trainyard.Scope{})
	if err != nil {
		return err
	}
	for _, comp := range comps {
		named := func(l trainyard.Location) bool { return l.Name == comp.Where }
		if !comp.Elastic() || slices.ContainsFunc(c.Locations, named) {
			continue
		}
		nodes, err := c.Store.Nodes(ctx, comp.Key())
		if err != nil {
			return err
		}
		if len(nodes) == 0 {
			if err := c.moveCompute(ctx, comp.Key()); err != nil {
				return err
			}
			continue
		}
		c.Log.Warn("a location is not in the configuration any more; its nodes stay until they are done", "location", comp.Where, "compute", comp.Name, "nodes", len(nodes))
		if c.isRetired(comp.Where) {
			continue
		}
		driver := known[comp.Where]
		if driver == "" {
			driver = "process" // as it was before locations were written down
		}
		c.retired = append(c.retired, trainyard.Location{Name: comp.Where, Driver: driver, Approved: []string{"all"}})
	}
	doc, err := json.Marshal(known)
	if err != nil {
		return err
	}
	return c.Store.Update(ctx, func(tx *store.Tx) error { return tx.PutSetting(settingLocations, doc) })
}

// settingLocations is where the drivers of all locations that ever were are kept.
const settingLocations = "control.locations"

// moveCompute gives a cluster the location that its own word means now.
func (c *Control) moveCompute(ctx context.Context, key trainyard.ComputeKey) error {
	return c.Store.Update(ctx, func(tx *store.Tx) error {
		comp, err := tx.Compute(key)
		if err != nil {
			return nil
		}
		from := comp.Where
		comp.Where = c.where(comp.Location)
		comp.Warnings = trainyard.Warn(comp.Warnings, fmt.Sprintf("location %s is not in the server's configuration any more; its nodes come from %s now", from, comp.Where))
		tx.Event(c.event(comp.Scope, "compute", comp.Name, "moved", "", "from location "+from+" to "+comp.Where))
		return tx.PutCompute(comp)
	})
}

// isRetired says whether a location is only there for nodes that it still has.
func (c *Control) isRetired(name string) bool {
	return slices.ContainsFunc(c.retired, func(l trainyard.Location) bool { return l.Name == name })
}

// place is a location of ours by its own name, with its sizes; nil for what is none, such as the place of attached machines.
func (c *Control) place(name string) *trainyard.Location {
	for _, list := range [][]trainyard.Location{c.Locations, c.retired} {
		for _, l := range list {
			if l.Name == name {
				if len(l.Sizes) == 0 {
					l.Sizes = catalog.Sizes()
				}
				if l.Driver == "process" {
					l.Machine = trainyard.Resources{CPUs: c.Host.CPUs, MemoryMB: c.Host.MemoryMB, GPUs: c.Host.GPUs}
				}
				c.mu.Lock()
				l.Away = c.away[name]
				c.mu.Unlock()
				return &l
			}
		}
	}
	return nil
}

// Used is what the machines of a location come to, those that are on their way in included, those on their way out not.
func (c *Control) Used(ctx context.Context, location string) trainyard.Capacity {
	var used trainyard.Capacity
	l := c.place(location)
	if l == nil {
		return used
	}
	for _, n := range c.Store.AllNodes() {
		comp, err := c.Store.Compute(ctx, n.Compute)
		if err != nil || comp.Where != location || !comp.Elastic() || n.State == trainyard.NodeLeaving {
			continue
		}
		if s, ok := l.Size(n.Size); ok {
			used = used.Plus(1, s)
		}
	}
	return used
}

// Location finds a location; an unknown Azure region is the default one.
func (c *Control) Location(ctx context.Context, name string) (trainyard.Location, error) {
	if l := c.place(c.where(name)); l != nil {
		return *l, nil
	}
	return trainyard.Location{}, trainyard.NotFound("location %q does not exist", name)
}

// Usages counts the cores that clusters of a location have, by family, beside what may be had.
func (c *Control) Usages(ctx context.Context, scope trainyard.Scope, location string) ([]trainyard.Usage, error) {
	cores, clusters := map[string]int64{}, int64(0)
	where := c.where(location)
	comps, err := c.Store.Computes(ctx, trainyard.Scope{})
	if err != nil {
		return nil, err
	}
	here := map[trainyard.ComputeKey]bool{}
	for _, comp := range comps {
		if comp.Where == where && comp.Elastic() && strings.EqualFold(comp.Scope.Subscription, scope.Subscription) {
			here[comp.Key()] = true
			clusters++
		}
	}
	for _, n := range c.Store.AllNodes() {
		if size, ok := c.place(where).Size(n.Size); ok && here[n.Compute] {
			cores[size.Family] += int64(size.VCPUs)
		}
	}
	out := []trainyard.Usage{{Name: "Clusters", Current: clusters, Limit: -1, Unit: "Count"}}
	quotas, err := c.Quotas(ctx, scope, location)
	if err != nil {
		return nil, err
	}
	for _, q := range quotas {
		q.Current = cores[q.Name]
		out = append(out, q)
	}
	return out, nil
}

// Quotas lists the core limits of each family; -1 is not limited, which is how they start.
func (c *Control) Quotas(ctx context.Context, scope trainyard.Scope, location string) ([]trainyard.Usage, error) {
	set, err := c.quotas(ctx, scope, location)
	if err != nil {
		return nil, err
	}
	var out []trainyard.Usage
	seen := map[string]bool{}
	for _, s := range c.place(c.where(location)).Sizes {
		if seen[s.Family] {
			continue
		}
		seen[s.Family] = true
		limit, ok := set[strings.ToLower(s.Family)]
		if !ok {
			limit = -1
		}
		out = append(out, trainyard.Usage{Name: s.Family, Limit: limit, Unit: "Count"})
	}
	return out, nil
}

// SetQuotas changes the core limits of families.
func (c *Control) SetQuotas(ctx context.Context, who trainyard.User, scope trainyard.Scope, location string, limits map[string]int64) error {
	set, err := c.quotas(ctx, scope, location)
	if err != nil {
		return err
	}
	for family, limit := range limits {
		set[strings.ToLower(family)] = limit
	}
	doc, err := json.Marshal(set)
	if err != nil {
		return err
	}
	return c.Store.Update(ctx, func(tx *store.Tx) error {
		tx.Event(c.event(scope, "quota", location, "updated", who.Name, string(doc)))
		return tx.PutSetting(c.quotaKey(scope, location), doc)
	})
}

func (c *Control) quotas(ctx context.Context, scope trainyard.Scope, location string) (map[string]int64, error) {
	set := map[string]int64{}
	doc, err := c.Store.Setting(ctx, c.quotaKey(scope, location))
	if err != nil || len(doc) == 0 {
		if trainyard.IsNotFound(err) {
			err = nil
		}
		return set, err
	}
	return set, json.Unmarshal(doc, &set)
}

func (c *Control) quotaKey(scope trainyard.Scope, location string) string {
	return "quota/" + strings.ToLower(scope.Subscription) + "/" + c.where(location)
}

// Package armtest is a control in memory for tests of the Azure Resource Manager door: it keeps what it is given and checks little. It
// runs nothing: tests move jobs and nodes along by hand.
package armtest

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// Control satisfies arm's interfaces. Its fields may be set before it is used; the maps only under Lock afterwards.
type Control struct {
	sync.Mutex
	Now       func() time.Time
	resources map[string]*trainyard.Resource
	jobs      map[trainyard.JobKey]*trainyard.Job
	computes  map[trainyard.ComputeKey]*trainyard.Compute
	nodes     map[trainyard.ComputeKey][]trainyard.NodeStatus
	limits    map[string]int64
	seq       int64
	serving
	Slow  bool  // a delete of a compute, an endpoint or a deployment is not done at once
	Quick bool  // a deployment is ready at once
	Err   error // what every call answers, if not nil

	Gateway string // URL that scoring URIs begin with
}

// New is a control with the default workspace and its datastores.
func New(now func() time.Time) *Control {
	c := &Control{Now: now, resources: map[string]*trainyard.Resource{}, jobs: map[trainyard.JobKey]*trainyard.Job{},
		computes: map[trainyard.ComputeKey]*trainyard.Compute{}, nodes: map[trainyard.ComputeKey][]trainyard.NodeStatus{}, limits: map[string]int64{}}
	scope, by := trainyard.DefaultScope(), trainyard.User{Name: "trainyard"}
	ctx := context.Background()
	c.PutResource(ctx, by, &trainyard.Resource{Scope: scope, Kind: trainyard.KindWorkspace, Name: scope.Workspace, Location: "local"})
	for i, name := range []string{trainyard.BlobDatastore, trainyard.ArtifactDatastore} {
		c.PutResource(ctx, by, &trainyard.Resource{Scope: scope, Kind: trainyard.KindDatastore, Name: name, Properties: json.RawMessage(
			`{"datastoreType":"AzureBlob","accountName":"trainyard","containerName":"` + name + `","endpoint":"core.windows.net","protocol":"https",` +
				`"isDefault":` + strconv.FormatBool(i == 0) + `,"credentials":{"credentialsType":"AccountKey"}}`)})
	}
	return c
}

func key(s trainyard.Scope, kind trainyard.Kind, name, version string) string {
	return strings.ToLower(s.Key() + "/" + string(kind) + "/" + name + "/" + version)
}

func (c *Control) PutResource(_ context.Context, who trainyard.User, in *trainyard.Resource) (*trainyard.Resource, bool, error) {
	c.Lock()
	defer c.Unlock()
	if c.Err != nil {
		return nil, false, c.Err
	}
	r := *in
	k := key(r.Scope, r.Kind, r.Name, r.Version)
	r.Created, r.Modified, r.CreatedBy, r.ModifiedBy = c.Now(), c.Now(), who.Name, who.Name
	old, there := c.resources[k]
	if there {
		r.Created, r.CreatedBy = old.Created, old.CreatedBy
	}
	c.resources[k] = &r
	return &r, !there, nil
}

func (c *Control) Resource(ctx context.Context, s trainyard.Scope, kind trainyard.Kind, name, version string) (*trainyard.Resource, error) {
	if strings.EqualFold(version, "@latest") || version == "" && kind.Versioned() {
		latest, _, err := c.NextVersion(ctx, s, kind, name)
		if err != nil {
			return nil, err
		}
		version = latest
	}
	c.Lock()
	defer c.Unlock()
	if c.Err != nil {
		return nil, c.Err
	}
	if r := c.resources[key(s, kind, name, version)]; r != nil {
		return r, nil
	}
	return nil, trainyard.NotFound("%s %q version %q does not exist in workspace %q", kind, name, version, s.Workspace)
}

// Resources pages by name and version, so that tests can say what comes.
func (c *Control) Resources(_ context.Context, q trainyard.ResourceQuery) (trainyard.Page[*trainyard.Resource], error) {
	c.Lock()
	defer c.Unlock()
	var found []*trainyard.Resource
	latest := map[string]*trainyard.Resource{}
	for _, k := range slices.Sorted(maps.Keys(c.resources)) {
		r := c.resources[k]
		if r.Kind != q.Kind || !within(r.Scope, q.Scope) || q.Hash != "" && q.Hash != r.Hash || q.Name != "" && !strings.EqualFold(q.Name, r.Name) {
			continue
		}
		if q.View == trainyard.ViewActive && r.Archived || q.View == trainyard.ViewArchived && !r.Archived {
			continue
		}
		if q.Default != nil && strings.Contains(string(r.Properties), `"isDefault":true`) != *q.Default {
			continue
		}
		if q.Name == "" && q.Hash == "" && r.Kind.Versioned() {
			if latest[r.Name] == nil {
				found = append(found, r)
			} else {
				found[slices.Index(found, latest[r.Name])] = r
			}
			latest[r.Name] = r
			continue
		}
		found = append(found, r)
	}
	return page(found, q.Top, q.After), c.Err
}

func within(s, q trainyard.Scope) bool {
	s, q = s.Fold(), q.Fold()
	return s.Subscription == q.Subscription && (q.ResourceGroup == "" || s.ResourceGroup == q.ResourceGroup) && (q.Workspace == "" || s.Workspace == q.Workspace)
}

func page[T any](all []T, top int, after string) trainyard.Page[T] {
	from, _ := strconv.Atoi(after)
	if top == 0 {
		top = 100
	}
	p := trainyard.Page[T]{Items: all[min(from, len(all)):min(from+top, len(all))]}
	if from+top < len(all) {
		p.Next = strconv.Itoa(from + top)
	}
	return p
}

func (c *Control) DeleteResource(_ context.Context, _ trainyard.User, s trainyard.Scope, kind trainyard.Kind, name, version string) error {
	c.Lock()
	defer c.Unlock()
	found := false
	for k, r := range c.resources {
		if r.Kind == kind && within(r.Scope, s) && strings.EqualFold(r.Name, name) && (version == "" || r.Version == version) {
			delete(c.resources, k)
			found = true
		}
	}
	if !found {
		return trainyard.NotFound("%s %q does not exist", kind, name)
	}
	return nil
}

func (c *Control) NextVersion(_ context.Context, s trainyard.Scope, kind trainyard.Kind, name string) (latest, next string, err error) {
	c.Lock()
	defer c.Unlock()
	high := 0
	for _, r := range c.resources {
		if r.Kind == kind && within(r.Scope, s) && strings.EqualFold(r.Name, name) {
			n, _ := strconv.Atoi(r.Version)
			if latest == "" || n >= high {
				latest = r.Version
			}
			high = max(high, n)
		}
	}
	return latest, strconv.Itoa(high + 1), nil
}

func (c *Control) Secrets(ctx context.Context, _ trainyard.User, s trainyard.Scope, datastore string) (json.RawMessage, error) {
	if _, err := c.Resource(ctx, s, trainyard.KindDatastore, datastore, ""); err != nil {
		return nil, err
	}
	return json.RawMessage(`{"secretsType":"Sas","sasToken":"sv=2023-01-01&sr=c&sig=abc"}`), nil
}

func (c *Control) PendingUpload(_ context.Context, _ trainyard.User, _ trainyard.Scope, kind trainyard.Kind, name, version string) (trainyard.Upload, error) {
	uri := "https://trainyard.test/blob/" + string(kind) + "/" + name + "-" + version
	return trainyard.Upload{BlobURI: uri, SASURI: uri + "?sig=abc"}, c.Err
}

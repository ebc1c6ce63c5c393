package control

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"context"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// served is what is known of endpoints, deployments and their replicas, so that neither a request nor a look costs a read. What the store
// has is the truth; everything here follows it. Endpoints and deployments in it are never changed, only replaced.
type served struct {
	verbs sync.Mutex // held by who changes an endpoint or a deployment, from reading it to keeping the new one

	mu          sync.Mutex
	endpoints   map[string]*trainyard.OnlineEndpoint // by name in lower case
	deployments map[string]*deployment               // by deploymentKey
	replicas    map[trainyard.JobKey]string          // the deployment that a live replica is of
	gateways    map[string]gatewaySeen
}

// deployment is one deployment and what is remembered of it while the server runs.
type deployment struct {
	d        *trainyard.OnlineDeployment
	replicas map[trainyard.JobKey]bool  // those that have not ended
	leaving  map[trainyard.JobKey]int64 // those that get no more requests, and the routes by which gateways learned so
	since    map[trainyard.JobKey]time.Time
	crashes  int       // ends in a row that nobody asked for
	crashed  time.Time // when the last one was
	why      string    // what the last one said
	load     loadWindow
	route    []byte // as gateways were told last

	looked      time.Time // when the scaler last looked at what gateways say
	silentSince time.Time // replicas that are ready do not tell what they use
}

// gatewaySeen is what a gateway last said of itself.
type gatewaySeen struct {
	at  time.Time
	rev int64
}

func newServed() *served {
	return &served{endpoints: map[string]*trainyard.OnlineEndpoint{}, deployments: map[string]*deployment{},
		replicas: map[trainyard.JobKey]string{}, gateways: map[string]gatewaySeen{}}
}

// deploymentKey names a deployment in a server: endpoint names are unique in it.
func deploymentKey(endpoint, name string) string {
	return strings.ToLower(endpoint) + "/" + strings.ToLower(name)
}

func (s *served) endpoint(name string) *trainyard.OnlineEndpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoints[strings.ToLower(name)]
}

func (s *served) allEndpoints() []*trainyard.OnlineEndpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.endpoints), func(a, b *trainyard.OnlineEndpoint) int { return cmp.Compare(a.Name, b.Name) })
}

func (s *served) keepEndpoint(e *trainyard.OnlineEndpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endpoints[strings.ToLower(e.Name)] = e
}

func (s *served) dropEndpoint(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.endpoints, strings.ToLower(name))
}

func (s *served) deployment(endpoint, name string) *trainyard.OnlineDeployment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[deploymentKey(endpoint, name)]; d != nil {
		return d.d
	}
	return nil
}

// deploymentsOf lists an endpoint's deployments by name.
func (s *served) deploymentsOf(endpoint string) []*trainyard.OnlineDeployment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*trainyard.OnlineDeployment
	for _, d := range s.deployments {
		if strings.EqualFold(d.d.Endpoint, endpoint) {
			out = append(out, d.d)
		}
	}
	slices.SortFunc(out, func(a, b *trainyard.OnlineDeployment) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (s *served) keepDeployment(d *trainyard.OnlineDeployment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := deploymentKey(d.Endpoint, d.Name)
	if have := s.deployments[key]; have != nil {
		have.d = d
		return
	}
	s.deployments[key] = &deployment{d: d, replicas: map[trainyard.JobKey]bool{}, leaving: map[trainyard.JobKey]int64{}, since: map[trainyard.JobKey]time.Time{}}
}

func (s *served) dropDeployment(endpoint, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.deployments, deploymentKey(endpoint, name))
}

// addReplica remembers a replica that is not over.
func (s *served) addReplica(key string, job trainyard.JobKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[key]; d != nil {
		d.replicas[job], s.replicas[job] = true, key
	}
}

// dropReplica forgets a replica that is over.
func (s *served) dropReplica(job trainyard.JobKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[s.replicas[job]]; d != nil {
		delete(d.replicas, job)
		delete(d.leaving, job)
		delete(d.since, job)
		for id := range d.load.usage {
			if id.Job() == job {
				d.load.leave(id, nil)
			}
		}
	}
	delete(s.replicas, job)
}

// replicasOf lists a deployment's replicas that are not known to be over.
func (s *served) replicasOf(key string) []trainyard.JobKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deployments[key]; d != nil {
		return slices.Sorted(maps.Keys(d.replicas))
	}
	return nil
}

// touched lists the deployments whose replicas are among the jobs.
func (s *served) touched(jobs []trainyard.JobKey) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, j := range jobs {
		if key, ours := s.replicas[j]; ours {
			out = append(out, key)
		}
	}
	return out
}

// Rows in the store.

func putEndpoint(tx *store.Tx, e *trainyard.OnlineEndpoint) error {
	doc, err := json.Marshal(e)
	if err != nil {
		return trainyard.Invalid("endpoint %q cannot be stored: %v", e.Name, err)
	}
	keys, err := json.Marshal(e.Keys)
	if err != nil {
		return err
	}
	_, err = tx.PutResource(&trainyard.Resource{Scope: e.Scope, Kind: trainyard.KindOnlineEndpoint, Name: e.Name, Properties: doc, Secret: keys,
		Created: e.Created, Modified: e.Modified, CreatedBy: e.CreatedBy})
	return err
}

func putDeployment(tx *store.Tx, d *trainyard.OnlineDeployment) error {
	doc, err := json.Marshal(d)
	if err != nil {
		return trainyard.Invalid("deployment %q cannot be stored: %v", d.Name, err)
	}
	_, err = tx.PutResource(&trainyard.Resource{Scope: d.Scope, Kind: trainyard.KindOnlineDeployment, Name: d.Endpoint + "/" + d.Name, Properties: doc,
		Created: d.Created, Modified: d.Modified, CreatedBy: d.CreatedBy})
	return err
}

// loadServed reads all endpoints, deployments and live replicas.
func (c *Control) loadServed(ctx context.Context) error {
	err := eachResource(ctx, c.Store, trainyard.KindOnlineEndpoint, func(r *trainyard.Resource) error {
		e := &trainyard.OnlineEndpoint{}
		if err := json.Unmarshal(r.Properties, e); err != nil {
			return fmt.Errorf("read endpoint %s: %w", r.Name, err)
		}
		if len(r.Secret) > 0 {
			if err := json.Unmarshal(r.Secret, &e.Keys); err != nil {
				return fmt.Errorf("read the keys of endpoint %s: %w", r.Name, err)
			}
		}
		c.served.keepEndpoint(e)
		return nil
	})
	if err != nil {
		return err
	}
	err = eachResource(ctx, c.Store, trainyard.KindOnlineDeployment, func(r *trainyard.Resource) error {
		d := &trainyard.OnlineDeployment{}
		if err := json.Unmarshal(r.Properties, d); err != nil {
			return fmt.Errorf("read deployment %s: %w", r.Name, err)
		}
		c.served.keepDeployment(d)
		return nil
	})
	if err != nil {
		return err
	}
	live := []trainyard.JobState{trainyard.JobQueued, trainyard.JobPreparing, trainyard.JobRunning, trainyard.JobFinalizing, trainyard.JobCancelRequested}
	q := trainyard.JobQuery{States: live, View: trainyard.ViewAll, Tag: replicaTag, Top: 1000}
	for {
		page, err := c.Store.Jobs(ctx, q)
		if err != nil {
			return err
		}
		for _, j := range page.Items {
			if s := j.Plan.Serve; s != nil {
				c.served.addReplica(deploymentKey(s.Endpoint, s.Deployment), j.Key())
			}
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}

func eachResource(ctx context.Context, db *store.Store, kind trainyard.Kind, f func(*trainyard.Resource) error) error {
	q := trainyard.ResourceQuery{Kind: kind, View: trainyard.ViewAll, Top: 1000}
	for {
		page, err := db.Resources(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.Items {
			if err := f(r); err != nil {
				return err
			}
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
}

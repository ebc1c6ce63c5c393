package control

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// Bounds of a container instance, as Azure's documentation has them.
const (
	containerMemoryGB = 48
	containerModel    = 1 << 30 // bytes
	mostDeployments   = 20      // of an endpoint
	mostInstances     = 50      // of a deployment
)

func noDeployment(endpoint, name string) error {
	return trainyard.NotFound("endpoint %q has no deployment %q", endpoint, name)
}

func sha(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// PutDeployment creates a deployment or changes one. What serves is changed only when its replacement has shown that it serves.
func (c *Control) PutDeployment(ctx context.Context, who trainyard.User, in *trainyard.OnlineDeployment) (*trainyard.OnlineDeployment, bool, error) {
	d := *in
	if err := trainyard.CheckEndpointName("deployment", d.Name); err != nil {
		return nil, false, err
	}
	e := c.served.endpoint(d.Endpoint)
	if e == nil || e.Scope.Fold() != d.Scope.Fold() {
		return nil, false, trainyard.NotFound("online endpoint %q does not exist in workspace %q; create it first: trainyard online-endpoint create --name %s", d.Endpoint, d.Scope.Workspace, d.Endpoint)
	}
	d.Scope, d.Endpoint = e.Scope, e.Name
	plan, warnings, err := c.resolveDeployment(ctx, e, &d)
	if err != nil {
		return nil, false, err
	}
	c.served.verbs.Lock()
	defer c.served.verbs.Unlock()
	if e = c.served.endpoint(d.Endpoint); e == nil || e.Deleting {
		return nil, false, trainyard.Conflict("endpoint %q is being deleted", d.Endpoint)
	}
	old := c.served.deployment(d.Endpoint, d.Name)
	now := c.Now()
	if old != nil && overtaken(in.Modified, old.Modified) {
		return nil, false, trainyard.Conflict("deployment %q was changed by another at the same time; read it again and repeat the change", old.Name)
	}
	if old == nil && len(c.served.deploymentsOf(d.Endpoint)) >= mostDeployments {
		return nil, false, trainyard.Conflict("endpoint %q has %d deployments, which is the most there can be; delete one first", d.Endpoint, mostDeployments)
	}
	if err := c.renew(&d, old, plan, who, now); err != nil {
		return nil, false, err
	}
	d.Status.Warnings = warnings
	what := "updated"
	if old == nil {
		what = "created"
	}
	err = c.Store.Update(ctx, func(tx *store.Tx) error {
		tx.Event(c.event(d.Scope, "deployment", d.Endpoint+"/"+d.Name, what, who.Name, fmt.Sprintf("%s, %s", instances(d.Instances), d.Spec.EndpointComputeType)))
		return putDeployment(tx, &d)
	})
	if err != nil {
		return nil, false, err
	}
	key := deploymentKey(d.Endpoint, d.Name)
	c.served.keepDeployment(&d)
	c.served.forgive(key)
	c.reconcile.Add(key)
	c.routesChanged()
	return c.presentDeployment(&d), old == nil, nil
}

// renew makes d what follows the old deployment: a new generation where another thing is to serve, another number where only that changed.
func (c *Control) renew(d, old *trainyard.OnlineDeployment, plan *trainyard.ReplicaPlan, who trainyard.User, now time.Time) error {
	d.Created, d.CreatedBy, d.Modified = now, who.Name, now
	if old == nil {
		d.Status = trainyard.DeploymentStatus{Generation: 1, Next: plan}
		plan.Generation, plan.Plan.Serve.Generation = 1, 1
		return d.MoveTo(trainyard.DeploymentCreating, trainyard.Reason{Code: "Waiting", Message: "its first replicas are being made"}, now)
	}
	if old.Status.State == trainyard.DeploymentDeleting {
		return trainyard.Conflict("deployment %q is being deleted; try again when it is gone", old.Name)
	}
	d.Name, d.Created, d.CreatedBy, d.Status = old.Name, old.Created, old.CreatedBy, old.Status
	newest := old.Status.Next
	if newest == nil {
		newest = old.Status.Live
	}
	failed := old.Status.State == trainyard.DeploymentFailed
	if newest != nil && !failed && samePlan(newest, plan) {
		to, why := trainyard.DeploymentScaling, fmt.Sprintf("going to %s", instances(d.Instances))
		if old.Status.Next != nil || old.Instances == d.Instances {
			to, why = old.Status.State, old.Status.Reason.Message
		}
		return d.MoveTo(to, trainyard.Reason{Code: "Waiting", Message: why}, now)
	}
	d.Status.Generation++
	plan.Generation, plan.Plan.Serve.Generation = d.Status.Generation, d.Status.Generation
	d.Status.Next = plan
	return d.MoveTo(trainyard.DeploymentUpdating, trainyard.Reason{Code: "Waiting", Message: "replicas of the new specification are being made; the old ones serve until they are ready"}, now)
}

// samePlan says whether two plans make the same replicas.
func samePlan(a, b *trainyard.ReplicaPlan) bool {
	text := func(p *trainyard.ReplicaPlan) string {
		n := *p
		serve := *p.Plan.Serve
		n.Generation, serve.Generation, n.Plan.Serve = 0, 0, &serve
		n.Plan.Priority = 0 // an earlier version had another number for the same place in a queue
		out, err := json.Marshal(&n)
		if err != nil {
			return err.Error()
		}
		return string(out)
	}
	return text(a) == text(b)
}

// Deployment finds a deployment, with its replicas.
func (c *Control) Deployment(ctx context.Context, scope trainyard.Scope, endpoint, name string) (*trainyard.OnlineDeployment, error) {
	if _, err := c.Endpoint(ctx, scope, endpoint); err != nil {
		return nil, err
	}
	d := c.served.deployment(endpoint, name)
	if d == nil {
		return nil, noDeployment(endpoint, name)
	}
	out := c.presentDeployment(d)
	var err error
	out.Status.Replicas, err = c.replicaStatuses(ctx, d)
	return out, err
}

// Deployments lists an endpoint's deployments by name, with their replicas.
func (c *Control) Deployments(ctx context.Context, scope trainyard.Scope, endpoint string) ([]*trainyard.OnlineDeployment, error) {
	if _, err := c.Endpoint(ctx, scope, endpoint); err != nil {
		return nil, err
	}
	var out []*trainyard.OnlineDeployment
	for _, d := range c.served.deploymentsOf(endpoint) {
		p := c.presentDeployment(d)
		var err error
		if p.Status.Replicas, err = c.replicaStatuses(ctx, d); err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (c *Control) presentDeployment(d *trainyard.OnlineDeployment) *trainyard.OnlineDeployment {
	out := *d
	out.Spec.ProvisioningState = string(d.Status.State)
	out.Status.PeakMB, out.Status.OOMKills = c.served.memory(deploymentKey(d.Endpoint, d.Name))
	return &out
}

// withoutIt is an endpoint's traffic with a deployment's part given to the one that gets the most, as --traffic says it.
func withoutIt(traffic map[string]int, name string) string {
	names := slices.Collect(maps.Keys(traffic))
	names = slices.DeleteFunc(names, func(n string) bool { return n == name || traffic[n] == 0 })
	if len(names) == 0 {
		return "OTHER=100"
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(traffic[b], traffic[a]), cmp.Compare(a, b)) })
	words := make([]string, len(names))
	for i, n := range names {
		percent := traffic[n]
		if i == 0 {
			percent += traffic[name]
		}
		words[i] = fmt.Sprintf("%s=%d", n, percent)
	}
	return strings.Join(words, " ")
}

// DeleteDeployment begins to delete a deployment that gets no traffic.
func (c *Control) DeleteDeployment(ctx context.Context, who trainyard.User, scope trainyard.Scope, endpoint, name string) error {
	c.served.verbs.Lock()
	defer c.served.verbs.Unlock()
	e := c.served.endpoint(endpoint)
	if e == nil || e.Scope.Fold() != scope.Fold() {
		return noEndpoint(scope, endpoint)
	}
	old := c.served.deployment(endpoint, name)
	if old == nil {
		return noDeployment(endpoint, name)
	}
	if share := e.Spec.Traffic[old.Name]; share > 0 {
		return trainyard.Conflict("deployment %q has %d percent of the traffic of endpoint %q; give that to another first: trainyard online-endpoint update --name %s --traffic \"%s\"", old.Name, share, e.Name, e.Name, withoutIt(e.Spec.Traffic, old.Name))
	}
	d := *old
	if err := d.MoveTo(trainyard.DeploymentDeleting, trainyard.Reason{Code: "Deleting", Message: "its replicas are being stopped"}, c.Now()); err != nil {
		return err
	}
	n := *e
	if _, mirrored := e.Spec.MirrorTraffic[old.Name]; mirrored {
		n.Spec.MirrorTraffic = map[string]int{}
	}
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		tx.Event(c.event(scope, "deployment", d.Endpoint+"/"+d.Name, "deleted", who.Name, ""))
		if err := putEndpoint(tx, &n); err != nil {
			return err
		}
		return putDeployment(tx, &d)
	})
	if err != nil {
		return err
	}
	c.served.keepEndpoint(&n)
	c.served.keepDeployment(&d)
	c.reconcile.Add(deploymentKey(endpoint, name))
	c.routesChanged()
	return nil
}

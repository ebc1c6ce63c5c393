package armtest

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// serving is what is kept of online endpoints.
type serving struct {
	endpoints   map[string]*trainyard.OnlineEndpoint
	deployments map[string]*trainyard.OnlineDeployment
}

func endpointKey(s trainyard.Scope, parts ...string) string {
	return strings.ToLower(s.Key() + "/" + strings.Join(parts, "/"))
}

func (c *Control) PutEndpoint(_ context.Context, who trainyard.User, in *trainyard.OnlineEndpoint) (*trainyard.OnlineEndpoint, bool, error) {
	c.Lock()
	defer c.Unlock()
	if c.Err != nil {
		return nil, false, c.Err
	}
	if err := trainyard.CheckEndpointName("endpoint", in.Name); err != nil {
		return nil, false, err
	}
	e := *in
	k := endpointKey(e.Scope, e.Name)
	e.Created, e.Modified, e.CreatedBy = c.Now(), c.Now(), who.Name
	e.Spec.AuthMode = cmp.Or(e.Spec.AuthMode, trainyard.AuthKey)
	e.Spec.ScoringURI = cmp.Or(c.Gateway, "http://gateway.test") + "/endpoints/" + e.Name + "/score"
	e.Keys = trainyard.EndpointKeys{Primary: cmp.Or(e.Keys.Primary, "first"), Secondary: cmp.Or(e.Keys.Secondary, "second")}
	old, there := c.endpoints[k]
	if there {
		e.Created, e.CreatedBy, e.Keys = old.Created, old.CreatedBy, old.Keys
		if e.Spec.Traffic == nil {
			e.Spec.Traffic = old.Spec.Traffic
		}
		if e.Spec.MirrorTraffic == nil {
			e.Spec.MirrorTraffic = old.Spec.MirrorTraffic
		}
	}
	if c.endpoints == nil {
		c.endpoints, c.deployments = map[string]*trainyard.OnlineEndpoint{}, map[string]*trainyard.OnlineDeployment{}
	}
	c.endpoints[k] = &e
	copied := e
	return &copied, !there, nil
}

func (c *Control) Endpoint(_ context.Context, s trainyard.Scope, name string) (*trainyard.OnlineEndpoint, error) {
	c.Lock()
	defer c.Unlock()
	if e := c.endpoints[endpointKey(s, name)]; e != nil {
		copied := *e
		return &copied, c.Err
	}
	return nil, trainyard.NotFound("online endpoint %q does not exist in workspace %q", name, s.Workspace)
}

func (c *Control) Endpoints(_ context.Context, s trainyard.Scope) ([]*trainyard.OnlineEndpoint, error) {
	c.Lock()
	defer c.Unlock()
	var out []*trainyard.OnlineEndpoint
	for _, e := range c.endpoints {
		if within(e.Scope, s) {
			copied := *e
			out = append(out, &copied)
		}
	}
	slices.SortFunc(out, func(a, b *trainyard.OnlineEndpoint) int { return strings.Compare(a.Name, b.Name) })
	return out, c.Err
}

func (c *Control) DeleteEndpoint(_ context.Context, _ trainyard.User, s trainyard.Scope, name string) error {
	c.Lock()
	defer c.Unlock()
	k := endpointKey(s, name)
	e := c.endpoints[k]
	if e == nil {
		return trainyard.NotFound("online endpoint %q does not exist", name)
	}
	if e.Deleting = true; c.Slow {
		return c.Err
	}
	delete(c.endpoints, k)
	for at := range c.deployments {
		if strings.HasPrefix(at, k+"/") {
			delete(c.deployments, at)
		}
	}
	return c.Err
}

func (c *Control) EndpointKeys(ctx context.Context, _ trainyard.User, s trainyard.Scope, name string) (trainyard.EndpointKeys, error) {
	e, err := c.Endpoint(ctx, s, name)
	if err != nil {
		return trainyard.EndpointKeys{}, err
	}
	return e.Keys, nil
}

func (c *Control) RegenerateKey(_ context.Context, _ trainyard.User, s trainyard.Scope, name, key, value string) error {
	c.Lock()
	defer c.Unlock()
	e := c.endpoints[endpointKey(s, name)]
	if e == nil {
		return trainyard.NotFound("online endpoint %q does not exist", name)
	}
	if key == "Primary" {
		e.Keys.Primary = cmp.Or(value, e.Keys.Primary+"+")
	} else {
		e.Keys.Secondary = cmp.Or(value, e.Keys.Secondary+"+")
	}
	return c.Err
}

func (c *Control) EndpointToken(ctx context.Context, _ trainyard.User, s trainyard.Scope, name string) (trainyard.EndpointToken, error) {
	if _, err := c.Endpoint(ctx, s, name); err != nil {
		return trainyard.EndpointToken{}, err
	}
	now := c.Now().Unix()
	return trainyard.EndpointToken{AccessToken: "token of " + name, ExpiryTime: now + 3600, RefreshAfter: now + 3000, TokenType: "Bearer"}, nil
}

// PutDeployment leaves a deployment on its way, unless Quick is set: tests move it along with EditDeployment.
func (c *Control) PutDeployment(ctx context.Context, who trainyard.User, in *trainyard.OnlineDeployment) (*trainyard.OnlineDeployment, bool, error) {
	if _, err := c.Endpoint(ctx, in.Scope, in.Endpoint); err != nil {
		return nil, false, err
	}
	c.Lock()
	defer c.Unlock()
	dep := *in
	k := endpointKey(dep.Scope, dep.Endpoint, dep.Name)
	dep.Created, dep.Modified, dep.CreatedBy = c.Now(), c.Now(), who.Name
	dep.Status = trainyard.DeploymentStatus{State: trainyard.DeploymentCreating, Generation: 1, Wanted: dep.Instances,
		Reason: trainyard.Reason{Code: "Starting", Message: "0 of 1 replicas are ready"}}
	old, there := c.deployments[k]
	if there {
		dep.Created, dep.CreatedBy = old.Created, old.CreatedBy
		dep.Status.State, dep.Status.Generation = trainyard.DeploymentUpdating, old.Status.Generation+1
	}
	if c.Quick {
		dep.Status.State, dep.Status.Reason = trainyard.DeploymentSucceeded, trainyard.Reason{}
	}
	c.deployments[k] = &dep
	copied := dep
	return &copied, !there, c.Err
}

func (c *Control) Deployment(_ context.Context, s trainyard.Scope, endpoint, name string) (*trainyard.OnlineDeployment, error) {
	c.Lock()
	defer c.Unlock()
	if dep := c.deployments[endpointKey(s, endpoint, name)]; dep != nil {
		copied := *dep
		return &copied, c.Err
	}
	return nil, trainyard.NotFound("deployment %q of online endpoint %q does not exist", name, endpoint)
}

func (c *Control) Deployments(ctx context.Context, s trainyard.Scope, endpoint string) ([]*trainyard.OnlineDeployment, error) {
	if _, err := c.Endpoint(ctx, s, endpoint); err != nil {
		return nil, err
	}
	c.Lock()
	defer c.Unlock()
	var out []*trainyard.OnlineDeployment
	for k, dep := range c.deployments {
		if strings.HasPrefix(k, endpointKey(s, endpoint)+"/") {
			copied := *dep
			out = append(out, &copied)
		}
	}
	slices.SortFunc(out, func(a, b *trainyard.OnlineDeployment) int { return strings.Compare(a.Name, b.Name) })
	return out, c.Err
}

// EditDeployment changes a deployment by hand.
func (c *Control) EditDeployment(s trainyard.Scope, endpoint, name string, edit func(*trainyard.OnlineDeployment)) {
	c.Lock()
	defer c.Unlock()
	if dep := c.deployments[endpointKey(s, endpoint, name)]; dep != nil {
		edit(dep)
	}
}

func (c *Control) DeleteDeployment(_ context.Context, _ trainyard.User, s trainyard.Scope, endpoint, name string) error {
	c.Lock()
	defer c.Unlock()
	k := endpointKey(s, endpoint, name)
	dep, e := c.deployments[k], c.endpoints[endpointKey(s, endpoint)]
	switch {
	case dep == nil:
		return trainyard.NotFound("deployment %q of online endpoint %q does not exist", name, endpoint)
	case e != nil && e.Spec.Traffic[name] > 0:
		return trainyard.Conflict("deployment %q has %d %% of the traffic of online endpoint %q", name, e.Spec.Traffic[name], endpoint)
	case c.Slow:
		dep.Status.State = trainyard.DeploymentDeleting
	default:
		delete(c.deployments, k)
	}
	return c.Err
}

func (c *Control) DeploymentLogs(ctx context.Context, s trainyard.Scope, endpoint, name string, tail int, container string) (string, error) {
	if _, err := c.Deployment(ctx, s, endpoint, name); err != nil {
		return "", err
	}
	lines := []string{container, "loading the model", "serving"}
	if tail > 0 {
		lines = lines[max(0, len(lines)-tail):]
	}
	return strings.Join(lines, "\n") + "\n", nil
}

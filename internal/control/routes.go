package control

import (
	"context"
	"fmt"
	"time"

	"github.com/trainyard/trainyard"
)

// routesChanged tells gateways that there are other routes, and returns their number.
func (c *Control) routesChanged() int64 {
	c.routes.bump(allRoutes)
	return c.routes.rev(allRoutes)
}

const allRoutes = "routes"

// Routes is what gateways send requests by; it waits until that is newer than after.
// How long a gateway holds a request for a replica that is on its way.
func (c *Control) Routes(ctx context.Context, after int64) (trainyard.Routes, error) {
	rev := c.routes.wait(ctx, allRoutes, after, pollHold)
	if err := ctx.Err(); err != nil {
		return trainyard.Routes{}, err
	}
	out := trainyard.Routes{Rev: rev}
	for _, e := range c.served.allEndpoints() {
		if e.Deleting {
			continue
		}
		r, err := c.route(ctx, e)
		if err != nil {
			return trainyard.Routes{}, err
		}
		out.Endpoints = append(out.Endpoints, r)
	}
	return out, nil
}

func (c *Control) route(ctx context.Context, e *trainyard.OnlineEndpoint) (trainyard.EndpointRoute, error) {
	out := trainyard.EndpointRoute{Scope: e.Scope, Name: e.Name, AuthMode: e.Spec.AuthMode, Traffic: e.Spec.Traffic, Mirror: e.Spec.MirrorTraffic}
	if e.Spec.AuthMode == trainyard.AuthKey {
		out.Keys = [][]byte{sha(e.Keys.Primary), sha(e.Keys.Secondary)}
	}
	for _, d := range c.served.deploymentsOf(e.Name) {
		r, err := c.deploymentRoute(ctx, d)
		if err != nil {
			return out, err
		}
		out.Deployments = append(out.Deployments, r)
	}
	return out, nil
}

func (c *Control) deploymentRoute(ctx context.Context, d *trainyard.OnlineDeployment) (trainyard.DeploymentRoute, error) {
	s := &d.Status
	out := trainyard.DeploymentRoute{Name: d.Name, Wanted: s.Wanted, Collect: d.Spec.DataCollector, Kubernetes: d.Spec.EndpointComputeType == trainyard.ServeKubernetes}
	plan := s.Live
	if plan == nil {
		plan = s.Next
	}
	if plan == nil || plan.Plan.Serve == nil {
		out.Failed = s.Reason.Message
		return out, nil
	}
	serve := plan.Plan.Serve
	out.Scoring, out.Concurrency, out.Queue, out.Timeout = serve.Scoring, serve.Concurrency, serve.Queue, serve.Timeout
	key := deploymentKey(d.Endpoint, d.Name)
	all, err := c.look(ctx, key)
	if err != nil {
		return out, err
	}
	for _, r := range all {
		if !r.ready() || r.ending() || c.served.isLeaving(key, r.job.Key()) {
			continue
		}
		if gen := r.gen; !(s.Live != nil && gen == s.Live.Generation || s.Next != nil && gen == s.Next.Generation) {
			continue
		}
		a := r.job.Status.Current()
		out.Replicas = append(out.Replicas, trainyard.ReplicaRoute{Task: a.Tasks[0].ID, Address: r.serving.Address, Direct: r.serving.Direct})
	}
	out.Hold = holdLive
	out.Wakes = s.Live != nil || s.Next != nil
	if s.Wanted == 0 || scaling(d).min == 0 {
		out.Hold = holdWake
	}
	if len(out.Replicas) == 0 && s.Reason.Code == noCompute {
		out.Failed = s.Reason.Message
	}
	if len(out.Replicas) == 0 && s.Live != nil {
		out.Progress = s.Reason.Message
		if n := c.served.crashCount(key); n >= 3 {
			out.Failed = fmt.Sprintf("%d replicas in a row ended before they were ready: %s", n, c.served.crashWhy(key))
		}
	}
	return out, nil
}

const (
	holdLive = time.Minute      // one that was lost is being replaced
	holdWake = 10 * time.Minute // the first one after none: an environment may have to be built
)

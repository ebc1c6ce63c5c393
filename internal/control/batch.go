package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/batchrun"
	"github.com/trainyard/trainyard/internal/store"
)

// PutBatchEndpoint creates or replaces a batch endpoint.
func (c *Control) PutBatchEndpoint(ctx context.Context, who trainyard.User, e *trainyard.BatchEndpoint) (*trainyard.BatchEndpoint, bool, error) {
	if err := checkBatchName("endpoint", e.Name); err != nil {
		return nil, false, err
	}
	if e.Spec.AuthMode == "" {
		e.Spec.AuthMode = trainyard.AuthAADToken
	}
	if e.Spec.AuthMode != trainyard.AuthAADToken {
		return nil, false, trainyard.Invalid("batch endpoint %q has the authMode %q; batch endpoints are invoked with tokens: aad_token", e.Name, e.Spec.AuthMode)
	}
	if e.Spec.Properties == nil {
		e.Spec.Properties = map[string]string{}
	}
	r := &trainyard.Resource{Scope: e.Scope, Kind: trainyard.KindBatchEndpoint, Name: e.Name, Location: e.Location, Tags: e.Tags, Identity: e.Identity}
	created, err := c.putBatch(ctx, who, r, e.Spec, func(tx *store.Tx) error {
		if d := e.Spec.Defaults; d != nil && d.DeploymentName != "" {
			if _, err := tx.Resource(e.Scope, trainyard.KindBatchDeployment, e.Name+"/"+d.DeploymentName, ""); err != nil {
				return trainyard.Invalid("batch endpoint %q has no deployment %q, which is to be its default: create it first", e.Name, d.DeploymentName)
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	saved, err := batchEndpoint(r)
	return saved, created, err
}

// PutBatchDeployment creates or replaces a deployment. Everything that it names must be there.
func (c *Control) PutBatchDeployment(ctx context.Context, who trainyard.User, d *trainyard.BatchDeployment) (*trainyard.BatchDeployment, bool, error) {
	if err := checkBatchName("deployment", d.Name); err != nil {
		return nil, false, err
	}
	e, err := c.BatchEndpoint(ctx, d.Scope, d.Endpoint)
	if err != nil {
		return nil, false, err
	}
	d.Endpoint = e.Name
	if err := c.probe(ctx, d); err != nil {
		return nil, false, err
	}
	r := &trainyard.Resource{Scope: d.Scope, Kind: trainyard.KindBatchDeployment, Name: d.Endpoint + "/" + d.Name, Location: d.Location, Tags: d.Tags, Identity: d.Identity}
	created, err := c.putBatch(ctx, who, r, d.Spec, func(tx *store.Tx) error {
		_, err := tx.Resource(d.Scope, trainyard.KindBatchEndpoint, d.Endpoint, "")
		return err
	})
	if err != nil {
		return nil, false, err
	}
	saved, err := batchDeployment(r)
	return saved, created, err
}

func checkBatchName(what, name string) error {
	if trainyard.CheckEndpointName(what, name) != nil {
		return trainyard.Invalid("%q cannot be the name of a batch %s: use 3 to 32 letters, digits and '-', beginning with a letter and not ending with '-'", name, what)
	}
	return nil
}

// putBatch stores an endpoint or a deployment, if check has nothing against it.
func (c *Control) putBatch(ctx context.Context, who trainyard.User, r *trainyard.Resource, spec any, check func(tx *store.Tx) error) (created bool, err error) {
	if r.Properties, err = json.Marshal(spec); err != nil {
		return false, err
	}
	err = c.Store.Update(ctx, func(tx *store.Tx) error {
		if _, err := tx.Resource(r.Scope, trainyard.KindWorkspace, r.Scope.Workspace, ""); err != nil {
			return err
		}
		if err := check(tx); err != nil {
			return err
		}
		now := c.Now()
		r.Created, r.CreatedBy, r.Modified, r.ModifiedBy = now, who.Name, now, who.Name
		if old, err := tx.Resource(r.Scope, r.Kind, r.Name, ""); err == nil {
			r.Created, r.CreatedBy, r.Name = old.Created, old.CreatedBy, old.Name
		} else if !trainyard.IsNotFound(err) {
			return err
		}
		if created, err = tx.PutResource(r); err != nil {
			return err
		}
		what := "updated"
		if created {
			what = "created"
		}
		tx.Event(c.event(r.Scope, string(r.Kind), r.Name, what, who.Name, ""))
		return nil
	})
	return created, err
}

// BatchEndpoint finds one.
func (c *Control) BatchEndpoint(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.BatchEndpoint, error) {
	r, err := c.Store.Resource(ctx, scope, trainyard.KindBatchEndpoint, name, "")
	if trainyard.IsNotFound(err) {
		return nil, trainyard.NotFound("batch endpoint %q does not exist in workspace %q", name, scope.Workspace)
	}
	if err != nil {
		return nil, err
	}
	return batchEndpoint(r)
}

// BatchDeployment finds one.
func (c *Control) BatchDeployment(ctx context.Context, scope trainyard.Scope, endpoint, name string) (*trainyard.BatchDeployment, error) {
	r, err := c.Store.Resource(ctx, scope, trainyard.KindBatchDeployment, endpoint+"/"+name, "")
	if trainyard.IsNotFound(err) {
		if _, err := c.BatchEndpoint(ctx, scope, endpoint); err != nil {
			return nil, err
		}
		return nil, trainyard.NotFound("batch endpoint %q has no deployment %q", endpoint, name)
	}
	if err != nil {
		return nil, err
	}
	return batchDeployment(r)
}

// BatchEndpoints lists them, newest first.
func (c *Control) BatchEndpoints(ctx context.Context, scope trainyard.Scope) ([]*trainyard.BatchEndpoint, error) {
	var out []*trainyard.BatchEndpoint
	err := c.eachBatch(ctx, scope, trainyard.KindBatchEndpoint, func(r *trainyard.Resource) error {
		e, err := batchEndpoint(r)
		out = append(out, e)
		return err
	})
	return out, err
}

// BatchDeployments lists those of an endpoint, newest first.
func (c *Control) BatchDeployments(ctx context.Context, scope trainyard.Scope, endpoint string) ([]*trainyard.BatchDeployment, error) {
	if _, err := c.BatchEndpoint(ctx, scope, endpoint); err != nil {
		return nil, err
	}
	var out []*trainyard.BatchDeployment
	err := c.eachBatch(ctx, scope, trainyard.KindBatchDeployment, func(r *trainyard.Resource) error {
		d, err := batchDeployment(r)
		if err == nil && strings.EqualFold(d.Endpoint, endpoint) {
			out = append(out, d)
		}
		return err
	})
	return out, err
}

func (c *Control) eachBatch(ctx context.Context, scope trainyard.Scope, kind trainyard.Kind, do func(*trainyard.Resource) error) error {
	for after := ""; ; {
		page, err := c.Store.Resources(ctx, trainyard.ResourceQuery{Scope: scope, Kind: kind, View: trainyard.ViewAll, Top: 1000, After: after})
		if err != nil {
			return err
		}
		for _, r := range page.Items {
			if err := do(r); err != nil {
				return err
			}
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

// DeleteBatchEndpoint deletes an endpoint with its deployments. Jobs that it made stay.
func (c *Control) DeleteBatchEndpoint(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string) error {
	all, err := c.BatchDeployments(ctx, scope, name)
	if err != nil {
		return err
	}
	return c.Store.Update(ctx, func(tx *store.Tx) error {
		for _, d := range all {
			if err := tx.DeleteResource(scope, trainyard.KindBatchDeployment, d.Endpoint+"/"+d.Name, ""); err != nil && !trainyard.IsNotFound(err) {
				return err
			}
		}
		tx.Event(c.event(scope, string(trainyard.KindBatchEndpoint), name, "deleted", who.Name, ""))
		return tx.DeleteResource(scope, trainyard.KindBatchEndpoint, name, "")
	})
}

// DeleteBatchDeployment deletes a deployment; an endpoint whose default it was has none then. Jobs that it made stay.
func (c *Control) DeleteBatchDeployment(ctx context.Context, who trainyard.User, scope trainyard.Scope, endpoint, name string) error {
	return c.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.DeleteResource(scope, trainyard.KindBatchDeployment, endpoint+"/"+name, ""); err != nil {
			return err
		}
		tx.Event(c.event(scope, string(trainyard.KindBatchDeployment), endpoint+"/"+name, "deleted", who.Name, ""))
		r, err := tx.Resource(scope, trainyard.KindBatchEndpoint, endpoint, "")
		if err != nil {
			return err
		}
		e, err := batchEndpoint(r)
		if err != nil {
			return err
		}
		if e.Spec.Defaults == nil || !strings.EqualFold(e.Spec.Defaults.DeploymentName, name) {
			return nil
		}
		e.Spec.Defaults = nil
		if r.Properties, err = json.Marshal(e.Spec); err != nil {
			return err
		}
		r.Modified, r.ModifiedBy = c.Now(), who.Name
		_, err = tx.PutResource(r)
		return err
	})
}

func batchEndpoint(r *trainyard.Resource) (*trainyard.BatchEndpoint, error) {
	e := &trainyard.BatchEndpoint{Scope: r.Scope, Name: r.Name, Location: r.Location, Tags: r.Tags, Identity: r.Identity,
		Created: r.Created, Modified: r.Modified, CreatedBy: r.CreatedBy, ModifiedBy: r.ModifiedBy}
	if err := json.Unmarshal(r.Properties, &e.Spec); err != nil {
		return nil, fmt.Errorf("read batch endpoint %s: %w", r.Name, err)
	}
	return e, nil
}

func batchDeployment(r *trainyard.Resource) (*trainyard.BatchDeployment, error) {
	endpoint, name, _ := strings.Cut(r.Name, "/")
	d := &trainyard.BatchDeployment{Scope: r.Scope, Endpoint: endpoint, Name: name, Location: r.Location, Tags: r.Tags, Identity: r.Identity,
		Created: r.Created, Modified: r.Modified, CreatedBy: r.CreatedBy, ModifiedBy: r.ModifiedBy}
	if err := json.Unmarshal(r.Properties, &d.Spec); err != nil {
		return nil, fmt.Errorf("read batch deployment %s: %w", r.Name, err)
	}
	return d, nil
}

// probe completes a deployment and looks whether its jobs could be resolved: a mistake is told when it is made, not when files are scored.
func (c *Control) probe(ctx context.Context, d *trainyard.BatchDeployment) error {
	if d.Spec.Configuration != nil {
		return c.probeComponent(ctx, d)
	}
	if err := batchrun.Complete(d); err != nil {
		return err
	}
	in := &trainyard.BatchInvocation{Inputs: map[string]*trainyard.JobInput{"data": {JobInputType: "uri_file", URI: "https://localhost/nothing"}}}
	j, _, err := c.batchJob(ctx, d, in)
	if err == nil {
		_, err = c.resolve(ctx, j)
	}
	return err
}

package control

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/batchrun"
)

// probeComponent looks whether the component of a deployment is one that can be run.
func (c *Control) probeComponent(ctx context.Context, d *trainyard.BatchDeployment) error {
	_, err := c.batchComponent(ctx, d)
	return err
}

// componentJob is the job of a component deployment.
func (c *Control) componentJob(ctx context.Context, d *trainyard.BatchDeployment, in *trainyard.BatchInvocation) (*trainyard.Job, error) {
	comp, err := c.batchComponent(ctx, d)
	if err != nil {
		return nil, err
	}
	return batchrun.ComponentJob(d, comp, in)
}

// batchComponent reads the component that a deployment names, and the one that this one's only step names.
func (c *Control) batchComponent(ctx context.Context, d *trainyard.BatchDeployment) (*batchrun.Component, error) {
	ref := d.Spec.Configuration.ComponentID
	if ref == nil || ref.AssetID == "" {
		if _, ok := d.Spec.Extra["jobDefinition"]; ok {
			return nil, trainyard.Errorf(trainyard.CodeUnsupported, "batch deployment %q is made of a pipeline job, and this build has no pipeline engine: deploy a command component, or a pipeline component of one command step", d.Name)
		}
		return nil, trainyard.Invalid("batch deployment %q names no component", d.Name)
	}
	spec, err := c.componentSpec(ctx, d.Scope, ref.AssetID)
	if err != nil {
		return nil, err
	}
	return batchrun.ReadComponent(spec, func(ref string) (json.RawMessage, error) { return c.componentSpec(ctx, d.Scope, ref) })
}

func (c *Control) componentSpec(ctx context.Context, scope trainyard.Scope, ref string) (json.RawMessage, error) {
	r := &resolver{c: c, ctx: ctx, j: &trainyard.Job{Scope: scope}}
	res, err := r.asset(trainyard.KindComponent, ref)
	if err != nil {
		return nil, err
	}
	var p struct {
		Spec json.RawMessage `json:"componentSpec"`
	}
	if err := json.Unmarshal(res.Properties, &p); err != nil {
		return nil, fmt.Errorf("read component %s: %w", res.Name, err)
	}
	return p.Spec, nil
}

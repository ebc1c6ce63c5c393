package arm

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

// Batch is batch endpoints: names under which files are scored.
type Batch interface {
	PutBatchEndpoint(ctx context.Context, who trainyard.User, e *trainyard.BatchEndpoint) (saved *trainyard.BatchEndpoint, created bool, err error)
	BatchEndpoint(ctx context.Context, scope trainyard.Scope, name string) (*trainyard.BatchEndpoint, error)
	BatchEndpoints(ctx context.Context, scope trainyard.Scope) ([]*trainyard.BatchEndpoint, error)
	// DeleteBatchEndpoint deletes an endpoint with its deployments. Its jobs stay.
	DeleteBatchEndpoint(ctx context.Context, who trainyard.User, scope trainyard.Scope, name string) error
	// InvokeBatch makes a job. The same request again finds the job that it made.
	InvokeBatch(ctx context.Context, who trainyard.User, scope trainyard.Scope, endpoint string, in *trainyard.BatchInvocation) (job *trainyard.Job, created bool, err error)
}

// BatchDeployments are the models of batch endpoints.
type BatchDeployments interface {
	PutBatchDeployment(ctx context.Context, who trainyard.User, d *trainyard.BatchDeployment) (saved *trainyard.BatchDeployment, created bool, err error)
	BatchDeployment(ctx context.Context, scope trainyard.Scope, endpoint, name string) (*trainyard.BatchDeployment, error)
	BatchDeployments(ctx context.Context, scope trainyard.Scope, endpoint string) ([]*trainyard.BatchDeployment, error)
	DeleteBatchDeployment(ctx context.Context, who trainyard.User, scope trainyard.Scope, endpoint, name string) error
}

// batchRoutes are those of batch endpoints, of their deployments, and of the jobs that both make.
func batchRoutes() []route {
	const read, write, del = identity.Read, identity.Write, identity.Delete
	const e, ds = trainyard.KindBatchEndpoint, trainyard.KindBatchDeployment
	const at = inGroup + "/batchEndpoints/*"
	return []route{
		{"GET", inGroup + "/batchEndpoints", read, e, (*door).listBatchEndpoints},
		{"PUT", at, write, e, (*door).putBatchEndpoint},
		{"GET", at, read, e, (*door).getBatchEndpoint},
		{"PATCH", at, write, e, (*door).patchBatchEndpoint},
		{"DELETE", at, del, e, (*door).deleteBatchEndpoint},
		{"POST", at + "/listKeys", identity.Secrets, e, (*door).batchKeys},
		{"GET", at + "/deployments", read, ds, (*door).listBatchDeployments},
		{"PUT", at + "/deployments/*", write, ds, (*door).putBatchDeployment},
		{"GET", at + "/deployments/*", read, ds, (*door).getBatchDeployment},
		{"PATCH", at + "/deployments/*", write, ds, (*door).patchBatchDeployment},
		{"DELETE", at + "/deployments/*", del, ds, (*door).deleteBatchDeployment},

		// Azure's data plane. The first is what scoringUri says.
		{"POST", at + "/jobs", identity.Act, e, (*door).invokeBatch},
		{"GET", at + "/jobs", read, e, (*door).listBatchJobs},
		{"GET", at + "/deployments/*/jobs", read, ds, (*door).listBatchJobs},
	}
}

// batchWritten are members of properties that only the server writes.
var batchWritten = []string{"scoringUri", "swaggerUri", "provisioningState", "keys"}

func (d *door) putBatchEndpoint(c *call, kind trainyard.Kind) (reply, error) {
	var in struct {
		written
		Properties *trainyard.BatchEndpointSpec `json:"properties"` // hides written's
	}
	if err := c.read(&in); err != nil {
		return reply{}, err
	}
	if in.Properties == nil {
		return reply{}, trainyard.Invalid("the body of batch endpoint %q has no properties; want {\"properties\": {}}", c.name())
	}
	return d.saveBatchEndpoint(c, kind, &trainyard.BatchEndpoint{Scope: c.scope(), Name: c.name(), Location: in.Location, Tags: in.Tags,
		Identity: nonNull(in.Identity), Spec: *in.Properties})
}

func (d *door) patchBatchEndpoint(c *call, kind trainyard.Kind) (reply, error) {
	old, err := d.Batch.BatchEndpoint(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	var patch written
	if err := c.read(&patch); err != nil {
		return reply{}, err
	}
	spec, err := patched(old.Spec, patch.Properties)
	if err != nil {
		return reply{}, err
	}
	e := *old
	e.Spec = *spec
	if patch.Tags != nil {
		e.Tags = patch.Tags
	}
	a, err := d.saveBatchEndpoint(c, kind, &e)
	a.status = http.StatusOK
	return a, err
}

func (d *door) saveBatchEndpoint(c *call, kind trainyard.Kind, e *trainyard.BatchEndpoint) (reply, error) {
	e.Spec.AuthMode = canon(e.Spec.AuthMode, trainyard.AuthAADToken, trainyard.AuthKey, trainyard.AuthAMLToken)
	e.Spec.Extra = cleanExtra(e.Spec.Extra, batchWritten)
	got, created, err := d.Batch.PutBatchEndpoint(c.Context(), c.who, e)
	if err != nil {
		return reply{}, err
	}
	body, err := d.batchEndpointBody(c, got)
	a := saved(created, body)
	a.op = d.begin(c, "create", kind, got.Name)
	return a, err
}

func (d *door) getBatchEndpoint(c *call, _ trainyard.Kind) (reply, error) {
	e, err := d.Batch.BatchEndpoint(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	body, err := d.batchEndpointBody(c, e)
	if err != nil {
		return reply{}, err
	}
	return ok(body)
}

func (d *door) listBatchEndpoints(c *call, _ trainyard.Kind) (reply, error) {
	list, err := d.Batch.BatchEndpoints(c.Context(), c.scope())
	if err != nil {
		return reply{}, err
	}
	var items []envelope
	for _, e := range list {
		body, err := d.batchEndpointBody(c, e)
		if err != nil {
			return reply{}, err
		}
		items = append(items, body)
	}
	return pageOf(c, items, "")
}

func (d *door) deleteBatchEndpoint(c *call, _ trainyard.Kind) (reply, error) {
	return deleted(d.Batch.DeleteBatchEndpoint(c.Context(), c.who, c.scope(), c.name()))
}

// batchKeys has no keys: batch endpoints are invoked with tokens. Clients want the fields.
func (d *door) batchKeys(c *call, _ trainyard.Kind) (reply, error) {
	if _, err := d.Batch.BatchEndpoint(c.Context(), c.scope(), c.name()); err != nil {
		return reply{}, err
	}
	return ok(map[string]any{"primaryKey": nil, "secondaryKey": nil})
}

// batchEndpointBody is an endpoint as clients read it, with where it is invoked.
func (d *door) batchEndpointBody(c *call, e *trainyard.BatchEndpoint) (envelope, error) {
	props, err := objectOf(e.Spec)
	if err != nil {
		return envelope{}, err
	}
	props.fill("properties", map[string]string{})
	props.fill("defaults", map[string]any{"deploymentName": nil}) // clients set the member of one that is there
	props.set("scoringUri", c.base()+e.ID()+"/jobs")
	props.set("swaggerUri", nil)
	props.set("provisioningState", succeeded)
	return envelope{ID: e.ID(), Name: e.Name, Type: trainyard.Provider + "/workspaces/batchEndpoints", Location: e.Location, Tags: tagsOf(e.Tags),
		Identity: e.Identity, SystemData: newSystemData(e.Created, e.Modified, e.CreatedBy, e.ModifiedBy), Properties: props}, nil
}

func (d *door) putBatchDeployment(c *call, kind trainyard.Kind) (reply, error) {
	var in struct {
		written
		Properties *trainyard.BatchDeploymentSpec `json:"properties"` // hides written's
	}
	if err := c.read(&in); err != nil {
		return reply{}, err
	}
	if in.Properties == nil {
		return reply{}, trainyard.Invalid("the body of batch deployment %q has no properties; want {\"properties\": {\"model\": …, \"compute\": …}}", c.segment(5))
	}
	return d.saveBatchDeployment(c, kind, &trainyard.BatchDeployment{Scope: c.scope(), Endpoint: c.name(), Name: c.segment(5), Location: in.Location,
		Tags: in.Tags, Identity: nonNull(in.Identity), Spec: *in.Properties})
}

func (d *door) patchBatchDeployment(c *call, kind trainyard.Kind) (reply, error) {
	old, err := d.BatchDeployments.BatchDeployment(c.Context(), c.scope(), c.name(), c.segment(5))
	if err != nil {
		return reply{}, err
	}
	var patch written
	if err := c.read(&patch); err != nil {
		return reply{}, err
	}
	spec, err := patched(old.Spec, patch.Properties)
	if err != nil {
		return reply{}, err
	}
	one := *old
	one.Spec = *spec
	if patch.Tags != nil {
		one.Tags = patch.Tags
	}
	a, err := d.saveBatchDeployment(c, kind, &one)
	a.status = http.StatusOK
	return a, err
}

func (d *door) saveBatchDeployment(c *call, kind trainyard.Kind, one *trainyard.BatchDeployment) (reply, error) {
	s := &one.Spec
	s.OutputAction = canon(s.OutputAction, trainyard.BatchAppendRow, trainyard.BatchSummaryOnly)
	s.LoggingLevel = canon(s.LoggingLevel, "Info", "Warning", "Debug")
	s.Extra = cleanExtra(s.Extra, batchWritten)
	if s.CodeConfiguration != nil && *s.CodeConfiguration == (trainyard.CodeConfiguration{}) {
		s.CodeConfiguration = nil
	}
	got, created, err := d.BatchDeployments.PutBatchDeployment(c.Context(), c.who, one)
	if err != nil {
		return reply{}, err
	}
	body, err := batchDeploymentBody(got)
	a := saved(created, body)
	a.op = d.begin(c, "create", kind, got.Endpoint+"/"+got.Name)
	return a, err
}

func (d *door) getBatchDeployment(c *call, _ trainyard.Kind) (reply, error) {
	one, err := d.BatchDeployments.BatchDeployment(c.Context(), c.scope(), c.name(), c.segment(5))
	if err != nil {
		return reply{}, err
	}
	body, err := batchDeploymentBody(one)
	if err != nil {
		return reply{}, err
	}
	return ok(body)
}

func (d *door) listBatchDeployments(c *call, _ trainyard.Kind) (reply, error) {
	list, err := d.BatchDeployments.BatchDeployments(c.Context(), c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	var items []envelope
	for _, one := range list {
		body, err := batchDeploymentBody(one)
		if err != nil {
			return reply{}, err
		}
		items = append(items, body)
	}
	return pageOf(c, items, "")
}

func (d *door) deleteBatchDeployment(c *call, _ trainyard.Kind) (reply, error) {
	return deleted(d.BatchDeployments.DeleteBatchDeployment(c.Context(), c.who, c.scope(), c.name(), c.segment(5)))
}

func batchDeploymentBody(one *trainyard.BatchDeployment) (envelope, error) {
	props, err := objectOf(one.Spec)
	if err != nil {
		return envelope{}, err
	}
	props.fill("properties", map[string]string{})
	props.set("provisioningState", succeeded)
	return envelope{ID: one.ID(), Name: one.Name, Type: trainyard.Provider + "/workspaces/batchEndpoints/deployments", Location: one.Location,
		Tags: tagsOf(one.Tags), Identity: one.Identity, SystemData: newSystemData(one.Created, one.Modified, one.CreatedBy, one.ModifiedBy), Properties: props}, nil
}

// batchProgress is the progress of what is done as soon as it was asked for.
func (d *door) batchProgress(c *call, o *operation) (string, *trainyard.Error, any, error) {
	var body any
	var err error
	if endpoint, name, deep := strings.Cut(o.Name, "/"); deep {
		var one *trainyard.BatchDeployment
		if one, err = d.BatchDeployments.BatchDeployment(c.Context(), o.Scope, endpoint, name); err == nil {
			body, err = batchDeploymentBody(one)
		}
	} else {
		var e *trainyard.BatchEndpoint
		if e, err = d.Batch.BatchEndpoint(c.Context(), o.Scope, o.Name); err == nil {
			body, err = d.batchEndpointBody(c, e)
		}
	}
	if err != nil {
		return gone(err)
	}
	return succeeded, nil, body, nil
}

// textOf is a JSON value as text: a string's own, anything else as it is written.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

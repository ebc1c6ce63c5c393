package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/batchrun"
)

// requestProperty holds the request of the client's that a batch job came of.
const requestProperty = "azureml.requestid"

// InvokeBatch makes a job that scores what the invocation names. The same request twice makes one job, and says so with created false.
func (c *Control) InvokeBatch(ctx context.Context, who trainyard.User, scope trainyard.Scope, endpoint string, in *trainyard.BatchInvocation) (j *trainyard.Job, created bool, err error) {
	d, err := c.invoked(ctx, scope, endpoint, in.Deployment)
	if err != nil {
		return nil, false, err
	}
	name := in.Name
	if name == "" {
		name = "batchjob-" + requestID(d, in.Request)
	}
	if old, err := c.Job(ctx, scope, name); err == nil {
		if in.Request == "" || old.Spec.Properties[requestProperty] != in.Request {
			return nil, false, trainyard.Conflict("job %q exists already: choose another job name", name)
		}
		return old, false, nil
	} else if !trainyard.IsNotFound(err) {
		return nil, false, err
	}
	j, finish, err := c.batchJob(ctx, d, in)
	if err != nil {
		return nil, false, err
	}
	j.Name = name
	if j.Spec.DisplayName == "" {
		j.Spec.DisplayName = name
	}
	if in.Request != "" {
		j.Spec.Properties = map[string]string{requestProperty: in.Request}
	}
	if d.Spec.Configuration == nil {
		if err := c.shelveRunner(ctx, scope); err != nil {
			return nil, false, err
		}
	}
	return c.submit(ctx, who, j, finish)
}

// requestID is a UUID, for the same request of the same deployment the same.
func requestID(d *trainyard.BatchDeployment, request string) string {
	if request == "" {
		return uuid.NewString()
	}
	sum := sha256.Sum256([]byte(d.Scope.Key() + "/" + strings.ToLower(d.Endpoint) + "/" + request))
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// invoked is the deployment that an invocation means.
func (c *Control) invoked(ctx context.Context, scope trainyard.Scope, endpoint, deployment string) (*trainyard.BatchDeployment, error) {
	e, err := c.BatchEndpoint(ctx, scope, endpoint)
	if err != nil {
		return nil, err
	}
	if deployment != "" {
		return c.BatchDeployment(ctx, scope, e.Name, deployment)
	}
	if e.Spec.Defaults != nil && e.Spec.Defaults.DeploymentName != "" {
		return c.BatchDeployment(ctx, scope, e.Name, e.Spec.Defaults.DeploymentName)
	}
	all, err := c.BatchDeployments(ctx, scope, e.Name)
	switch {
	case err != nil:
		return nil, err
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return nil, trainyard.Invalid("batch endpoint %q has no deployment: create one before it is invoked", e.Name)
	}
	var known []string
	for _, d := range all {
		known = append(known, d.Name)
	}
	slices.Sort(known)
	return nil, trainyard.Invalid("batch endpoint %q has no default deployment: name one of %s, or set defaults.deployment_name", e.Name, strings.Join(known, ", "))
}

// batchJob is the job of an invocation, and what is to be done to it once it is resolved.
func (c *Control) batchJob(ctx context.Context, d *trainyard.BatchDeployment, in *trainyard.BatchInvocation) (*trainyard.Job, func(*trainyard.Job) error, error) {
	if d.Spec.Configuration != nil {
		return c.componentJob(ctx, d, in)
	}
	m, conda, err := c.batchModel(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	j, set, err := batchrun.Job(d, m, in)
	if err != nil {
		return nil, nil, err
	}
	finish := func(j *trainyard.Job) error {
		if j.Plan.Environment == nil && conda != "" {
			j.Plan.Environment = plan("of model "+set.Model, conda)
		}
		if err := batchrun.Equip(j, set); err != nil {
			return err
		}
		return asPipeline(j)
	}
	return j, finish, nil
}

// asPipeline makes a resolved job what clients of batch endpoints expect to see.
func asPipeline(j *trainyard.Job) error {
	j.Spec.JobType = "Pipeline"
	return nil
}

// batchModel follows a deployment's reference to its model. conda is the environment that an MLflow model brings, where the deployment names none.
func (c *Control) batchModel(ctx context.Context, d *trainyard.BatchDeployment) (m *batchrun.Model, conda string, err error) {
	scripted := d.Spec.CodeConfiguration != nil
	ref := d.Spec.Model
	if ref == nil || *ref == (trainyard.AssetReference{}) {
		if !scripted {
			return nil, "", trainyard.Invalid("batch deployment %q has neither a model nor a scoring script: give a model, and code_configuration unless it is an MLflow model", d.Name)
		}
		return nil, "", nil
	}
	m, err = c.findModel(ctx, d.Scope, ref)
	if err != nil {
		return nil, "", err
	}
	if scripted {
		return m, "", nil
	}
	if m.Type != "mlflow_model" {
		return nil, "", trainyard.Invalid("batch deployment %q has no code_configuration, and its model is of type %s: only MLflow models are scored without a scoring script", d.Name, m.Type)
	}
	if d.Spec.EnvironmentID != "" {
		return m, "", nil
	}
	conda, err = c.modelConda(ctx, d, m)
	return m, conda, err
}

// findModel reads all spellings of a model: an id, a path in a datastore, an output of a job.
func (c *Control) findModel(ctx context.Context, scope trainyard.Scope, ref *trainyard.AssetReference) (*batchrun.Model, error) {
	switch {
	case ref.AssetID != "":
		r := &resolver{c: c, ctx: ctx, j: &trainyard.Job{Scope: scope}}
		res, err := r.asset(trainyard.KindModel, ref.AssetID)
		if err != nil {
			return nil, err
		}
		var p struct {
			Type string `json:"modelType"`
			URI  string `json:"modelUri"`
		}
		if err := json.Unmarshal(res.Properties, &p); err != nil {
			return nil, fmt.Errorf("read model %s: %w", res.Name, err)
		}
		if p.Type == "" {
			p.Type = "custom_model"
		}
		return &batchrun.Model{ID: res.Scope.Child(string(trainyard.KindModel), res.Name, "versions", res.Version), Type: p.Type, Path: p.URI}, nil
	case ref.JobID != "":
		uri := "azureml://jobs/" + ref.JobID[strings.LastIndexByte(ref.JobID, '/')+1:] + "/outputs/artifacts/paths/" + strings.TrimPrefix(ref.Path, "/")
		return &batchrun.Model{ID: uri, Type: "custom_model", Path: uri}, nil
	case ref.Path != "":
		store := ref.DatastoreID[strings.LastIndexByte(ref.DatastoreID, '/')+1:]
		if store == "" {
			store = trainyard.BlobDatastore
		}
		uri := "azureml://datastores/" + store + "/paths/" + strings.TrimPrefix(ref.Path, "/")
		return &batchrun.Model{ID: uri, Type: "custom_model", Path: uri}, nil
	}
	return nil, trainyard.Invalid("the model reference of type %q names nothing: want assetId, or a path", ref.ReferenceType)
}

// modelConda is the conda file that MLflow keeps with a model.
func (c *Control) modelConda(ctx context.Context, d *trainyard.BatchDeployment, m *batchrun.Model) (string, error) {
	r := &resolver{c: c, ctx: ctx, j: &trainyard.Job{Scope: d.Scope}}
	at := trainyard.TaskInput{Type: m.Type, URI: m.ID}
	if err := r.locate(&at); err != nil {
		return "", err
	}
	missing := trainyard.Invalid("model %s has no conda.yaml that says what it needs: give the deployment %q an environment", m.Path, d.Name)
	if at.Key == "" {
		return "", missing
	}
	body, _, err := c.Blobs.Open(ctx, strings.TrimRight(at.Key, "/")+"/conda.yaml", 0)
	if trainyard.IsNotFound(err) {
		return "", missing
	}
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, 1<<20))
	return string(text), err
}

// shelveRunner puts the runner where a workspace's jobs find it, if it is not there.
func (c *Control) shelveRunner(ctx context.Context, scope trainyard.Scope) error {
	key := batchrun.RunnerKey(scope)
	if there, err := c.Blobs.List(ctx, key); err != nil || len(there) > 0 {
		return err
	}
	return c.Blobs.Put(ctx, key, strings.NewReader(batchrun.Runner()))
}

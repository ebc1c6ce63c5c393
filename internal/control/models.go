package control

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

var modelTypes = []string{"custom_model", "mlflow_model", "triton_model"}

// admitModel checks a version of a model, and makes of what a job or a run left a place in a datastore, with the job's name beside it.
func (c *Control) admitModel(ctx context.Context, r *trainyard.Resource, p map[string]json.RawMessage) error {
	var m struct {
		Type string `json:"modelType"`
		URI  string `json:"modelUri"`
		Job  string `json:"jobName"`
	}
	if err := json.Unmarshal(r.Properties, &m); err != nil {
		return trainyard.Invalid("model %q: modelType, modelUri and jobName are strings: %v", r.Name, err)
	}
	if r.Version == "" { // of all its versions
		return nil
	}
	if m.Type = strings.ToLower(m.Type); m.Type == "" {
		m.Type = modelTypes[0]
	}
	switch {
	case !slices.Contains(modelTypes, m.Type):
		return trainyard.Invalid("model %q: modelType is %q; %s are known", r.Name, m.Type, strings.Join(modelTypes, ", "))
	case m.URI == "":
		return trainyard.Invalid("model %q has no modelUri: want azureml://datastores/NAME/paths/PATH, azureml://jobs/JOB/outputs/NAME/paths/PATH or runs:/RUN/PATH", r.Name)
	case !strings.Contains(m.URI, ":"):
		return trainyard.Invalid("model %q: modelUri %q is no address; a path on your computer has to be uploaded first, as \"trainyard model create\" does", r.Name, m.URI)
	}
	at, job, err := c.modelPlace(ctx, r.Scope, m.URI)
	if err != nil {
		return trainyard.Errorf(trainyard.CodeOf(err), "model %q: %v", r.Name, err)
	}
	set := func(name, value string) { p[name], _ = json.Marshal(value) } // a string always encodes
	set("modelType", m.Type)
	set("modelUri", at)
	if m.Job == "" && job != "" {
		set("jobName", job)
	}
	r.Properties, err = json.Marshal(p)
	return err
}

// modelPlace is where a model's files are, and the job that made them, if one did. Only what is said to be a job's or a run's is looked for.
func (c *Control) modelPlace(ctx context.Context, scope trainyard.Scope, uri string) (at, job string, err error) {
	if rest, ok := strings.CutPrefix(uri, "runs:/"); ok {
		run, path, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
		to := artifacts(scope, run)
		to.Path += "/" + path
		return c.made(ctx, scope, run, to)
	}
	if rest, ok := strings.CutPrefix(uri, "azureml://jobs/"); ok {
		return c.modelOfJob(ctx, scope, uri, rest)
	}
	p, err := trainyard.ParseDataPath(scope, uri)
	if err != nil {
		if strings.Contains(strings.ToLower(uri), "/datastores/") {
			return "", "", err
		}
		return uri, "", nil // elsewhere
	}
	if rest, ok := strings.CutPrefix(p.Path, "ExperimentRun/dcid."); ok && p.Datastore == trainyard.ArtifactDatastore {
		job, _, _ = strings.Cut(rest, "/")
	}
	return uri, job, nil
}

// modelOfJob follows azureml://jobs/JOB/outputs/NAME/paths/PATH; rest begins with the job.
func (c *Control) modelOfJob(ctx context.Context, scope trainyard.Scope, uri, rest string) (at, job string, err error) {
	parts := strings.SplitN(rest, "/", 5)
	if len(parts) < 3 || parts[1] != "outputs" {
		return "", "", trainyard.Invalid("%q is not a job output: want azureml://jobs/JOB/outputs/NAME/paths/PATH", uri)
	}
	j, err := c.Store.Job(ctx, trainyard.MakeJobKey(scope, parts[0]))
	if err != nil {
		return "", "", err
	}
	to := artifacts(scope, j.Name)
	if out, there := j.Plan.Outputs[parts[2]]; there {
		if to, err = trainyard.ParseDataPath(scope, out.URI); err != nil {
			return "", "", err
		}
	} else if parts[2] != "artifacts" && parts[2] != "default" {
		return "", "", trainyard.NotFound("job %q has no output %q; it has: %s", j.Name, parts[2],
			strings.Join(append(slices.Sorted(maps.Keys(j.Plan.Outputs)), "artifacts"), ", "))
	}
	to.Path = strings.TrimRight(to.Path, "/") + "/"
	if len(parts) == 5 {
		to.Path += parts[4]
	}
	return c.made(ctx, scope, j.Name, to)
}

// made checks that a job or a run left something at a place. A job that still runs may yet do so.
func (c *Control) made(ctx context.Context, scope trainyard.Scope, run string, to trainyard.DataPath) (at, job string, err error) {
	if _, err := trainyard.ParseDataPath(scope, to.String()); err != nil { // it may climb out
		return "", "", err
	}
	key := strings.TrimRight(to.Key(), "/")
	found, err := c.Blobs.List(ctx, key)
	if err != nil {
		return "", "", err
	}
	for _, b := range found {
		if b.Key == key || strings.HasPrefix(b.Key, key+"/") {
			return to.String(), run, nil
		}
	}
	j, err := c.Store.Job(ctx, trainyard.MakeJobKey(scope, run))
	switch {
	case trainyard.IsNotFound(err):
		return "", "", trainyard.NotFound("there is no run or job %q, or it left nothing", run)
	case err != nil:
		return "", "", err
	case !j.Status.State.Terminal():
		return to.String(), run, nil
	}
	return "", "", trainyard.NotFound("job %q left nothing at %s; \"trainyard job download --name %s --all\" shows what it left", run, to, run)
}

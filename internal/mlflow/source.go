package mlflow

import (
	"context"
	"strings"

	"github.com/trainyard/trainyard"
)

// source is where a model version comes from.
type source struct {
	uri   string // as an asset has it: of a datastore here, or of a store elsewhere
	run   string // whose artifact it is
	model string // the logged model that it is
}

const proxy = "mlflow-artifacts:/"

// source says what the source of a model version means. A place in the proxy becomes one of a datastore, so that jobs can have the model
// as an input, and the workspace's tools find it.
func (d *door) source(ctx context.Context, scope trainyard.Scope, uri string) (source, error) {
	if uri == "" {
		return source{}, trainyard.Invalid("Missing value for required parameter 'source'.")
	}
	if _, rest, ok := strings.Cut(uri, "/mlflow-artifacts/artifacts/"); ok { // the proxy's URL in full
		uri = proxy + rest
	}
	scheme, path, ok := strings.Cut(uri, ":")
	if !ok {
		scheme, path = "", uri
	}
	path = strings.TrimLeft(path, "/")
	switch strings.ToLower(scheme) {
	case "mlflow-artifacts":
		return d.proxied(scope, path)
	case "runs":
		run, path, _ := strings.Cut(path, "/")
		return d.proxied(scope, "0/"+run+"/artifacts/"+path)
	case "models":
		return d.modelSource(ctx, scope, path)
	case "azureml":
		p, err := trainyard.ParseDataPath(scope, uri)
		if err != nil {
			return source{}, err
		}
		if p.Scope.Fold() != scope.Fold() {
			return source{}, trainyard.Invalid("Invalid model version source: '%s' is of another workspace", cut(uri, 300))
		}
		return d.proxied(scope, "datastores/"+p.Datastore+"/"+p.Path)
	case "", "file":
		return source{}, trainyard.Invalid("Invalid model version source: '%s'. To use a local path as a model version source, log it to a run first: "+
			"this server does not see the client's files.", cut(uri, 300))
	}
	return source{uri: uri}, nil
}

// proxied is the source at a path of the proxy.
func (d *door) proxied(scope trainyard.Scope, path string) (source, error) {
	s, err := locate(scope, path)
	if err != nil {
		return source{}, trainyard.Invalid("Invalid model version source: %v", err)
	}
	container, key, _ := strings.Cut(s.key(), "/")
	datastore := container
	if _, rest, dotted := trainyard.ParseDotted(container); dotted && scope.Fold() != trainyard.DefaultScope() {
		datastore = rest
	}
	src := source{uri: longURI(scope, datastore, key), run: s.run, model: s.model}
	if rest, ok := strings.CutPrefix(key, "ExperimentRun/dcid."); ok && src.run == "" && datastore == trainyard.ArtifactDatastore {
		src.run, _, _ = strings.Cut(rest, "/")
	}
	if parts := strings.Split(s.path, "/"); s.run != "" && len(parts) > 1 && parts[0] == "models" && strings.HasPrefix(parts[1], "m-") {
		src.model = parts[1]
	}
	return src, nil
}

// longURI is a datastore's path as the official clients write it.
func longURI(s trainyard.Scope, datastore, path string) string {
	return "azureml://subscriptions/" + s.Subscription + "/resourcegroups/" + s.ResourceGroup + "/workspaces/" + s.Workspace +
		"/datastores/" + datastore + "/paths/" + path
}

// modelSource follows models:/m-ID and models:/NAME/VERSION.
func (d *door) modelSource(ctx context.Context, scope trainyard.Scope, path string) (source, error) {
	name, number, versioned := strings.Cut(path, "/")
	if !versioned {
		m, err := d.model(ctx, scope, name)
		if err != nil {
			return source{}, err
		}
		src, err := d.source(ctx, scope, m.Location)
		src.run, src.model = m.Run, m.ID
		return src, err
	}
	v, err := d.version(ctx, scope, name, number)
	if err != nil {
		return source{}, err
	}
	return source{uri: v.uri, run: v.Run, model: v.Model}, nil
}

// fetchURI is where a client of MLflow reads what an asset's modelUri names: through the proxy if it is here.
func (d *door) fetchURI(ctx context.Context, scope trainyard.Scope, uri string) (string, error) {
	if p, err := trainyard.ParseDataPath(scope, uri); err == nil && p.Scope.Fold() == scope.Fold() {
		return proxy + "datastores/" + p.Datastore + "/" + strings.TrimRight(p.Path, "/"), nil
	}
	rest, ok := strings.CutPrefix(uri, "azureml://jobs/")
	parts := strings.SplitN(rest, "/", 5)
	if !ok || len(parts) < 3 {
		return uri, nil
	}
	j, err := d.Jobs.Job(ctx, scope, parts[0])
	if err != nil {
		return "", err
	}
	to := trainyard.DataPath{Datastore: trainyard.ArtifactDatastore, Path: "ExperimentRun/dcid." + j.Name}
	if out, there := j.Plan.Outputs[parts[2]]; there {
		if to, err = trainyard.ParseDataPath(scope, out.URI); err != nil {
			return "", err
		}
	}
	path := strings.TrimRight(to.Path, "/")
	if len(parts) == 5 {
		path += "/" + parts[4]
	}
	return proxy + "datastores/" + to.Datastore + "/" + strings.TrimRight(path, "/"), nil
}

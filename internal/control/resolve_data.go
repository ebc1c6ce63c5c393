package control

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// inputs resolves where each input is.
func (r *resolver) inputs() {
	r.j.Plan.Inputs = map[string]trainyard.TaskInput{}
	for _, name := range slices.Sorted(maps.Keys(r.j.Spec.Inputs)) {
		in := r.j.Spec.Inputs[name]
		if in == nil {
			continue
		}
		if !identifier.MatchString(name) {
			r.fail("inputs: %q cannot be an input's name: use letters, digits and '_', beginning with a letter", name)
			continue
		}
		if in.JobInputType == "" || strings.EqualFold(in.JobInputType, "literal") {
			r.j.Plan.Inputs[name] = trainyard.TaskInput{Type: "literal", Value: in.Value}
			continue
		}
		t := trainyard.TaskInput{Type: strings.ToLower(in.JobInputType), URI: in.URI, Mode: in.Mode}
		if t.Mode == "" {
			t.Mode = "ReadOnlyMount"
		}
		if err := r.locate(&t); err != nil {
			r.fail("inputs.%s: %v", name, err)
			continue
		}
		r.j.Plan.Inputs[name] = t
	}
}

// mostHops is how many assets may name the next one before there is a place. Those that go round in a circle end there.
const mostHops = 8

// locate fills in an input's Key where its bytes are in our store.
func (r *resolver) locate(t *trainyard.TaskInput) error {
	return r.follow(t, r.j.Scope, t.URI, mostHops)
}

// follow is locate for a URI that stands in the scope: short datastore URIs in it are of that workspace.
func (r *resolver) follow(t *trainyard.TaskInput, scope trainyard.Scope, first string, hops int) error {
	uri := t.URI
	switch {
	case hops == 0:
		return trainyard.Invalid("%s leads to no place: each of %d assets after it names another one", first, mostHops)
	case uri == "":
		return trainyard.Invalid("it has no path")
	case hasScheme(uri, "http", "https", "wasbs", "wasb"):
		return nil // the node fetches it
	case strings.HasPrefix(uri, "azureml://jobs/"):
		return r.jobOutput(t)
	case strings.HasPrefix(uri, "azureml://registries/"):
		return trainyard.Errorf(trainyard.CodeUnsupported, "%s is in a registry, and registries hold only environments here", uri)
	}
	if p, err := trainyard.ParseDataPath(scope, uri); err == nil {
		if err := r.datastore(p); err != nil {
			return err
		}
		t.Key = p.Key()
		return nil
	} else if strings.Contains(strings.ToLower(uri), "/datastores/") {
		return err
	}
	if strings.Contains(uri, "://") {
		return trainyard.Errorf(trainyard.CodeUnsupported, "%s: this build reads azureml://, https:// and wasbs:// paths", uri)
	}
	kind := trainyard.KindData
	if strings.HasSuffix(t.Type, "_model") {
		kind = trainyard.KindModel
	}
	if id, err := trainyard.ParseID(uri); err == nil {
		kind = id.Kind
	}
	res, err := r.asset(kind, uri)
	if err != nil {
		return err
	}
	var p struct {
		DataURI  string `json:"dataUri"`
		ModelURI string `json:"modelUri"`
	}
	if err := json.Unmarshal(res.Properties, &p); err != nil {
		return err
	}
	t.URI = p.DataURI + p.ModelURI
	if t.URI == uri || t.URI == "" {
		return trainyard.Invalid("%s %q has no path of its own", kind, res.Name)
	}
	return r.follow(t, res.Scope, first, hops-1)
}

// buildContext is where in our store the folder is that an environment of the scope is built from: what clients uploaded, whether they name
// it by the blob door's URL or by its datastore, or what else an input's path may be.
func (r *resolver) buildContext(scope trainyard.Scope, uri string) (key string, err error) {
	if key, ok := blobKey(uri); ok {
		return key, nil
	}
	t := trainyard.TaskInput{Type: "uri_folder", URI: uri}
	if err := r.follow(&t, scope, uri, mostHops); err != nil {
		return "", err
	}
	if t.Key == "" {
		return "", trainyard.Invalid("%q is not in this server's store: create the environment from a local folder", uri)
	}
	return strings.TrimRight(t.Key, "/"), nil
}

// datastore looks a datastore up, and says so when it names a storage account elsewhere: its data is what was uploaded here.
func (r *resolver) datastore(p trainyard.DataPath) error {
	res, err := r.c.Resource(r.ctx, p.Scope, trainyard.KindDatastore, p.Datastore, "")
	if err != nil {
		return err
	}
	var props struct {
		AccountName string `json:"accountName"`
	}
	if json.Unmarshal(res.Properties, &props) == nil && props.AccountName != "" && props.AccountName != AccountName {
		r.warn("datastore %s names the storage account %s, which is not contacted: its data here is what was stored in it through this server", res.Name, props.AccountName)
	}
	return nil
}

// jobOutput follows azureml://jobs/J/outputs/O/paths/P.
func (r *resolver) jobOutput(t *trainyard.TaskInput) error {
	parts := strings.SplitN(strings.TrimPrefix(t.URI, "azureml://jobs/"), "/", 5)
	if len(parts) < 3 || parts[1] != "outputs" {
		return trainyard.Invalid("%q is not a job output: want azureml://jobs/JOB/outputs/NAME/paths/PATH", t.URI)
	}
	rest := ""
	if len(parts) == 5 {
		rest = parts[4]
	}
	if strings.Contains("/"+rest+"/", "/../") {
		return trainyard.Invalid("%q climbs out of the output", t.URI)
	}
	j, err := r.c.Store.Job(r.ctx, trainyard.MakeJobKey(r.j.Scope, parts[0]))
	if err != nil {
		return err
	}
	if out, ok := j.Plan.Outputs[parts[2]]; ok {
		t.Key = strings.TrimRight(out.Key, "/") + "/" + rest
		return nil
	}
	if parts[2] == "artifacts" || parts[2] == "default" {
		t.Key = artifacts(j.Scope, j.Name).Key() + "/" + rest
		return nil
	}
	return trainyard.NotFound("job %q has no output %q; it has: %s", j.Name, parts[2], strings.Join(append(slices.Sorted(maps.Keys(j.Plan.Outputs)), "artifacts"), ", "))
}

// outputs resolves where each output goes.
func (r *resolver) outputs() {
	r.j.Plan.Outputs = map[string]trainyard.TaskOutput{}
	for _, name := range slices.Sorted(maps.Keys(r.j.Spec.Outputs)) {
		if !identifier.MatchString(name) {
			r.fail("outputs: %q cannot be an output's name: use letters, digits and '_', beginning with a letter", name)
			continue
		}
		out := r.j.Spec.Outputs[name]
		if out == nil {
			out = &trainyard.JobOutput{}
			r.j.Spec.Outputs[name] = out
		}
		t := trainyard.TaskOutput{Type: strings.ToLower(out.JobOutputType), URI: out.URI, Mode: out.Mode, AssetName: out.AssetName, AssetVersion: out.AssetVersion}
		if t.Type == "" {
			t.Type = "uri_folder"
		}
		if t.Mode == "" {
			t.Mode = "ReadWriteMount"
		}
		if t.AssetName != "" && !assetName.MatchString(t.AssetName) || t.AssetVersion != "" && !assetName.MatchString(t.AssetVersion) { // or the job could not end
			r.fail("outputs.%s: it cannot be registered as %q version %q: use letters, digits, '-', '_' and '.', beginning with a letter or digit", name, t.AssetName, t.AssetVersion)
			continue
		}
		def := trainyard.DataPath{Scope: r.j.Scope, Datastore: trainyard.BlobDatastore, Path: "azureml/" + r.j.Name + "/" + name + "/"}
		if t.URI == "" {
			t.URI, t.Key = def.String(), def.Key()
			r.j.Plan.Outputs[name] = t
			continue
		}
		uri := strings.NewReplacer("${{default_datastore}}", trainyard.BlobDatastore, "${{name}}", r.j.Name, "${{output_name}}", name).Replace(t.URI)
		p, err := trainyard.ParseDataPath(r.j.Scope, uri)
		if err != nil {
			r.fail("outputs.%s: %q is no place this build can write to: want azureml://datastores/NAME/paths/PATH", name, t.URI)
			continue
		}
		if err := r.datastore(p); err != nil {
			r.fail("outputs.%s: %v", name, err)
			continue
		}
		if own := artifacts(r.j.Scope, r.j.Name).Path + "/"; p.Datastore == trainyard.ArtifactDatastore && !strings.HasPrefix(p.Path+"/", own) {
			r.fail("outputs.%s: %s holds the artifacts of other jobs; below %s it may write", name, p, own)
			continue
		}
		t.URI, t.Key = p.String(), p.Key()
		r.j.Plan.Outputs[name] = t
	}
}

// blobKey is the key in our store that a URL of the blob door names, whatever name the server had then: https://{server}/blob/{key}, or
// as Azure's SDK writes it, https://{AccountName}.blob.{suffix}/{key}.
func blobKey(uri string) (string, bool) {
	u, err := url.Parse(uri)
	if err != nil {
		return "", false
	}
	rest, ok := strings.CutPrefix(u.Path, "/blob/")
	if strings.HasPrefix(u.Host, AccountName+".blob.") {
		rest, ok = strings.TrimPrefix(u.Path, "/"), true
	}
	if !ok || rest == "" || strings.Contains("/"+rest+"/", "/../") {
		return "", false
	}
	return strings.TrimRight(rest, "/"), true
}

func hasScheme(uri string, schemes ...string) bool {
	s, _, ok := strings.Cut(uri, "://")
	return ok && slices.Contains(schemes, strings.ToLower(s))
}

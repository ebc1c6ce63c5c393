package control

import (
	"cmp"
	"context"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// rolling are the folders of time slices, by a data collector's rolling_rate.
var rolling = map[string]string{"year": "2006", "month": "2006/01", "day": "2006/01/02", "hour": "2006/01/02/15", "minute": "2006/01/02/15/04"}

// collect keeps what was collected of a deployment: files of JSON lines, in a folder for each time slice that the deployment asks for.
func (c *Control) collect(ctx context.Context, endpoint, deployment, collection string, rows []byte) error {
	d := c.served.deployment(endpoint, deployment)
	if d == nil || d.Spec.DataCollector == nil {
		return nil // deleted, or asked for no more: what is on its way is dropped
	}
	set := d.Spec.DataCollector
	name, one, ok := collectionOf(set, collection)
	if !ok || strings.EqualFold(one.DataCollectionMode, "Disabled") {
		return nil
	}
	folder := trainyard.DataPath{Scope: d.Scope, Datastore: trainyard.BlobDatastore, Path: path.Join("modelDataCollector", d.Endpoint, d.Name, name)}
	if id := one.DataID; id != "" {
		at, err := c.collectionPath(ctx, d.Scope, id)
		if err != nil {
			return err
		}
		folder = at
	}
	slice := c.Now().UTC().Format(cmp.Or(rolling[strings.ToLower(set.RollingRate)], rolling["hour"]))
	return c.gather(ctx, folder, slice, rows)
}

// collectOwn keeps what the script of a replica collected itself.
func (c *Control) collectOwn(ctx context.Context, j *trainyard.Job, collection string, rows []byte) error {
	s := j.Plan.Serve
	d := c.served.deployment(s.Endpoint, s.Deployment)
	if d == nil || len(rows) == 0 {
		return nil
	}
	if _, _, ok := collectionOf(d.Spec.DataCollector, collection); !ok || d.Scope.Fold() != j.Scope.Fold() || isOwnCollection(collection) {
		return trainyard.Invalid("collection %q is not one that the script of deployment %q of endpoint %q fills", collection, s.Deployment, s.Endpoint)
	}
	return c.collect(ctx, s.Endpoint, s.Deployment, collection, rows)
}

// isOwnCollection says whether the gateway fills a collection.
func isOwnCollection(name string) bool {
	return strings.EqualFold(name, "request") || strings.EqualFold(name, "response")
}

// collectionOf finds a collection by its name in any case.
func collectionOf(set *trainyard.DataCollector, name string) (full string, one trainyard.DataCollection, ok bool) {
	if set == nil {
		return "", one, false
	}
	for full, one := range set.Collections {
		if strings.EqualFold(full, name) {
			return full, one, true
		}
	}
	return "", one, false
}

var collectionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,254}$`)

// headerName: RFC 9110 section 5.6.2 (token).
var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}$")

// collections checks a deployment's data collector.
func (r *deploying) collections() {
	set := r.d.Spec.DataCollector
	if set == nil {
		return
	}
	if set.SamplingRate < 0 || set.SamplingRate > 1 {
		r.fail("data_collector.sampling_rate is %v, want more than 0 and at most 1", set.SamplingRate)
	}
	if _, ok := rolling[strings.ToLower(set.RollingRate)]; set.RollingRate != "" && !ok {
		r.fail("data_collector.rolling_rate is %q, want year, month, day, hour or minute", set.RollingRate)
	}
	if set.RequestLogging != nil {
		for _, name := range set.RequestLogging.CaptureHeaders {
			switch lower := strings.ToLower(name); {
			case lower == "authorization" || lower == "cookie":
				r.fail("data_collector.request_logging.capture_headers: %s holds keys of callers, and is not kept; leave it out", name)
			case !headerName.MatchString(name):
				r.fail("data_collector.request_logging.capture_headers: %q cannot be the name of a header", name)
			}
		}
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(set.Collections)) {
		one := set.Collections[name]
		if !collectionName.MatchString(name) {
			r.fail("data_collector.collections: %q cannot be a collection's name: use letters, digits, '_' and '-'", name)
		}
		if lower := strings.ToLower(name); seen[lower] {
			r.fail("data_collector.collections.%s is there twice: names differ in more than capital letters", name)
		} else {
			seen[lower] = true
		}
		if one.SamplingRate < 0 || one.SamplingRate > 1 {
			r.fail("data_collector.collections.%s.sampling_rate is %v, want more than 0 and at most 1", name, one.SamplingRate)
		}
		if one.DataID != "" {
			if _, err := r.c.collectionPath(r.ctx, r.d.Scope, one.DataID); err != nil {
				r.fail("data_collector.collections.%s: %v", name, err)
			}
		}
	}
}

// collectionPath is where a collection's data_id is in the store: a path in a datastore of the deployment's own workspace, or that of a data
// asset. Who may change a deployment must not write by it what they could not write themselves.
func (c *Control) collectionPath(ctx context.Context, scope trainyard.Scope, id string) (at trainyard.DataPath, err error) {
	r := &resolver{c: c, ctx: ctx, j: &trainyard.Job{Scope: scope}}
	in := trainyard.TaskInput{URI: id}
	if err := r.locate(&in); err != nil {
		return at, err
	}
	if in.Key == "" {
		return at, trainyard.Invalid("data_collector: %s is not in this server's store: want a path in a datastore, or a data asset that has one", id)
	}
	p, err := trainyard.ParseDataPath(scope, in.URI)
	switch {
	case strings.HasPrefix(in.URI, "azureml://jobs/"):
		return at, trainyard.Invalid("data_collector: %s is the output of a job, whose files are that job's alone: want a path in a datastore, such as "+
			"azureml://datastores/%s/paths/collected", id, trainyard.BlobDatastore)
	case err != nil:
		return at, trainyard.Invalid("data_collector: %s is no path in a datastore: %v", id, err)
	case p.Scope.Fold() != scope.Fold():
		return at, trainyard.Invalid("data_collector: %s is in workspace %q, and deployments write to their own, %q, alone: want a path in one of its datastores",
			id, p.Scope.Workspace, scope.Workspace)
	case strings.EqualFold(p.Datastore, trainyard.ArtifactDatastore):
		return at, trainyard.Invalid("data_collector: %s is in datastore %s, which holds the logs and files of jobs: want a path in another, such as "+
			"azureml://datastores/%s/paths/collected", id, trainyard.ArtifactDatastore, trainyard.BlobDatastore)
	}
	return p, nil
}

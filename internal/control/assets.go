package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

var (
	identifier = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,254}$`)
	assetName  = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$`)
)

// Resource finds an asset, a datastore or a workspace. version "@latest" is the newest that is not archived; "" is the container of a versioned kind, which is
// that version under the container's name.
func (c *Control) Resource(ctx context.Context, scope trainyard.Scope, kind trainyard.Kind, name, version string) (*trainyard.Resource, error) {
	if label, ok := strings.CutPrefix(version, "@"); ok {
		if !strings.EqualFold(label, "latest") {
			return nil, trainyard.NotFound("%s %q has no label %q; @latest is the label there is", kind, name, label)
		}
		latest, _, err := c.Store.NextVersion(ctx, scope, kind, name)
		if err != nil {
			return nil, err
		}
		if latest == "" {
			return nil, trainyard.NotFound("%s %q does not exist in workspace %q", singular(kind), name, scope.Workspace)
		}
		version = latest
	}
	return c.Store.Resource(ctx, scope, kind, name, version)
}

// Resources lists resources of a kind.
func (c *Control) Resources(ctx context.Context, q trainyard.ResourceQuery) (trainyard.Page[*trainyard.Resource], error) {
	return c.Store.Resources(ctx, q)
}

// NextVersion is the newest version of a name, of those that are not archived if there are such, and the number after its highest.
func (c *Control) NextVersion(ctx context.Context, scope trainyard.Scope, kind trainyard.Kind, name string) (latest, next string, err error) {
	return c.Store.NextVersion(ctx, scope, kind, name)
}

// PutResource creates or updates. Versions are immutable: of an existing one only tags, description, archive flag and stage may change.
// Without a version it is all versions of a name that are archived, or restored.
func (c *Control) PutResource(ctx context.Context, who trainyard.User, in *trainyard.Resource) (*trainyard.Resource, bool, error) {
	if !assetName.MatchString(in.Name) {
		return nil, false, trainyard.Invalid("%q cannot be a name of one of %s: use letters, digits, '-', '_' and '.', beginning with a letter or digit", in.Name, in.Kind)
	}
	if in.Version == "" && in.Kind.Versioned() {
		got, err := c.archiveAll(ctx, who, in)
		return got, false, err
	}
	r := *in
	if err := c.admit(ctx, &r); err != nil {
		return nil, false, err
	}
	created := false
	err := c.Store.Update(ctx, func(tx *store.Tx) error {
		if r.Kind != trainyard.KindWorkspace {
			if _, err := tx.Resource(r.Scope, trainyard.KindWorkspace, r.Scope.Workspace, ""); err != nil {
				return err
			}
		}
		now := c.Now()
		r.Created, r.CreatedBy, r.Modified, r.ModifiedBy = now, who.Name, now, who.Name
		old, err := tx.Resource(r.Scope, r.Kind, r.Name, r.Version)
		if err == nil {
			r.Created, r.CreatedBy, r.Name = old.Created, old.CreatedBy, old.Name
			if len(r.Secret) == 0 {
				r.Secret = old.Secret
			}
			if err := unchanged(old, &r); err != nil {
				return err
			}
		} else if !trainyard.IsNotFound(err) {
			return err
		}
		if created, err = tx.PutResource(&r); err != nil {
			return err
		}
		what := "updated"
		if created {
			what = "created"
		}
		tx.Event(c.event(r.Scope, string(r.Kind), r.Name, what, who.Name, r.Version))
		if created && r.Kind == trainyard.KindWorkspace {
			return c.furnish(tx, r.Scope, who)
		}
		return nil
	})
	if err == nil && created && r.Kind == trainyard.KindWorkspace {
		c.nodes.bump(everyHosted)
	}
	return &r, created, err
}

// archiveAll archives or restores all versions of a name, as in says, and refuses what else it would change. A version that is made at the
// same time is not among them.
func (c *Control) archiveAll(ctx context.Context, who trainyard.User, in *trainyard.Resource) (*trainyard.Resource, error) {
	newest, err := c.Store.Resource(ctx, in.Scope, in.Kind, in.Name, "")
	if err != nil {
		return nil, err
	}
	var is, wants map[string]json.RawMessage
	_, _ = json.Unmarshal(newest.Properties, &is), json.Unmarshal(in.Properties, &wants) // both were objects when they came
	for _, field := range []string{"description", "tags", "properties"} {
		if !empty(wants[field]) && !sameJSON(is[field], wants[field]) {
			return nil, trainyard.Invalid("%s %q as a whole has no %s to change: those of its newest version are shown; name a version", singular(in.Kind), in.Name, field)
		}
	}
	if wants["isArchived"] == nil {
		return newest, nil
	}
	err = c.eachVersion(ctx, in.Scope, in.Kind, in.Name, func(tx *store.Tx, r *trainyard.Resource) error {
		if r.Archived == in.Archived {
			return nil
		}
		r.Archived, r.Modified, r.ModifiedBy = in.Archived, c.Now(), who.Name
		tx.Event(c.event(r.Scope, string(r.Kind), r.Name, "updated", who.Name, r.Version))
		_, err := tx.PutResource(r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.Store.Resource(ctx, in.Scope, in.Kind, in.Name, "")
}

// empty says whether a member is not there, or holds nothing.
func empty(value json.RawMessage) bool {
	switch string(bytes.TrimSpace(value)) {
	case "", "null", "{}", `""`:
		return true
	}
	return false
}

// eachVersion does something to all versions of a name, in one transaction.
func (c *Control) eachVersion(ctx context.Context, scope trainyard.Scope, kind trainyard.Kind, name string, do func(*store.Tx, *trainyard.Resource) error) error {
	var versions []string
	for q := (trainyard.ResourceQuery{Scope: scope, Kind: kind, Name: name, View: trainyard.ViewAll, Top: 1000}); ; {
		page, err := c.Store.Resources(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.Items {
			versions = append(versions, r.Version)
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	return c.Store.Update(ctx, func(tx *store.Tx) error {
		for _, version := range versions {
			r, err := tx.Resource(scope, kind, name, version)
			if err == nil {
				err = do(tx, r)
			}
			if err != nil && !trainyard.IsNotFound(err) { // deleted meanwhile
				return err
			}
		}
		return nil
	})
}

// admit checks what a new resource must have.
func (c *Control) admit(ctx context.Context, r *trainyard.Resource) error {
	var p map[string]json.RawMessage
	if len(r.Properties) == 0 {
		r.Properties = json.RawMessage("{}")
	}
	if err := json.Unmarshal(r.Properties, &p); err != nil {
		return trainyard.Invalid("properties of %s %q are not an object: %v", singular(r.Kind), r.Name, err)
	}
	str := func(k string) string {
		var s string
		_ = json.Unmarshal(p[k], &s)
		return s
	}
	switch r.Kind {
	case trainyard.KindWorkspace:
		if !assetName.MatchString(r.Scope.Subscription) || !assetName.MatchString(r.Scope.ResourceGroup) {
			return trainyard.Invalid("workspace %q: subscription %q and resource group %q must be of letters, digits, '-', '_' and '.'", r.Name, r.Scope.Subscription, r.Scope.ResourceGroup)
		}
	case trainyard.KindCode:
		if _, ok := blobKey(str("codeUri")); !ok {
			return trainyard.Invalid("code %q: codeUri %q is not in this server's store: ask startPendingUpload for a place and upload there", r.Name, str("codeUri"))
		}
		var props struct {
			Hash string `json:"hash_sha256"`
		}
		_ = json.Unmarshal(p["properties"], &props)
		r.Hash = props.Hash
	case trainyard.KindEnvironment:
		if str("image") == "" && str("condaFile") == "" && len(p["build"]) == 0 {
			return trainyard.Invalid("environment %q has no image, no conda file and no build context: give one", r.Name)
		}
	case trainyard.KindData:
		if str("dataUri") == "" {
			return trainyard.Invalid("data %q has no dataUri", r.Name)
		}
	case trainyard.KindModel:
		return c.admitModel(ctx, r, p)
	case trainyard.KindDatastore:
		if strings.Contains(r.Name, ".") || trainyard.Kind(strings.ToLower(r.Name)).Versioned() {
			return trainyard.Invalid("%q cannot be a datastore's name: no '.', and not one of codes, data, environments, models, components", r.Name)
		}
		if str("datastoreType") == "" {
			return trainyard.Invalid("datastore %q has no datastoreType; AzureBlob is one", r.Name)
		}
		if cred := p["credentials"]; len(cred) > 0 { // never shown again but by listSecrets
			var kind struct {
				Type    string          `json:"credentialsType"`
				Secrets json.RawMessage `json:"secrets"`
			}
			_ = json.Unmarshal(cred, &kind)
			if len(kind.Secrets) > 0 && string(kind.Secrets) != "null" { // what comes back as it was shown changes nothing
				r.Secret = cred
			}
			p["credentials"], _ = json.Marshal(map[string]string{"credentialsType": kind.Type})
			r.Properties, _ = json.Marshal(p)
		}
	}
	return nil
}

// unchanged refuses to change what a version holds.
func unchanged(old, r *trainyard.Resource) error {
	if !r.Kind.Versioned() {
		return nil
	}
	for _, f := range []string{"codeUri", "dataUri", "modelUri", "image", "condaFile", "build", "dataType", "modelType", "componentSpec"} {
		var a, b map[string]json.RawMessage
		_ = json.Unmarshal(old.Properties, &a)
		_ = json.Unmarshal(r.Properties, &b)
		if f == "componentSpec" {
			a[f], b[f] = bareComponent(a[f]), bareComponent(b[f])
		}
		if !sameJSON(a[f], b[f]) {
			return trainyard.Conflict("%s %q version %q exists with another %s; versions are immutable: create the next one", singular(r.Kind), r.Name, r.Version, f)
		}
	}
	return nil
}

func sameJSON(a, b json.RawMessage) bool {
	norm := func(m json.RawMessage) []byte {
		var v any
		if json.Unmarshal(m, &v) != nil || v == nil {
			return nil
		}
		out, _ := json.Marshal(v)
		return out
	}
	return bytes.Equal(norm(a), norm(b))
}

// DeleteResource deletes a version, or without one all versions of a name, or an unversioned resource.
func (c *Control) DeleteResource(ctx context.Context, who trainyard.User, scope trainyard.Scope, kind trainyard.Kind, name, version string) error {
	if version == "" && kind.Versioned() {
		if _, err := c.Store.Resource(ctx, scope, kind, name, ""); err != nil {
			return err
		}
		return c.eachVersion(ctx, scope, kind, name, func(tx *store.Tx, r *trainyard.Resource) error {
			tx.Event(c.event(scope, string(kind), r.Name, "deleted", who.Name, r.Version))
			return tx.DeleteResource(scope, kind, r.Name, r.Version)
		})
	}
	var gone []trainyard.NodeID
	err := c.Store.Update(ctx, func(tx *store.Tx) (err error) {
		if _, err := tx.Resource(scope, kind, name, version); err != nil {
			return err
		}
		switch {
		case kind == trainyard.KindDatastore && (strings.EqualFold(name, trainyard.BlobDatastore) || strings.EqualFold(name, trainyard.ArtifactDatastore)):
			return trainyard.Conflict("datastore %q belongs to the workspace and cannot be deleted", name)
		case kind == trainyard.KindWorkspace && scope.Fold() == trainyard.DefaultScope():
			return trainyard.Conflict("the workspace %q is the server's own and cannot be deleted", name)
		case kind == trainyard.KindWorkspace:
			if gone, err = c.unfurnish(tx, scope); err != nil {
				return err
			}
		}
		tx.Event(c.event(scope, string(kind), name, "deleted", who.Name, version))
		return tx.DeleteResource(scope, kind, name, version)
	})
	if err != nil {
		return err
	}
	for _, id := range gone {
		c.forgetNode(id)
	}
	return nil
}

// furnish gives a new workspace what every workspace has: two datastores and the compute "local" with its node.
func (c *Control) furnish(tx *store.Tx, scope trainyard.Scope, who trainyard.User) error {
	now := c.Now()
	for _, d := range []struct {
		name string
		def  bool
	}{{trainyard.BlobDatastore, true}, {trainyard.ArtifactDatastore, false}} {
		container := trainyard.DataPath{Scope: scope, Datastore: d.name}.Container()
		props, err := json.Marshal(map[string]any{"datastoreType": "AzureBlob", "accountName": AccountName, "containerName": container,
			"endpoint": "core.windows.net", "protocol": "https", "isDefault": d.def, "credentials": map[string]string{"credentialsType": "AccountKey"}, "tags": map[string]string{}, "properties": map[string]string{}})
		if err != nil {
			return err
		}
		if _, err := tx.PutResource(&trainyard.Resource{Scope: scope, Kind: trainyard.KindDatastore, Name: d.name, Properties: props, Created: now, Modified: now, CreatedBy: who.Name}); err != nil {
			return err
		}
	}
	comp := &trainyard.Compute{Scope: scope, Name: trainyard.LocalCompute, Location: trainyard.DefaultLocation, Where: trainyard.DefaultLocation, Created: now, Modified: now, CreatedBy: who.Name,
		Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeLocal, Description: "processes on the computer of the server"}}
	if err := tx.PutCompute(comp); err != nil {
		return err
	}
	return tx.PutNode(&trainyard.Node{ID: newNodeID(trainyard.LocalCompute), Compute: comp.Key(), State: trainyard.NodeCreating, Created: now, Capacity: c.Host,
		Reason: trainyard.Reason{Code: "Starting", Message: "the server's own agent is about to join", Since: now}})
}

// unfurnish takes away what furnish gave; a workspace with anything else in it is not deleted. It returns the nodes that
// are gone.
func (c *Control) unfurnish(tx *store.Tx, scope trainyard.Scope) (gone []trainyard.NodeID, err error) {
	comps, err := c.Store.Computes(context.Background(), scope)
	if err != nil {
		return nil, err
	}
	for _, comp := range comps {
		if comp.Spec.ComputeType != trainyard.ComputeLocal && !comp.Serverless {
			return nil, trainyard.Conflict("workspace %q still has compute %q; delete it first", scope.Workspace, comp.Name)
		}
		queued, running := c.Store.Counts(comp.Key())
		if queued+running > 0 {
			return nil, trainyard.Conflict("workspace %q still has %s on %s; wait or cancel them", scope.Workspace, plural(queued+running, "job"), comp.Name)
		}
		nodes, err := tx.NodesOf(comp.Key())
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			if err := tx.DeleteNode(n.ID); err != nil {
				return nil, err
			}
			gone = append(gone, n.ID)
		}
		if err := tx.DeleteCompute(comp.Key()); err != nil {
			return nil, err
		}
	}
	for _, d := range []string{trainyard.BlobDatastore, trainyard.ArtifactDatastore} {
		if err := tx.DeleteResource(scope, trainyard.KindDatastore, d, ""); err != nil && !trainyard.IsNotFound(err) {
			return nil, err
		}
	}
	return gone, nil
}

// AccountName is the storage account that datastores of this server name; the blob door takes any.
const AccountName = "trainyard"

// Secrets is a datastore's listSecrets answer: a signed query that opens its container for an hour.
func (c *Control) Secrets(ctx context.Context, who trainyard.User, scope trainyard.Scope, datastore string) (json.RawMessage, error) {
	r, err := c.Store.Resource(ctx, scope, trainyard.KindDatastore, datastore, "")
	if err != nil {
		return nil, err
	}
	container := trainyard.DataPath{Scope: scope, Datastore: strings.ToLower(r.Name)}.Container()
	may := "racwdl"
	if who.Role != trainyard.RoleAdmin {
		may = "rl"
	}
	sas := c.Sign(container, may, c.Now().Add(time.Hour)).Encode()
	return json.Marshal(map[string]any{"secretsType": "Sas", "sasToken": sas, "container": container})
}

// PendingUpload hands out a place of its own for the version's files.
func (c *Control) PendingUpload(ctx context.Context, who trainyard.User, scope trainyard.Scope, kind trainyard.Kind, name, version string) (trainyard.Upload, error) {
	if !assetName.MatchString(name) || !assetName.MatchString(version) {
		return trainyard.Upload{}, trainyard.Invalid("%q version %q cannot be a name of one of %s", name, version, kind)
	}
	key := fmt.Sprintf("%s/%s/%s@%s", kind, scope.Dotted(), strings.ToLower(name), version)
	uri := c.URL() + "/blob/" + key
	return trainyard.Upload{BlobURI: uri, SASURI: uri + "?" + c.Sign(key, "racwl", c.Now().Add(24*time.Hour)).Encode()}, nil
}

// registerOutputs makes data assets of a completed job's outputs that were given a name.
func (c *Control) registerOutputs(tx *store.Tx, j *trainyard.Job) error {
	for name, out := range j.Plan.Outputs {
		if out.AssetName == "" {
			continue
		}
		kind, props := trainyard.KindData, map[string]any{"dataType": out.Type, "dataUri": out.URI, "isAnonymous": false, "tags": map[string]string{}, "properties": map[string]string{"job": j.Name, "output": name}}
		if strings.HasSuffix(out.Type, "_model") {
			kind, props = trainyard.KindModel, map[string]any{"modelType": out.Type, "modelUri": out.URI, "jobName": j.Name, "flavors": map[string]any{}, "tags": map[string]string{}, "properties": map[string]string{}}
		}
		version := out.AssetVersion
		if version == "" {
			_, next, err := tx.NextVersion(j.Scope, kind, out.AssetName)
			if err != nil {
				return err
			}
			version = next
		}
		if _, err := tx.Resource(j.Scope, kind, out.AssetName, version); err == nil {
			j.Status.Warnings = trainyard.Warn(j.Status.Warnings, fmt.Sprintf("output %s was not registered: %s %q version %q exists already", name, singular(kind), out.AssetName, version))
			continue
		}
		doc, err := json.Marshal(props)
		if err != nil {
			return err
		}
		now := c.Now()
		if _, err := tx.PutResource(&trainyard.Resource{Scope: j.Scope, Kind: kind, Name: out.AssetName, Version: version, Properties: doc, Created: now, Modified: now, CreatedBy: j.CreatedBy}); err != nil {
			return err
		}
		tx.Event(c.event(j.Scope, string(kind), out.AssetName, "created", j.CreatedBy, "from output "+name+" of job "+j.Name))
	}
	return nil
}

func singular(k trainyard.Kind) string { return strings.TrimSuffix(string(k), "s") }

package arm

import (
	"encoding/json"
	"strings"

	"github.com/trainyard/trainyard"
)

// putAsset creates or updates a datastore, a version, or a container of versions.
func (d *door) putAsset(c *call, kind trainyard.Kind) (reply, error) {
	var in written
	if err := c.read(&in); err != nil {
		return reply{}, err
	}
	props, err := newObject(in.Properties)
	if err != nil {
		return reply{}, err
	}
	props.without("provisioningState", "latestVersion", "nextVersion")
	props.dropNulls()
	if kind == trainyard.KindDatastore {
		props.canon("datastoreType", "AzureBlob", "AzureDataLakeGen1", "AzureDataLakeGen2", "AzureFile", "OneLake")
	}
	props.canon("dataType", "uri_file", "uri_folder", "mltable")
	props.canon("modelType", "custom_model", "mlflow_model", "triton_model")
	text, err := json.Marshal(props)
	if err != nil {
		return reply{}, err
	}
	r := &trainyard.Resource{Scope: c.scope(), Kind: kind, Name: c.name(), Version: c.version(), Location: in.Location,
		Properties: text, Hash: codeHash(kind, props), Archived: props.truth("isArchived")}
	got, created, err := d.Assets.PutResource(c.Context(), c.who, r)
	if err != nil {
		return reply{}, err
	}
	body, err := d.assetBody(c, got, c.version() == "")
	return saved(created, body), err
}

// canon gives a member that is one of an enumeration its right spelling.
func (o object) canon(name string, spellings ...string) {
	if s := o.text(name); s != "" {
		o.set(name, canon(s, spellings...))
	}
}

// codeHash is the hash of a snapshot's content, by which clients find it again.
func codeHash(kind trainyard.Kind, props object) string {
	if kind != trainyard.KindCode {
		return ""
	}
	inner, err := newObject(props["properties"])
	if err != nil {
		return ""
	}
	return inner.text("hash_sha256")
}

func (d *door) getAsset(c *call, kind trainyard.Kind) (reply, error) {
	r, err := d.Assets.Resource(c.Context(), c.scope(), kind, c.name(), c.version())
	if err != nil {
		return reply{}, err
	}
	body, err := d.assetBody(c, r, c.version() == "")
	if err != nil {
		return reply{}, err
	}
	return ok(body)
}

func (d *door) deleteAsset(c *call, kind trainyard.Kind) (reply, error) {
	return deleted(d.Assets.DeleteResource(c.Context(), c.who, c.scope(), kind, c.name(), c.version()))
}

// listAssets lists datastores, containers, or the versions of one name.
func (d *door) listAssets(c *call, kind trainyard.Kind) (reply, error) {
	q := c.URL.Query()
	n, err := top(q)
	if err != nil {
		return reply{}, err
	}
	v, err := view(q)
	if err != nil {
		return reply{}, err
	}
	query := trainyard.ResourceQuery{Scope: c.scope(), Kind: kind, Name: c.name(), View: v, Top: n, After: q.Get("$skip")}
	if hash := q.Get("hash"); hash != "" && kind == trainyard.KindCode {
		query.Hash, query.Name = hash, "" // clients look for the content under a name that they have just made up
	}
	if kind == trainyard.KindDatastore && q.Get("isDefault") != "" {
		yes := strings.EqualFold(q.Get("isDefault"), "true")
		query.Default = &yes
	}
	page, err := d.Assets.Resources(c.Context(), query)
	if err != nil {
		return reply{}, err
	}
	container := len(c.rest) == 3 && kind.Versioned()
	var items []envelope
	for _, r := range page.Items {
		if container && kind == trainyard.KindComponent && anonymous(r) { // the steps of somebody's pipeline
			continue
		}
		body, err := d.assetBody(c, r, container)
		if err != nil {
			return reply{}, err
		}
		if selected(q.Get, r) {
			items = append(items, body)
		}
	}
	return pageOf(c, items, page.Next)
}

func anonymous(r *trainyard.Resource) bool {
	var p struct {
		IsAnonymous bool `json:"isAnonymous"`
	}
	return json.Unmarshal(r.Properties, &p) == nil && p.IsAnonymous
}

// selected applies the filters that clients may send and the store does not know. They narrow a page that has been read, so a page may
// come back short; nextLink says whether there is more.
func selected(param func(string) string, r *trainyard.Resource) bool {
	if names := param("names"); names != "" && !containsFold(strings.Split(names, ","), r.Name) {
		return false
	}
	if text := param("searchText"); text != "" && !strings.Contains(fold(r.Name), fold(text)) {
		return false
	}
	if v := param("version"); v != "" && v != r.Version {
		return false
	}
	var has struct {
		Tags, Properties map[string]string
		Description      string
	}
	if param("description") != "" || param("tags") != "" || param("$tags") != "" || param("properties") != "" {
		_ = json.Unmarshal(r.Properties, &has) // a value that is no string matches by its key alone: what can be read is read
	}
	return strings.Contains(fold(has.Description), fold(param("description"))) && hasAll(has.Tags, param("tags")) && hasAll(has.Tags, param("$tags")) && hasAll(has.Properties, param("properties"))
}

func containsFold(list []string, name string) bool {
	for _, s := range list {
		if strings.EqualFold(strings.TrimSpace(s), name) {
			return true
		}
	}
	return false
}

// assetBody is a version, a container or a datastore as clients read it, with every field that one of them falls over when it is absent.
func (d *door) assetBody(c *call, r *trainyard.Resource, container bool) (envelope, error) {
	props, err := newObject(r.Properties)
	if err != nil {
		props = object{} // what was stored was an object
	}
	props.dropNulls()
	if container && r.Kind.Versioned() {
		return d.containerBody(c, r, props)
	}
	e := envelope{Name: r.Name, Type: trainyard.Provider + "/workspaces/" + string(r.Kind), ID: r.Scope.Child(string(r.Kind), r.Name),
		SystemData: newSystemData(r.Created, r.Modified, r.CreatedBy, r.ModifiedBy), Properties: props}
	props.fill("tags", map[string]string{})
	props.fill("properties", map[string]string{})
	if r.Kind.Versioned() {
		e.Name, e.Type, e.ID = r.Version, e.Type+"/versions", e.ID+"/versions/"+r.Version
		props.fill("isAnonymous", false)
		props.set("isArchived", r.Archived)
		props.set("provisioningState", succeeded)
	}
	switch r.Kind {
	case trainyard.KindDatastore:
		props.fill("isDefault", false)
		props.fill("credentials", map[string]string{"credentialsType": "None"})
		props.fill("subscriptionId", r.Scope.Subscription)
		props.fill("resourceGroup", r.Scope.ResourceGroup)
	case trainyard.KindModel:
		props.fill("flavors", map[string]any{})
	case trainyard.KindEnvironment:
		props.fill("osType", "Linux")
		props.fill("environmentType", "UserCreated")
	}
	return e, nil
}

// containerFields are the members of a version that its container shows as well.
var containerFields = []string{"description", "tags", "properties", "dataType"}

func (d *door) containerBody(c *call, r *trainyard.Resource, version object) (envelope, error) {
	latest, next, err := d.Assets.NextVersion(c.Context(), r.Scope, r.Kind, r.Name)
	if err != nil {
		return envelope{}, err
	}
	props := object{}
	for _, k := range containerFields {
		if v, there := version[k]; there {
			props[k] = v
		}
	}
	props.fill("tags", map[string]string{})
	props.fill("properties", map[string]string{})
	props.set("isArchived", r.Archived)
	props.set("nextVersion", next)
	props.set("provisioningState", succeeded)
	if latest != "" {
		props.set("latestVersion", latest)
	}
	return envelope{Name: r.Name, Type: trainyard.Provider + "/workspaces/" + string(r.Kind), ID: r.Scope.Child(string(r.Kind), r.Name),
		SystemData: newSystemData(r.Created, r.Modified, r.CreatedBy, r.ModifiedBy), Properties: props}, nil
}

// startPendingUpload hands out a place for the files of a version.
func (d *door) startPendingUpload(c *call, kind trainyard.Kind) (reply, error) {
	var in struct {
		ID   string `json:"pendingUploadId"`
		Type string `json:"pendingUploadType"`
	}
	if c.ContentLength != 0 {
		if err := c.read(&in); err != nil {
			return reply{}, err
		}
	}
	up, err := d.Assets.PendingUpload(c.Context(), c.who, c.scope(), kind, c.name(), c.version())
	if err != nil {
		return reply{}, err
	}
	var id *string
	if in.ID != "" {
		id = &in.ID
	}
	return ok(map[string]any{
		"pendingUploadId":   id,
		"pendingUploadType": "TemporaryBlobReference",
		"blobReferenceForConsumption": map[string]any{
			"blobUri":             up.BlobURI,
			"storageAccountArmId": storageAccount(c.scope()),
			"credential":          map[string]any{"credentialType": "SAS", "sasUri": up.SASURI},
		},
	})
}

// listSecrets takes expirableSecret and expireAfterHours and has no use for them: what it hands out always expires.
func (d *door) listSecrets(c *call, _ trainyard.Kind) (reply, error) {
	secrets, err := d.Assets.Secrets(c.Context(), c.who, c.scope(), c.name())
	if err != nil {
		return reply{}, err
	}
	return ok(secrets)
}

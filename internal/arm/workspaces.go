package arm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

// serverWritten are members of a workspace's properties that only the server writes; clients send back what they read.
var serverWritten = []string{"workspaceId", "provisioningState", "discoveryUrl", "mlFlowTrackingUri", "tenantId", "notebookInfo",
	"privateEndpointConnections", "workspaceHubConfig", "serviceProvisionedResourceGroup", "storageHnsEnabled"}

func (d *door) listWorkspaces(c *call, kind trainyard.Kind) (reply, error) {
	n, err := top(c.URL.Query())
	if err != nil {
		return reply{}, err
	}
	page, err := d.Assets.Resources(c.Context(), trainyard.ResourceQuery{Scope: c.scope(), Kind: kind, View: trainyard.ViewAll, Top: n, After: c.URL.Query().Get("$skip")})
	if err != nil {
		return reply{}, err
	}
	var items []envelope
	for _, r := range page.Items {
		if d.Allow(c.who, identity.Read, r.Scope, kind, r.Name) == nil { // a token for one workspace sees that one
			items = append(items, d.workspaceBody(c, r))
		}
	}
	if len(items) == 0 && page.Next == "" && c.who.Scope == (trainyard.Scope{}) {
		if err := d.Allow(c.who, identity.Read, c.scope(), kind, ""); err != nil {
			return reply{}, err
		}
	}
	return pageOf(c, items, page.Next)
}

func (d *door) getWorkspace(c *call, kind trainyard.Kind) (reply, error) {
	r, err := d.Assets.Resource(c.Context(), c.scope(), kind, c.scope().Workspace, "")
	if err != nil {
		return reply{}, err
	}
	return ok(d.workspaceBody(c, r))
}

func (d *door) putWorkspace(c *call, kind trainyard.Kind) (reply, error) {
	var in written
	if err := c.read(&in); err != nil {
		return reply{}, err
	}
	return d.saveWorkspace(c, kind, in)
}

func (d *door) patchWorkspace(c *call, kind trainyard.Kind) (reply, error) {
	old, err := d.Assets.Resource(c.Context(), c.scope(), kind, c.scope().Workspace, "")
	if err != nil {
		return reply{}, err
	}
	var patch json.RawMessage
	if err := c.read(&patch); err != nil {
		return reply{}, err
	}
	now, err := json.Marshal(written{Location: old.Location, Tags: old.Tags, Identity: old.Identity, Sku: old.Sku, Properties: old.Properties})
	if err != nil {
		return reply{}, err
	}
	merged, err := merge(now, patch)
	if err != nil {
		return reply{}, err
	}
	var in written
	if err := json.Unmarshal(merged, &in); err != nil {
		return reply{}, explain(merged, err)
	}
	return d.saveWorkspace(c, kind, in)
}

func (d *door) saveWorkspace(c *call, kind trainyard.Kind, in written) (reply, error) {
	props, err := newObject(in.Properties)
	if err != nil {
		return reply{}, err
	}
	props.without(serverWritten...)
	props.dropNulls()
	text, err := json.Marshal(props)
	if err != nil {
		return reply{}, err
	}
	r := &trainyard.Resource{Scope: c.scope(), Kind: kind, Name: c.scope().Workspace, Location: in.Location, Tags: in.Tags,
		Properties: text, Identity: nonNull(in.Identity), Sku: nonNull(in.Sku)}
	got, _, err := d.Assets.PutResource(c.Context(), c.who, r)
	if err != nil {
		return reply{}, err
	}
	// Clients refuse 201 here, of all resources.
	return reply{status: http.StatusOK, body: d.workspaceBody(c, got), op: d.begin(c, "create", kind, got.Name)}, nil
}

func (d *door) deleteWorkspace(c *call, kind trainyard.Kind) (reply, error) {
	return deleted(d.Assets.DeleteResource(c.Context(), c.who, c.scope(), kind, c.scope().Workspace, ""))
}

// deleted is the answer to a DELETE that was done at once: 204 says that there was nothing to delete.
func deleted(err error) (reply, error) {
	switch {
	case trainyard.IsNotFound(err):
		return reply{status: http.StatusNoContent}, nil
	case err != nil:
		return reply{}, err
	}
	return reply{status: http.StatusOK}, nil
}

// workspaceKeys has no keys: nothing here is opened by one. Clients want the fields.
func (d *door) workspaceKeys(c *call, kind trainyard.Kind) (reply, error) {
	r, err := d.Assets.Resource(c.Context(), c.scope(), kind, c.scope().Workspace, "")
	if err != nil {
		return reply{}, err
	}
	return ok(map[string]any{"userStorageKey": "", "userStorageResourceId": storageAccount(r.Scope), "userStorageArmId": storageAccount(r.Scope),
		"appInsightsInstrumentationKey": "", "containerRegistryCredentials": map[string]any{}, "notebookAccessKeys": map[string]any{}})
}

func storageAccount(s trainyard.Scope) string {
	return neighbour(s, "Microsoft.Storage/storageAccounts")
}

// neighbour is the id of something that clients expect beside a workspace and only ever print.
func neighbour(s trainyard.Scope, kind string) string {
	return "/subscriptions/" + s.Subscription + "/resourceGroups/" + s.ResourceGroup + "/providers/" + kind + "/trainyard"
}

func (d *door) workspaceBody(c *call, r *trainyard.Resource) envelope {
	props, err := newObject(r.Properties)
	if err != nil {
		props = object{} // what was stored was an object
	}
	props.dropNulls()
	id := r.Scope.ID()
	base := c.base()
	props.set("workspaceId", workspaceID(r.Scope))
	props.set("provisioningState", succeeded)
	props.set("discoveryUrl", base+"/discovery")
	props.set("mlFlowTrackingUri", base+"/mlflow/v1.0"+id)
	props.set("tenantId", identity.Tenant)
	props.fill("friendlyName", r.Name)
	props.fill("description", "")
	props.fill("storageAccount", storageAccount(r.Scope))
	props.fill("keyVault", neighbour(r.Scope, "Microsoft.KeyVault/vaults"))
	props.fill("applicationInsights", neighbour(r.Scope, "Microsoft.Insights/components"))
	props.fill("publicNetworkAccess", "Enabled")
	props.fill("hbiWorkspace", false)
	e := envelope{ID: id, Name: r.Name, Type: trainyard.Provider + "/workspaces", Kind: "Default", Location: r.Location, Tags: tagsOf(r.Tags),
		Identity: r.Identity, Sku: r.Sku, SystemData: newSystemData(r.Created, r.Modified, r.CreatedBy, r.ModifiedBy), Properties: props}
	if e.Location == "" {
		e.Location = trainyard.DefaultLocation
	}
	if e.Identity == nil {
		e.Identity = json.RawMessage(`{"type":"SystemAssigned","principalId":"` + workspaceID(r.Scope) + `","tenantId":"` + identity.Tenant + `"}`)
	}
	if e.Sku == nil {
		e.Sku = json.RawMessage(`{"name":"Basic","tier":"Basic"}`)
	}
	return e
}

// workspaceID is a UUID for a workspace, the same every time.
func workspaceID(s trainyard.Scope) string {
	h := sha256.Sum256([]byte("workspace " + s.Key()))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	x := hex.EncodeToString(h[:16])
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

func nonNull(m json.RawMessage) json.RawMessage {
	if isNull(m) {
		return nil
	}
	return m
}

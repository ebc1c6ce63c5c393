package spec

import (
	"strings"

	"github.com/trainyard/trainyard"
)

// infrastructure lists the fields of a workspace that name parts of a cloud, with ARM's names for them. They are kept and shown.
var infrastructure = map[string]string{"storage_account": "storageAccount", "key_vault": "keyVault", "application_insights": "applicationInsights",
	"container_registry": "containerRegistry", "hbi_workspace": "hbiWorkspace", "image_build_compute": "imageBuildCompute",
	"managed_network": "managedNetwork", "network_acls": "networkAcls", "system_datastores_auth_mode": "systemDatastoresAuthMode",
	"primary_user_assigned_identity": "primaryUserAssignedIdentity", "workspace_hub": "hubResourceId", "provision_network_now": "provisionNetworkNow",
	"enable_data_isolation": "enableDataIsolation", "allow_roleassignment_on_rg": "allowRoleAssignmentOnRG", "serverless_compute": "serverlessComputeSettings"}

// Workspace translates a workspace.
func (d *Document) Workspace(trainyard.Scope) (*Asset, error) {
	f, err := d.reader(Workspace)
	if err != nil {
		return nil, err
	}
	f.silent("$schema", "id", "type", "resource_group", "discovery_url", "mlflow_tracking_uri")
	f.need("name")
	a := &Asset{Kind: trainyard.KindWorkspace, Name: f.name("name"), Location: f.text("location"), Tags: f.texts("tags", false), Properties: map[string]any{}}
	for field, key := range map[string]string{"description": "description", "display_name": "friendlyName"} {
		if text := f.text(field); text != "" {
			a.Properties[key] = text
		}
	}
	for field, key := range infrastructure {
		if n := f.get(field); n != nil {
			a.Properties[key] = camelKeys(n.plain())
		}
	}
	if access := f.choice("public_network_access", "enabled", "Enabled", "disabled", "Disabled"); access != "" {
		a.Properties["publicNetworkAccess"] = access
	}
	f.encryption(a)
	a.Identity = f.computeIdentity()
	f.cloudNotes()
	if err := d.end(f); err != nil {
		return nil, err
	}
	a.Warnings = f.p.notes
	return a, nil
}

// cloudNotes says in one sentence which fields are kept alone.
func (f *fields) cloudNotes() {
	var kept []string
	for _, k := range f.n.keys {
		_, cloud := infrastructure[k.text]
		if (cloud || k.text == "customer_managed_key" || k.text == "public_network_access") && f.has(k.text) {
			kept = append(kept, k.text)
		}
	}
	if len(kept) > 0 {
		f.p.note("%s: kept and not acted on: they name parts of a cloud that a workspace here does not use", strings.Join(kept, ", "))
	}
}

func (f *fields) encryption(a *Asset) {
	c := f.sub("customer_managed_key")
	if c.n == nil {
		return
	}
	a.Properties["encryption"] = map[string]any{"status": "Enabled",
		"keyVaultProperties": map[string]any{"keyVaultArmId": c.text("key_vault"), "keyIdentifier": c.text("key_uri")}}
	c.silent("cosmosdb_id", "storage_id", "search_id")
	c.done()
}

// camelKeys spells the keys of maps as ARM does. Keys that are not words with underscores, such as ids, stay as they are.
func camelKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, one := range v {
			m[snakeToCamel(k)] = camelKeys(one)
		}
		return m
	case []any:
		for i := range v {
			v[i] = camelKeys(v[i])
		}
	}
	return v
}

func snakeToPascal(s string) string {
	parts := strings.Split(s, "_")
	for i, p := range parts {
		if p != "" {
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}

func snakeToCamel(s string) string {
	if strings.ContainsAny(s, "/. ") || strings.HasPrefix(s, "_") {
		return s
	}
	first, rest, _ := strings.Cut(s, "_")
	return first + snakeToPascal(rest)
}

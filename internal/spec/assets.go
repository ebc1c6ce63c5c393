package spec

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/trainyard/trainyard"
)

// Data translates a data asset.
func (d *Document) Data(trainyard.Scope) (*Asset, error) {
	f, err := d.reader(Data)
	if err != nil {
		return nil, err
	}
	f.silent("$schema", "id", "properties", "creation_context", "latest_version")
	f.need("name")
	a := &Asset{Kind: trainyard.KindData, Name: f.name("name"), Version: f.version("version"), Tags: f.texts("tags", false)}
	a.Properties = map[string]any{"isAnonymous": false, "isArchived": false}
	if text := f.text("description"); text != "" {
		a.Properties["description"] = text
	}
	if len(a.Tags) > 0 {
		a.Properties["tags"] = a.Tags
	}
	f.noted("auto_delete_setting", "nothing is deleted by itself here")
	kind := f.choice("type", "uri_file", "uri_file", "uri_folder", "uri_folder", "mltable", "mltable")
	f.need("path")
	f.data(a, kind, f.datastore())
	if err := d.end(f); err != nil {
		return nil, err
	}
	a.Warnings = f.p.notes
	return a, nil
}

// data fills in where a data asset is, and its type where the file does not say it.
func (f *fields) data(a *Asset, kind, datastore string) {
	n := f.get("path")
	a.Properties["dataType"] = kind
	switch {
	case n == nil || n.kind != scalar:
	case remote(n.text):
		a.Properties["dataUri"] = f.uri(n, "path")
		if kind == "" {
			a.Properties["dataType"] = "uri_folder"
		}
	case strings.HasPrefix(n.text, "azureml:"):
		f.wrong(n, "path", "a path on this machine, or an address such as azureml://datastores/NAME/paths/PATH")
	default:
		path, isDir, ok := f.local(n, "path")
		if !ok {
			return
		}
		kind = f.fits(n, "path", kind, isDir)
		a.Properties["dataType"] = kind
		if kind == "mltable" && isDir {
			if _, err := os.Stat(filepath.Join(path, "MLTable")); err != nil {
				f.p.at(n.place, f.at("path"), "there is no file MLTable in %s: a folder of type mltable has one", path)
			}
		}
		a.Uploads = append(a.Uploads, Upload{Field: f.at("path"), Path: path, IsDir: isDir, What: "data", Datastore: datastore,
			Set: func(uri string) { a.Properties["dataUri"] = uri }})
	}
}

// Datastore translates a datastore.
func (d *Document) Datastore(trainyard.Scope) (*Asset, error) {
	f, err := d.reader(Datastore)
	if err != nil {
		return nil, err
	}
	f.silent("$schema", "id")
	f.need("name")
	a := &Asset{Kind: trainyard.KindDatastore, Name: f.name("name"), Tags: f.texts("tags", false), Properties: map[string]any{}}
	if len(a.Tags) > 0 {
		a.Properties["tags"] = a.Tags
	}
	if text := f.text("description"); text != "" {
		a.Properties["description"] = text
	}
	kind := f.choice("type", "azure_blob", "AzureBlob", "azure_file", "AzureFile", "azure_data_lake_gen1", "AzureDataLakeGen1",
		"azure_data_lake_gen2", "AzureDataLakeGen2")
	if !f.has("type") {
		if kind = snakeToPascal(d.schema().typ); kind == "" {
			f.need("type")
		}
	}
	f.store(a, kind)
	a.Properties["credentials"] = f.credentials()
	if err := d.end(f); err != nil {
		return nil, err
	}
	a.Warnings = f.p.notes
	return a, nil
}

// store reads what says where a datastore of the kind is.
func (f *fields) store(a *Asset, kind string) {
	a.Properties["datastoreType"] = kind
	put := func(field, key string, needed bool) {
		if needed {
			f.need(field)
		}
		if text := f.text(field); text != "" {
			a.Properties[key] = text
		}
	}
	if kind != "AzureDataLakeGen1" {
		put("account_name", "accountName", kind != "")
		put("endpoint", "endpoint", false)
		put("protocol", "protocol", false)
	}
	switch kind {
	case "AzureBlob":
		put("container_name", "containerName", true)
	case "AzureFile":
		put("file_share_name", "fileShareName", true)
	case "AzureDataLakeGen1":
		put("store_name", "storeName", true)
	case "AzureDataLakeGen2":
		put("filesystem", "filesystem", true)
	default: // a problem was said; the fields of every type are known
		f.silent("store_name", "container_name", "file_share_name", "filesystem")
	}
}

// credentials reads what opens a datastore. What is in the file says of which type it is.
func (f *fields) credentials() map[string]any {
	c := f.sub("credentials")
	if c.n == nil || len(c.n.keys) == 0 {
		return map[string]any{"credentialsType": "None"}
	}
	defer c.done()
	key, sas, secret, thumb := c.text("account_key"), c.text("sas_token"), c.text("client_secret"), c.text("thumbprint")
	m := map[string]any{}
	switch {
	case key != "":
		m["credentialsType"], m["secrets"] = "AccountKey", map[string]any{"secretsType": "AccountKey", "key": key}
		return m
	case sas != "":
		m["credentialsType"], m["secrets"] = "Sas", map[string]any{"secretsType": "Sas", "sasToken": sas}
		return m
	case secret != "":
		m["credentialsType"], m["secrets"] = "ServicePrincipal", map[string]any{"secretsType": "ServicePrincipal", "clientSecret": secret}
	case thumb != "":
		m["credentialsType"], m["thumbprint"] = "Certificate", thumb
		m["secrets"] = map[string]any{"secretsType": "Certificate", "certificate": c.text("certificate")}
	default:
		c.silent("certificate", "tenant_id", "client_id", "authority_url", "authority_uri", "resource_url")
		f.p.at(c.n.place, f.at("credentials"), "want account_key, sas_token, or client_id with tenant_id and client_secret or thumbprint")
		return m
	}
	c.need("tenant_id")
	c.need("client_id")
	for field, name := range map[string]string{"tenant_id": "tenantId", "client_id": "clientId", "authority_url": "authorityUrl", "authority_uri": "authorityUrl", "resource_url": "resourceUrl"} {
		if text := c.text(field); text != "" {
			m[name] = text
		}
	}
	return m
}

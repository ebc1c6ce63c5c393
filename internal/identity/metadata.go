package identity

import (
	"net"
	"net/http"
	"net/url"
)

// metadata describes this server as a cloud of its own: Azure's SDKs and az read it from ARM_CLOUD_METADATA_URL and then send
// everything here. It is asked for many times in one run of a client, before it has a token. az needs every field.
func (s *Service) metadata(w http.ResponseWriter, r *http.Request) {
	cloud := cloudOf(s.external(r))
	if r.URL.Query().Get("api-version") == "2019-05-01" {
		reply(w, http.StatusOK, []any{cloud}) // this version is a list; later ones are one cloud
		return
	}
	reply(w, http.StatusOK, cloud)
}

// discovery tells the Python SDK which service is where: all of them are here. It is read from a workspace's discoveryUrl, without a token.
func (s *Service) discovery(w http.ResponseWriter, r *http.Request) {
	base := s.external(r)
	services := map[string]string{}
	for _, name := range []string{"api", "catalog", "experimentation", "gallery", "history", "hyperdrive", "labeling", "modelmanagement", "pipelines", "studio"} {
		services[name] = base
	}
	reply(w, http.StatusOK, services)
}

// portal is a name that nothing answers: the Python SDK makes the audience of its tokens from the labels after the second.
const portal = "https://portal.trainyard.localhost"

func cloudOf(base string) map[string]any {
	return map[string]any{
		"name":            "Trainyard",
		"portal":          portal,
		"resourceManager": base + "/",
		"authentication": map[string]any{
			"loginEndpoint": base, "audiences": []string{base + "/", Audience}, "tenant": Tenant, "identityProvider": "AAD",
		},
		"suffixes": map[string]any{
			"storage":                             StorageSuffix(base),
			"keyVaultDns":                         "vault.trainyard.localhost",
			"acrLoginServer":                      "acr.trainyard.localhost",
			"sqlServerHostname":                   "database.trainyard.localhost",
			"azureDataLakeStoreFileSystem":        "azuredatalakestore.trainyard.localhost",
			"azureDataLakeAnalyticsCatalogAndJob": "azuredatalakeanalytics.trainyard.localhost",
			"azureFrontDoorEndpointSuffix":        "azurefd.trainyard.localhost",
			"storageSyncEndpointSuffix":           "afs.trainyard.localhost",
			"mhsmDns":                             "managedhsm.trainyard.localhost",
			"mysqlServerEndpoint":                 "mysql.trainyard.localhost",
			"postgresqlServerEndpoint":            "postgres.trainyard.localhost",
			"mariadbServerEndpoint":               "mariadb.trainyard.localhost",
			"synapseAnalytics":                    "synapse.trainyard.localhost",
			"attestationEndpoint":                 "attest.trainyard.localhost",
		},
		"graph":                                 base,
		"graphAudience":                         base + "/",
		"microsoftGraphResourceId":              base + "/",
		"media":                                 base,
		"batch":                                 base + "/",
		"gallery":                               base,
		"sqlManagement":                         base,
		"vmImageAliasDoc":                       base + "/metadata/aliases.json",
		"activeDirectoryDataLake":               base + "/",
		"appInsightsResourceId":                 base,
		"appInsightsTelemetryChannelResourceId": base,
		"attestationResourceId":                 base,
		"synapseAnalyticsResourceId":            base,
		"logAnalyticsResourceId":                base,
		"ossrDbmsResourceId":                    base,
	}
}

// StorageSuffix is the domain below which storage accounts live, for a server reached at base: the SDK sends blobs to
// https://{account}.blob.{suffix}. It begins with "core.", because the storage library finds the account's name that way, and has the
// port. A server reached by address or as localhost is at core.localhost.
func StorageSuffix(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return "core.localhost"
	}
	host := u.Hostname()
	if net.ParseIP(host) != nil {
		host = "localhost"
	}
	if p := u.Port(); p != "" {
		return "core." + host + ":" + p
	}
	return "core." + host
}

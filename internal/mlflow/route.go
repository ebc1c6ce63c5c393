package mlflow

import (
	"net/http"
	"strings"

	"github.com/trainyard/trainyard"
)

// route is a row of the table of what is served. In path, {id} and {key} are one segment, {rest} one or more.
type route struct {
	method, path string
	writes       bool // needs permission to write
	do           func(*door, *call) error
}

const (
	get    = http.MethodGet
	post   = http.MethodPost
	patch  = http.MethodPatch
	remove = http.MethodDelete
)

// routes is the API, in the order of its documentation. Where two rows match, the first is meant.
var routes = []route{
	{post, "mlflow/experiments/create", true, (*door).createExperiment},
	{get, "mlflow/experiments/get", false, (*door).getExperiment},
	{get, "mlflow/experiments/get-by-name", false, (*door).getExperimentByName},
	{post, "mlflow/experiments/search", false, (*door).searchExperiments},
	{get, "mlflow/experiments/search", false, (*door).searchExperiments},
	{post, "mlflow/experiments/update", true, (*door).updateExperiment},
	{post, "mlflow/experiments/delete", true, (*door).deleteExperiment},
	{post, "mlflow/experiments/restore", true, (*door).restoreExperiment},
	{post, "mlflow/experiments/set-experiment-tag", true, (*door).setExperimentTag},
	{post, "mlflow/experiments/delete-experiment-tag", true, (*door).deleteExperimentTag},
	{post, "mlflow/experiments/search-datasets", false, (*door).searchDatasets},

	{post, "mlflow/runs/create", true, (*door).createRun},
	{get, "mlflow/runs/get", false, (*door).getRun},
	{post, "mlflow/runs/update", true, (*door).updateRun},
	{post, "mlflow/runs/delete", true, (*door).deleteRun},
	{post, "mlflow/runs/restore", true, (*door).restoreRun},
	{post, "mlflow/runs/search", false, (*door).searchRuns},
	{post, "mlflow/runs/log-metric", true, (*door).logMetric},
	{post, "mlflow/runs/log-batch", true, (*door).logBatch},
	{post, "mlflow/runs/log-parameter", true, (*door).logParam},
	{post, "mlflow/runs/log-inputs", true, (*door).logInputs},
	{post, "mlflow/runs/outputs", true, (*door).logOutputs},
	{post, "mlflow/runs/log-model", true, (*door).logModel},
	{post, "mlflow/runs/set-tag", true, (*door).setTag},
	{post, "mlflow/runs/delete-tag", true, (*door).deleteTag},
	{get, "mlflow/metrics/get-history", false, (*door).metricHistory},
	{get, "mlflow/metrics/get-history-bulk-interval", false, (*door).metricIntervals},
	{get, "mlflow/artifacts/list", false, (*door).listRunArtifacts},

	{post, "mlflow/logged-models", true, (*door).createModel},
	{post, "mlflow/logged-models/search", false, (*door).searchModels},
	{get, "mlflow/logged-models/{id}", false, (*door).getModel},
	{patch, "mlflow/logged-models/{id}", true, (*door).finalizeModel},
	{remove, "mlflow/logged-models/{id}", true, (*door).deleteModel},
	{patch, "mlflow/logged-models/{id}/tags", true, (*door).setModelTags},
	{remove, "mlflow/logged-models/{id}/tags/{key}", true, (*door).deleteModelTag},
	{post, "mlflow/logged-models/{id}/params", true, (*door).logModelParams},
	{get, "mlflow/logged-models/{id}/artifacts/directories", false, (*door).listModelArtifacts},

	{post, "mlflow/traces", true, (*door).startTrace},
	{get, "mlflow/traces", false, (*door).searchTraces},
	{post, "mlflow/traces/search", false, (*door).searchTraces},
	{post, "mlflow/traces/delete-traces", true, (*door).deleteTraces},
	{post, "mlflow/traces/batchGetInfos", false, (*door).traceInfos},
	{get, "mlflow/traces/{id}", false, (*door).getTrace},
	{patch, "mlflow/traces/{id}", true, (*door).endTrace},
	{get, "mlflow/traces/{id}/info", false, (*door).getTrace},
	{patch, "mlflow/traces/{id}/tags", true, (*door).setTraceTag},
	{remove, "mlflow/traces/{id}/tags", true, (*door).deleteTraceTag},

	{post, "mlflow/registered-models/create", true, (*door).createRegistered},
	{get, "mlflow/registered-models/get", false, (*door).getRegistered},
	{get, "mlflow/registered-models/search", false, (*door).searchRegistered},
	{post, "mlflow/registered-models/rename", true, (*door).renameRegistered},
	{patch, "mlflow/registered-models/update", true, (*door).updateRegistered},
	{remove, "mlflow/registered-models/delete", true, (*door).deleteRegistered},
	{post, "mlflow/registered-models/get-latest-versions", false, (*door).latestVersions},
	{get, "mlflow/registered-models/get-latest-versions", false, (*door).latestVersions},
	{post, "mlflow/registered-models/set-tag", true, (*door).setRegisteredTag},
	{remove, "mlflow/registered-models/delete-tag", true, (*door).deleteRegisteredTag},
	{get, "mlflow/registered-models/alias", false, (*door).getAlias},
	{post, "mlflow/registered-models/alias", true, (*door).setAlias},
	{remove, "mlflow/registered-models/alias", true, (*door).deleteAlias},
	{post, "mlflow/model-versions/create", true, (*door).createVersion},
	{get, "mlflow/model-versions/get", false, (*door).getVersion},
	{get, "mlflow/model-versions/search", false, (*door).searchVersions},
	{patch, "mlflow/model-versions/update", true, (*door).updateVersion},
	{remove, "mlflow/model-versions/delete", true, (*door).deleteVersion},
	{get, "mlflow/model-versions/get-download-uri", false, (*door).downloadURI},
	{post, "mlflow/model-versions/transition-stage", true, (*door).moveStage},
	{post, "mlflow/model-versions/set-tag", true, (*door).setVersionTag},
	{remove, "mlflow/model-versions/delete-tag", true, (*door).deleteVersionTag},

	{get, "mlflow-artifacts/artifacts", false, (*door).listArtifacts},
	{get, "mlflow-artifacts/artifacts/{rest}", false, (*door).getArtifact},
	{http.MethodHead, "mlflow-artifacts/artifacts/{rest}", false, (*door).getArtifact},
	{http.MethodPut, "mlflow-artifacts/artifacts/{rest}", true, (*door).putArtifact},
	{remove, "mlflow-artifacts/artifacts/{rest}", true, (*door).deleteArtifact},

	{get, "mlflow/server-info", false, (*door).serverInfo},
}

// notBuilt are the parts of MLflow's API that this door names and does not have, by how their paths begin.
var notBuilt = []struct{ path, what string }{
	{"mlflow-artifacts/mpu", "Multipart upload is not supported: artifacts are sent whole; unset MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD"},
	{"mlflow-artifacts/presigned", "presigned downloads are not supported: artifacts come through this server; unset MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD"},
	{"mlflow/artifacts/presigned", "presigned URLs are not supported: artifacts go through this server"},
	{"mlflow/traces/{id}/assessments", "assessments of traces are not supported by this server"},
	{"mlflow/traces/metrics", "metrics of traces are not supported by this server"},
	{"mlflow/traces/batchGet", "spans of traces are not in this server's tracking store: they are in the trace's artifacts"},
	{"mlflow/traces/link", "links of traces are not supported by this server"},
	{"mlflow/traces/calculate", "correlation of traces is not supported by this server"},
	{"mlflow/datasets", "evaluation datasets are not supported by this server"},
	{"mlflow/scorers", "scorers are not supported by this server"},
	{"mlflow/issues", "issues are not supported by this server"},
	{"mlflow/label-schemas", "label schemas are not supported by this server"},
	{"mlflow/review-queues", "review queues are not supported by this server"},
	{"mlflow/gateway", "the AI gateway is not part of this server"},
	{"mlflow/prompt-optimization", "prompt optimization is not supported by this server"},
	{"mlflow/webhooks", "webhooks of the registry are not supported by this server"},
	{"mlflow/workspaces", "MLflow's workspaces are not used here: the workspace is part of the tracking URI"},
}

// workspacePath is what stands before the API in a path. Names match without regard to case.
var workspacePath = []string{"mlflow", "", "subscriptions", "", "resourceGroups", "", "providers", trainyard.Provider, "workspaces", ""}

// find looks the request up in the table of routes and fills in what the path says.
func find(c *call) (*route, error) {
	parts, err := segments(c.URL.EscapedPath())
	if err != nil {
		return nil, err
	}
	unknown := &problem{codeNoEndpoint, "there is nothing at " + c.Method + " " + c.URL.Path}
	if len(parts) <= len(workspacePath) {
		return nil, unknown
	}
	for i, want := range workspacePath {
		if want != "" && !strings.EqualFold(parts[i], want) || parts[i] == "" {
			return nil, unknown
		}
	}
	c.scope = trainyard.Scope{Subscription: parts[3], ResourceGroup: parts[5], Workspace: parts[9]}
	path := apiPath(parts[len(workspacePath):])
	for i := range routes {
		if rt := &routes[i]; rt.method == c.Method && matches(rt.path, path, c) {
			return rt, nil
		}
	}
	for _, n := range notBuilt {
		if strings.Contains(n.path, "{id}") && len(path) > 3 && strings.EqualFold(path[1], "traces") && strings.EqualFold(path[3], "assessments") ||
			strings.HasPrefix(strings.ToLower(strings.Join(path, "/")), strings.ToLower(n.path)) {
			return nil, &problem{codeNotBuilt, n.what}
		}
	}
	return nil, unknown
}

// apiPath drops how clients of all ages begin: api/2.0/, ajax-api/2.0/, api/3.0/, api/2.0/preview/.
func apiPath(path []string) []string {
	if len(path) > 2 && (strings.EqualFold(path[0], "api") || strings.EqualFold(path[0], "ajax-api")) {
		path = path[2:]
	}
	if len(path) > 1 && strings.EqualFold(path[0], "preview") {
		path = path[1:]
	}
	return path
}

func matches(pattern string, path []string, c *call) bool {
	c.id, c.key, c.rest = "", "", ""
	want := strings.Split(pattern, "/")
	for i, w := range want {
		switch {
		case i >= len(path):
			return false
		case w == "{id}":
			c.id = path[i]
		case w == "{key}":
			c.key = path[i]
		case w == "{rest}":
			c.rest = strings.Join(path[i:], "/")
			return c.rest != ""
		case !strings.EqualFold(w, path[i]):
			return false
		}
	}
	return len(path) == len(want)
}

// serverInfo says what newer clients ask before they choose among ways that this server has one of.
func (d *door) serverInfo(c *call) error {
	return c.reply(map[string]any{"store_type": "FileStore", "workspaces_enabled": false, "trace_archival_enabled": false,
		"multipart_uploads_enabled": false, "multipart_downloads_enabled": false})
}

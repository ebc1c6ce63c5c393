package control

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestReferencesToOtherJobsArtifactsAndBlobDoors(t *testing.T) {
	for uri, want := range map[string]string{
		"https://127.0.0.1:7878/blob/codes/s.r.w/x@1":                                         "codes/s.r.w/x@1",
		"https://somewhere.test/blob/codes/s.r.w/x@1/":                                        "codes/s.r.w/x@1",
		"https://somewhere.test/other/codes":                                                  "",
		"https://trainyard.blob.core.localhost:7878/workspaceblobstore/LocalUpload/1f/a%20b/": "workspaceblobstore/LocalUpload/1f/a b",
		"https://trainyard.blob.core.localhost:7878/../b":                                     "",
		"https://somebody.blob.core.windows.net/c/d":                                          "",
		"https://somewhere.test/blob/a/../../b":                                               "",
	} {
		if key, ok := blobKey(uri); key != want || ok != (want != "") {
			t.Errorf("%s is %q, %v; want %q", uri, key, ok, want)
		}
	}
	if got := artifacts(trainyard.DefaultScope(), "j").Key(); got != "workspaceartifactstore/ExperimentRun/dcid.j" {
		t.Errorf("artifacts are at %s", got)
	}
}

// Two assets that name each other are the author's mistake, and not the end of the server.
func TestAssetsThatNameEachOtherLeadNowhere(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	admin := trainyard.User{Name: "admin", Role: trainyard.RoleAdmin}
	for name, other := range map[string]string{"one": "two", "two": "one"} {
		r := &trainyard.Resource{Scope: scope, Kind: trainyard.KindData, Name: name, Version: "1",
			Properties: []byte(`{"dataType":"uri_folder","dataUri":"azureml:` + other + `:1"}`)}
		if _, _, err := c.PutResource(t.Context(), admin, r); err != nil {
			t.Fatal(err)
		}
	}
	j := &trainyard.Job{Scope: scope, Name: "j", Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: "local",
		Inputs: map[string]*trainyard.JobInput{"a": {JobInputType: "uri_folder", URI: "azureml:one:1"}}}}
	_, _, err := c.SubmitJob(t.Context(), admin, j)
	if trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), "azureml:one:1") {
		t.Fatalf("a circle of assets: %v", err)
	}
}

// A build context is found however a client names what it uploaded. Short datastore URIs are of the workspace that has the environment.
func TestABuildContextIsFoundInTheStore(t *testing.T) {
	c := newControl(t)
	there, other := trainyard.DefaultScope(), trainyard.Scope{Subscription: "s", ResourceGroup: "g", Workspace: "other"}
	admin := trainyard.User{Name: "admin", Role: trainyard.RoleAdmin}
	if _, _, err := c.PutResource(t.Context(), admin, &trainyard.Resource{Scope: other, Kind: trainyard.KindWorkspace, Name: other.Workspace}); err != nil {
		t.Fatal(err)
	}
	r := &resolver{c: c, ctx: t.Context(), j: &trainyard.Job{Scope: there, Name: "j"}}
	for _, e := range []struct {
		scope             trainyard.Scope
		uri, want, reason string
	}{
		{there, "https://127.0.0.1:7878/blob/workspaceblobstore/LocalUpload/1f/bc/", "workspaceblobstore/LocalUpload/1f/bc", ""},
		{there, "azureml://datastores/workspaceblobstore/paths/LocalUpload/1f/bc/", "workspaceblobstore/LocalUpload/1f/bc", ""},
		{there, "azureml://subscriptions/s/resourcegroups/g/workspaces/other/datastores/workspaceblobstore/paths/bc", "s.g.other.workspaceblobstore/bc", ""},
		{other, "azureml://datastores/workspaceblobstore/paths/bc/", "s.g.other.workspaceblobstore/bc", ""},
		{there, "azureml://datastores/nowhere/paths/bc/", "", "nowhere"},
		{there, "azureml://datastores/workspaceblobstore/paths/../bc/", "", "climbs out"},
		{there, "https://github.com/somebody/something.git", "", "create the environment from a local folder"},
		{there, "", "", "has no path"},
	} {
		got, err := r.buildContext(e.scope, e.uri)
		if got != e.want || (err == nil) != (e.reason == "") || err != nil && !strings.Contains(err.Error(), e.reason) {
			t.Errorf("%s in %s: %q, %v; want %q, %s", e.uri, e.scope.Workspace, got, err, e.want, e.reason)
		}
	}
}

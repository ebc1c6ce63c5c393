package control

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestReferencesToOtherJobsArtifactsAndBlobDoors(t *testing.T) {
	for uri, want := range map[string]string{
		"https://127.0.0.1:7878/blob/codes/s.r.w/x@1":  "codes/s.r.w/x@1",
		"https://somewhere.test/blob/codes/s.r.w/x@1/": "codes/s.r.w/x@1",
		"https://somewhere.test/other/codes":           "",
		"https://somewhere.test/blob/a/../../b":        "",
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

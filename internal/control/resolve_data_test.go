package control

import (
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

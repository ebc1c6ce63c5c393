package studio_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

const artifacts = "workspaceartifactstore/ExperimentRun/dcid.calm_river/"

func TestFilesAreSentAndNeverRun(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobCompleted)
	w.put(artifacts+"outputs/page.html", "<script>alert(1)</script>")
	w.put(artifacts+"outputs/page.svg", "<svg/>")
	w.put(artifacts+"outputs/a b.csv", "1,2\n")
	w.put(artifacts+std, "hello world")
	b := w.admin()
	for path, want := range map[string]struct{ kind, how string }{
		"outputs/page.html": {"application/octet-stream", "attachment; filename=page.html"}, "outputs/page.svg": {"application/octet-stream", "attachment; filename=page.svg"},
		"outputs/a%20b.csv": {"text/plain; charset=utf-8", `inline; filename="a b.csv"`}, std: {"text/plain; charset=utf-8", "inline; filename=std_log.txt"},
		std + "?download=1": {"text/plain; charset=utf-8", "attachment; filename=std_log.txt"},
	} {
		a := b.get("/jobs/calm_river/files/" + path)
		h := a.Header
		if a.StatusCode != http.StatusOK || h.Get("Content-Type") != want.kind || h.Get("Content-Disposition") != want.how ||
			!strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox;") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s %v", path, a.Status, h)
		}
	}
	if a := b.get("/jobs/calm_river/files/"+std, "Range: bytes=6-"); a.StatusCode != http.StatusPartialContent || a.body != "world" {
		t.Errorf("a range: %s %q", a.Status, a.body)
	}
	if a := b.do(http.MethodHead, "/jobs/calm_river/files/"+std, nil); a.StatusCode != http.StatusOK || a.ContentLength != 11 {
		t.Errorf("HEAD: %s, %d bytes", a.Status, a.ContentLength)
	}
}

func TestFilesOfOthersAreOutOfReach(t *testing.T) {
	w := newWorld(t)
	j := w.add("calm_river", trainyard.JobCompleted)
	j.Plan.Outputs = map[string]trainyard.TaskOutput{
		"fine": {URI: "azureml://datastores/workspaceblobstore/paths/x/fine/"}, "whole": {URI: "azureml://datastores/workspaceblobstore/paths/"},
		"foreign": {URI: "azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/workspaceblobstore/paths/x/"}, "web": {URI: "https://example.com/x"},
	}
	foreign, err := trainyard.ParseDataPath(scope, j.Plan.Outputs["foreign"].URI)
	if err != nil {
		t.Fatal(err)
	}
	w.put(foreign.Key()+"secret", "secret")
	w.put("workspaceblobstore/secret", "secret")
	w.put("workspaceblobstore/x/fine/m", "mine")
	w.put("workspaceartifactstore/ExperimentRun/dcid.other/secret", "secret")
	b := w.admin()
	if a := b.get("/jobs/calm_river/outputs/fine/m"); a.body != "mine" {
		t.Errorf("an output of its own: %s", a.Status)
	}
	for _, path := range []string{"files/..%2Fdcid.other%2Fsecret", "files/%2e%2e/dcid.other/secret", "files/.", "files/", "files/a%2F%2Fb", "files/nothing", "outputs/foreign/secret",
		"outputs/whole/secret", "outputs/web/secret", "outputs/fine/..%2F..%2Fsecret", "outputs/none/x"} {
		a := b.get("/jobs/calm_river/" + path)
		if a.StatusCode == http.StatusOK || strings.Contains(a.body, "secret\n") || a.body == "secret" {
			t.Errorf("%s: %s %q", path, a.Status, a.body)
		}
	}
	page := b.page("/jobs/calm_river")
	refuse(t, page, "Output foreign", "Output whole")
	expect(t, page, "Output fine")
}

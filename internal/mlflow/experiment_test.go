package mlflow_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/trainyard/trainyard"
)

// IDs stand in clients' scripts and in records on disk: they never change.
func TestExperimentIDsStay(t *testing.T) {
	for name, want := range map[string]string{"": "0", "Default": "0", "exp": "273663729812781241", "default": "868809870154841841"} {
		if got := trainyard.ExperimentID(scope, name); got != want {
			t.Errorf("%q has the ID %s, want %s", name, got, want)
		}
	}
	folded := trainyard.Scope{Subscription: "S", ResourceGroup: "RG", Workspace: "Ws"}
	if trainyard.ExperimentID(folded, "exp") != trainyard.ExperimentID(scope, "exp") {
		t.Error("the ID depends on how the workspace is written")
	}
	seen := map[string]bool{}
	for i := range 1000 {
		for _, s := range []trainyard.Scope{scope, trainyard.DefaultScope()} {
			id := trainyard.ExperimentID(s, fmt.Sprint("e", i))
			if seen[id] || !regexp.MustCompile(`^[1-9]\d{17}$`).MatchString(id) {
				t.Fatalf("e%d: %s", i, id)
			}
			seen[id] = true
		}
	}
}

// What clients log is in no container that a datastore can name, and in the workspace's own.
func TestRecordsAreApart(t *testing.T) {
	if got := trainyard.RunLog(trainyard.DefaultScope(), "j"); got != "_mlflow/runs/j" {
		t.Error(got)
	}
	if got := trainyard.RunLog(scope, "j"); got != "s.rg.ws._mlflow/runs/j" {
		t.Error(got)
	}
}

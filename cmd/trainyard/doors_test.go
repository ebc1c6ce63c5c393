package main

import (
	"testing"

	"github.com/trainyard/trainyard"
)

func TestAKeyBelongsToOneWorkspace(t *testing.T) {
	one, two := trainyard.Scope{Subscription: "s", ResourceGroup: "a", Workspace: "c.x"}, trainyard.Scope{Subscription: "s", ResourceGroup: "a.c", Workspace: "x"}
	container := func(s trainyard.Scope) string { return trainyard.DataPath{Scope: s, Datastore: "store"}.Container() }
	if container(one) == container(two) {
		t.Fatalf("two workspaces share the container %s", container(one))
	}
	for key, want := range map[string]trainyard.Scope{
		"workspaceblobstore/a":                       trainyard.DefaultScope(),
		container(one) + "/a":                        one,
		container(two):                               two,
		"codes/" + one.Dotted() + "/x@1/train.py":    one,
		"codes/" + trainyard.DefaultScope().Dotted(): trainyard.DefaultScope(),
		"codes":                 {},
		"codes/":                {},
		"environments/nonsense": {},
	} {
		if got := keyScope(key); got != want {
			t.Errorf("%s is of %v, want %v", key, got, want)
		}
	}
}

func TestDoorsListOnlyWhatIsOfOneWorkspace(t *testing.T) {
	other := trainyard.Scope{Subscription: "s", ResourceGroup: "g", Workspace: "team"}
	store := trainyard.DataPath{Scope: other, Datastore: "store"}.Container()
	for prefix, want := range map[string]bool{
		"":                                  false,
		"/":                                 false,
		"0":                                 false,
		"c":                                 false,
		"codes":                             false,
		"codes/":                            false,
		"codes//":                           false,
		"codes/" + other.Dotted():           false, // and of "team2"
		"codes/" + other.Dotted() + "/":     true,
		"codes/" + other.Dotted() + "/x@1/": true,
		"workspaceblobstore":                false,
		"workspaceblobstore/":               true,
		"workspaceblobstore/Local":          true,
		store[:len(store)-2]:                false,
		store + "/azureml/j/":               true,
	} {
		if got := ofOneWorkspace(prefix); got != want {
			t.Errorf("%q: %v", prefix, got)
		}
	}
}

func TestDoorsLetAJobWriteOnlyWhatIsItsOwn(t *testing.T) {
	const arts = "workspaceartifactstore/ExperimentRun/dcid.j"
	own := []string{arts, "workspaceblobstore/azureml/j/model/", "workspaceblobstore/score.txt", "workspaceartifactstore/ExperimentRun/"}
	for key, want := range map[string]bool{
		arts:                                     false,
		arts + "/outputs/a/b":                    true,
		arts + "/logs/tb/events":                 true,
		arts + "/outputs":                        false,
		arts + "/outputs/":                       false,
		arts + "/user_logs/std_log.txt":          false,
		arts + "/system_logs/outputs.txt":        false,
		arts + "/system_logs/checkpoint.json":    true,
		arts + "/system_logs/checkpoint.json/x":  false,
		arts + "/other":                          false,
		"workspaceblobstore/azureml/j/model/w":   true,
		"workspaceblobstore/azureml/j/modelling": false,
		"workspaceblobstore/score.txt":           true,
		"workspaceblobstore/score.txt.old":       false,
	} {
		if got := mayWrite(arts, own, key); got != want {
			t.Errorf("%s: %v", key, got)
		}
	}
	if mayWrite(arts, nil, arts+"/outputs/a") {
		t.Error("a job that is over writes")
	}
}

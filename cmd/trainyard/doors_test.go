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

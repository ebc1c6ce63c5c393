package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArgumentsAsAzTakesThem(t *testing.T) {
	for in, want := range map[string]string{
		"ml job list": "job list",
		"job create -f j.yml --set a=1 b.c=2 --stream":         "job create -f j.yml --set a=1 --set b.c=2 --stream",
		"job create --set a=1 --set b=2":                       "job create --set a=1 --set b=2",
		"job update --set a=b name_without_equals":             "job update --set a=b name_without_equals",
		"job show -n x --out tsv":                              "job show -n x --output tsv",
		"job create --f j.yml":                                 "job create --file j.yml",
		"job list --workspace w --resource_group g":            "job list --workspace-name w --resource-group g",
		"compute create --max_instances=3 --tags a=1 b=2":      "compute create --max-instances=3 --tags a=1 --tags b=2",
		"job show --na x":                                      "job show --name x",
		"compute create --m 3":                                 "compute create --m 3", // min or max?
		"job update -n x --remove tags.a tags.b":               "job update -n x --remove tags.a --remove tags.b",
		"data create --set version=2 --name x --path ./a -v 3": "data create --set version=2 --name x --path ./a -v 3",
	} {
		a, _, _ := people(0)
		got := azArgs(newRoot(a), strings.Fields(in))
		if diff := cmp.Diff(strings.Fields(want), got); diff != "" {
			t.Errorf("%s: %s", in, diff)
		}
	}
}

func TestPatchOfSets(t *testing.T) {
	got, err := computeFields.patch([]string{"max_instances=8", "description=12", `tags."a.b"=3`}, []string{"tags.old"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"properties": map[string]any{"description": "12", "properties": map[string]any{"scaleSettings": map[string]any{"maxNodeCount": 8.0}}},
		"tags": map[string]any{"a.b": "3", "old": nil}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"size=x", "max_instances", "tags=1"} {
		if _, err := computeFields.patch([]string{bad}, nil); err == nil {
			t.Errorf("--set %s is taken", bad)
		}
	}
}

func TestMergePatch(t *testing.T) {
	m := map[string]any{"a": map[string]any{"b": 1.0, "c": 2.0}, "d": "x"}
	merge(m, map[string]any{"a": map[string]any{"b": nil, "e": map[string]any{"f": 1.0}}, "d": map[string]any{"g": true}})
	want := map[string]any{"a": map[string]any{"c": 2.0, "e": map[string]any{"f": 1.0}}, "d": map[string]any{"g": true}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
}

func TestJobNamesAreGoodAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		n := newJobName()
		if strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || strings.Count(n, "_") != 2 || seen[n] {
			t.Fatalf("%q is no good name, or was given before", n)
		}
		seen[n] = true
	}
}

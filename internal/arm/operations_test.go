package arm_test

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// step is one request of the tour. Its path is that of operations.txt with names for the stars.
type step struct{ method, path, body string }

// tour calls every operation of Azure's that this build has, in an order that works.
var tour = []step{
	{"PUT", "g:workspaces/w", `{"location":"local","properties":{}}`}, {"GET", "g:workspaces/w", ""}, {"PATCH", "g:workspaces/w", `{"tags":{}}`},
	{"GET", "g:workspaces", ""}, {"GET", "s:workspaces", ""}, {"POST", "g:workspaces/w/listKeys", ""},
	{"PUT", "g:workspaces/w/computes/c", clusterBody}, {"PUT", "g:workspaces/w/computes/c", clusterBody}, {"GET", "g:workspaces/w/computes/c", ""},
	{"GET", "g:workspaces/w/computes", ""}, {"PATCH", "g:workspaces/w/computes/c", `{"properties":{"properties":{"scaleSettings":{"maxNodeCount":3}}}}`},
	{"POST", "g:workspaces/w/computes/c/stop", ""}, {"POST", "g:workspaces/w/computes/c/start", ""}, {"POST", "g:workspaces/w/computes/c/restart", ""},
	{"POST", "g:workspaces/w/computes/c/listNodes", ""}, {"POST", "g:workspaces/w/computes/c/listKeys", ""},
	{"PUT", "g:workspaces/w/jobs/j", jobBody}, {"PUT", "g:workspaces/w/jobs/j", jobBody}, {"GET", "g:workspaces/w/jobs/j", ""}, {"GET", "g:workspaces/w/jobs", ""},
	{"PATCH", "g:workspaces/w/jobs/j", `{"properties":{}}`}, {"POST", "g:workspaces/w/jobs/j/cancel", ""}, {"DELETE", "g:workspaces/w/jobs/j", ""}, {"DELETE", "g:workspaces/w/jobs/j", ""},
	{"GET", "s:locations/l/vmSizes", ""}, {"GET", "s:locations/l/usages", ""}, {"GET", "s:locations/l/quotas", ""}, {"POST", "s:locations/l/updateQuotas", `{"value":[]}`},
	{"PUT", "g:workspaces/w/dataStores/d", `{"properties":{"datastoreType":"AzureBlob"}}`}, {"GET", "g:workspaces/w/dataStores/d", ""}, {"GET", "g:workspaces/w/dataStores", ""},
	{"POST", "g:workspaces/w/dataStores/d/listSecrets", `{}`}, {"DELETE", "g:workspaces/w/dataStores/d", ""}, {"DELETE", "g:workspaces/w/dataStores/d", ""},
	{"DELETE", "g:workspaces/w/computes/c?underlyingResourceAction=Delete", ""}, {"DELETE", "g:workspaces/w/computes/c", ""},
	{"PUT", "g:workspaces/w/onlineEndpoints/ep1", `{"location":"local","properties":{"authMode":"key"}}`}, {"PUT", "g:workspaces/w/onlineEndpoints/ep1", `{"properties":{}}`},
	{"GET", "g:workspaces/w/onlineEndpoints/ep1", ""}, {"GET", "g:workspaces/w/onlineEndpoints", ""}, {"PATCH", "g:workspaces/w/onlineEndpoints/ep1", `{"tags":{"a":"b"}}`},
	{"POST", "g:workspaces/w/onlineEndpoints/ep1/listKeys", ""}, {"POST", "g:workspaces/w/onlineEndpoints/ep1/regenerateKeys", `{"keyType":"primary"}`},
	{"POST", "g:workspaces/w/onlineEndpoints/ep1/token", ""}, {"PUT", "g:workspaces/w/onlineEndpoints/ep1/deployments/blue", deploymentBody},
	{"PUT", "g:workspaces/w/onlineEndpoints/ep1/deployments/blue", deploymentBody}, {"GET", "g:workspaces/w/onlineEndpoints/ep1/deployments/blue", ""},
	{"GET", "g:workspaces/w/onlineEndpoints/ep1/deployments", ""}, {"PATCH", "g:workspaces/w/onlineEndpoints/ep1/deployments/blue", `{"sku":{"capacity":2}}`},
	{"POST", "g:workspaces/w/onlineEndpoints/ep1/deployments/blue/getLogs", `{"tail":10}`}, {"GET", "g:workspaces/w/onlineEndpoints/ep1/deployments/blue/skus", ""},
	{"DELETE", "g:workspaces/w/onlineEndpoints/ep1/deployments/blue", ""}, {"DELETE", "g:workspaces/w/onlineEndpoints/ep1/deployments/blue", ""},
	{"DELETE", "g:workspaces/w/onlineEndpoints/ep1", ""}, {"DELETE", "g:workspaces/w/onlineEndpoints/ep1", ""},
	{"POST", "g:workspaces/w/codes/a/versions/1/startPendingUpload", `{"pendingUploadType":"TemporaryBlobReference"}`},
}

func TestEveryOperationOfAzuresAnswersAsItsClientsWantOrSaysThatItIsNotBuilt(t *testing.T) {
	accepted := map[string][]string{} // by method and path with stars
	text, err := os.ReadFile("operations.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 4 {
			accepted[f[0]+" "+strings.ToLower(f[1])] = strings.Split(f[3], ",")
		}
	}
	if len(accepted) < 200 {
		t.Fatalf("only %d operations read", len(accepted))
	}
	steps := tour
	for _, kind := range []string{"environments", "codes", "data", "models", "components"} {
		at := "g:workspaces/w/" + kind + "/a"
		body := `{"properties":{"image":"python","dataUri":"x","dataType":"uri_file","codeUri":"https://x/y","componentSpec":{"a":null}}}`
		steps = append(steps, step{"PUT", at, `{"properties":{}}`}, step{"PUT", at, `{"properties":{}}`}, step{"PUT", at + "/versions/1", body}, step{"PUT", at + "/versions/1", body},
			step{"GET", at, ""}, step{"GET", "g:workspaces/w/" + kind, ""}, step{"GET", at + "/versions/1", ""}, step{"GET", at + "/versions", ""},
			step{"DELETE", at + "/versions/1", ""}, step{"DELETE", at + "/versions/1", ""}, step{"DELETE", at, ""}, step{"DELETE", at, ""})
	}
	steps = append(steps, step{"DELETE", "g:workspaces/w", ""}, step{"DELETE", "g:workspaces/w", ""})
	d := open(t)
	done := map[string]bool{}
	for _, s := range steps {
		key := s.method + " " + starred(s.path)
		r := d.do(s.method, full(s.path), s.body)
		if !slices.Contains(accepted[key], strconv.Itoa(r.status)) {
			t.Errorf("%s (%s): %d, clients take %v: %s", key, s.path, r.status, accepted[key], r.text)
		}
		done[key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(accepted)) {
		if done[key] {
			continue
		}
		method, path, _ := strings.Cut(key, " ")
		r := d.do(method, full(strings.ReplaceAll(path, "*", "x")), "{}")
		if r.status != 501 || r.at("error", "code") != string(trainyard.CodeUnsupported) {
			t.Errorf("%s is neither on the tour nor refused: %d %s", key, r.status, r.text)
		}
	}
	t.Logf("%d operations, %d of them built", len(accepted), len(done))
}

// starred is the path with stars for names, in lower case.
func starred(path string) string {
	path, _, _ = strings.Cut(strings.ToLower(path), "?")
	level, rest, _ := strings.Cut(path, ":")
	seg := strings.Split(rest, "/")
	for i := range seg {
		if i%2 == 1 {
			seg[i] = "*"
		}
	}
	return level + ":" + strings.Join(seg, "/")
}

func full(path string) string {
	level, rest, _ := strings.Cut(path, ":")
	at := sub
	if level == "g" {
		at += "/resourceGroups/default"
	}
	return at + "/providers/Microsoft.MachineLearningServices/" + rest
}

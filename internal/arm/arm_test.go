package arm_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/arm"
	"github.com/trainyard/trainyard/internal/arm/armtest"
	"github.com/trainyard/trainyard/internal/identity"
)

var (
	_ arm.Assets   = (*armtest.Control)(nil)
	_ arm.Jobs     = (*armtest.Control)(nil)
	_ arm.Computes = (*armtest.Control)(nil)
	_ arm.Places   = (*armtest.Control)(nil)

	_ arm.Endpoints   = (*armtest.Control)(nil)
	_ arm.Deployments = (*armtest.Control)(nil)
)

var update = flag.Bool("update", false, "write the golden files")

const (
	base = "https://trainyard.test"
	sub  = "/subscriptions/00000000-0000-0000-0000-000000000000"
	ws   = sub + "/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default"
	locs = sub + "/providers/Microsoft.MachineLearningServices/locations/local"
)

// door is the handler under test with the control behind it, a clock, and who asks.
type door struct {
	t    testing.TB
	ctl  *armtest.Control
	h    http.Handler
	now  time.Time
	user trainyard.User
}

func open(t testing.TB) *door {
	d := &door{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), user: trainyard.User{Name: "ann", Role: trainyard.RoleAdmin}}
	d.ctl = armtest.New(func() time.Time { return d.now })
	d.h = arm.New(arm.Config{Assets: d.ctl, Jobs: d.ctl, Computes: d.ctl, Places: d.ctl, Endpoints: d.ctl, Deployments: d.ctl, Allow: identity.Allow,
		Auth: func(*http.Request) (trainyard.User, error) {
			if d.user.Name == "" {
				return d.user, trainyard.Errorf(trainyard.CodeUnknown, "no token")
			}
			return d.user, nil
		},
		External: func(*http.Request) string { return base }, Now: func() time.Time { return d.now }, Version: "test", Log: slog.New(slog.DiscardHandler)})
	return d
}

// result is an answer.
type result struct {
	t      testing.TB
	req    string
	status int
	header http.Header
	text   string
}

func (d *door) do(method, path, body string) result {
	d.t.Helper()
	target := strings.TrimPrefix(path, base)
	if !strings.Contains(target, "api-version") {
		sep := "?"
		if strings.Contains(target, "?") {
			sep = "&"
		}
		target += sep + "api-version=2025-09-01"
	}
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
	return result{d.t, method + " " + path, w.Code, w.Header(), w.Body.String()}
}

// want fails the test unless the status is one of those given.
func (r result) want(statuses ...int) result {
	r.t.Helper()
	for _, s := range statuses {
		if r.status == s {
			return r
		}
	}
	r.t.Fatalf("%s: %d, want %v: %s", r.req, r.status, statuses, r.text)
	return r
}

// at looks a value up in the answer: at("properties", "status"), at("value", 0, "name").
func (r result) at(path ...any) any {
	r.t.Helper()
	var v any
	if err := json.Unmarshal([]byte(r.text), &v); err != nil {
		r.t.Fatalf("%s: %v in %q", r.req, err, r.text)
	}
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				r.t.Fatalf("%s: no %v of %v in %s", r.req, p, path, r.text)
			}
			v = m[p]
		case int:
			l, ok := v.([]any)
			if !ok || p >= len(l) {
				r.t.Fatalf("%s: no %v of %v in %s", r.req, p, path, r.text)
			}
			v = l[p]
		}
	}
	return v
}

// is fails the test unless the value at the path is want.
func (r result) is(want any, path ...any) result {
	r.t.Helper()
	if diff := cmp.Diff(want, r.at(path...)); diff != "" {
		r.t.Errorf("%s: %v (-want +got):\n%s", r.req, path, diff)
	}
	return r
}

var random = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// golden compares the answer with testdata/{name}.json.
func (r result) golden(name string) {
	r.t.Helper()
	var v any
	if err := json.Unmarshal([]byte(r.text), &v); err != nil {
		r.t.Fatal(err)
	}
	pretty, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		r.t.Fatal(err)
	}
	got := fmt.Sprintf("%s\n%d\n%s\n", strings.Replace(r.req, ws, "…", 1), r.status, random.ReplaceAllString(string(pretty), "REQUEST"))
	file := filepath.Join("testdata", name+".json.golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

const clusterBody = `{"location":"westeurope","tags":{"team":"ml"},"properties":{"computeType":"amlcompute","disableLocalAuth":true,"properties":{
	"osType":"linux","vmSize":"STANDARD_DS3_V2","vmPriority":"low_priority","scaleSettings":{"maxNodeCount":2,"minNodeCount":0,"nodeIdleTimeBeforeScaleDown":"PT2M"},
	"remoteLoginPortPublicAccess":"NotSpecified","enableNodePublicIp":true,"subnet":null,"isolatedNetwork":false,
	"userAccountCredentials":{"adminUserName":"ann","adminUserPassword":"hunter2"}}}}`

const jobBody = `{"properties":{"jobType":"command","computeId":"` + ws + `/computes/cpu-cluster","codeId":"` + ws + `/codes/c/versions/1",
	"environmentId":"` + ws + `/environments/e/versions/1","command":"python train.py --lr ${{inputs.lr}} && echo <done>","experimentName":"exp","displayName":"first",
	"inputs":{"lr":{"jobInputType":"Literal","value":"0.1"},"d":{"jobInputType":"UriFile","uri":"azureml:d:1","mode":"ro_mount","pathOnCompute":null},"none":null},
	"outputs":{"model":{"jobOutputType":"uri_folder"},"kept":{"jobOutputType":"mltable","uri":"azureml://datastores/workspaceblobstore/paths/x/","mode":"upload"},"bare":null},
	"distribution":{"distributionType":"pytorch","processCountPerInstance":2},"resources":{"instanceCount":2,"shmSize":"2g","properties":{}},
	"limits":{"jobLimitsType":"command","timeout":"PT1H"},"environmentVariables":{"A":"b"},"tags":{"team":"ml"},"properties":{"git":"x"},
	"queueSettings":{"jobTier":"spot","priority":3},"services":{"ssh":{"jobServiceType":"SSH"},"gone":null},"identity":null,"componentId":null,
	"notificationSetting":{"emails":["a@b"]},"isArchived":false,"status":"Completed"}}`

func TestAJobAsItIsQueuedRunsAndEnds(t *testing.T) {
	d := open(t)
	d.do("PUT", ws+"/jobs/train-1", jobBody).want(201).golden("job-queued")
	scope := trainyard.DefaultScope()
	move := func(to trainyard.JobState, edit func(*trainyard.Job)) {
		t.Helper()
		d.now = d.now.Add(time.Second)
		if err := d.ctl.EditJob(scope, "train-1", func(j *trainyard.Job) error {
			edit(j)
			return j.MoveTo(to, trainyard.Reason{Code: string(to), Message: "because"}, d.now)
		}); err != nil {
			t.Fatal(err)
		}
	}
	code := 1
	move(trainyard.JobPreparing, func(j *trainyard.Job) {
		j.Status.Attempts = []trainyard.Attempt{{Number: 1, Placed: d.now, Tasks: []trainyard.RunTask{{ID: "a.1.0", Node: "n1", Hi: 2, State: trainyard.TaskStaging}}}}
		j.Status.Timeline = []trainyard.Span{{Name: trainyard.SpanQueue, Start: j.Created, End: d.now}}
	})
	d.do("GET", ws+"/jobs/train-1", "").want(200).is("Preparing", "properties", "status").is(nil, "properties", "queuePosition")
	move(trainyard.JobRunning, func(j *trainyard.Job) { j.Status.Started = d.now })
	move(trainyard.JobFailed, func(j *trainyard.Job) {
		j.Status.ExitCode = &code
		j.Status.Failure = &trainyard.Failure{Class: trainyard.ClassUser, Message: "the process ended with exit code 1"}
		j.Status.Warnings = []string{"the image was not used"}
	})
	d.do("GET", ws+"/jobs/train-1", "").want(200).golden("job-failed")
}

func TestAPutOfAJobThatExistsAnswers200AndPatchMerges(t *testing.T) {
	d := open(t)
	first := d.do("PUT", ws+"/jobs/j", jobBody).want(201)
	again := d.do("PUT", ws+"/jobs/j", first.text).want(200) // what was read may be sent back
	again.is("Queued", "properties", "status").is("ml", "properties", "tags", "team")
	r := d.do("PATCH", ws+"/jobs/j", `{"properties":{"displayName":"second","tags":{"team":null,"stage":"test"},"isArchived":true}}`).want(200)
	r.is("second", "properties", "displayName").is(map[string]any{"stage": "test"}, "properties", "tags").is(true, "properties", "isArchived")
	d.do("GET", ws+"/jobs", "").want(200).is([]any{}, "value")
	d.do("GET", ws+"/jobs?listViewType=archivedonly", "").want(200).is("j", "value", 0, "name")
	d.do("PATCH", ws+"/jobs/none", `{"properties":{}}`).want(404)
}

func TestFieldsThatAreNotKnownComeBackAsTheyWere(t *testing.T) {
	d := open(t)
	d.do("PUT", ws+"/jobs/j", `{"properties":{"jobType":"Command","command":"true","we\"ird\\":1,"maxInstanceCount":9007199254740993,"deep":{"a":[null,{"b":null}]},"null":null}}`).want(201)
	r := d.do("GET", ws+"/jobs/j", "").want(200).is(1.0, "properties", `we"ird\`).is([]any{nil, map[string]any{"b": nil}}, "properties", "deep", "a")
	if !strings.Contains(r.text, "9007199254740993") || strings.Contains(r.text, `"null":`) {
		t.Error(r.text)
	}
	d.do("PUT", ws+"/data/d/versions/1", `{"properties":{"dataType":"uri_file","dataUri":"x","size":9007199254740993}}`).want(201)
	if r := d.do("GET", ws+"/data/d/versions/1", ""); !strings.Contains(r.text, "9007199254740993") {
		t.Error(r.text)
	}
}

func TestAClusterAndItsNodes(t *testing.T) {
	d := open(t)
	put := d.do("PUT", ws+"/computes/cpu-cluster", clusterBody).want(201)
	put.golden("compute-new")
	if strings.Contains(put.text, "hunter2") {
		t.Error("the answer shows the password")
	}
	d.do("PUT", ws+"/computes/cpu-cluster", put.text).want(200) // what was read may be sent back
	scope := trainyard.DefaultScope()
	d.ctl.SetNodes(scope, "cpu-cluster",
		trainyard.NodeStatus{Node: &trainyard.Node{ID: "n1", State: trainyard.NodeRunning, Address: "10.0.0.1", Size: "Standard_DS3_v2", Created: d.now, Joined: d.now, Seen: d.now, Engines: []string{"docker"}}, Jobs: []string{"train-1"}},
		trainyard.NodeStatus{Node: &trainyard.Node{ID: "n2", State: trainyard.NodeCreating, Created: d.now, Reason: trainyard.Reason{Code: "Starting", Message: "a machine is being made"}}})
	d.do("GET", ws+"/computes/cpu-cluster", "").want(200).
		is("Resizing", "properties", "properties", "allocationState").
		is(1.0, "properties", "properties", "currentNodeCount").
		is(1.0, "properties", "properties", "nodeStateCounts", "preparingNodeCount").
		is(1.0, "properties", "properties", "nodeStateCounts", "runningNodeCount")
	d.do("POST", ws+"/computes/cpu-cluster/listNodes", "").want(200).golden("nodes")
	patch := d.do("PATCH", ws+"/computes/cpu-cluster", `{"properties":{"properties":{"scaleSettings":{"maxNodeCount":5}}}}`).want(200)
	patch.is(5.0, "properties", "properties", "scaleSettings", "maxNodeCount").is("PT2M", "properties", "properties", "scaleSettings", "nodeIdleTimeBeforeScaleDown")
	d.do("GET", ws+"/computes", "").want(200).is("cpu-cluster", "value", 0, "name").is(nil, "nextLink")
}

func TestSecretsAreShownByListKeysAndListSecretsOnly(t *testing.T) {
	d := open(t)
	d.do("PUT", ws+"/computes/c", clusterBody).want(201)
	d.do("PATCH", ws+"/computes/c", `{"tags":{"a":"b"}}`).want(200).is("b", "tags", "a")
	for _, path := range []string{ws + "/computes/c", ws + "/computes"} {
		if r := d.do("GET", path, "").want(200); strings.Contains(r.text, "hunter2") {
			t.Errorf("%s shows the password", path)
		}
	}
	d.do("POST", ws+"/computes/c/listKeys", "").want(200).
		is("hunter2", "userAccountCredentials", "adminUserPassword").is("AmlCompute", "computeType")
	d.do("POST", ws+"/datastores/workspaceblobstore/listSecrets", `{"expirableSecret":true,"expireAfterHours":1}`).want(200).is("Sas", "secretsType")
	d.user = trainyard.User{Name: "bob", Role: trainyard.RoleReader}
	d.do("POST", ws+"/computes/c/listKeys", "").want(403)
	d.do("POST", ws+"/datastores/workspaceblobstore/listSecrets", `{}`).want(403)
}

func TestAssetsInEveryForm(t *testing.T) {
	d := open(t)
	d.do("GET", ws+"/environments/e", "").want(404).is("ResourceNotFound", "error", "code") // the SDK takes this as "begin with version 1"
	d.do("PUT", ws+"/environments/e/versions/1", `{"properties":{"isAnonymous":false,"isArchived":false,"image":"python:3.11","condaFile":"name: x\n","tags":null}}`).want(201).golden("environment-version")
	d.do("PUT", ws+"/environments/e/versions/2", `{"properties":{"image":"python:3.12"}}`).want(201)
	d.do("PUT", ws+"/environments/e/versions/2", `{"properties":{"image":"python:3.12","tags":{"a":"b"}}}`).want(200).is("b", "properties", "tags", "a")
	d.do("GET", ws+"/environments/e", "").want(200).golden("environment-container")
	d.do("GET", ws+"/environments/e/labels/latest", "").want(200).is("2", "name")
	d.do("GET", ws+"/environments", "").want(200).is("e", "value", 0, "name").is("2", "value", 0, "properties", "latestVersion").is("3", "value", 0, "properties", "nextVersion")
	d.do("GET", ws+"/environments/e/versions?$orderBy=createdtime%20desc&$top=1", "").want(200).is("1", "value", 0, "name")
	d.do("PUT", ws+"/models/m/versions/1", `{"properties":{"modelType":"customModel","modelUri":"azureml://jobs/j/outputs/o"}}`).want(201).is(map[string]any{}, "properties", "flavors").is("custom_model", "properties", "modelType")
	d.do("PUT", ws+"/data/d/versions/1", `{"properties":{"dataType":"uri_file","dataUri":"azureml://datastores/workspaceblobstore/paths/x.csv"}}`).want(201).golden("data-version")
	d.do("GET", ws+"/data/d", "").want(200).is("uri_file", "properties", "dataType")
	d.do("GET", ws+"/datastores?count=30&isDefault=true&orderByAsc=false", "").want(200).golden("datastores-default")
	d.do("GET", ws+"/dataStores?names=workspaceartifactstore,x", "").want(200).is("workspaceartifactstore", "value", 0, "name")
	d.do("DELETE", ws+"/environments/e/versions/1", "").want(200)
	d.do("DELETE", ws+"/environments/e/versions/1", "").want(204)
	d.do("GET", ws+"/environments/e/versions/1", "").want(404)
	d.do("PUT", ws+"/data/d/versions/2", `{"properties":{"dataType":"uri_file","dataUri":"x","isArchived":true}}`).want(201).is(true, "properties", "isArchived")
	d.do("GET", ws+"/data/d/versions", "").want(200).is("1", "value", 0, "name")
	d.do("GET", ws+"/data/d/versions?listViewType=ArchivedOnly", "").want(200).is("2", "value", 0, "name")
}

func TestCodeIsFoundByItsHashWhateverTheName(t *testing.T) {
	d := open(t)
	up := d.do("POST", ws+"/codes/u1/versions/1/startPendingUpload", `{"pendingUploadType":"TemporaryBlobReference"}`).want(200)
	up.golden("pending-upload")
	d.do("POST", ws+"/codes/u1/versions/1/startPendingUpload", "").want(200) // some clients send no body
	d.do("GET", ws+"/codes/u2/versions?hash=abc&hashVersion=202208", "").want(200).is([]any{}, "value")
	d.do("PUT", ws+"/codes/u1/versions/1", `{"properties":{"codeUri":"https://trainyard.test/blob/x/src","isAnonymous":true,"properties":{"hash_sha256":"abc","hash_version":202208}}}`).want(201)
	d.do("GET", ws+"/codes/u2/versions?hash=abc&hashVersion=202208", "").want(200).is(ws+"/codes/u1/versions/1", "value", 0, "id").
		is(202208.0, "value", 0, "properties", "properties", "hash_version")
}

func TestWorkspaces(t *testing.T) {
	d := open(t)
	d.do("GET", ws, "").want(200).golden("workspace")
	other := strings.TrimSuffix(ws, "default") + "Team-A"
	d.do("PUT", other, `{"location":"westeurope","tags":{"a":"b"},"properties":{"description":"ours","discoveryUrl":"https://elsewhere"}}`).want(200). // 201 is refused by clients
																				is("Succeeded", "properties", "provisioningState").is("ours", "properties", "description").is(base+"/discovery", "properties", "discoveryUrl")
	d.do("PATCH", other, `{"tags":{"c":"d"},"properties":{"description":null}}`).want(200).is(map[string]any{"a": "b", "c": "d"}, "tags").is("", "properties", "description")
	d.do("GET", sub+"/providers/Microsoft.MachineLearningServices/workspaces", "").want(200).is("Team-A", "value", 1, "name")
	d.do("POST", other+"/listKeys", "").want(200)
	d.user = trainyard.User{Name: "job", Role: trainyard.RoleJob, Scope: trainyard.DefaultScope()}
	if l := d.do("GET", strings.TrimSuffix(ws, "/default"), "").want(200).at("value").([]any); len(l) != 1 {
		t.Errorf("a token of one workspace sees %d", len(l))
	}
	d.do("GET", other, "").want(403)
	d.user = trainyard.User{Name: "ann", Role: trainyard.RoleAdmin}
	d.do("DELETE", other, "").want(200)
	d.do("DELETE", other, "").want(204)
	d.do("GET", other, "").want(404)
}

func TestPlaces(t *testing.T) {
	d := open(t)
	d.do("GET", locs+"/vmSizes", "").want(200).golden("vm-sizes")
	d.do("GET", locs+"/usages", "").want(200).golden("usages")
	id := locs + "/quotas/standardDSv2Family"
	d.do("POST", locs+"/updateQuotas", `{"location":"local","value":[{"id":"`+id+`","type":"t","limit":16,"unit":"Count"}]}`).want(200).is("Success", "value", 0, "status").is(16.0, "value", 0, "limit")
	d.do("GET", locs+"/quotas", "").want(200).is(16.0, "value", 0, "limit").is(id, "value", 0, "id")
	d.do("POST", locs+"/updateQuotas", `{"value":[{"id":"`+id+`"}]}`).want(400)
	d.user = trainyard.User{Name: "job", Role: trainyard.RoleJob, Scope: trainyard.DefaultScope()}
	d.do("GET", locs+"/vmSizes", "").want(200)
	d.do("POST", locs+"/updateQuotas", `{}`).want(403)
}

func TestLongRunningOperationsAreReadOffTheThingItself(t *testing.T) {
	d := open(t)
	put := d.do("PUT", ws+"/computes/c", clusterBody).want(201)
	op := put.header.Get("Azure-AsyncOperation")
	if !strings.HasPrefix(op, base+locs+"/mfeOperationsStatus/") || put.header.Get("Retry-After") != "1" || put.header.Get("Location") != "" {
		t.Fatalf("%v", put.header)
	}
	d.do("GET", op, "").want(200).is("Succeeded", "status").is(100.0, "percentComplete")

	d.now = d.now.Add(time.Minute)
	d.ctl.SetNodes(trainyard.DefaultScope(), "c", trainyard.NodeStatus{Node: &trainyard.Node{ID: "n", State: trainyard.NodeIdle}})
	stop := d.do("POST", ws+"/computes/c/stop", "").want(202)
	op, result := stop.header.Get("Azure-AsyncOperation"), stop.header.Get("Location")
	if stop.text != "" || result == "" {
		t.Errorf("%q %v", stop.text, stop.header)
	}
	if r := d.do("GET", op, "").want(200).is("InProgress", "status"); r.header.Get("Retry-After") != "1" {
		t.Error("no Retry-After")
	}
	if r := d.do("GET", result, "").want(202); r.header.Get("Location") != result {
		t.Errorf("Location %q, want %q", r.header.Get("Location"), result)
	}
	d.ctl.SetNodes(trainyard.DefaultScope(), "c")
	d.do("GET", op, "").want(200).is("Succeeded", "status")
	d.do("GET", result, "").want(200).is("c", "name").is(true, "properties", "stopped")
	start := d.do("POST", ws+"/computes/c/START", "").want(202).header.Get("Azure-AsyncOperation")
	d.do("GET", op, "").want(200).is("Canceled", "status")
	d.do("GET", start, "").want(200).is("Succeeded", "status")
	d.do("POST", ws+"/computes/none/restart", "").want(404)

	d.ctl.Slow = true
	del := d.do("DELETE", ws+"/computes/c?underlyingResourceAction=Delete", "").want(202)
	d.do("GET", ws+"/computes/c", "").want(200).is("Deleting", "properties", "provisioningState").is("Deleting", "properties", "reason", "code")
	d.do("GET", del.header.Get("Azure-AsyncOperation"), "").want(200).is("InProgress", "status")
	d.ctl.Slow = false
	d.do("DELETE", ws+"/computes/c", "").want(200)
	d.do("GET", del.header.Get("Azure-AsyncOperation"), "").want(200).is("Succeeded", "status")
	d.do("GET", del.header.Get("Location"), "").want(204)
	d.now = d.now.Add(time.Minute)
	d.do("PUT", ws+"/computes/c", clusterBody).want(201)
	d.do("GET", del.header.Get("Azure-AsyncOperation"), "").want(200).is("Succeeded", "status") // it is another one now
	d.do("GET", locs+"/mfeOperationsStatus/rubbish", "").want(404)
}

func TestCancelAndDeleteOfJobs(t *testing.T) {
	d := open(t)
	d.do("PUT", ws+"/jobs/j", jobBody).want(201)
	d.now = d.now.Add(time.Second)
	if err := d.ctl.EditJob(trainyard.DefaultScope(), "j", func(j *trainyard.Job) error { return j.MoveTo(trainyard.JobPreparing, trainyard.Reason{}, d.now) }); err != nil {
		t.Fatal(err)
	}
	d.do("DELETE", ws+"/jobs/j", "").want(409).is("Conflict", "error", "code")
	cancel := d.do("POST", ws+"/jobs/j/cancel", "").want(202)
	d.do("GET", cancel.header.Get("Location"), "").want(202)
	d.do("GET", cancel.header.Get("Azure-AsyncOperation"), "").want(200).is("InProgress", "status")
	if err := d.ctl.EditJob(trainyard.DefaultScope(), "j", func(j *trainyard.Job) error { return j.MoveTo(trainyard.JobCanceled, trainyard.Reason{}, d.now) }); err != nil {
		t.Fatal(err)
	}
	d.do("GET", cancel.header.Get("Azure-AsyncOperation"), "").want(200).is("Succeeded", "status")
	d.do("GET", cancel.header.Get("Location"), "").want(200).is("Canceled", "properties", "status")
	d.do("GET", ws+"/jobs/j/events", "").want(200).is("queued", "value", 0, "what")
	d.do("GET", ws+"/jobs/j/events?after=1", "").want(200).is([]any{}, "value")
	d.do("GET", ws+"/jobs/j/events?after=x", "").want(400)
	d.do("DELETE", ws+"/jobs/j", "").want(200)
	d.do("DELETE", ws+"/jobs/j", "").want(204)
	d.do("POST", ws+"/jobs/j/cancel", "").want(404)
}

func TestListsArePagedByAbsoluteLinks(t *testing.T) {
	d := open(t)
	for i := range 5 {
		d.do("PUT", fmt.Sprintf("%s/jobs/j%d", ws, i), fmt.Sprintf(`{"properties":{"jobType":"Command","command":"true","tags":{"n":"%d"}}}`, i%2)).want(201)
	}
	var got []string
	link := ws + "/jobs?$top=2&listViewType=All&api-version=2024-01-01-preview"
	for pages := 0; link != ""; pages++ {
		r := d.do("GET", link, "").want(200)
		for _, v := range r.at("value").([]any) {
			got = append(got, v.(map[string]any)["name"].(string))
		}
		link, _ = r.at("nextLink").(string)
		if link != "" && (!strings.HasPrefix(link, base+ws+"/jobs?") || !strings.Contains(link, "api-version=2024-01-01-preview")) {
			t.Fatalf("nextLink %s", link)
		}
		if pages > 5 {
			t.Fatal("never ends")
		}
	}
	if diff := cmp.Diff([]string{"j4", "j3", "j2", "j1", "j0"}, got); diff != "" {
		t.Error(diff)
	}
	if l := d.do("GET", ws+"/jobs?tag=n=1", "").want(200).at("value").([]any); len(l) != 2 {
		t.Errorf("%d jobs with the tag", len(l))
	}
	if l := d.do("GET", ws+"/jobs?status=queued,running", "").want(200).at("value").([]any); len(l) != 5 {
		t.Errorf("%d jobs queued", len(l))
	}
	if l := d.do("GET", ws+"/jobs?jobType=Sweep", "").want(200).at("value").([]any); len(l) != 0 {
		t.Errorf("%d sweep jobs", len(l))
	}
	d.do("GET", ws+"/jobs?$top=x", "").want(400)
	d.do("GET", ws+"/jobs?listViewType=Some", "").want(400)
}

func TestNamesOfSegmentsMatchInAnyCaseAndIdsComeBackCanonical(t *testing.T) {
	d := open(t)
	d.do("PUT", ws+"/environments/e/versions/1", `{"properties":{"image":"python"}}`).want(201)
	for _, path := range []string{
		"/SUBSCRIPTIONS/00000000-0000-0000-0000-000000000000/resourcegroups/DEFAULT/Providers/microsoft.machinelearningservices/Workspaces/DEFAULT/Environments/e/Versions/1",
		"/" + ws + "/environments/e/versions/1/",
		"/mferp/managementfrontend" + ws + "/environments/e/versions/1",
		ws + "/environments/%65/versions/1",
	} {
		d.do("GET", path, "").want(200).is(ws+"/environments/e/versions/1", "id")
	}
	d.do("GET", ws+"/environments/a%2Fb/versions/1", "").want(404) // one segment, not two
}

func TestErrorsHaveAzuresShape(t *testing.T) {
	d := open(t)
	d.do("GET", ws+"/jobs/none", "").want(404).golden("error-not-found")
	d.do("GET", "/nowhere", "").want(404).is("there is nothing at GET /nowhere: the path is not one of this API", "error", "message")
	d.do("GET", ws+"/unheardOf", "").want(404)
	d.do("GET", ws+"//jobs", "").want(404)
	d.do("GET", ws+"/batchEndpoints/b", "").want(501).is("NotSupported", "error", "code")
	d.do("PUT", ws+"/jobs/j", strings.Repeat(" ", 5<<20)).want(413)
	if r := d.do("POST", ws+"/computes", "{}").want(405); r.header.Get("Allow") != "GET" {
		t.Errorf("Allow: %q", r.header.Get("Allow"))
	}
	d.do("PUT", sub+"/resourcegroups/rg/providers/Microsoft.Resources/deployments/w-1", "{}").want(501)
	d.ctl.Err = errors.New("disk on fire")
	r := d.do("GET", ws+"/computes", "").want(500)
	id := r.header.Get("x-ms-request-id")
	if strings.Contains(r.text, "fire") || !strings.Contains(r.text, id) || len(id) != 36 {
		t.Errorf("%s %s", id, r.text)
	}
	d.ctl.Err = &trainyard.Error{Code: trainyard.CodeBusy, Message: "too many", Target: "jobs", Details: []trainyard.Error{{Code: "X", Message: "y"}}}
	r = d.do("GET", ws+"/computes", "").want(429).is("jobs", "error", "target").is("y", "error", "details", 0, "message")
	if r.header.Get("Retry-After") != "1" {
		t.Error("no Retry-After")
	}
	d.ctl.Err = fmt.Errorf("look: %w", trainyard.Conflict("it runs"))
	d.do("GET", ws+"/computes", "").want(409).is("it runs", "error", "message")
	d.user = trainyard.User{}
	if r := d.do("GET", ws, "").want(401); !strings.HasPrefix(r.header.Get("WWW-Authenticate"), "Bearer ") {
		t.Errorf("%v", r.header)
	}
	d.do("GET", "/nowhere", "").want(401) // strangers do not learn what there is
}

func TestABadBodyIsAnsweredWithWhereAndWhat(t *testing.T) {
	d := open(t)
	for _, c := range []struct{ path, body, want string }{
		{"/jobs/j", "", "needs a body"},
		{"/jobs/j", "{\n  \"properties\": {\n    \"command\": ,\n  }\n}", "line 3, column 16"},
		{"/jobs/j", `{"properties":{"command":"x"}`, "not JSON"},
		{"/jobs/j", `{}`, "has no properties"},
		{"/jobs/j", `{"properties":null}`, "has no properties"},
		{"/jobs/j", `[]`, "the body is a list, want an object (line 1, column 1 of the body)"},
		{"/jobs/j", `{"properties":"x"}`, "properties is a string, want an object (line 1, column 15"},
		{"/jobs/j", "{\"properties\":{\"command\":\"x\",\n \"limits\":{\"timeout\":60}}}", "properties.limits.timeout is a number, want a string (line 2, column 22"},
		{"/jobs/j", `{"properties":{"tags":{"a":"b","n":3}}}`, "properties.tags.n is a number, want a string"},
		{"/jobs/j", `{"properties":{"displayName":"x","inputs":{"lr":{"jobInputType":"literal","value":0.1}}}}`, "properties.inputs.lr.value is a number, want a string"},
		{"/jobs/j", `{"properties":{"resources":{"instanceCount":"2"}}}`, `properties.resources.instanceCount is a string, want a whole number`},
		{"/jobs/j", `{"properties":{"resources":{"instanceCount":1.5}}}`, `properties.resources.instanceCount is a number, want a whole number`},
		{"/jobs/j", `{"properties":{"resources":{"locations":["a",7]}}}`, `properties.resources.locations[1] is a number, want a string`},
		{"/computes/c", `{"properties":{"computeType":"AmlCompute","properties":{"scaleSettings":{"maxNodeCount":"4"}}}}`, "properties.properties.scaleSettings.maxNodeCount is a string, want a whole number"},
		{"/computes/c", `{"properties":{"computeType":"AmlCompute","properties":[]}}`, "properties.properties is a list, want an object"},
		{"/computes/c", `{"properties":{"properties":{}}}`, "has no properties.computeType"},
		{"/data/d/versions/1", `{"properties":[1]}`, "properties is not an object"},
	} {
		r := d.do("PUT", ws+c.path, c.body).want(400).is("ValidationError", "error", "code")
		if msg := r.at("error", "message").(string); !strings.Contains(msg, c.want) {
			t.Errorf("%s\n got  %s\n want %s", c.body, msg, c.want)
		}
	}
}

func TestOnlyThoseWhoMayGetIn(t *testing.T) {
	d := open(t)
	d.do("PUT", ws+"/jobs/mine", jobBody).want(201)
	d.do("PUT", ws+"/computes/c", clusterBody).want(201)
	op := d.do("POST", ws+"/computes/c/stop", "").want(202).header.Get("Azure-AsyncOperation")
	other := trainyard.Scope{Subscription: "s", ResourceGroup: "r", Workspace: "w"}
	for _, c := range []struct {
		who          trainyard.User
		method, path string
		want         int
	}{
		{trainyard.User{Name: "r", Role: trainyard.RoleReader}, "GET", ws + "/jobs/mine", 200},
		{trainyard.User{Name: "r", Role: trainyard.RoleReader}, "POST", ws + "/jobs/mine/cancel", 403},
		{trainyard.User{Name: "r", Role: trainyard.RoleReader}, "PATCH", ws + "/computes/c", 403},
		{trainyard.User{Name: "r", Role: trainyard.RoleReader}, "DELETE", ws + "/computes/c", 403},
		{trainyard.User{Name: "r", Role: trainyard.RoleReader}, "POST", ws + "/computes/c/listNodes", 200},
		{trainyard.User{Name: "r", Role: trainyard.RoleReader}, "GET", op, 200},
		{trainyard.User{Name: "o", Role: trainyard.RoleAdmin, Scope: other}, "GET", op, 403},
		{trainyard.User{Name: "o", Role: trainyard.RoleAdmin, Scope: other}, "GET", ws + "/jobs", 403},
		{trainyard.User{Name: "j", Role: trainyard.RoleJob, Job: "mine", Scope: trainyard.DefaultScope()}, "PATCH", ws + "/jobs/mine", 200},
		{trainyard.User{Name: "j", Role: trainyard.RoleJob, Job: "other", Scope: trainyard.DefaultScope()}, "PATCH", ws + "/jobs/mine", 403},
		{trainyard.User{Name: "j", Role: trainyard.RoleJob, Job: "mine", Scope: trainyard.DefaultScope()}, "POST", ws + "/codes/c/versions/1/startPendingUpload", 403},
		{trainyard.User{Name: "n", Role: trainyard.RoleAgent, Node: "n"}, "GET", ws, 403},
	} {
		d.user = c.who
		if r := d.do(c.method, c.path, `{"properties":{}}`); r.status != c.want {
			t.Errorf("%s may %s %s: %d, want %d", c.who.Role, c.method, c.path, r.status, c.want)
		}
	}
}

func TestSecretsAreHiddenHoweverTheyAreSpelled(t *testing.T) {
	comp := &trainyard.Compute{Spec: trainyard.ComputeSpec{ComputeType: "VirtualMachine"}}
	comp.Spec.Properties.Extra = trainyard.Extra{"AdministratorAccount": json.RawMessage(`{"username":"u","Password":"hunter2","PRIVATEKEYDATA":"key"}`), "KubeConfig": json.RawMessage(`"secret"`)}
	arm.CleanCompute(comp)
	shown, err := json.Marshal(comp.Spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"hunter2", `"key"`, `"secret"`} {
		if strings.Contains(string(shown), secret) {
			t.Errorf("%s is shown: %s", secret, shown)
		}
		if !strings.Contains(string(comp.Secret), secret) {
			t.Errorf("%s is not kept: %s", secret, comp.Secret)
		}
	}
}

package studio_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestListOfEndpoints(t *testing.T) {
	w := newWorld(t)
	b := w.admin()
	expect(t, b.page("/endpoints"), "This workspace has no online endpoints.", "trainyard online-endpoint create")
	w.addEndpoint()
	page := b.page("/endpoints")
	expect(t, page, "iris Names flowers http://127.0.0.1:7879/endpoints/iris/score Serving blue 90 % green 10 % blue 1/2 green 1/1 shadow 0/1 key")
	if got := page.link("iris"); got != "/endpoints/iris" {
		t.Errorf("an endpoint's link is %q", got)
	}
	if got := page.link("shadow"); got != "/endpoints/iris#deployment-shadow" {
		t.Errorf("a deployment's link is %q", got)
	}
	if got := page.all(func(n *node) bool { return n.attr("aria-current") == "page" })[0].words(); got != "Endpoints" {
		t.Errorf("the page is marked as %q", got)
	}
	live := page.all(tag("body"))[0].attr("data-live")
	e := b.stream(live, "")
	e.part("endpoints-list", "blue 1/2")
	w.serve(func() { w.deployments[0].Status.Replicas[1].State = "Ready" })
	e.part("endpoints-list", "blue 2/2")
}

// serve changes what serves and tells of it.
func (w *world) serve(do func()) {
	w.mu.Lock()
	do()
	w.mu.Unlock()
	w.tell(trainyard.Change{Events: []trainyard.Event{{Scope: scope, Kind: "deployment", Subject: "iris/blue"}}})
}

func TestStateOfAnEndpointIsThatOfItsTraffic(t *testing.T) {
	w := newWorld(t)
	w.addEndpoint()
	b := w.admin()
	e, blue := w.endpoints[0], w.deployments[0]
	w.deployments = w.deployments[:1]
	for _, c := range []struct {
		want string
		do   func()
	}{
		{"No traffic", func() { e.Spec.Traffic = map[string]int{} }},
		{"Starting", func() {
			e.Spec.Traffic, blue.Status.Replicas, blue.Status.State = map[string]int{"blue": 100}, nil, trainyard.DeploymentCreating
		}},
		{"Failed", func() { blue.Status.State = trainyard.DeploymentFailed }},
		{"Scaled to zero", func() { blue.Status.State, blue.Status.Wanted = trainyard.DeploymentSucceeded, 0 }},
		{"Deleting", func() { e.Deleting = true }},
		{"No deployments", func() { e.Deleting, w.deployments = false, nil }},
	} {
		w.serve(c.do)
		if got := b.page("/endpoints").id(t, "endpoint-iris").all(class("state"))[0].words(); got != c.want {
			t.Errorf("the state is %q, want %q", got, c.want)
		}
		if got := b.page("/endpoints/iris").id(t, "endpoint-head").all(class("state"))[0].words(); got != c.want {
			t.Errorf("on its page the state is %q, want %q", got, c.want)
		}
	}
	expect(t, b.page("/endpoints/iris"), "This endpoint has no deployments", "trainyard online-deployment create --file deployment.yml --endpoint-name iris")
}

func TestPageOfAnEndpoint(t *testing.T) {
	w := newWorld(t)
	w.addEndpoint()
	b := w.admin()
	page := b.page("/endpoints/iris")
	expect(t, page, "iris Serving Created 1m ago by ada Names flowers team=flowers", "opened by key",
		"KEY=$(trainyard online-endpoint get-credentials --name iris --query primaryKey -o tsv)",
		`curl http://127.0.0.1:7879/endpoints/iris/score -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d @request.json`,
		"trainyard online-endpoint invoke --name iris --request-file request.json", "Copies of calls shadow 25 %",
		"What happened 1m ago blue succeeded 2 of 2 replicas are ready 1m ago created by ada")
	for _, secret := range []string{"the-primary-key", "the-secondary-key"} {
		if strings.Contains(b.get("/endpoints/iris").body, secret) {
			t.Errorf("%s is in the page", secret)
		}
	}
	blue := page.id(t, "deployment-blue")
	expect(t, blue, "90 % of the traffic Succeeded", "1 of 2 replicas are ready; iris-blue-1-b: the model is loading Waiting · since 1m ago",
		"1 of 2 replicas ready wanted: as many as asked for", "iris-blue-1-a 1 process was ended for want of memory Ready node-1 1m ago 142 MB at most 180 MB 12 %",
		"iris-blue-1-b Loading the model is loading node-2 10s ago", "iris:3", "score.py", "python:3.12", "managed nodes, Standard_F2s_v2", "always 2 replicas",
		"4 requests a replica", "5s for an answer, 500ms in the queue")
	for words, want := range map[string]string{"iris-blue-1-a": "/jobs/iris-blue-1-a", "iris:3": "/models/iris", "serverless-f2s": "/computes/serverless-f2s"} {
		if got := blue.link(words); got != want {
			t.Errorf("%s leads to %q", words, got)
		}
	}
	refuse(t, page.id(t, "deployment-green"), "Waiting") // all is well there
	expect(t, page.id(t, "deployment-shadow"), "copies of 25 % of the calls Failed", "a replica ended with exit code 1: the weights are of another shape",
		"Warning: WORKER_COUNT is 1", "No replica is there now.")
	bars := page.id(t, "endpoint-head").all(class("strip"))
	if len(bars) != 2 {
		t.Fatalf("%d bars", len(bars))
	}
	if r := bars[0].all(tag("rect")); len(r) != 2 || r[0].attr("width") != "900" || r[1].attr("x") != "900" || r[1].attr("width") != "100" || r[0].attr("class") == r[1].attr("class") {
		t.Error("the bar of the traffic is not 90 to 10")
	}
	if r := bars[1].all(tag("rect")); len(r) != 1 || r[0].attr("width") != "250" {
		t.Error("the bar of the copies is not 25")
	}
	logs := page.id(t, "endpoint-logs")
	expect(t, logs, "blue --- replica iris-blue-1-a: running --- loaded in 3 s", "green Nothing was said yet.", "shadow building")
	if got := logs.all(class("f2")); len(got) != 1 || got[0].text() != "loaded" {
		t.Error("the log has lost its colour")
	}
	if a := b.get("/endpoints/nothing"); a.StatusCode != http.StatusNotFound {
		t.Errorf("%s", a.Status)
	}
}

func TestReplicaLeadsToItsEndpoint(t *testing.T) {
	w := newWorld(t)
	w.add("iris-blue-1-a", trainyard.JobRunning).Plan.Serve = &trainyard.Serve{Endpoint: "iris", Deployment: "blue"}
	if got := w.admin().page("/jobs/iris-blue-1-a").id(t, "job-facts").link("iris"); got != "/endpoints/iris#deployment-blue" {
		t.Errorf("the endpoint's link is %q", got)
	}
}

func TestFailureThatQuotesALogShowsItsEnd(t *testing.T) {
	w := newWorld(t)
	w.addEndpoint()
	w.deployments[2].Status.Reason.Message = "replica x did not become ready: exit code 3\nThe end of its log:\none\ntwo"
	box := w.admin().page("/endpoints/iris").id(t, "deployment-shadow").all(class("bad"))
	for _, n := range box {
		if quoted := n.all(class("tail")); len(quoted) == 1 && quoted[0].text() == "The end of its log:\none\ntwo" {
			expect(t, n, "replica x did not become ready: exit code 3")
			return
		}
	}
	t.Error("the log is not quoted by itself")
}

func TestCommandsSuitTheEndpoint(t *testing.T) {
	w := newWorld(t)
	w.addEndpoint()
	e := w.endpoints[0]
	e.Spec.AuthMode, e.Spec.Traffic, e.Spec.MirrorTraffic = trainyard.AuthAMLToken, nil, nil
	vision := scope
	vision.Workspace = "vision"
	e.Scope = vision
	page := w.admin().page("/endpoints/iris?wsid=" + vision.ID())
	expect(t, page, "opened by aml_token", "The token, good for an hour, is not shown here",
		"get-credentials --name iris -w vision --query accessToken -o tsv", "invoke --name iris -w vision",
		"No deployment has any: requests that name none are refused.", "trainyard online-endpoint update --name iris -w vision --traffic blue=100", "blue no traffic")
	if got := page.link("iris-blue-1-a"); got != "/jobs/iris-blue-1-a?wsid="+vision.ID() {
		t.Errorf("a replica leads to %q", got)
	}
}

func TestNumbersOfADeployment(t *testing.T) {
	w := newWorld(t)
	w.addEndpoint()
	b := w.admin()
	blue := func() *node { return b.page("/endpoints/iris").id(t, "deployment-blue") }
	expect(t, blue(), "Requests/s – counted from now on", "In flight 0", "p50 ≤ 25ms of all answers", "Errors 0", "1,000 requests since the gateway started 200 × 1,000")
	w.pass(12 * time.Second)
	w.mu.Lock()
	s := &w.counts[0]
	s.Requests, s.InFlight, s.Queued, s.Held, s.Retries, s.Mirrored = 1120, 3, 5, 4, 2, 0
	s.Codes = map[int]int64{200: 1090, 424: 6, 499: 1, 429: 3}
	s.Latency = append([]int64(nil), s.Latency...)
	s.Latency[1] += 98 // at most 1 ms
	s.Latency[8] += 2  // at most 250 ms
	w.counts[2].Mirrored, w.counts[2].Codes = 30, map[int]int64{200: 30}
	w.mu.Unlock()
	expect(t, blue(), "Requests/s 10 in the last 12s", "In flight 3", "Queued 1", "Held 4", "p50 ≤ 1ms in the last 12s p95 ≤ 1ms", "p99 ≤ 250ms", "Errors 10 in the last 12s",
		"1,120 requests since the gateway started 200 × 1,090 424 × 6 429 × 3 499 × 1", "2 requests sent again because a replica was lost")
	expect(t, b.page("/endpoints/iris").id(t, "deployment-shadow"), "Requests/s 2.5", "30 copies of other deployments' requests")
	w.pass(12 * time.Second)
	w.mu.Lock()
	w.counts[0].Requests += 24
	w.mu.Unlock()
	expect(t, blue(), "Requests/s 2.0 in the last 12s", "p50 ≤ 1ms in the last 24s")
	w.pass(2 * time.Minute) // what was seen is too old to compare with
	expect(t, blue(), "Requests/s –", "p50 ≤ 25ms of all answers", "Errors 10 of all answers")
	w.pass(5 * time.Second)
	w.mu.Lock()
	w.counts[0] = stats("blue", map[int]int64{200: 20}, 20) // deleted and made again
	w.mu.Unlock()
	expect(t, blue(), "Requests/s 4.0 in the last 5s", "20 requests since the gateway started 200 × 20")
	w.mu.Lock()
	w.counts = nil // another gateway's
	w.mu.Unlock()
	refuse(t, blue(), "Requests/s")
}

func TestEndpointsPageIsLive(t *testing.T) {
	w := newWorld(t)
	w.addEndpoint()
	b := w.admin()
	live := b.page("/endpoints/iris").all(tag("body"))[0].attr("data-live")
	if live != "/studio/live/endpoints/iris" {
		t.Fatalf("the page's stream is %q", live)
	}
	e := b.stream(live, "")
	e.part("endpoint-deployments", "iris-blue-1-b Loading")
	e.part("endpoint-logs", "loaded")
	w.serve(func() {
		w.deployments[0].Status.Replicas[1].State = "Ready"
		w.events = append(w.events, trainyard.Event{Seq: 9, Time: w.now, Scope: scope, Kind: "deployment", Subject: "iris/blue", What: "updating"})
	})
	e.part("endpoint-deployments", "2 of 2 replicas ready")
	e.part("endpoint-events", "now blue updating 1m ago blue succeeded 2 of 2 replicas are ready 1m ago created by ada")
	w.pass(4 * time.Second)
	w.mu.Lock() // what the gateway counts and replicas say comes without a change
	w.counts[0].Requests, w.counts[0].InFlight = 1100, 7
	w.tails["iris/blue/InferenceServer"] = "another line\n"
	w.mu.Unlock()
	e.part("endpoint-deployments", "In flight 7")
	e.part("endpoint-logs", "another line")
	w.serve(func() { w.endpoints, w.deployments = nil, nil })
	e.part("endpoint-head", "iris Deleted")
	e.until("the end", func(ev event) bool { return ev.name == "end" })
	if a := b.get(live); a.StatusCode != http.StatusNotFound {
		t.Errorf("the stream of what is no more: %s", a.Status)
	}
}

func TestWhoMaySeeEndpointsAndModels(t *testing.T) {
	w := newWorld(t)
	w.addEndpoint()
	w.addModel("iris", "3", `{"modelType": "custom_model"}`)
	vision := scope
	vision.Workspace = "vision"
	paths := []string{"/endpoints", "/endpoints/iris", "/models", "/models/iris", "/studio/live/endpoints/iris", "/studio/live/endpoints", "/studio/live/models"}
	reader := w.login(trainyard.User{Name: "eve", Role: trainyard.RoleReader, Scope: scope})
	for _, path := range paths {
		if a := w.browser().get(path); a.StatusCode != http.StatusUnauthorized || strings.Contains(a.body, "flowers") {
			t.Errorf("%s without a session: %s", path, a.Status)
		}
		if !strings.HasPrefix(path, "/studio/live") {
			reader.page(path)
		}
		if a := reader.get(path + "?wsid=" + vision.ID()); a.StatusCode != http.StatusForbidden {
			t.Errorf("%s in another workspace: %s", path, a.Status)
		}
	}
	if a := w.browser().get("/studio/login?next=" + url.QueryEscape("/endpoints/iris")); !strings.Contains(a.body, `value="/endpoints/iris"`) {
		t.Error("after the login one is not led back to the endpoint")
	}
}

func TestModels(t *testing.T) {
	w := newWorld(t)
	b := w.admin()
	expect(t, b.page("/models"), "No model is registered in this workspace.", "trainyard model create")
	for i := range 60 {
		w.addModel("many", fmt.Sprint(i), `{"modelType": "custom_model"}`)
	}
	w.addModel("iris", "1", `{"modelType": "custom_model", "modelUri": "azureml://datastores/workspaceblobstore/paths/m", "description": "the first"}`)
	w.addModel("iris", "2", `{"modelType": "mlflow_model", "jobName": "calm_river"}`)
	w.addModel("CliV2AnonymousModel", "f00", `{"modelType": "custom_model"}`)
	page := b.page("/models")
	expect(t, page, "iris 2 mlflow_model calm_river 1m ago by ada", "many 59 custom_model no job")
	refuse(t, page, "Anonymous")
	if got := page.link("calm_river"); got != "/jobs/calm_river" {
		t.Errorf("the job is at %q", got)
	}
	page = b.page(page.link("iris"))
	expect(t, page, "Models / iris", "2 stage=dev mlflow_model calm_river", "1 the first azureml://datastores/workspaceblobstore/paths/m stage=dev custom_model no job")
	seen, path := 0, "/models/many"
	for path != "" {
		page := b.page(path)
		seen += len(page.all(tag("tr"))) - 1
		path = page.link("More")
	}
	if seen != 60 {
		t.Errorf("%d versions on all pages", seen)
	}
	if a := b.get("/models/nothing"); a.StatusCode != http.StatusNotFound {
		t.Errorf("%s", a.Status)
	}
	e := b.stream(b.page("/models").all(tag("body"))[0].attr("data-live"), "")
	e.part("models-list", "iris 2")
	w.addModel("iris", "3", `{}`)
	w.tell(trainyard.Change{Events: []trainyard.Event{{Scope: scope, Kind: "models", Subject: "iris:3"}}})
	e.part("models-list", "iris 3")
}

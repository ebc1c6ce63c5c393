package studio_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestListOfJobs(t *testing.T) {
	w := newWorld(t)
	w.add("old_one", trainyard.JobCompleted)
	w.add("broken", trainyard.JobFailed).Status.Failure = &trainyard.Failure{Class: trainyard.ClassUser, Message: "exit code 17"}
	w.add("waiting", trainyard.JobQueued).Status.Reason = trainyard.Reason{Message: "waiting for its turn"}
	j := w.add("running", trainyard.JobRunning)
	j.Plan.Compute, j.Spec.Tags = "local", map[string]string{"stage": "dev"}
	b := w.admin()
	page := b.page("/jobs")
	expect(t, page, "Train running running Running local exp 1m ago 50s", "Train waiting waiting waiting for its turn Queued", "exit code 17", "Completed")
	var order []string
	for _, row := range page.all(tag("tr")) {
		order = append(order, row.attr("id"))
	}
	if got := strings.Join(order, " "); got != " job-running job-waiting job-broken job-old_one" {
		t.Errorf("rows: %s", got)
	}
	if got := page.link("Train running"); got != "/jobs/running" {
		t.Errorf("a job's link is %q", got)
	}
	if got := page.link("local"); got != "/computes/local" {
		t.Errorf("a compute's link is %q", got)
	}
	for query, want := range map[string]string{
		"state=failed": "broken", "state=active": "waiting running", "compute=local": "running", "q=OLD": "old_one", "q=exp&state=Completed": "old_one",
		"tag=stage%3Ddev": "running", "q=nothing": "",
	} {
		page := b.page("/jobs?" + query)
		for _, name := range []string{"old_one", "broken", "waiting", "running"} {
			found := page.all(func(n *node) bool { return n.attr("id") == "job-"+name })
			if wanted := strings.Contains(" "+want+" ", " "+name+" "); wanted != (len(found) == 1) {
				t.Errorf("%s: %s is there: %v", query, name, len(found) == 1)
			}
		}
		if want == "" {
			expect(t, page, "No job matches.")
		}
	}
	if a := b.get("/jobs?state=sleepy"); a.StatusCode != http.StatusBadRequest {
		t.Errorf("a state that is none: %s", a.Status)
	}
	if got := b.page("/jobs?state=failed").id(t, "jobs-list").all(tag("table")); len(got) != 1 {
		t.Error("no table")
	}
}

func TestListWithoutJobsSaysWhatToDo(t *testing.T) {
	expect(t, newWorld(t).admin().page("/jobs"), "No job was submitted yet.", "trainyard job create --file job.yml")
}

func TestOlderJobs(t *testing.T) {
	w := newWorld(t)
	for i := range 120 {
		w.add(fmt.Sprintf("job-%03d", i), trainyard.JobCompleted)
	}
	b := w.admin()
	for _, query := range []string{"", "?state=Completed&compute=cpu-cluster", "?q=job-"} {
		seen, path := map[string]bool{}, "/jobs"+query
		for pages := 0; path != ""; pages++ {
			page := b.page(path)
			for _, row := range page.all(tag("tr")) {
				if name := row.attr("id"); name != "" {
					if seen[name] {
						t.Fatalf("%s twice", name)
					}
					seen[name] = true
				}
			}
			if next := page.link("Newest"); (next != "") != (pages > 0) {
				t.Errorf("page %d leads to the newest by %q", pages, next)
			}
			path = page.link("Older")
			if pages > 5 {
				t.Fatal("no end")
			}
		}
		if len(seen) != 120 {
			t.Errorf("%s: %d jobs on all pages", query, len(seen))
		}
	}
}

// A running job says nothing beside its state while it runs, and what is wrong once nothing is known of it; so does one that stores its outputs.
func TestARunningJobSaysWhatIsWrong(t *testing.T) {
	w := newWorld(t)
	for code, state := range map[string]trainyard.JobState{"Running": trainyard.JobRunning, "EngineAway": trainyard.JobRunning, "NodeSilent": trainyard.JobFinalizing} {
		w.add(code, state).Status.Reason = trainyard.Reason{Code: code, Message: "said of " + code, Since: start}
	}
	b := w.admin()
	list := b.page("/jobs")
	for _, code := range []string{"EngineAway", "NodeSilent"} {
		expect(t, list, "said of "+code)
		expect(t, b.page("/jobs/"+code), "said of "+code+" "+code+" · since 1m ago")
	}
	refuse(t, list, "said of Running")
	refuse(t, b.page("/jobs/Running"), "said of Running")
}

func TestPageOfAFailedJob(t *testing.T) {
	w := newWorld(t)
	j := w.add("calm_river", trainyard.JobFailed)
	code := 17
	j.Status.ExitCode, j.Status.Failure = &code, &trainyard.Failure{Class: trainyard.ClassUser, Message: "exit code 17: the process ended itself"}
	j.Status.Warnings = []string{"the image was not used"}
	j.Status.Attempts = []trainyard.Attempt{
		{Number: 1, Placed: start, Ended: start.Add(5 * time.Second), Class: trainyard.ClassNodeLost,
			Tasks: []trainyard.RunTask{{Node: "cpu-cluster-a", State: trainyard.TaskEnded, Result: &trainyard.Result{Class: trainyard.ClassNodeLost, Message: "node a was lost"}}}},
		{Number: 2, Placed: start.Add(6 * time.Second), Ended: start.Add(40 * time.Second), Class: trainyard.ClassUser, Tasks: []trainyard.RunTask{{Node: "cpu-cluster-b"}}}}
	j.Spec.Tags = map[string]string{"stage": "dev & test"}
	j.Spec.Inputs = map[string]*trainyard.JobInput{"lr": {JobInputType: "literal", Value: "0.1"}, "data": {JobInputType: "uri_file", URI: "azureml:iris:1", Mode: "ReadOnlyMount"}}
	j.Plan.Outputs = map[string]trainyard.TaskOutput{"model": {Type: "uri_folder", URI: "azureml://datastores/workspaceblobstore/paths/azureml/calm_river/model/"}}
	j.Plan.Environment = &trainyard.EnvironmentPlan{Name: "sklearn-1.5"}
	w.events = []trainyard.Event{{Time: start, What: "queued", Who: "ada", Message: "submitted to cpu-cluster"}}
	w.put("workspaceblobstore/azureml/calm_river/model/weights.bin", "w")
	w.put("workspaceartifactstore/ExperimentRun/dcid.calm_river/outputs/plot 1.png", "p")
	page := w.admin().page("/jobs/calm_river")
	expect(t, page, "Failed 30s exit code 17", "exit code 17: the process ended itself", "UserError", "Warning: the image was not used", "lr literal 0.1", "data uri_file · ReadOnlyMount azureml:iris:1",
		"model uri_folder", "sklearn-1.5", "python train.py", "1 NodeLost node a was lost cpu-cluster-a", "2 UserError", "stage=dev & test", "1m ago by ada", "queued by ada submitted to cpu-cluster")
	refuse(t, page, "Cancel job")
	if got := page.link("stage=dev & test"); got != "/jobs?tag=stage%3Ddev+%26+test" {
		t.Errorf("a tag leads to %q", got)
	}
	if got := page.link("plot 1.png"); got != "" {
		t.Errorf("an artifact without its folder: %q", got)
	}
	if got := page.link("outputs/plot 1.png"); got != "/jobs/calm_river/files/outputs/plot%201.png" {
		t.Errorf("an artifact is at %q", got)
	}
	if got := page.link("weights.bin"); got != "/jobs/calm_river/outputs/model/weights.bin" {
		t.Errorf("an output's file is at %q", got)
	}
	if body := page.all(tag("body"))[0]; body.attr("data-live") != "" {
		t.Error("the page of a job that is over asks for more")
	}
}

func TestPageOfAQueuedJobSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobQueued).Status.Reason = trainyard.Reason{Code: "AtMaximumNodes", Message: "cpu-cluster is at its maximum of 2 nodes"}
	page := w.admin().page("/jobs/calm_river")
	expect(t, page, "Queued", "cpu-cluster is at its maximum of 2 nodes", "AtMaximumNodes", "place 3 in its queue", "The log begins when the job runs.", "Cancel job", "Yes, cancel it")
	forms := page.all(func(n *node) bool { return n.Data == "form" && n.attr("action") == "/jobs/calm_river/cancel" })
	if len(forms) != 1 || !strings.EqualFold(forms[0].attr("method"), "post") || forms[0].Parent.Data != "details" {
		t.Errorf("%d forms to cancel, or one that does not ask first", len(forms))
	}
}

func TestTimelineIsToScale(t *testing.T) {
	w := newWorld(t)
	j := w.add("calm_river", trainyard.JobCompleted)
	at := start
	for _, s := range []struct {
		name string
		took time.Duration
		note string
	}{{"queue", 10 * time.Second, ""}, {"environment", 5 * time.Second, "built in 5 s"}, {"user", 25 * time.Second, ""}} {
		j.Status.Timeline = append(j.Status.Timeline, trainyard.Span{Name: s.name, Start: at, End: at.Add(s.took), Note: s.note})
		at = at.Add(s.took)
	}
	page := w.admin().page("/jobs/calm_river")
	expect(t, page, "40s from submission to end", "queue waiting for room 10s 25 %", "environment built in 5 s 5s 12 %", "user running your command 25s 62 %")
	strip := page.all(class("strip"))[0]
	var got []string
	end := 0.0
	for _, r := range strip.all(tag("rect")) {
		x, _ := strconv.ParseFloat(r.attr("x"), 64)
		width, _ := strconv.ParseFloat(r.attr("width"), 64)
		if x != end {
			t.Errorf("a gap: %s begins at %v, the one before ends at %v", r.attr("class"), x, end)
		}
		end = x + width
		got = append(got, r.attr("class")+" "+r.attr("width"))
	}
	if s := strings.Join(got, ", "); s != "t-queue 250.0, t-environment 125.0, t-user 625.0" || end != 1000 {
		t.Errorf("%s, %v in all", s, end)
	}
}

const hostile = `"><script>alert(1)</script><img src=x onerror=alert(2)>'`

func TestWhatUsersWriteStaysText(t *testing.T) {
	w := newWorld(t)
	name := "x" + strings.ReplaceAll(hostile, "/", "") // a name with a slash has no page
	for _, state := range []trainyard.JobState{trainyard.JobQueued, trainyard.JobFailed} {
		j := w.add(string(state)+name, state)
		j.Spec = trainyard.JobSpec{DisplayName: hostile, Description: hostile, ExperimentName: hostile, Command: hostile, Tags: map[string]string{hostile: hostile},
			Inputs: map[string]*trainyard.JobInput{hostile: {JobInputType: "literal", Value: hostile}, "u": {JobInputType: "uri_file", URI: "javascript:alert(3)" + hostile}}}
		j.Plan = trainyard.JobPlan{Compute: hostile, Environment: &trainyard.EnvironmentPlan{Name: hostile}, Outputs: map[string]trainyard.TaskOutput{hostile: {URI: "javascript:alert(4)"}}}
		j.Status.Warnings, j.Status.Failure = []string{hostile}, &trainyard.Failure{Class: hostile, Message: hostile}
		j.Status.Reason = trainyard.Reason{Code: hostile, Message: hostile}
		j.Status.Timeline = []trainyard.Span{{Name: hostile, Start: start, End: start.Add(time.Second), Note: hostile}}
		j.Status.Attempts = []trainyard.Attempt{{Number: 1, Placed: start, Class: hostile, Tasks: []trainyard.RunTask{{Node: hostile, Progress: hostile}}}}
		j.CreatedBy = hostile
	}
	w.events = []trainyard.Event{{Time: start, What: hostile, Who: hostile, Message: hostile}}
	w.computes = []*trainyard.Compute{{Scope: scope, Name: name, Spec: trainyard.ComputeSpec{ComputeType: hostile, Description: hostile}, Errors: []string{hostile},
		Warnings: []string{hostile}, WantedWhy: trainyard.Reason{Message: hostile}, Tags: map[string]string{hostile: hostile}, Location: hostile, CreatedBy: hostile}}
	w.nodes[name] = []trainyard.NodeStatus{{Node: &trainyard.Node{ID: hostile, State: trainyard.NodeUnusable, Reason: trainyard.Reason{Message: hostile}, Notes: []string{hostile}, Address: hostile}, Jobs: []string{hostile}}}
	w.addHostile(name)
	b := w.admin()
	q := url.QueryEscape(hostile)
	for _, path := range []string{"/jobs", "/jobs?q=" + q + "&compute=" + q + "&tag=" + q, "/jobs/Queued" + url.PathEscape(name), "/jobs/Failed" + url.PathEscape(name), "/computes",
		"/computes/" + url.PathEscape(name), "/jobs/" + url.PathEscape(hostile), "/jobs?wsid=" + q, "/jobs?state=" + q, "/jobs/Queued" + url.PathEscape(name) + "?log=" + q,
		"/endpoints", "/endpoints/" + url.PathEscape(name), "/models", "/models/" + url.PathEscape(name), "/models?after=" + q,
		"/studio/login?next=/jobs/" + q, "/studio/login?ticket=" + q, "/studio/" + url.PathEscape(hostile)} {
		a := b.get(path)
		tree := a.tree(t)
		for _, s := range tree.all(tag("script")) {
			if !strings.HasPrefix(s.attr("src"), "/studio/static/studio.") || s.text() != "" {
				t.Errorf("%s: a script that is not ours", path)
			}
		}
		for _, n := range tree.all(func(n *node) bool { return true }) {
			for _, at := range n.Attr {
				if strings.HasPrefix(at.Key, "on") || at.Key == "style" || strings.HasPrefix(strings.TrimSpace(at.Val), "javascript:") {
					t.Errorf("%s: <%s %s=%q>", path, n.Data, at.Key, at.Val)
				}
			}
			if n.Data == "img" && n.attr("src") == "x" {
				t.Errorf("%s: the image is there", path)
			}
		}
	}
	for _, path := range []string{"/jobs/Failed", "/endpoints/", "/models/"} {
		expect(t, b.page(path+url.PathEscape(name)), strings.Join(strings.Fields(hostile), " "))
	}
	if n := strings.Count(b.page("/endpoints/"+url.PathEscape(name)).id(t, "endpoint-logs").words(), strings.Join(strings.Fields(hostile), " ")); n < 2 {
		t.Errorf("the hostile line is %d times in the log, want what was said", n)
	}
}

func TestHeadersLetNothingForeignIn(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobRunning)
	b := w.admin()
	for _, path := range []string{"/jobs", "/jobs/calm_river", "/computes", "/endpoints", "/endpoints/iris", "/models", "/studio/login", "/studio/workspaces", "/jobs/nothing"} {
		h := b.get(path).Header
		csp := h.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("Referrer-Policy") == "" {
			t.Errorf("%s: %v", path, h)
		}
	}
	page := b.page("/jobs")
	for _, n := range page.all(func(n *node) bool { return n.Data == "link" || n.Data == "script" || n.Data == "img" }) {
		src := n.attr("src") + n.attr("href")
		a := w.browser().get(src) // no session needed
		if !strings.HasPrefix(src, "/studio/static/") || a.StatusCode != http.StatusOK || !strings.Contains(a.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("<%s> of %q: %s", n.Data, src, a.Status)
		}
		if a := w.browser().get(src, "If-None-Match: "+a.Header.Get("ETag")); a.StatusCode != http.StatusNotModified {
			t.Errorf("%s with its ETag: %s", src, a.Status)
		}
	}
}

func TestWorkspaces(t *testing.T) {
	w := newWorld(t)
	w.add("here", trainyard.JobRunning)
	vision := scope
	vision.Workspace = "vision"
	w.add("there", trainyard.JobRunning).Scope = vision
	b := w.admin()
	list := b.page("/studio/workspaces").link("vision")
	if list != "/jobs?wsid="+vision.ID() {
		t.Fatalf("the workspace's link is %q", list)
	}
	page := b.page(list)
	expect(t, page, "Train there", "vision")
	refuse(t, page, "Train here")
	job := page.link("Train there")
	if job != "/jobs/there?wsid="+vision.ID() {
		t.Fatalf("the job's link is %q", job)
	}
	expect(t, b.page(job+"&tid=0"), "Train there") // the Python SDK adds a tenant
	if a := b.get("/jobs/there"); a.StatusCode != http.StatusNotFound {
		t.Errorf("without its workspace: %s", a.Status)
	}
	if a := b.get("/jobs?wsid=nonsense"); a.StatusCode != http.StatusBadRequest {
		t.Errorf("a wsid that is none: %s", a.Status)
	}
	guest := w.login(trainyard.User{Name: "eve", Role: trainyard.RoleReader, Scope: vision})
	if got := guest.page("/jobs").link("Train there"); got != "/jobs/there" {
		t.Errorf("in a user's own workspace the link is %q", got)
	}
}

func (w *world) addCluster() {
	w.computes = []*trainyard.Compute{{Scope: scope, Name: "cpu-cluster", Created: start, CreatedBy: "ada", Wanted: 3, WantedWhy: trainyard.Reason{Message: "2 busy and 1 asked for"},
		Errors: []string{"no room for another machine"}, Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeCluster, Properties: trainyard.ClusterProperties{VMSize: "Standard_DS3_v2",
			ScaleSettings: &trainyard.ScaleSettings{MaxNodeCount: 4, NodeIdleTimeBeforeScaleDown: "PT2M"}}}}}
	node := func(id trainyard.NodeID, state trainyard.NodeState, why string, jobs ...string) trainyard.NodeStatus {
		return trainyard.NodeStatus{Node: &trainyard.Node{ID: id, State: state, Reason: trainyard.Reason{Message: why, Since: start}, Seen: start.Add(50 * time.Second)}, Jobs: jobs}
	}
	w.nodes["cpu-cluster"] = []trainyard.NodeStatus{node("n-1", trainyard.NodeIdle, "its agent has joined"), node("n-2", trainyard.NodeRunning, "", "calm_river"),
		node("n-3", trainyard.NodeUnusable, "nothing was heard of its agent for 30s")}
}

func TestComputes(t *testing.T) {
	w := newWorld(t)
	w.addCluster()
	w.nodes["cpu-cluster"] = append(w.nodes["cpu-cluster"], trainyard.NodeStatus{Node: &trainyard.Node{ID: "n-4", State: trainyard.NodeIdle},
		Away: trainyard.Reason{Message: "the Docker engine has not answered since 12:03:04 UTC", Since: start}})
	w.nodes["cpu-cluster"][1].Node.Engines = []string{"docker", "podman"}
	w.add("waits", trainyard.JobQueued).Status.Reason.Message = "waiting for its turn"
	w.add("last", trainyard.JobQueued)
	b := w.admin()
	list := b.page("/computes")
	expect(t, list, "cpu-cluster", "AmlCompute · Standard_DS3_v2", "4 nodes 1 running 2 idle 1 unusable", "3 wanted, 0 to 4 allowed · an idle node goes after 2m",
		"2 busy and 1 asked for", "no room for another machine")
	page := b.page(list.link("cpu-cluster"))
	expect(t, page, "nothing was heard of its agent for 30s", "n-2 engines: docker, podman running calm_river 1m ago", "n-1 idle waits for work", "n-4 idle the Docker engine has not answered since 12:03:04 UTC 1m ago", "10s ago", "Waiting jobs Train waits 1m waiting for its turn Train last")
	if got := page.link("calm_river"); got != "/jobs/calm_river" {
		t.Errorf("a node's job leads to %q", got)
	}
	if got := page.all(tag("tr"))[1].attr("id"); got != "node-n-3" {
		t.Errorf("the first node is %s, not the one that needs a look", got)
	}
	for _, c := range []struct{ word, where, want string }{
		{"westeurope", "hpc", "location hpc (westeurope), driver slurm"},
		{"hpc", "hpc", "location hpc, driver slurm"},
		{trainyard.DefaultLocation, trainyard.DefaultLocation, "location local, driver process"},
		{"westeurope", "old", "location old (westeurope), which the server's settings do not name any more"},
	} {
		w.computes[0].Location, w.computes[0].Where = c.word, c.where
		expect(t, b.page("/computes/cpu-cluster"), c.want)
	}
	w.computes[0].Deleting = true
	expect(t, b.page("/computes"), "Deleting", "job calm_river is to end first; no room for another machine")
	if a := b.get("/computes/nothing"); a.StatusCode != http.StatusNotFound {
		t.Errorf("%s", a.Status)
	}
}

func TestOverTLSTheCookieIsBoundToTheHost(t *testing.T) {
	w := newWorld(t)
	srv := httptest.NewTLSServer(w.Config.Handler)
	t.Cleanup(srv.Close)
	b := w.browser()
	b.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}
	b.base = srv.URL
	a := b.post("/studio/login", url.Values{"token": {w.token(ada)}})
	if c := a.Cookies(); len(c) != 1 || !strings.HasPrefix(c[0].Name, "__Host-") || !c[0].Secure || c[0].Domain != "" {
		t.Fatalf("%s, cookies %v", a.Status, c)
	}
	b.page("/jobs")
	var got struct{ URL string }
	if err := json.Unmarshal([]byte(b.ticket(w.token(ada), "/jobs").body), &got); err != nil || !strings.HasPrefix(got.URL, "http://127.0.0.1:") {
		t.Errorf("on the server's own computer a browser is sent to %q, %v", got.URL, err)
	}
}

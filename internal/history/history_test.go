package history_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/blob"
	"github.com/trainyard/trainyard/internal/blobrest"
	"github.com/trainyard/trainyard/internal/history"
	"github.com/trainyard/trainyard/internal/output"
)

const (
	std       = "user_logs/std_log.txt"
	workspace = "/subscriptions/s/resourcegroups/RG/providers/Microsoft.MachineLearningServices/workspaces/ws/"
)

var (
	scope = trainyard.Scope{Subscription: "s", ResourceGroup: "rg", Workspace: "ws"}
	start = time.Date(2026, 11, 21, 2, 40, 0, 0, time.UTC)
)

// world has real logs, and jobs in a map; a job's end wakes those who wait for its logs, as it must.
type world struct {
	*output.Store
	*httptest.Server
	t      testing.TB
	log    bytes.Buffer
	signer blobrest.Signer

	mu    sync.Mutex
	jobs  map[string]*trainyard.Job
	ended map[string]chan struct{}
	waits chan struct{} // gets a value when WaitLog begins
}

var _ history.Runs = (*world)(nil)

func newWorld(t testing.TB) *world {
	t.Helper()
	bucket, err := blob.Open(context.Background(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Store: output.New(bucket), t: t, jobs: map[string]*trainyard.Job{}, ended: map[string]chan struct{}{}, waits: make(chan struct{}, 100),
		signer: blobrest.Signer{Key: []byte("k")}}
	door := history.New(history.Config{Runs: w, Signer: w.signer, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		Allow: func(r *http.Request, s trainyard.Scope, _ bool) (trainyard.User, error) {
			if r.Header.Get("Authorization") != "Bearer t" {
				return trainyard.User{}, trainyard.Errorf(trainyard.CodeUnknown, "who are you?")
			}
			if s.Fold() != scope.Fold() {
				return trainyard.User{}, trainyard.Errorf(trainyard.CodeForbidden, "not workspace %q", s.Workspace)
			}
			return trainyard.User{Name: "me"}, nil
		},
		Data: func(_ context.Context, _ trainyard.Scope, name, version string) (*trainyard.Resource, error) {
			if name+":"+version != "iris x:1" {
				return nil, trainyard.NotFound("no data asset %s:%s", name, version)
			}
			return &trainyard.Resource{Properties: json.RawMessage(`{"dataType":"uri_file","dataUri":"azureml://datastores/d/paths/a/b.csv"}`)}, nil
		}})
	mux := http.NewServeMux()
	mux.Handle("/history/", door)
	mux.Handle("/data/", door)
	w.Server = httptest.NewServer(mux)
	t.Cleanup(func() { w.Close(); bucket.Close() })
	return w
}

// What control satisfies Runs with: a job's end wakes those who wait for its logs.

func (w *world) Watched(ctx context.Context, s trainyard.Scope, name string) (*trainyard.Job, error) {
	return w.Job(ctx, s, name)
}

func (w *world) Job(_ context.Context, s trainyard.Scope, name string) (*trainyard.Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j := w.jobs[name]; j != nil && s.Fold() == scope.Fold() {
		return j.Clone(), nil
	}
	return nil, trainyard.NotFound("there is no job %q", name)
}

func (w *world) LogFiles(ctx context.Context, s trainyard.Scope, job string) ([]trainyard.BlobInfo, error) {
	return w.Files(ctx, s.Fold(), job)
}

func (w *world) ReadLog(ctx context.Context, s trainyard.Scope, job, name string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	return w.Read(ctx, s, job, name, offset)
}

func (w *world) WaitLog(ctx context.Context, s trainyard.Scope, job, name string, beyond int64) (int64, error) {
	w.mu.Lock()
	ended := w.ended[job]
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	w.waits <- struct{}{}
	return w.Wait(ctx, s, job, name, beyond)
}

func (w *world) add(name string, state trainyard.JobState) *trainyard.Job {
	j := &trainyard.Job{Scope: scope, Name: name, Seq: 7, Created: start, Modified: start, CreatedBy: "ada",
		Spec: trainyard.JobSpec{JobType: "Command", DisplayName: "Train", ExperimentName: "exp", Tags: map[string]string{"a": "b"},
			Inputs: map[string]*trainyard.JobInput{"lr": {JobInputType: "literal", Value: "0.1"}, "d": {JobInputType: "uri_file", URI: "x"}}},
		Plan: trainyard.JobPlan{Compute: "cpu-cluster", Nodes: 2}, Status: trainyard.JobStatus{State: state}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[name], w.ended[name] = j, make(chan struct{})
	if state.Terminal() {
		close(w.ended[name])
	}
	return j
}

func (w *world) end(name string, state trainyard.JobState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[name].Status.State = state
	close(w.ended[name])
}

func (w *world) say(job string, offset int64, text string) {
	w.t.Helper()
	if _, err := w.Append(context.Background(), scope, job, std, offset, []byte(text)); err != nil {
		w.t.Error(err)
	}
}

type answer struct {
	*http.Response
	body string
}

// do sends a request with the bearer token, unless the headers say otherwise. url may lack the server.
func (w *world) do(method, url, body string, headers ...string) answer {
	w.t.Helper()
	if !strings.HasPrefix(url, "http") {
		url = w.URL + url
	}
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer t")
	for _, h := range headers {
		if name, value, ok := strings.Cut(h, ": "); ok {
			r.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Error(err)
		return answer{Response: &http.Response{}}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Error(err)
	}
	return answer{resp, string(data)}
}

func (w *world) json(method, url, body string) map[string]any {
	w.t.Helper()
	a := w.do(method, url, body)
	var v map[string]any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.StatusCode != 200 {
		w.t.Fatalf("%s %s = %s %s", method, url, a.Status, a.body)
	}
	return v
}

const nobody = "Authorization: "

func TestDetailsTellOfTheRunAndItsLogs(t *testing.T) {
	w := newWorld(t)
	j := w.add("job 1%", trainyard.JobFailed)
	j.Status.Started, j.Status.Ended = start.Add(time.Second), start.Add(time.Minute)
	j.Status.Failure = &trainyard.Failure{Class: trainyard.ClassOutOfMemory, Message: "killed at 512 MB"}
	j.Status.Warnings = []string{"the image was not used"}
	w.say("job 1%", 0, "line \xff\n")
	if _, err := w.Append(t.Context(), scope, "job 1%", "logs/a #1.txt", 0, []byte("mine")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"runs/", "RUNS/", "experiments/exp/runs/", "experimentids/exp/runs/"} {
		v := w.json("GET", "/history/v1.0"+workspace+path+"job%201%25/details?api-version=v1.0", "")
		got := map[string]any{}
		for _, k := range []string{"runId", "status", "target", "startTimeUtc", "endTimeUtc", "properties", "services", "outputs", "tags", "parameters"} {
			got[k] = v[k]
		}
		empty := map[string]any{}
		if diff := cmp.Diff(map[string]any{"runId": "job 1%", "status": "Failed", "target": "cpu-cluster", "startTimeUtc": "2026-11-21T02:40:01Z",
			"endTimeUtc": "2026-11-21T02:41:00Z", "properties": empty, "services": empty, "outputs": empty, "tags": map[string]any{"a": "b"},
			"parameters": map[string]any{"lr": "0.1"}}, got); diff != "" {
			t.Error(diff)
		}
		if text := fmt.Sprint(v["error"], v["warnings"]); !strings.Contains(text, "OutOfMemory") || !strings.Contains(text, "killed at 512 MB") ||
			!strings.Contains(text, "the image was not used") {
			t.Errorf("error and warnings: %s", text)
		}
		logs := v["logFiles"].(map[string]any)
		for name, want := range map[string]string{std: "line \uFFFD\n", "logs/a #1.txt": "mine"} {
			a := w.do("GET", logs[name].(string), "", nobody)
			if a.StatusCode != 200 || a.body != want {
				t.Errorf("%s without credentials = %s %q, want %q", name, a.Status, a.body, want)
			}
		}
	}
}

func TestRunsAndRunData(t *testing.T) {
	w := newWorld(t)
	w.add("job1", trainyard.JobQueued)
	run := w.json("GET", "/history/v1.0"+workspace+"runs/job1", "")
	if run["status"] != "Queued" || run["dataContainerId"] != "dcid.job1" || run["startTimeUtc"] != nil || run["error"] != nil || run["runNumber"] != 7.0 {
		t.Errorf("run: %v", run)
	}
	data := w.json("POST", "/history/v1.0"+workspace+"rundata", `{"runId":"job1","selectRunMetadata":true}`)
	meta, _ := data["runMetadata"].(map[string]any)
	if meta["runId"] != "job1" || fmt.Sprint(meta["outputs"]) != "map[]" {
		t.Errorf("run data: %v", data)
	}
	if v := w.json("GET", "/history/v1.0"+workspace+"runs/job1/children?api-version=v1.0", ""); fmt.Sprint(v["value"]) != "[]" {
		t.Errorf("children: %v", v)
	}
	if v := w.json("GET", "/history/v1.0"+workspace+"runs/job1/serviceinstances/0", ""); fmt.Sprint(v["instances"]) != "map[]" {
		t.Errorf("services: %v", v)
	}
}

func TestDataAssetsAreResolved(t *testing.T) {
	w := newWorld(t)
	arm := scope.Child("data", "iris x", "versions", "1")
	plane := "azureml://locations/local/workspaces/ws/data/iris%20x/versions/1"
	gone := "azureml://locations/local/workspaces/ws/data/iris/versions/9"
	ask, _ := json.Marshal(map[string]any{"values": []string{arm, plane, gone}})
	v := w.json("POST", "/data/v1.0"+workspace+"dataversion/batchGetResolvedUris?api-version=1.5.0", string(ask))
	one := map[string]any{"uri": "azureml://subscriptions/s/resourcegroups/RG/workspaces/ws/datastores/d/paths/a/b.csv", "type": "UriFile"}
	if diff := cmp.Diff(map[string]any{"values": map[string]any{arm: one, plane: one}}, v); diff != "" {
		t.Error(diff)
	}
}

func TestErrors(t *testing.T) {
	w := newWorld(t)
	w.add("job1", trainyard.JobRunning)
	w.say("job1", 0, "0123456789")
	runs := "/history/v1.0" + workspace + "runs/"
	signed := "?" + w.signer.Sign(".logs/s/rg/ws/job1", "r", time.Now().Add(time.Hour)).Encode()
	for name, c := range map[string]struct {
		method, path, body, header string
		status                     int
	}{
		"no such job":                {"GET", runs + "none/details", "", "", 404},
		"no such path":               {"GET", runs + "job1/nonsense", "", "", 404},
		"a deeper path":              {"GET", runs + "job1/details/x", "", "", 404},
		"no workspace":               {"GET", "/history/v1.0/runs/job1", "", "", 404},
		"another provider":           {"GET", strings.Replace(runs, "MachineLearning", "Machine", 1) + "job1", "", "", 404},
		"the other plane":            {"GET", "/data/v1.0" + workspace + "runs/job1", "", "", 404},
		"another method":             {"DELETE", runs + "job1", "", "", 501},
		"nobody":                     {"GET", runs + "job1", "", nobody, 401},
		"another workspace":          {"GET", strings.Replace(runs, "/ws/", "/other/", 1) + "job1", "", "", 403},
		"rundata is not JSON":        {"POST", "/history/v1.0" + workspace + "rundata", "{", "", 400},
		"rundata of no run":          {"POST", "/history/v1.0" + workspace + "rundata", "{}", "", 400},
		"an asset of nobody's":       {"POST", "/data/v1.0" + workspace + "dataversion/batchGetResolvedUris", `{"values":["x"]}`, "", 400},
		"no such log":                {"GET", runs + "job1/logs/user_logs/none.txt", "", "", 404},
		"not a log":                  {"GET", runs + "job1/logs/outputs/model.pkl", "", "", 400},
		"climbing":                   {"GET", runs + "job1/logs/user_logs/%2E%2E/outputs/x", "", "", 400},
		"climbing in one segment":    {"GET", runs + "job1/logs/user_logs%2F..%2Foutputs%2Fx", "", "", 400},
		"a log, nobody":              {"GET", runs + "job1/logs/" + std, "", nobody, 401},
		"a log, signed":              {"GET", runs + "job1/logs/" + std + signed, "", nobody, 200},
		"another job's signature":    {"GET", runs + "job10/logs/" + std + signed, "", nobody, 403},
		"another signature":          {"GET", runs + "job1/logs/" + std + "?sig=x", "", "", 401},
		"a signature for a log only": {"GET", runs + "job1" + signed, "", nobody, 401},
		"a range past the end":       {"GET", runs + "job1/logs/" + std, "", "Range: bytes=10-", 416},
		"a negative offset":          {"GET", runs + "job1/logs/" + std + "?offset=-1", "", "", 400},
		"a wait of NaN":              {"GET", runs + "job1/logs/" + std + "?wait=NaN", "", "", 400},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.do(c.method, c.path, c.body, c.header)
			if a.StatusCode != c.status {
				t.Errorf("%s, want %d: %s", a.Status, c.status, a.body)
			}
			var e struct{ Error trainyard.Error }
			if c.status >= 400 && c.status != 416 && (json.Unmarshal([]byte(a.body), &e) != nil || e.Error.Code == "" || e.Error.Message == "") {
				t.Errorf("the body is %q", a.body)
			}
		})
	}
	if w.log.Len() > 0 {
		t.Errorf("users' errors are in the log: %s", w.log.String())
	}
}

func TestALogInRanges(t *testing.T) {
	w := newWorld(t)
	w.add("job1", trainyard.JobRunning)
	w.say("job1", 0, "012345678\n")
	url := "/history/v1.0" + workspace + "runs/job1/logs/" + std
	for header, want := range map[string]string{
		"":                  "200 012345678\n ",
		"Range: bytes=2-4":  "206 234 bytes 2-4/10",
		"Range: bytes=8-":   "206 8\n bytes 8-9/10",
		"Range: bytes=-3":   "206 78\n bytes 7-9/10",
		"Range: bytes=-300": "206 012345678\n bytes 0-9/10",
		"Range: bytes=x":    "200 012345678\n ",
	} {
		a := w.do("GET", url, "", header)
		if got := fmt.Sprintf("%d %s %s", a.StatusCode, a.body, a.Header.Get("Content-Range")); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
		if a.Header.Get("Trainyard-Log-Size") != "10" || a.Header.Get("Trainyard-Job-Status") != "Running" {
			t.Errorf("%q: %v", header, a.Header)
		}
	}
	if a := w.do("HEAD", url, ""); a.Header.Get("Trainyard-Log-Size") != "10" || a.body != "" {
		t.Errorf("HEAD: %d bytes, %q", a.ContentLength, a.body)
	}
}

// Azure's client prints the lines beyond those that it has seen, and decodes strictly.
func TestATextHasWholeLinesAndIsUTF8(t *testing.T) {
	w := newWorld(t)
	w.add("job1", trainyard.JobRunning)
	url := "/history/v1.0" + workspace + "runs/job1/logs/" + std
	said := ""
	for _, step := range []struct{ say, want string }{
		{"begin", ""},
		{"ning\nepoch 1", "beginning\n"},
		{"\r", "beginning\nepoch 1\r"},
		{"epoch 2\r\nbad \xff\xfe\n\xe6", "beginning\nepoch 1\repoch 2\r\nbad \uFFFD\n"},
		{"\x97\xa5\n", "beginning\nepoch 1\repoch 2\r\nbad \uFFFD\n日\n"},
		{"no newline at the end", "beginning\nepoch 1\repoch 2\r\nbad \uFFFD\n日\n"},
	} {
		w.say("job1", int64(len(said)), step.say)
		said += step.say
		if a := w.do("GET", url, ""); a.body != step.want {
			t.Errorf("after %q: %q, want %q", step.say, a.body, step.want)
		}
		if a := w.do("GET", url+"?offset=0", ""); a.body != said {
			t.Errorf("after %q the bytes are %q, want %q", step.say, a.body, said)
		}
	}
	w.end("job1", trainyard.JobFinalizing)
	if a := w.do("GET", url, ""); !strings.HasSuffix(a.body, "no newline at the end") {
		t.Errorf("at the end: %q", a.body)
	}
	w.add("job2", trainyard.JobRunning)
	w.say("job2", 0, strings.Repeat("x", 100_000))
	if a := w.do("GET", strings.Replace(url, "job1", "job2", 1), ""); len(a.body) != 100_000 {
		t.Errorf("a very long line: %d bytes", len(a.body))
	}
}

// A follower knows only what the answers say, and ends with the whole log.
func TestFollowingToTheEnd(t *testing.T) {
	w := newWorld(t)
	w.add("job1", trainyard.JobQueued)
	url := w.URL + "/history/v1.0" + workspace + "runs/job1/logs/" + std
	got := make(chan string, 1)
	go func() {
		var all strings.Builder
		for {
			a := w.do("GET", fmt.Sprintf("%s?offset=%d&wait=30", url, all.Len()), "")
			all.WriteString(a.body)
			state := trainyard.JobState(a.Header.Get("Trainyard-Job-Status"))
			if a.StatusCode != 200 || state.Terminal() && a.Header.Get("Trainyard-Log-Size") == fmt.Sprint(all.Len()) {
				break
			}
		}
		got <- all.String()
	}()
	want := ""
	for i := range 20 {
		<-w.waits // it waits: what comes now must wake it
		line := fmt.Sprintf("line %d\n", i)
		w.say("job1", int64(len(want)), line)
		want += line
	}
	<-w.waits
	w.end("job1", trainyard.JobCompleted)
	select {
	case all := <-got:
		if all != want {
			t.Errorf("followed %q, want %q", all, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the follower was not told that the job is over")
	}
}

func TestFollowingDoesNotWaitWithoutReason(t *testing.T) {
	w := newWorld(t)
	w.add("running", trainyard.JobRunning)
	w.add("done", trainyard.JobCanceled)
	w.say("running", 0, "abc")
	for query, want := range map[string]string{
		"running/logs/" + std + "?offset=1&wait=30":            "bc 3 Running", // there is more
		"running/logs/" + std + "?offset=3":                    " 3 Running",   // not asked to wait
		"running/logs/" + std + "?offset=99":                   " 3 Running",   // it has less than the follower thinks
		"running/logs/" + std + "?offset=3&wait=0.001":         " 3 Running",   // waited in vain
		"running/logs/user_logs/later.txt?offset=0&wait=0.001": " 0 Running",
		"done/logs/" + std + "?offset=0&wait=30":               " 0 Canceled", // over, and nothing was said
	} {
		a := w.do("GET", "/history/v1.0"+workspace+"runs/"+query, "")
		if got := a.body + " " + a.Header.Get("Trainyard-Log-Size") + " " + a.Header.Get("Trainyard-Job-Status"); got != want || a.StatusCode != 200 {
			t.Errorf("%s = %s %q, want %q", query, a.Status, got, want)
		}
	}
}

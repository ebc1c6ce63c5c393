package mlflow_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/blob"
	"github.com/trainyard/trainyard/internal/mlflow"
)

const base = "/mlflow/v1.0/subscriptions/s/resourcegroups/RG/providers/Microsoft.MachineLearningServices/workspaces/ws/api/2.0/"

var (
	scope = trainyard.Scope{Subscription: "s", ResourceGroup: "rg", Workspace: "ws"}
	start = time.Date(2026, 11, 21, 2, 40, 0, 0, time.UTC)
)

// world has real blobs; jobs and assets are what control would say of them.
type world struct {
	*httptest.Server
	t      testing.TB
	dir    string
	blobs  *blob.Bucket
	log    bytes.Buffer
	config mlflow.Config

	mu     sync.Mutex
	now    time.Time
	seq    int64
	jobs   map[string]*trainyard.Job
	assets []*trainyard.Resource
}

var (
	_ mlflow.Jobs   = (*world)(nil)
	_ mlflow.Models = (*world)(nil)
	_ mlflow.Bucket = (*blob.Bucket)(nil)
)

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), jobs: map[string]*trainyard.Job{}, now: start}
	w.config = mlflow.Config{Jobs: w, Models: w, Allow: w.allow, Log: slog.New(slog.NewTextHandler(&w.log, nil)), Now: w.tick}
	w.open()
	t.Cleanup(func() { w.Close(); w.blobs.Close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	blobs, err := blob.Open(context.Background(), w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	w.blobs, w.config.Blobs = blobs, blobs
	w.Server = httptest.NewServer(handlerOf(w))
}

func handlerOf(w *world) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mlflow/", mlflow.New(w.config))
	return mux
}

// restart is a server that was killed: nothing but the disk is left.
func (w *world) restart() {
	w.t.Helper()
	w.Close()
	w.blobs.Close()
	w.open()
}

func (w *world) tick() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(time.Millisecond)
	return w.now
}

// allow knows the tokens "t", an admin's, "r", a reader's, and "job:NAME".
func (w *world) allow(r *http.Request, s trainyard.Scope, write bool) (trainyard.User, error) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	job, isJob := strings.CutPrefix(token, "job:")
	switch {
	case token == "r" && write:
		return trainyard.User{}, trainyard.Errorf(trainyard.CodeForbidden, "a reader may not write")
	case token != "t" && token != "r" && !isJob:
		return trainyard.User{}, trainyard.Errorf(trainyard.CodeUnknown, "who are you?")
	case isJob && s.Fold() != scope.Fold():
		return trainyard.User{}, trainyard.Errorf(trainyard.CodeForbidden, "not workspace %q", s.Workspace)
	case isJob:
		return trainyard.User{Name: "job " + job, Role: trainyard.RoleJob, Job: job, Scope: s}, nil
	}
	return trainyard.User{Name: "ada", Role: trainyard.RoleAdmin}, nil
}

func (w *world) Job(_ context.Context, s trainyard.Scope, name string) (*trainyard.Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if j := w.jobs[name]; j != nil && s.Fold() == scope.Fold() {
		return j.Clone(), nil
	}
	return nil, trainyard.NotFound("there is no job %q", name)
}

func (w *world) Jobs(_ context.Context, q trainyard.JobQuery) (trainyard.Page[*trainyard.Job], error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var p trainyard.Page[*trainyard.Job]
	if q.Scope.Fold() != scope.Fold() {
		return p, nil
	}
	before := int64(1 << 60)
	if q.After != "" {
		before, _ = strconv.ParseInt(q.After, 10, 64)
	}
	for _, j := range w.jobs {
		if j.Seq < before {
			p.Items = append(p.Items, j.Clone())
		}
	}
	slices.SortFunc(p.Items, func(a, b *trainyard.Job) int { return cmp.Compare(b.Seq, a.Seq) })
	if q.Top > 0 && len(p.Items) > q.Top {
		p.Items = p.Items[:q.Top]
		p.Next = strconv.FormatInt(p.Items[q.Top-1].Seq, 10)
	}
	return p, nil
}

// submit adds a job.
func (w *world) submit(name, experiment string, state trainyard.JobState) *trainyard.Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	j := &trainyard.Job{Scope: scope, Name: name, Seq: w.seq, Created: start.Add(time.Duration(w.seq) * time.Second), CreatedBy: "ada",
		Spec:   trainyard.JobSpec{DisplayName: "Train " + name, ExperimentName: experiment, Tags: map[string]string{"team": "blue"}},
		Status: trainyard.JobStatus{State: state}}
	if state == trainyard.JobRunning || state.Terminal() {
		j.Status.Started = j.Created.Add(time.Second)
	}
	if state.Terminal() {
		j.Status.Ended = j.Created.Add(time.Minute)
	}
	w.jobs[name] = j
	return j
}

// delete takes a job away, with what control takes along.
func (w *world) delete(name string) {
	w.t.Helper()
	w.mu.Lock()
	delete(w.jobs, name)
	w.mu.Unlock()
	if err := w.blobs.DeletePrefix(w.t.Context(), trainyard.RunLog(scope, name)+"/"); err != nil {
		w.t.Error(err)
	}
}

func (w *world) state(name string, s trainyard.JobState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.jobs[name]
	j.Status.State = s
	if s.Terminal() {
		j.Status.Ended = j.Created.Add(time.Minute)
	}
}

type answer struct {
	*http.Response
	body string
}

// do sends a request. path is below api/2.0/, or whole; headers may say who asks instead of the admin.
func (w *world) do(method, path, body string, headers ...string) answer {
	w.t.Helper()
	if !strings.HasPrefix(path, "/") {
		path = base + path
	}
	r, err := http.NewRequest(method, w.URL+path, strings.NewReader(body))
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

// ok is do for what must go well; it returns the object that is answered. What is at the dots of into is returned as text by dig.
func (w *world) ok(method, path string, body any, headers ...string) object {
	w.t.Helper()
	text, isText := body.(string)
	if !isText && body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		text = string(data)
	}
	a := w.do(method, path, text, headers...)
	var v object
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.StatusCode != 200 {
		w.t.Fatalf("%s %s %s = %s %s", method, path, text, a.Status, a.body)
	}
	return v
}

// fails checks that a call is refused with a code and words in its message.
func (w *world) fails(code, words, method, path, body string, headers ...string) {
	w.t.Helper()
	a := w.do(method, path, body, headers...)
	var e struct {
		Code    string `json:"error_code"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal([]byte(a.body), &e); err != nil || e.Code != code || !strings.Contains(e.Message, words) {
		w.t.Errorf("%s %s %s = %s %s, want %s: …%s…", method, path, body, a.Status, a.body, code, words)
	}
}

type object map[string]any

// dig returns what is at a path of names and numbers, "run.info.status".
func (o object) dig(path string) any {
	var at any = map[string]any(o)
	for part := range strings.SplitSeq(path, ".") {
		switch v := at.(type) {
		case map[string]any:
			at = v[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(v) {
				return nil
			}
			at = v[i]
		default:
			return nil
		}
	}
	return at
}

// pairs is a list of {key, value} as a text "a=1 b=2".
func (o object) pairs(path string) string {
	list, _ := o.dig(path).([]any)
	var out []string
	for _, x := range list {
		m := x.(map[string]any)
		out = append(out, fmt.Sprintf("%v=%v", m["key"], m["value"]))
	}
	return strings.Join(out, " ")
}

// want compares what is at paths of an object with texts.
func (w *world) want(o object, want map[string]string) {
	w.t.Helper()
	for path, text := range want {
		v := o.dig(path)
		if f, isNumber := v.(float64); isNumber {
			v = strconv.FormatFloat(f, 'f', -1, 64)
		}
		if got := fmt.Sprint(v); got != text {
			w.t.Errorf("%s is %s, want %s", path, got, text)
		}
	}
}

// run makes a run, and returns its ID.
func (w *world) run(body string, headers ...string) string {
	w.t.Helper()
	return w.ok("POST", "mlflow/runs/create", body, headers...).dig("run.info.run_id").(string)
}

func as(job string) string { return "Authorization: Bearer job:" + job }

package studio_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/blob"
	"github.com/trainyard/trainyard/internal/identity"
	"github.com/trainyard/trainyard/internal/output"
	"github.com/trainyard/trainyard/internal/studio"
)

const std = "user_logs/std_log.txt"

var (
	scope = trainyard.DefaultScope()
	start = time.Date(2026, 11, 21, 2, 40, 0, 0, time.UTC)
)

// world is a server with real logs, files, tokens and sessions, whose jobs, computes, endpoints and models are in maps.
type world struct {
	*httptest.Server
	t      testing.TB
	id     *identity.Service
	said   *output.Store
	bucket *blob.Bucket
	log    bytes.Buffer

	mu       sync.Mutex
	now      time.Time
	jobs     []*trainyard.Job // oldest first
	events   []trainyard.Event
	computes []*trainyard.Compute
	nodes    map[string][]trainyard.NodeStatus
	subs     map[int]func(trainyard.Change)
	last     int
	canceled []string // "who: job"

	serving
}

var (
	_ studio.Jobs     = (*world)(nil)
	_ studio.Logs     = (*world)(nil)
	_ studio.Computes = (*world)(nil)
	_ studio.Changes  = (*world)(nil)
)

type settings struct {
	mu     sync.Mutex
	values map[string][]byte
}

func (s *settings) Setting(_ context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key], nil
}

func (s *settings) PutSetting(_ context.Context, key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = value
	return nil
}

func newWorld(t testing.TB) *world {
	t.Helper()
	bucket, err := blob.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, said: output.New(bucket), bucket: bucket, now: start.Add(time.Minute), nodes: map[string][]trainyard.NodeStatus{},
		subs: map[int]func(trainyard.Change){}}
	if w.id, err = identity.New(identity.Config{Settings: &settings{values: map[string][]byte{}}, Now: w.clock}); err != nil {
		t.Fatal(err)
	}
	door := studio.New(studio.Config{Jobs: w, Logs: w, Computes: w, Files: bucket, Changes: w, Resources: w, Endpoints: w,
		Gateway: w.snapshot, Sessions: identity.NewSessions(w.id), Now: w.clock, Log: slog.New(slog.NewTextHandler(&w.log, nil))})
	mux := http.NewServeMux()
	for _, path := range studio.Paths() {
		mux.Handle(path, door)
	}
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) { http.Error(rw, "another door", http.StatusTeapot) })
	w.Server = httptest.NewServer(mux)
	t.Cleanup(func() { w.CloseClientConnections(); w.Close(); bucket.Close() })
	return w
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// What control does for the door.

func (w *world) Job(_ context.Context, s trainyard.Scope, name string) (*trainyard.Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		if j.Name == name && j.Scope.Fold() == s.Fold() {
			return j.Clone(), nil
		}
	}
	return nil, trainyard.NotFound("there is no job %q", name)
}

func (w *world) Jobs(_ context.Context, q trainyard.JobQuery) (page trainyard.Page[*trainyard.Job], err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tag, value, _ := strings.Cut(q.Tag, "=")
	for _, j := range slices.Backward(w.jobs) {
		if j.Scope.Fold() != q.Scope.Fold() || q.Compute != "" && j.Plan.Compute != q.Compute || q.States != nil && !slices.Contains(q.States, j.Status.State) ||
			q.Tag != "" && j.Spec.Tags[tag] != value || q.After != "" && fmt.Sprint(j.Seq) >= q.After && len(fmt.Sprint(j.Seq)) == len(q.After) {
			continue
		}
		if len(page.Items) == q.Top {
			page.Next = fmt.Sprint(page.Items[len(page.Items)-1].Seq)
			break
		}
		page.Items = append(page.Items, j.Clone())
	}
	return page, nil
}

func (w *world) Waiting(_ context.Context, s trainyard.Scope, compute string, most int) (list []*trainyard.Job, more bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		if j.Scope.Fold() == s.Fold() && j.Plan.Compute == compute && j.Status.State == trainyard.JobQueued {
			list = append(list, j.Clone())
		}
	}
	return list[:min(len(list), most)], len(list) > most, nil
}

func (w *world) JobPosition(context.Context, trainyard.Scope, string) (int, error) { return 3, nil }

func (w *world) JobEvents(_ context.Context, _ trainyard.Scope, name string, _ int64) ([]trainyard.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events), nil
}

func (w *world) CancelJob(_ context.Context, who trainyard.User, s trainyard.Scope, name string) error {
	w.change(name, func(j *trainyard.Job) { j.Status.State = trainyard.JobCanceled })
	w.mu.Lock()
	defer w.mu.Unlock()
	w.canceled = append(w.canceled, who.Name+": "+name)
	return nil
}

func (w *world) LogFiles(ctx context.Context, s trainyard.Scope, job string) ([]trainyard.BlobInfo, error) {
	return w.said.Files(ctx, s, job)
}

func (w *world) ReadLog(ctx context.Context, s trainyard.Scope, job, name string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	return w.said.Read(ctx, s, job, name, offset)
}

func (w *world) WaitLog(ctx context.Context, s trainyard.Scope, job, name string, beyond int64) (int64, error) {
	ctx, over := context.WithCancel(ctx)
	defer over()
	look := func() {
		if j, err := w.Job(ctx, s, job); err != nil || j.Status.State.Terminal() {
			over()
		}
	}
	defer w.Subscribe(func(trainyard.Change) { look() })()
	look()
	return w.said.Wait(ctx, s, job, name, beyond)
}

func (w *world) Location(_ context.Context, name string) (trainyard.Location, error) {
	if name != "hpc" {
		return trainyard.Location{Name: trainyard.DefaultLocation, Driver: "process"}, nil
	}
	return trainyard.Location{Name: name, Driver: "slurm"}, nil
}

func (w *world) Computes(_ context.Context, s trainyard.Scope) ([]*trainyard.Compute, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.computes), func(c *trainyard.Compute) bool { return c.Scope.Fold() != s.Fold() }), nil
}

func (w *world) Compute(ctx context.Context, s trainyard.Scope, name string) (*trainyard.Compute, error) {
	all, _ := w.Computes(ctx, s)
	for _, c := range all {
		if c.Name == name {
			return c, nil
		}
	}
	return nil, trainyard.NotFound("there is no compute %q", name)
}

func (w *world) Nodes(_ context.Context, s trainyard.Scope, name string) ([]trainyard.NodeStatus, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.nodes[name]), nil
}

func (w *world) Resources(_ context.Context, q trainyard.ResourceQuery) (trainyard.Page[*trainyard.Resource], error) {
	if q.Kind == trainyard.KindModel {
		return w.modelPage(q), nil
	}
	other := scope
	other.Workspace = "vision"
	return trainyard.Page[*trainyard.Resource]{Items: []*trainyard.Resource{{Scope: scope, Name: scope.Workspace}, {Scope: other, Name: "vision"}}}, nil
}

func (w *world) Subscribe(f func(trainyard.Change)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	id := w.last
	w.subs[id] = f
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.subs, id)
	}
}

func (w *world) tell(c trainyard.Change) {
	w.mu.Lock()
	var subs []func(trainyard.Change)
	for _, f := range w.subs {
		subs = append(subs, f)
	}
	w.mu.Unlock()
	for _, f := range subs {
		f(c)
	}
}

// Making things.

func (w *world) add(name string, state trainyard.JobState) *trainyard.Job {
	j := &trainyard.Job{Scope: scope, Name: name, Created: start, Modified: start, CreatedBy: "ada",
		Spec: trainyard.JobSpec{JobType: "Command", DisplayName: "Train " + name, ExperimentName: "exp", Command: "python train.py"},
		Plan: trainyard.JobPlan{Compute: "cpu-cluster", Nodes: 1, Processes: 1}, Status: trainyard.JobStatus{State: state}}
	if state != trainyard.JobQueued {
		j.Status.Started = start.Add(10 * time.Second)
	}
	if state.Terminal() {
		j.Status.Ended = start.Add(40 * time.Second)
	}
	w.mu.Lock()
	j.Seq = int64(1000 + len(w.jobs))
	w.jobs = append(w.jobs, j)
	w.mu.Unlock()
	w.tell(trainyard.Change{Jobs: []trainyard.JobKey{j.Key()}})
	return j
}

// change changes a job and tells of it.
func (w *world) change(name string, do func(*trainyard.Job)) {
	w.mu.Lock()
	var key trainyard.JobKey
	for i, j := range w.jobs {
		if j.Name == name {
			w.jobs[i] = j.Clone()
			do(w.jobs[i])
			key = j.Key()
		}
	}
	w.mu.Unlock()
	w.tell(trainyard.Change{Jobs: []trainyard.JobKey{key}})
}

// say appends to a log.
func (w *world) say(job, name string, text string) {
	w.t.Helper()
	var size int64
	if files, err := w.LogFiles(w.t.Context(), scope, job); err == nil {
		for _, f := range files {
			if f.Key == name {
				size = f.Size
			}
		}
	}
	if _, err := w.said.Append(w.t.Context(), scope, job, name, size, []byte(text)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) put(key, text string) {
	w.t.Helper()
	if err := w.bucket.Put(w.t.Context(), key, strings.NewReader(text)); err != nil {
		w.t.Fatal(err)
	}
}

// token makes a token for somebody.
func (w *world) token(who trainyard.User) string {
	w.t.Helper()
	token, err := w.id.Mint(who, "", time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

package kube

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// answers is an API server in memory.
type answers func(r *http.Request) (code int, body string)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) {
	code, body := f(r)
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// Why Kueue took a Job back is what decides how its task ended, so a look that fails is not the last.
func TestKueueIsAskedAgainWhyItTookAJobBack(t *testing.T) {
	const stopped = `{"items":[{"metadata":{"name":"w","labels":{"kueue.x-k8s.io/job-uid":"u1"}},"status":{"conditions":[
		{"type":"Evicted","status":"True","reason":"Deactivated","message":"The workload is deactivated"}]}}]}`
	for name, c := range map[string]struct {
		code  int // of the first looks
		bad   int // how many
		class trainyard.Class
		words string
		looks int
	}{
		"it answers at once":         {500, 0, trainyard.ClassCanceled, "was stopped, not by trainyard: The workload is deactivated", 1},
		"the first look fails":       {500, 1, trainyard.ClassCanceled, "was stopped, not by trainyard: The workload is deactivated", 2},
		"it has no time for seconds": {429, 3, trainyard.ClassCanceled, "was stopped, not by trainyard: The workload is deactivated", 4},
		"no look goes well":          {503, 1000, trainyard.ClassPreempted, "its Job was suspended", 5},
		"nobody may look":            {403, 1000, trainyard.ClassPreempted, "its Job was suspended", 1},
		"there is no Kueue any more": {404, 1000, trainyard.ClassPreempted, "its Job was suspended", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				d := newMemoryDriver(t, func(r *http.Request) (int, string) {
					switch {
					case r.URL.Path == "/apis/"+kueueGroup:
						return 200, `{"preferredVersion":{"version":"v1beta1"}}`
					case strings.HasSuffix(r.URL.Path, "/"+workloads):
						if looks++; looks <= c.bad {
							return c.code, `{"message":"account x cannot now"}`
						}
						return 200, stopped
					}
					return 404, ""
				})
				k := d.newTask(record{ID: trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), "j"), 1, 0), Name: "j", Ranks: 1, UID: "u1",
					Begun: map[string]bool{"uid-p": true}})
				k.job, k.pods["p"] = &job{}, &podSeen{pod: podJSON(t, "p", `{"phase":"Running"}`), gone: true}
				k.job.Spec.Suspend = true
				a, began := &tender{Driver: d, task: k}, time.Now()
				for !a.step(t.Context()) {
					if time.Since(began) > time.Minute {
						t.Fatal("after a minute it has not ended")
					}
					<-time.After(a.pause() / 4) // as when there is much news
				}
				if r := k.end.Result; r.Class != c.class || !strings.Contains(r.Message, c.words) {
					t.Errorf("it ended as %+v", r)
				}
				if looks != c.looks {
					t.Errorf("Kueue was asked %d times, want %d", looks, c.looks)
				}
			})
		})
	}
}

// newMemoryDriver is a driver whose tasks wait in a queue, with no mirrors at work.
func newMemoryDriver(t *testing.T, api answers) *Driver {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	d := &Driver{cfg: &Config{Queue: "team-a"}, env: target.Env{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))},
		api: &client{http: &http.Client{Transport: api}, base: &url.URL{Scheme: "http", Host: "cluster.test"}, namespace: "n"},
		ctx: ctx, cancel: cancel, changed: make(chan struct{}, 1), tasks: map[string]*task{}}
	d.jobs, d.served, d.watched = &mirror[job]{}, &mirror[job]{}, &mirror[pod]{}
	return d
}

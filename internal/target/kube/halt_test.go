package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trainyard/trainyard"
)

// stage is a driver with one task, before an API server in memory that runs no scripts in pods, so that they are told by being deleted.
type stage struct {
	*testing.T
	*Driver
	k    *task
	from time.Time

	mu    sync.Mutex
	away  []string // of which nothing is answered: names of objects, or "all"
	calls []call
}

// call is what was changed in the cluster, and when.
type call struct {
	what string
	at   time.Duration
}

func newStage(t *testing.T, r record) *stage {
	s := &stage{T: t, from: time.Now()}
	r.ID, r.Name, r.UID = trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), "j"), 1, 0), "j", "u1"
	r.Ranks = max(1, r.Ranks)
	r.Begun = map[string]bool{}
	s.open(t.TempDir(), r)
	if err := s.save(s.k, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.shut)
	return s
}

// open has a driver on a folder, which knows nothing but the record.
func (s *stage) open(dir string, r record) {
	s.Driver = newMemoryDriver(s.T, s.answer)
	s.env.Dir, s.spare, s.removed = dir, spare, map[string]bool{}
	s.api.base = &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	s.api.rest = &rest.Config{Host: s.api.base.String()}
	s.jobs.heard()
	s.served.heard()
	s.watched.heard()
	s.k = s.newTask(r)
	s.k.job = &job{}
	s.tasks = map[string]*task{s.nameOf(r.ID): s.k}
}

// shut closes the driver.
func (s *stage) shut() {
	s.cancel()
	s.members.Wait()
}

// reopen has another driver go on from what is written down.
func (s *stage) reopen() {
	s.Helper()
	s.shut()
	var r record
	if err := readJSON(filepath.Join(s.k.dir, recordFile), &r); err != nil {
		s.Fatal(err)
	}
	pods := s.k.pods
	s.open(s.env.Dir, r)
	s.k.pods = pods
	s.goOn()
}

// sees has a pod look like this.
func (s *stage) sees(name, status string, begun bool) {
	s.Helper()
	s.Driver.mu.Lock()
	defer s.Driver.mu.Unlock()
	p := podJSON(s.T, name, status)
	s.k.pods[name] = &podSeen{pod: p}
	if begun {
		s.k.rec.Begun[p.Meta.UID] = true
	}
	s.k.look()
}

// goOn has a tender look after the task.
func (s *stage) goOn() {
	s.Driver.mu.Lock()
	defer s.Driver.mu.Unlock()
	s.tend(s.k)
}

func (s *stage) answer(r *http.Request) (int, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := path.Base(r.URL.Path)
	if slices.Contains(s.away, name) || slices.Contains(s.away, "all") {
		return 503, `{"message":"not now"}`
	}
	var body struct {
		Seconds int `json:"gracePeriodSeconds"`
		Spec    struct {
			Replicas int `json:"replicas"`
		} `json:"spec"`
	}
	switch r.Method {
	case http.MethodGet:
		return 200, ""
	case http.MethodPatch:
		name = "scale " + name
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		s.Error(err)
	}
	s.calls = append(s.calls, call{fmt.Sprintf("%s %d", name, body.Seconds+body.Spec.Replicas), time.Since(s.from)})
	return 200, `{}`
}

func (s *stage) loses(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = names
}

func (s *stage) stop(grace time.Duration, well bool) {
	s.Helper()
	if err := s.Stop(s.Context(), s.k.id, grace); (err == nil) != well {
		s.Errorf("Stop says %v", err)
	}
}

// until lets time pass, until so long after the beginning.
func (s *stage) until(at time.Duration) { <-time.After(time.Until(s.from.Add(at))) }

// want compares what was changed so far: each in its time, or a few seconds later, as when a tender looks now and then.
func (s *stage) want(all ...call) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	near := func(a, b call) bool { return a.what == b.what && a.at >= b.at && a.at <= b.at+7*time.Second }
	if !slices.EqualFunc(s.calls, all, near) {
		s.Errorf("the cluster was changed by %v, want %v", s.calls, all)
	}
}

func TestThePatienceWithPodsBeginsWhenTheyWereToldToEnd(t *testing.T) {
	const minute = time.Minute
	for name, play := range map[string]func(s *stage){
		"at once": func(s *stage) {
			s.stop(10*time.Second, true)
			s.until(150 * time.Second)
			s.want(call{"p0 130", 0}, call{"p0 1", 140 * time.Second})
		},
		"after an API server was away for longer than all of it": func(s *stage) {
			s.loses("all")
			s.stop(10*time.Second, false)
			s.until(10 * minute)
			s.loses()
			s.until(12 * minute)
			s.want(call{"p0 130", 10 * minute})
			s.until(12*minute + 45*time.Second)
			s.want(call{"p0 130", 10 * minute}, call{"p0 1", 12*minute + 20*time.Second})
			s.sees("p0", terminatedJSON(137, "Error", ""), true)
			s.until(14 * minute)
			s.Driver.mu.Lock()
			defer s.Driver.mu.Unlock()
			o := s.observe(s.k, time.Now())
			if o.Result == nil || o.Result.Class != trainyard.ClassCanceled || o.Killed < 140*time.Second || o.Killed > 145*time.Second {
				s.Errorf("it is seen as %+v", o)
			}
		},
		"which a driver does not know that is opened meanwhile, and one afterwards": func(s *stage) {
			s.loses("all")
			s.stop(10*time.Second, false)
			s.until(5 * minute)
			s.reopen()
			s.until(10 * minute)
			s.loses()
			s.until(11 * minute)
			s.reopen()
			s.until(12 * minute)
			s.want(call{"p0 130", 10 * minute})
			s.until(12*minute + 45*time.Second)
			s.want(call{"p0 130", 10 * minute}, call{"p0 1", 12*minute + 20*time.Second})
		},
		"each of its own": func(s *stage) {
			s.sees("p1", runningJSON, true)
			s.loses("p1")
			s.stop(10*time.Second, false)
			s.until(158 * time.Second)
			s.want(call{"p0 130", 0}, call{"p0 1", 140 * time.Second})
			s.sees("p0", terminatedJSON(137, "Error", ""), true)
			s.until(5 * minute)
			s.loses()
			s.until(7 * minute)
			s.want(call{"p0 130", 0}, call{"p0 1", 140 * time.Second}, call{"p1 130", 5 * minute})
			s.until(7*minute + 45*time.Second)
			s.want(call{"p0 130", 0}, call{"p0 1", 140 * time.Second}, call{"p1 130", 5 * minute}, call{"p1 1", 7*minute + 20*time.Second})
		},
		"and one in which nothing runs goes in the end": func(s *stage) {
			s.sees("p1", waitingJSON("ContainerCreating", ""), false)
			s.stop(10*time.Second, true)
			s.until(158 * time.Second)
			s.want(call{"p0 130", 0}, call{"p0 1", 140 * time.Second}, call{"p1 130", 140 * time.Second})
		},
		"and is shorter when they are told of less": func(s *stage) {
			s.stop(minute, true)
			s.until(20 * time.Second)
			s.stop(10*time.Second, true)
			s.until(175 * time.Second)
			s.want(call{"p0 180", 0}, call{"p0 130", 20 * time.Second}, call{"p0 1", 160 * time.Second})
		},
		"and is shorter only when they were told of less": func(s *stage) {
			s.stop(10*minute, true)
			s.loses("all")
			s.until(20 * time.Second)
			s.stop(10*time.Second, false)
			s.until(5 * minute)
			s.loses()
			s.until(7 * minute)
			s.want(call{"p0 720", 0}, call{"p0 130", 5 * minute})
			s.until(7*minute + 45*time.Second)
			s.want(call{"p0 720", 0}, call{"p0 130", 5 * minute}, call{"p0 1", 7*minute + 20*time.Second})
		},
		"and is no longer when they are told of more": func(s *stage) {
			s.stop(10*time.Second, true)
			s.until(5 * time.Second)
			s.stop(10*minute, true)
			s.until(158 * time.Second)
			s.want(call{"p0 130", 0}, call{"p0 130", 5 * time.Second}, call{"p0 1", 140 * time.Second})
		},
		"which an earlier version has not written down": func(s *stage) {
			text := fmt.Sprintf(`{"id":%q,"name":"j","ranks":1,"uid":"u1","begun":{"uid-p0":true},"stop":"2000-01-01T00:00:00Z"}`, s.k.id)
			if err := os.WriteFile(filepath.Join(s.k.dir, recordFile), []byte(text), 0o600); err != nil {
				s.Fatal(err)
			}
			s.reopen()
			s.until(10 * minute)
			s.want()
			s.stop(10*time.Second, true)
			s.until(12*minute + 45*time.Second)
			s.want(call{"p0 130", 10 * minute}, call{"p0 1", 12*minute + 20*time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, record{})
				s.sees("p0", runningJSON, true)
				s.goOn()
				play(s)
			})
		})
	}
}

// A Deployment makes pods until it is told to have none.
func TestAReplicaIsToldToEndUntilItKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, record{Main: containerName})
		s.sees("p0", runningJSON, true)
		s.goOn()
		s.loses("all")
		s.stop(10*time.Second, false)
		s.until(5 * time.Minute)
		s.loses("p0")
		s.until(6*time.Minute - time.Second/2) // between two looks
		s.mu.Lock()
		tries := len(s.calls)
		s.calls = nil
		s.mu.Unlock()
		if tries == 0 {
			t.Error("it was not scaled to none")
		}
		s.loses()
		s.until(8 * time.Minute)
		s.want(call{"scale j 0", 6 * time.Minute}, call{"p0 10", 6 * time.Minute})
		s.until(8*time.Minute + 45*time.Second)
		s.want(call{"scale j 0", 6 * time.Minute}, call{"p0 10", 6 * time.Minute}, call{"p0 1", 8*time.Minute + 20*time.Second})
	})
}

func TestThatItWasKilledIsSaidOfWhatLeftNoWord(t *testing.T) {
	killed := func(status string) podSight {
		p := begun(deleted(podJSON(t, "p0", status)))
		p.told = told{At: t0, Until: t0.Add(10 * time.Second), Killed: 140 * time.Second}
		return p
	}
	silent, said := killed(terminatedJSON(137, "Error", "")), begun(podJSON(t, "p1", terminatedJSON(143, "Error", left(trainyard.ClassCanceled, 143))))
	for name, c := range map[string]struct {
		pods []podSight
		want time.Duration
	}{
		"killed":                           {[]podSight{silent}, 140 * time.Second},
		"killed beside one that ended":     {[]podSight{said, silent}, 140 * time.Second},
		"ended by itself, and says how":    {[]podSight{killed(terminatedJSON(137, "Error", left(trainyard.ClassCanceled, 137)))}, 0},
		"ended at the last moment":         {[]podSight{killed(terminatedJSON(143, "Error", ""))}, 0},
		"killed at its memory limit":       {[]podSight{killed(terminatedJSON(137, "OOMKilled", ""))}, 0},
		"gone, and how it ended is unseen": {[]podSight{{pod: podJSON(t, "p0", runningJSON), begun: true, gone: true, told: silent.told}}, 0},
	} {
		s := &sight{asked: true, job: &job{}, ranks: len(c.pods), pods: c.pods}
		if v := judge(s, t0.Add(time.Hour)); v.end == nil || v.end.Killed != c.want {
			t.Errorf("%s: it ended as %+v", name, v.end)
		}
	}
}

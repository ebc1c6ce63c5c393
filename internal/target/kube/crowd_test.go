package kube

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trainyard/trainyard"
)

func memoryTask(d *Driver, n int) *task {
	id := trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), fmt.Sprintf("j%d", n)), 1, 0)
	return d.newTask(record{ID: id, Name: d.nameOf(id), Ranks: 1, UID: fmt.Sprintf("uid-%d", n), Sent: true})
}

// What is left of a task goes once others have begun, or when they take long, and with no more calls than it needs.
func TestWhatHasEndedIsClearedAwayWhenOthersHaveBegun(t *testing.T) {
	for name, c := range map[string]struct {
		ago      time.Duration // since its end
		starting int           // tasks that are on their way
		begin    time.Duration // when one of them has begun
		phase    string        // of the pod of that which has ended
		answer   string        // to its Job's deletion
		after    time.Duration
		calls    []string
	}{
		"nobody begins":                   {0, 0, 0, "Succeeded", `{"kind":"Status"}`, 0, []string{"DELETE j0"}},
		"a few begin":                     {0, crowd - 1, 0, "Succeeded", `{"kind":"Status"}`, 0, []string{"DELETE j0"}},
		"many begin":                      {0, crowd, 2 * time.Second, "Succeeded", `{"kind":"Status"}`, 2 * time.Second, []string{"DELETE j0"}},
		"many begin, and go on to":        {0, crowd, time.Hour, "Succeeded", `{"kind":"Status"}`, longestLeft, []string{"DELETE j0"}},
		"many begin, long after its end":  {8 * time.Second, crowd, time.Hour, "Succeeded", `{"kind":"Status"}`, longestLeft - 8*time.Second, []string{"DELETE j0"}},
		"its Job takes a moment to go":    {0, 0, 0, "Succeeded", `{"kind":"Job"}`, 0, []string{"DELETE j0", "GET j0"}},
		"many wait for room":              {0, -crowd, time.Hour, "Succeeded", `{"kind":"Status"}`, 0, []string{"DELETE j0"}},
		"another pod may take its place":  {0, 0, 0, "Failed", `{"kind":"Status"}`, 0, []string{"GET pods", "DELETE j0"}},
		"its pod is not known to be over": {0, 0, 0, "Running", `{"kind":"Status"}`, 0, []string{"GET pods", "DELETE j0"}},
		"its node is not done with it":    {0, 0, time.Second, "Terminated", `{"kind":"Status"}`, time.Second, []string{"DELETE j0"}},
		"its node takes long about it":    {0, 0, time.Hour, "Terminated", `{"kind":"Status"}`, longestDone, []string{"GET pods", "DELETE j0"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls []string
				var d *Driver
				d = newMemoryDriver(t, func(r *http.Request) (int, string) {
					what := pods
					if r.URL.Path == d.api.path(jobs, d.nameOf(trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), "j0"), 1, 0))) {
						what = "j0"
					}
					calls = append(calls, r.Method+" "+what)
					switch {
					case r.Method == http.MethodDelete:
						return 200, c.answer
					case what == pods:
						return 200, `{"items":[]}`
					}
					return 404, `{"message":"not found"}`
				})
				d.removed = map[string]bool{}
				over := memoryTask(d, 0)
				over.end = &ending{Ended: time.Now().Add(-c.ago)}
				status := `{"phase":"` + c.phase + `"}`
				if c.phase == "Terminated" {
					status = `{"phase":"Running","containerStatuses":[{"name":"` + containerName + `","state":{"terminated":{"exitCode":0}}}]}`
				}
				over.pods["p"] = &podSeen{pod: podJSON(t, "p", status)}
				var others []*task
				for n := range max(c.starting, -c.starting) {
					k := memoryTask(d, n+1)
					p := podJSON(t, "p", `{"phase":"Pending"}`)
					if c.starting < 0 {
						p = podJSON(t, "p", `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}`)
					}
					k.pods["p"] = &podSeen{pod: p}
					others = append(others, k)
				}
				if c.begin > 0 {
					go func() {
						<-time.After(c.begin)
						d.mu.Lock()
						defer d.mu.Unlock()
						for _, k := range others {
							k.rec.Begun["uid-p"] = true
						}
						over.pods["p"] = &podSeen{pod: podJSON(t, "p", `{"phase":"Succeeded"}`)}
					}()
				}
				from := time.Now()
				if err := d.Remove(t.Context(), over.id); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(from).Truncate(time.Second); took != c.after {
					t.Errorf("it took %s, want %s", took, c.after)
				}
				if !slices.Equal(calls, c.calls) {
					t.Errorf("the cluster was asked to %q, want %q", calls, c.calls)
				}
				<-time.After(c.begin)
			})
		})
	}
}

// However many tasks wait, the events are read once in a while, all pages of them.
func TestTasksThatWaitShareWhatTheEventsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readings, fails := 0, false
		d := newMemoryDriver(t, func(r *http.Request) (int, string) {
			if fails {
				return 500, `{"message":"no time"}`
			}
			if r.URL.Query().Get("continue") == "" {
				readings++
				return 200, `{"metadata":{"continue":"more"},"items":[
					{"involvedObject":{"uid":"a"},"message":"old","lastTimestamp":"2026-01-01T00:00:00Z"},
					{"involvedObject":{"uid":"a"},"message":"new","lastTimestamp":"2026-01-01T00:00:02Z"},
					{"involvedObject":{"uid":"a"},"message":"the status says it","reason":"BackOff","lastTimestamp":"2026-01-01T00:00:03Z"}]}`
			}
			return 200, `{"items":[{"involvedObject":{"uid":"b"},"message":"of b","eventTime":"2026-01-01T00:00:01Z"}]}`
		})
		for round := 1; round <= 3; round++ {
			d.warnings.of(d, "a")
			synctest.Wait()
			for range 10 {
				for uid, want := range map[string]string{"a": "new", "b": "of b", "c": ""} {
					if got := d.warnings.of(d, uid); got != want {
						t.Errorf("of %s it is said %q, want %q", uid, got, want)
					}
				}
			}
			if readings != round {
				t.Errorf("the events were read %d times, want %d", readings, round)
			}
			<-time.After(warningsEvery + time.Millisecond)
		}
		fails = true
		d.warnings.of(d, "a")
		synctest.Wait()
		if got := d.warnings.of(d, "a"); got != "new" {
			t.Errorf("when they cannot be read it is said %q, want what was", got)
		}
	})
}

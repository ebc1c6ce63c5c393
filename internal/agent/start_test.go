package agent_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// An engine that has no time is asked again; a task that is asked to end meanwhile has not begun.
func TestEngineThatCannotStartATaskNow(t *testing.T) {
	isolated(t, func(y *yard) {
		busy := true
		y.mac.fail = func(call string) error {
			if call == "start" && busy {
				return fmt.Errorf("make it: %w", trainyard.Errorf(trainyard.CodeBusy, "its door does not answer"))
			}
			return nil
		}
		y.during(func() {
			patient, unwanted := task("patient", "hello"), task("unwanted", "hello")
			y.srv.want(patient, unwanted)
			y.until("it says so", func() bool {
				y.srv.mu.Lock()
				defer y.srv.mu.Unlock()
				return slices.ContainsFunc(y.srv.history, func(r trainyard.Report) bool {
					return slices.ContainsFunc(r.Tasks, func(t trainyard.TaskReport) bool {
						return t.ID == patient.ID && t.Progress == "trying again: make it: its door does not answer (since 00:00 UTC)"
					})
				})
			})
			<-time.After(time.Minute)
			y.srv.stop(unwanted.ID, trainyard.ClassCanceled)
			if res := y.untilEnded(unwanted.ID); res.Class != trainyard.ClassCanceled || !strings.Contains(res.Message, "before it began") {
				t.Errorf("asked to end it is %+v", res)
			}
			y.mac.mu.Lock()
			busy = false
			y.mac.mu.Unlock()
			if res := y.untilEnded(patient.ID); res.Class != trainyard.ClassOK || y.mac.started(patient.ID) != 1 || y.mac.started(unwanted.ID) != 0 {
				t.Errorf("result %+v, started %d times, the other %d", res, y.mac.started(patient.ID), y.mac.started(unwanted.ID))
			}
		})
	})
}

// A task that is to give way while the engine has no time gives way, and is not started once more before.
func TestATaskGivesWayWhileTheEngineIsBusy(t *testing.T) {
	isolated(t, func(y *yard) {
		tried := 0
		y.mac.fail = func(call string) error {
			if call == "start" {
				tried++
				return trainyard.Errorf(trainyard.CodeBusy, "its door does not answer")
			}
			return nil
		}
		y.during(func() {
			job := task("job", "hello")
			y.srv.want(job)
			<-time.After(time.Minute)
			y.mac.mu.Lock()
			before := tried
			y.mac.mu.Unlock()
			y.srv.stop(job.ID, trainyard.ClassPreempted)
			asked := time.Now()
			res := y.untilEnded(job.ID)
			if res.Class != trainyard.ClassPreempted || !strings.Contains(res.Message, "before it began") || time.Since(asked) > time.Second {
				t.Errorf("result %+v after %s", res, time.Since(asked))
			}
			y.mac.mu.Lock()
			defer y.mac.mu.Unlock()
			if tried != before {
				t.Errorf("it was tried to start it %d times after it was asked to end", tried-before)
			}
		})
	})
}

// An engine that has no time for half an hour is as good as one that says no, and so is one that has none for as long as the job may run.
func TestAnEngineIsNotAskedWithoutEnd(t *testing.T) {
	for _, c := range []struct{ timeout, want time.Duration }{{0, 30 * time.Minute}, {time.Hour, 30 * time.Minute}, {time.Minute, time.Minute}} {
		isolated(t, func(y *yard) {
			y.mac.fail = func(call string) error {
				if call == "start" {
					return trainyard.Errorf(trainyard.CodeBusy, "its door does not answer")
				}
				return nil
			}
			y.during(func() {
				job, began := task("job", "hello"), time.Now()
				job.Timeout = c.timeout
				y.srv.want(job)
				for time.Since(began) < c.want+time.Minute && y.srv.result(job.ID) == nil {
					<-time.After(time.Second)
				}
				res, took := y.srv.result(job.ID), time.Since(began)
				if res == nil {
					t.Fatalf("after %s it is still tried", took)
				}
				if res.Class != trainyard.ClassStart || res.Message != "its door does not answer" || took < c.want || took > c.want+5*time.Second {
					t.Errorf("result %+v after %s, want %s", res, took, c.want)
				}
			})
		})
	}
}

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
						return t.ID == patient.ID && t.Progress == "trying again: make it: its door does not answer"
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

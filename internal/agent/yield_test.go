package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agent"
)

// yields says why the node goes, and of which class that is, as the server was told.
func (s *server) yields() (string, trainyard.Class) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.history {
		if r.Yields != "" {
			return r.Yields, r.YieldsAs
		}
	}
	return "", ""
}

func TestWhatIsTakenAwayEndsItsTasksFirst(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		within  time.Duration
		exit    int
		class   trainyard.Class
	}{
		"a process that listens":          {"count", 30 * time.Second, 143, trainyard.ClassNodeLost},
		"a process that ignores SIGTERM":  {"ignore", 3 * time.Second, 137, trainyard.ClassPreempted},
		"of a long time all of its grace": {"ignore", time.Hour, 137, trainyard.ClassNodeLost},
	} {
		t.Run(name, func(t *testing.T) {
			isolated(t, func(y *yard) {
				notice := make(chan agent.Notice, 1)
				y.cfg.Yield = notice
				job, late := task("job", c.command), task("late", "hello")
				y.srv.want(job)
				done := make(chan error, 1)
				go func() { done <- agent.New(y.cfg).Run(context.Background()) }()
				<-time.After(time.Second)
				began := time.Now()
				notice <- agent.Notice{Class: c.class, Why: "job 7 was canceled", Within: c.within}
				y.until("the server knows", func() bool {
					why, class := y.srv.yields()
					return why == "job 7 was canceled" && class == c.class
				})
				y.srv.want(late)
				if err := <-done; err != nil { // by itself
					t.Error(err)
				}
				if took := time.Since(began); took > c.within || took > 10*time.Second {
					t.Errorf("it ended after %s", took)
				}
				if res := y.srv.result(job.ID); res == nil || res.Class != c.class || res.ExitCode != c.exit || res.Message != "job 7 was canceled" {
					t.Errorf("result %+v", res)
				}
				if y.mac.started(late.ID) != 0 || y.srv.result(late.ID) != nil {
					t.Error("what came after began")
				}
			})
		})
	}
}

// A task that has ended, but for its results, has them stored; so long as there is time.
func TestWhatIsTakenAwayStoresWhatHasEnded(t *testing.T) {
	for within, want := range map[time.Duration]bool{20 * time.Second: true, 5 * time.Second: false} {
		isolated(t, func(y *yard) {
			y.stg.finish = func(ctx context.Context, _ trainyard.Task, _ trainyard.Result, _ trainyard.Progress) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(10 * time.Second):
					return nil
				}
			}
			notice := make(chan agent.Notice, 1)
			y.cfg.Yield = notice
			job := task("job", "hello")
			y.srv.want(job)
			done := make(chan error, 1)
			go func() { done <- agent.New(y.cfg).Run(context.Background()) }()
			<-time.After(time.Second)
			notice <- agent.Notice{Class: trainyard.ClassNodeLost, Why: "gone", Within: within}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if res := y.srv.result(job.ID); (res != nil) != want || want && res.Class != trainyard.ClassOK {
				t.Errorf("within %s: result %+v", within, res)
			}
		})
	}
}

// A server that is away keeps nobody: the time is up all the same.
func TestWhatIsTakenAwayDoesNotWaitForTheServer(t *testing.T) {
	isolated(t, func(y *yard) {
		notice := make(chan agent.Notice, 1)
		y.cfg.Yield = notice
		job := task("job", "count")
		y.srv.want(job)
		done := make(chan error, 1)
		go func() { done <- agent.New(y.cfg).Run(context.Background()) }()
		<-time.After(time.Second)
		y.srv.setAway(true)
		notice <- agent.Notice{Class: trainyard.ClassNodeLost, Why: "gone", Within: 10 * time.Second}
		if err := <-done; err != nil {
			t.Error(err)
		}
		y.srv.setAway(false)
		y.cfg.Yield = nil
		y.during(func() { // the next agent tells it
			if res := y.untilEnded(job.ID); res.Class != trainyard.ClassNodeLost || !strings.Contains(res.Message, "gone") {
				t.Errorf("result %+v", res)
			}
		})
	})
}

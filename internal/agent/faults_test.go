package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agent"
)

func TestServerAwayWhileTaskEnds(t *testing.T) {
	isolated(t, func(y *yard) {
		y.srv.lease.Expires = 0
		y.during(func() {
			job := task("count", "count")
			y.srv.want(job)
			<-time.After(time.Second)
			y.srv.setAway(true)
			<-time.After(time.Minute)
			if y.mac.started(job.ID) != 1 || y.mac.stopped(job.ID) != 0 {
				t.Error("the task did not run on by itself")
			}
			y.srv.setAway(false)
			back := time.Now()
			if res := y.untilEnded(job.ID); res.ExitCode != 7 {
				t.Errorf("result %+v", res)
			}
			if took := time.Since(back); took > 3*time.Second {
				t.Errorf("the report took %s after the server was back", took)
			}
		})
	})
}

func TestAgentRestartsWhileTheServerIsAway(t *testing.T) {
	isolated(t, func(y *yard) {
		job := task("count", "count")
		y.during(func() {
			y.srv.want(job)
			<-time.After(time.Second)
		})
		y.srv.setAway(true)
		y.during(func() { <-time.After(time.Minute) })
		y.during(func() {
			<-time.After(time.Minute)
			y.srv.setAway(false)
			if res := y.untilEnded(job.ID); res.ExitCode != 7 || y.mac.started(job.ID) != 1 {
				t.Errorf("result %+v, started %d times", res, y.mac.started(job.ID))
			}
			y.untilClean()
		})
	})
}

func TestConflictMakesTheAgentJoinAgain(t *testing.T) {
	isolated(t, func(y *yard) {
		y.during(func() {
			job := task("sleep", "sleep")
			y.srv.want(job)
			<-time.After(time.Second)
			y.srv.change(func() { y.srv.epoch = 7 })
			y.until("it joined again", func() bool { return len(y.srv.joined()) == 2 })
			if got := y.srv.joined()[1].Holding; len(got) != 1 || got[0] != job.ID {
				t.Errorf("holding %v", got)
			}
			y.until("the new epoch is told what runs", func() bool {
				return slices.ContainsFunc(y.srv.told(), func(r trainyard.Report) bool { return r.Epoch == 8 && len(r.Tasks) == 1 })
			})
			y.untilEnded(job.ID)
		})
	})
}

func TestOlderWantedIsIgnored(t *testing.T) {
	isolated(t, func(y *yard) {
		y.cfg.Link = staleServer{y.srv}
		y.during(func() {
			job := task("sleep", "sleep")
			y.srv.want(job)
			if res := y.untilEnded(job.ID); res.Class != trainyard.ClassOK {
				t.Errorf("result %+v", res)
			}
		})
	})
}

// staleServer answers every second question with what was wanted long ago: nothing.
type staleServer struct{ *server }

func (s staleServer) Wanted(ctx context.Context, node trainyard.NodeID, epoch, after int64) (trainyard.Wanted, error) {
	if after > 0 {
		select {
		case <-ctx.Done():
			return trainyard.Wanted{}, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().UnixMilli()%200 < 100 {
			return trainyard.Wanted{Epoch: epoch - 1, Rev: after + 5}, nil
		}
		return trainyard.Wanted{Epoch: epoch, Rev: after - 1}, nil
	}
	return s.server.Wanted(ctx, node, epoch, after)
}

func TestUnwantedTaskIsRemovedWithoutReport(t *testing.T) {
	isolated(t, func(y *yard) {
		running, staging := task("running", "ignore"), task("staging", "true")
		y.stg.prepare = func(ctx context.Context, t trainyard.Task, _ trainyard.Progress) error {
			if t.ID == staging.ID {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		y.during(func() {
			y.srv.want(running, staging)
			<-time.After(time.Second)
			y.srv.unwant(running.ID)
			y.srv.unwant(staging.ID)
			y.untilClean()
			<-time.After(time.Minute)
			if y.srv.result(running.ID) != nil || y.srv.result(staging.ID) != nil {
				t.Error("an end was reported of a task that was not wanted")
			}
		})
	})
}

func TestTaskOnDiskThatIsNotWantedIsNeverStarted(t *testing.T) {
	isolated(t, func(y *yard) {
		job := task("job", "true")
		hold := make(chan struct{})
		y.mac.fail = func(call string) error { // the first agent dies when it has staged the task
			if call == "start" {
				y.mac.mu.Unlock()
				<-hold
				y.mac.mu.Lock()
				return errors.New("dead")
			}
			return nil
		}
		stop := y.begin()
		y.srv.want(job)
		<-time.After(time.Second)
		snapshot := filepath.Join(t.TempDir(), "dir")
		if err := os.CopyFS(snapshot, os.DirFS(y.cfg.Dir)); err != nil {
			t.Fatal(err)
		}
		y.srv.setAway(true)
		close(hold)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		y.mac.fail = nil
		y.cfg.Dir = snapshot
		y.during(func() {
			<-time.After(time.Minute)
			if y.mac.started(job.ID) != 0 {
				t.Error("started without the server's word")
			}
			y.srv.unwant(job.ID)
			y.srv.setAway(false)
			y.untilClean()
			if y.mac.started(job.ID) != 0 || y.srv.result(job.ID) != nil {
				t.Error("a task that nobody wants was started or reported")
			}
		})
	})
}

func TestNothingStartsWhenTheLeaseHasRunOut(t *testing.T) {
	isolated(t, func(y *yard) {
		y.stg.prepare = func(context.Context, trainyard.Task, trainyard.Progress) error {
			<-time.After(time.Minute)
			return nil
		}
		y.during(func() {
			job := task("job", "true")
			y.srv.want(job)
			<-time.After(time.Second)
			y.srv.setAway(true)
			<-time.After(5 * time.Minute)
			if y.mac.started(job.ID) != 0 {
				t.Error("started although the server may have placed it elsewhere")
			}
			y.srv.setAway(false)
			y.untilEnded(job.ID)
		})
	})
}

func TestLeaving(t *testing.T) {
	isolated(t, func(y *yard) {
		job := task("count", "count")
		y.srv.want(job)
		done := make(chan error, 1)
		go func() { done <- agent.New(y.cfg).Run(y.t.Context()) }()
		<-time.After(time.Second)
		y.srv.change(func() { y.srv.leaving = true })
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if res := y.srv.result(job.ID); res == nil || res.ExitCode != 7 {
			t.Errorf("result %+v", res)
		}
		if y.mac.count() != 0 {
			t.Error("it left before it had cleaned up")
		}
	})
}

func TestNodeThatTheServerDoesNotKnow(t *testing.T) {
	isolated(t, func(y *yard) {
		y.srv.refuse = func(string) error { return trainyard.NotFound("no such node") }
		if err := agent.New(y.cfg).Run(y.t.Context()); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestOrphan(t *testing.T) {
	isolated(t, func(y *yard) {
		y.cfg.OrphanAfter = 2 * time.Minute
		job := task("sleep", "sleep") // a minute
		y.srv.want(job)
		done := make(chan error, 1)
		go func() { done <- agent.New(y.cfg).Run(y.t.Context()) }()
		<-time.After(5 * time.Second)
		y.srv.setAway(true)
		began := time.Now()
		if err := <-done; !errors.Is(err, agent.ErrOrphan) {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took < 170*time.Second || took > 180*time.Second {
			t.Errorf("gave up after %s; the task ran for 55 s of that, and two minutes more are due", took)
		}
	})
}

func TestKillAfter(t *testing.T) {
	isolated(t, func(y *yard) {
		y.cfg.KillAfter = 30 * time.Second
		y.during(func() {
			job := task("ignore", "ignore")
			y.srv.want(job)
			<-time.After(time.Second)
			y.srv.setAway(true)
			<-time.After(time.Minute)
			y.srv.setAway(false)
			if res := y.untilEnded(job.ID); res.Class != trainyard.ClassNodeLost {
				t.Errorf("result %+v", res)
			}
		})
	})
}

func TestTwoAgentsInOneFolder(t *testing.T) {
	isolated(t, func(y *yard) {
		y.during(func() {
			<-time.After(time.Second)
			if err := agent.New(y.cfg).Run(y.t.Context()); err == nil || !strings.Contains(err.Error(), "another agent") {
				t.Errorf("Run: %v", err)
			}
		})
	})
}

func TestFolderThatWasCutShort(t *testing.T) {
	isolated(t, func(y *yard) {
		job, half := task("job", "true"), task("half", "hello")
		write(t, filepath.Join(y.cfg.Dir, half.ID.Dir()+".part"), "{")
		write(t, filepath.Join(y.cfg.Dir, half.ID.Dir()+".wanted"), `{"task":{"id"`)
		write(t, filepath.Join(y.cfg.Dir, "other.staged"), "")
		y.during(func() {
			y.srv.want(job, half)
			y.untilEnded(job.ID)
			y.untilEnded(half.ID)
			y.untilClean()
		})
	})
}

func TestHalfAViewLosesNothing(t *testing.T) {
	isolated(t, func(y *yard) {
		job := task("count", "count")
		n := 0
		y.mac.fail = func(call string) error {
			if call == "observe" {
				if n++; n%3 != 0 {
					return errors.New("only half of it could be read")
				}
			}
			return nil
		}
		y.during(func() {
			y.srv.want(job)
			if res := y.untilEnded(job.ID); res.ExitCode != 7 {
				t.Errorf("result %+v", res)
			}
		})
	})
}

func TestTaskThatTheDriverLost(t *testing.T) {
	isolated(t, func(y *yard) {
		y.srv.written = nil
		y.during(func() {
			job := task("sleep", "sleep")
			y.srv.want(job)
			<-time.After(time.Second)
			if err := y.mac.Remove(y.t.Context(), job.ID); err != nil { // behind the agent's back
				t.Fatal(err)
			}
			if res := y.untilEnded(job.ID); res.Class != trainyard.ClassNodeLost || res.ExitCode != -1 {
				t.Errorf("result %+v", res)
			}
		})
	})
}

func TestTaskOfNobodyIsRemovedFromTheDriver(t *testing.T) {
	isolated(t, func(y *yard) {
		stray, kept := task("stray", "ignore"), task("kept", "sleep")
		for _, s := range []trainyard.Task{stray, kept} {
			s.Run.Command = s.Command
			if err := y.mac.Start(y.t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		y.srv.want(kept) // the agent's folder is gone, the task is not
		y.during(func() {
			y.until("the stray is gone", func() bool { return y.mac.count() == 1 })
			if res := y.untilEnded(kept.ID); res.Class != trainyard.ClassOK || y.mac.started(kept.ID) != 1 {
				t.Errorf("result %+v, started %d times", res, y.mac.started(kept.ID))
			}
		})
	})
}

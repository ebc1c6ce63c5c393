package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agent"
)

// yard is an agent with all that it needs.
type yard struct {
	t   *testing.T
	srv *server
	mac *machine
	stg *stage
	cfg agent.Config
}

func newYard(t *testing.T) *yard {
	y := &yard{t: t, srv: newServer(), mac: newMachine(), stg: newStage()}
	y.srv.written = y.mac.written
	y.cfg = agent.Config{Node: "node-1", JoinToken: "join", Link: y.srv, Driver: y.mac, Stage: y.stg, Dir: t.TempDir(), Address: "10.0.0.1", Version: "test"}
	return y
}

// begin runs an agent; the function returned stops it as a shutdown does and returns what Run returned.
func (y *yard) begin() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.New(y.cfg).Run(ctx) }()
	return func() error { cancel(); return <-done }
}

// during runs an agent, and f with it.
func (y *yard) during(f func()) {
	y.t.Helper()
	stop := y.begin()
	f()
	if err := stop(); err != nil {
		y.t.Errorf("Run: %v", err)
	}
	y.srv.mu.Lock()
	defer y.srv.mu.Unlock()
	for _, w := range y.srv.wrong {
		y.t.Error(w)
	}
}

// until waits, in the test's own time, for something that must come.
func (y *yard) until(what string, ok func() bool) {
	y.t.Helper()
	for range 100_000 {
		synctest.Wait()
		if ok() {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	y.t.Fatalf("waited in vain until %s", what)
}

func (y *yard) untilEnded(id trainyard.TaskID) *trainyard.Result {
	y.t.Helper()
	y.until(string(id)+" has ended", func() bool { return y.srv.result(id) != nil })
	return y.srv.result(id)
}

// untilClean waits until no trace of any task is left.
func (y *yard) untilClean() {
	y.t.Helper()
	y.until("nothing is left", func() bool {
		entries, err := os.ReadDir(y.cfg.Dir)
		if err != nil {
			y.t.Fatal(err)
		}
		return len(entries) == 1 && y.mac.count() == 0 && y.stg.count() == 0 // the lock file stays
	})
}

func task(name, command string) trainyard.Task {
	id := trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), name), 1, 0)
	return trainyard.Task{ID: id, JobName: name, Attempt: 1, Node: "node-1", Hi: 1, Nodes: 1, Processes: 1, Command: command, Grace: 5 * time.Second}
}

func isolated(t *testing.T, f func(y *yard)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t)
		defer y.mac.off()
		f(y)
	})
}

func TestTaskIsRunReportedAndRemoved(t *testing.T) {
	isolated(t, func(y *yard) {
		y.during(func() {
			job := task("hello", "hello")
			y.srv.want(job)
			res := y.untilEnded(job.ID)
			if res.Class != trainyard.ClassOK || res.ExitCode != 0 || res.PeakMB != 3 {
				t.Errorf("result %+v", res)
			}
			if got := y.srv.log(job.ID, "user_logs/std_log.txt"); got != "hello\n" {
				t.Errorf("log %q", got)
			}
			r := y.srv.report(job.ID)
			if len(r.Spans) < 2 || r.Spans[0].Name != trainyard.SpanUser || r.Spans[0].End.IsZero() || r.Spans[len(r.Spans)-1].End.IsZero() {
				t.Errorf("spans %+v", r.Spans)
			}
			y.untilClean()
		})
		if info := y.srv.joined()[0]; info.Node != "node-1" || info.Token != "join" || info.Capacity.CPUs != 4 || info.Address != "10.0.0.1" {
			t.Errorf("joined as %+v", info)
		}
	})
}

func TestShortTaskTakesNoTime(t *testing.T) {
	isolated(t, func(y *yard) {
		y.during(func() {
			synctest.Wait()
			job, began := task("true", "true"), time.Now()
			y.srv.want(job)
			synctest.Wait() // no timer fires while we wait here
			if y.srv.result(job.ID) == nil {
				t.Errorf("a task that takes no time was not reported ended without waiting; %s have passed", time.Since(began))
			}
		})
	})
}

func TestRunningIsReportedAtOnce(t *testing.T) {
	isolated(t, func(y *yard) {
		y.during(func() {
			synctest.Wait()
			job := task("sleep", "sleep")
			y.srv.want(job)
			synctest.Wait()
			if got := y.srv.states(job.ID); !slices.Equal(got, []trainyard.TaskState{trainyard.TaskRunning}) {
				t.Errorf("reported %v", got)
			}
		})
	})
}

func TestLogsArriveWhileTheTaskRuns(t *testing.T) {
	isolated(t, func(y *yard) {
		y.during(func() {
			job := task("count", "count")
			y.srv.want(job)
			<-time.After(3 * time.Second)
			got, all := y.srv.log(job.ID, "user_logs/std_log.txt"), string(y.mac.written(job.ID))
			if len(got) < len(all)-100 || !strings.HasPrefix(all, got) {
				t.Errorf("after 3 s the server has %d of %d bytes", len(got), len(all))
			}
			if res := y.untilEnded(job.ID); res.ExitCode != 7 || res.Class != trainyard.ClassUser {
				t.Errorf("result %+v", res)
			}
		})
	})
}

func TestHeartbeatKeepsTheLease(t *testing.T) {
	isolated(t, func(y *yard) {
		y.during(func() { <-time.After(61 * time.Second) })
		if n := len(y.srv.told()); n < 10 || n > 14 {
			t.Errorf("%d reports in a minute with a lease renewed each 5 s", n)
		}
	})
}

func TestManyTasksShareReports(t *testing.T) {
	isolated(t, func(y *yard) {
		var jobs []trainyard.Task
		for i := range 200 {
			jobs = append(jobs, task(fmt.Sprint("job", i), "true"))
		}
		y.srv.keep = true
		y.srv.refuse = func(call string) error {
			if call == "report" {
				y.srv.mu.Unlock() // a server with something else to do
				<-time.After(20 * time.Millisecond)
				y.srv.mu.Lock()
			}
			return nil
		}
		y.during(func() {
			y.srv.want(jobs...)
			for _, j := range jobs {
				y.untilEnded(j.ID)
			}
		})
		if n := len(y.srv.told()); n > 40 {
			t.Errorf("%d reports for 200 tasks", n)
		}
	})
}

func TestProgressReachesTheServer(t *testing.T) {
	isolated(t, func(y *yard) {
		y.stg.prepare = func(_ context.Context, _ trainyard.Task, p trainyard.Progress) error {
			p.Say("building environment sklearn-1.5")
			began := time.Now()
			p.Span(trainyard.SpanEnvironment, began, time.Time{}, "")
			p.Log("system_logs/environment.txt", []byte("resolving\n"))
			<-time.After(10 * time.Second)
			p.Log("system_logs/environment.txt", []byte("done\n"))
			p.Span(trainyard.SpanEnvironment, began, time.Now(), "built in 10 s")
			p.Log("../../escape.txt", []byte("no"))
			return nil
		}
		y.during(func() {
			job := task("job", "true")
			y.srv.want(job)
			<-time.After(5 * time.Second)
			told := slices.DeleteFunc(y.srv.told(), func(r trainyard.Report) bool { return len(r.Tasks) == 0 })
			r := told[len(told)-1]
			if r.Tasks[0].Progress != "building environment sklearn-1.5" || r.Tasks[0].State != trainyard.TaskStaging {
				t.Errorf("reported %+v", r)
			}
			if got := y.srv.log(job.ID, "system_logs/environment.txt"); got != "resolving\n" {
				t.Errorf("log %q", got)
			}
			y.untilEnded(job.ID)
			if got := y.srv.log(job.ID, "system_logs/environment.txt"); got != "resolving\ndone\n" {
				t.Errorf("log %q", got)
			}
			r2 := y.srv.report(job.ID)
			if s := r2.Spans[0]; s.Name != trainyard.SpanEnvironment || s.Note != "built in 10 s" || s.End.Sub(s.Start) != 10*time.Second {
				t.Errorf("spans %+v", r2.Spans)
			}
			if len(r2.Warnings) != 1 || !strings.Contains(r2.Warnings[0], "escape") {
				t.Errorf("warnings %q", r2.Warnings)
			}
		})
	})
}

func TestFurtherProcessLogs(t *testing.T) {
	isolated(t, func(y *yard) {
		logs := t.TempDir()
		job := task("job", "true")
		job.Processes, job.Distribution = 3, &trainyard.Distribution{DistributionType: "PyTorch"}
		secret := filepath.Join(t.TempDir(), "secret")
		write(t, secret, "of another user")
		write(t, filepath.Join(logs, "std_log_process_1.txt"), "rank 1\n")
		if err := os.Symlink(secret, filepath.Join(logs, "std_log_process_2.txt")); err != nil {
			t.Fatal(err)
		}
		y.srv.written = nil // it looks at std_log.txt
		y.cfg.Stage = staged{y.stg, logs}
		y.during(func() {
			y.srv.want(job)
			y.untilEnded(job.ID)
			if got := y.srv.log(job.ID, "user_logs/std_log_process_1.txt"); got != "rank 1\n" {
				t.Errorf("log of rank 1: %q", got)
			}
			if got := y.srv.log(job.ID, "user_logs/std_log_process_2.txt"); got != "" {
				t.Errorf("a link out of the log folder was followed: %q", got)
			}
			if got := y.srv.log(job.ID, "user_logs/std_log_process_0.txt"); got != "out of rank 0\n" {
				t.Errorf("log of rank 0: %q", got)
			}
		})
	})
}

// staged sets the log folder, and a program in place of the launcher's script.
type staged struct {
	*stage
	logs string
}

func (s staged) Prepare(ctx context.Context, t trainyard.Task, p trainyard.Progress) (trainyard.Task, error) {
	t, err := s.stage.Prepare(ctx, t, p)
	t.Run.LogDir = s.logs
	return t, err
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestTimeout(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("agent restarted %v", restart), func(t *testing.T) {
			isolated(t, func(y *yard) {
				job, began := task("sleep", "sleep"), time.Now()
				job.Timeout = 30 * time.Second
				if restart {
					y.during(func() {
						y.srv.want(job)
						<-time.After(10 * time.Second)
					})
					<-time.After(5 * time.Second)
				} else {
					y.srv.want(job)
				}
				y.during(func() {
					res := y.untilEnded(job.ID)
					if res.Class != trainyard.ClassTimeout || res.ExitCode != 143 || !strings.Contains(res.Message, "30s") {
						t.Errorf("result %+v", res)
					}
					if took := time.Since(began); took < 30*time.Second || took > 31*time.Second {
						t.Errorf("ended after %s", took)
					}
				})
			})
		})
	}
}

func TestWhyATaskIsEndedOutlivesTheAgent(t *testing.T) {
	isolated(t, func(y *yard) {
		job := task("linger", "linger")
		job.Timeout = 10 * time.Second
		y.during(func() {
			y.srv.want(job)
			<-time.After(11 * time.Second)
		})
		if y.mac.stopped(job.ID) != 1 {
			t.Fatal("it should have been told to end by now")
		}
		<-time.After(5 * time.Second) // it ends while no agent looks
		y.during(func() {
			if res := y.untilEnded(job.ID); res.Class != trainyard.ClassTimeout {
				t.Errorf("result %+v", res)
			}
		})
	})
}

func TestStop(t *testing.T) {
	cases := []struct {
		name, command string
		exit          int
	}{
		{"a process that listens", "count", 143},
		{"a process that ignores SIGTERM", "ignore", 137},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			isolated(t, func(y *yard) {
				y.during(func() {
					job := task("job", c.command)
					y.srv.want(job)
					<-time.After(time.Second)
					y.srv.stop(job.ID, trainyard.ClassCanceled)
					if res := y.untilEnded(job.ID); res.Class != trainyard.ClassCanceled || res.ExitCode != c.exit {
						t.Errorf("result %+v", res)
					}
					said := strings.Join(y.srv.report(job.ID).Warnings, "; ")
					if want := "the process was killed: it had not ended 5s after"; strings.Contains(said, want) != (c.exit == 137) {
						t.Errorf("it says %q", said)
					}
					y.untilClean()
				})
			})
		})
	}
}

func TestStopBeforeItBegins(t *testing.T) {
	isolated(t, func(y *yard) {
		y.stg.prepare = func(ctx context.Context, _ trainyard.Task, _ trainyard.Progress) error {
			<-ctx.Done()
			return ctx.Err()
		}
		y.during(func() {
			early, late := task("early", "true"), task("late", "true")
			early.Stop = trainyard.ClassCanceled
			y.srv.want(early, late)
			<-time.After(time.Second)
			y.srv.stop(late.ID, trainyard.ClassSibling)
			for _, job := range []trainyard.Task{early, late} {
				res := y.untilEnded(job.ID)
				if res.ExitCode != -1 || y.mac.started(job.ID) != 0 || !strings.Contains(res.Message, "before it began") {
					t.Errorf("%s: result %+v, started %d times", job.JobName, res, y.mac.started(job.ID))
				}
			}
			if c := y.srv.result(late.ID).Class; c != trainyard.ClassSibling {
				t.Errorf("class %s", c)
			}
			y.untilClean()
		})
	})
}

func TestStopWhileOutputsAreStored(t *testing.T) {
	isolated(t, func(y *yard) {
		y.stg.finish = func(ctx context.Context, _ trainyard.Task, _ trainyard.Result, _ trainyard.Progress) error {
			<-ctx.Done()
			return ctx.Err()
		}
		y.during(func() {
			job := task("job", "hello")
			y.srv.want(job)
			<-time.After(time.Second)
			if got := y.srv.states(job.ID); got[len(got)-1] != trainyard.TaskUploading {
				t.Errorf("reported %v", got)
			}
			y.srv.stop(job.ID, trainyard.ClassCanceled)
			if res := y.untilEnded(job.ID); res.Class != trainyard.ClassCanceled || res.ExitCode != 0 {
				t.Errorf("result %+v", res)
			}
		})
	})
}

func TestGivingWayDoesNotThrowOutputsAway(t *testing.T) {
	isolated(t, func(y *yard) {
		y.stg.finish = func(ctx context.Context, _ trainyard.Task, _ trainyard.Result, _ trainyard.Progress) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Second):
				return nil
			}
		}
		y.during(func() {
			job := task("job", "hello")
			y.srv.want(job)
			<-time.After(time.Second)
			y.srv.stop(job.ID, trainyard.ClassPreempted)
			if res := y.untilEnded(job.ID); res.Class != trainyard.ClassOK || res.ExitCode != 0 {
				t.Errorf("result %+v", res)
			}
		})
	})
}

func TestErrorsOfStagingAndStarting(t *testing.T) {
	cases := []struct {
		name    string
		prepare error
		start   error
		finish  error
		command string
		class   trainyard.Class
		exit    int
		warning string
	}{
		{name: "environment", prepare: &trainyard.ClassError{Class: trainyard.ClassEnvironment, Err: errors.New("no such package")}, class: trainyard.ClassEnvironment, exit: -1},
		{name: "an error without a class is about data", prepare: trainyard.NotFound("gone"), class: trainyard.ClassData, exit: -1},
		{name: "a full disk", prepare: fmt.Errorf("write: %w", syscall.ENOSPC), class: trainyard.ClassDisk, exit: -1},
		{name: "start", start: errors.New("no bash"), class: trainyard.ClassStart, exit: -1},
		{name: "outputs of a good task", finish: &trainyard.ClassError{Class: trainyard.ClassData, Err: errors.New("no output")}, class: trainyard.ClassData, exit: 0},
		{name: "outputs of a bad task", command: "false", finish: trainyard.Invalid("no output"), class: trainyard.ClassUser, exit: 1, warning: "no output"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			isolated(t, func(y *yard) {
				y.stg.prepare = func(context.Context, trainyard.Task, trainyard.Progress) error { return c.prepare }
				y.stg.finish = func(context.Context, trainyard.Task, trainyard.Result, trainyard.Progress) error { return c.finish }
				y.mac.fail = func(call string) error {
					if call == "start" {
						return c.start
					}
					return nil
				}
				y.during(func() {
					job := task("job", "true")
					if c.command != "" {
						job.Command = c.command
					}
					y.srv.want(job)
					res := y.untilEnded(job.ID)
					if res.Class != c.class || res.ExitCode != c.exit {
						t.Errorf("result %+v", res)
					}
					if got := strings.Join(y.srv.report(job.ID).Warnings, "; "); !strings.Contains(got, c.warning) {
						t.Errorf("warnings %q", got)
					}
					y.untilClean()
				})
			})
		})
	}
}

func TestBusyServerIsAskedAgain(t *testing.T) {
	isolated(t, func(y *yard) {
		busy := &trainyard.ClassError{Class: trainyard.ClassData, Err: fmt.Errorf("fetch: %w", trainyard.Errorf(trainyard.CodeBusy, "the server cannot be reached"))}
		prepared, finished := 0, 0
		y.stg.prepare = func(_ context.Context, _ trainyard.Task, p trainyard.Progress) error {
			p.Span(trainyard.SpanCode, time.Now(), time.Now(), "")
			if prepared++; prepared < 4 {
				return busy
			}
			return nil
		}
		y.stg.finish = func(context.Context, trainyard.Task, trainyard.Result, trainyard.Progress) error {
			if finished++; finished < 4 {
				return io.ErrUnexpectedEOF // in the middle of a transfer
			}
			return nil
		}
		y.during(func() {
			job := task("job", "true")
			y.srv.want(job)
			if res := y.untilEnded(job.ID); res.Class != trainyard.ClassOK {
				t.Errorf("result %+v", res)
			}
			if spans := y.srv.report(job.ID).Spans; len(spans) != 3 {
				t.Errorf("spans of earlier tries are still there: %+v", spans)
			}
		})
	})
}

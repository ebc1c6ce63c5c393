package control

import (
	"io"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// moveJob takes a job through states, as its node would.
func moveJob(t *testing.T, c *Control, name string, states ...trainyard.JobState) {
	t.Helper()
	for _, to := range states {
		err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
			j, err := tx.Job(trainyard.MakeJobKey(trainyard.DefaultScope(), name))
			if err != nil {
				return err
			}
			why := trainyard.Reason{Code: string(to), Message: "the step is " + string(to)}
			if to == trainyard.JobRunning {
				why.Code, j.Status.Started = "Running", c.Now()
			}
			if to == trainyard.JobFailed {
				j.Status.Failure = &trainyard.Failure{Class: trainyard.ClassUser, Message: "exit code 3"}
			}
			if err := j.MoveTo(to, why, c.Now()); err != nil {
				return err
			}
			return tx.PutJob(j)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func pipelineLog(t *testing.T, c *Control, name string) string {
	t.Helper()
	r, _, err := c.Output.Read(t.Context(), trainyard.DefaultScope(), name, trainyard.PipelineLog, 0)
	if trainyard.IsNotFound(err) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestAPipelineHasALogOfItsOwnThatIsWholeWhenItEnds(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	if _, _, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "p", Spec: specOf(t, aPipeline)}); err != nil {
		t.Fatal(err)
	}
	key := trainyard.MakeJobKey(scope, "p")
	look := func() *trainyard.Job {
		t.Helper()
		if _, err := c.advancePipeline(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		j, err := c.Job(t.Context(), scope, "p")
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	look()
	if j := look(); j.Status.Steps[0].State != trainyard.JobQueued || j.Status.Steps[1].Why != "waits for one" {
		t.Errorf("steps %+v", j.Status.Steps)
	}
	moveJob(t, c, "p-one", trainyard.JobPreparing, trainyard.JobRunning)
	look()
	told := look().Status.Told
	if !strings.HasSuffix(pipelineLog(t, c, "p"), told.Text) || !strings.Contains(told.Text, "one  Running") {
		t.Errorf("told %+v, the log is %q", told, pipelineLog(t, c, "p"))
	}
	if err := c.tellPipeline(t.Context(), look()); err != nil || strings.Count(pipelineLog(t, c, "p"), "Running") != 1 {
		t.Errorf("told twice: %v %q", err, pipelineLog(t, c, "p"))
	}
	moveJob(t, c, "p-one", trainyard.JobFailed)
	j := look()
	for range 5 {
		if log := pipelineLog(t, c, "p"); j.Status.State.Terminal() && !strings.Contains(log, "one  Failed") {
			t.Errorf("it is %s before its log is whole: %q", j.Status.State, log)
		}
		j = look()
	}
	log := pipelineLog(t, c, "p")
	if j.Status.State != trainyard.JobFailed || !strings.HasPrefix(log, "pipeline p of 2 steps;") || !strings.Contains(log, "one  Failed      exit code 3; see: trainyard job logs --name p-one\n") ||
		!strings.Contains(log, "two  NotRun      it takes outputs of one, and there are none\n") || j.Status.Told.At+int64(len(j.Status.Told.Text)) != int64(len(log)) {
		t.Errorf("%s, the log is\n%s", j.Status.State, log)
	}
}

// A log that cannot be written, on a full disk or where a file is in its way, keeps no step from beginning and no pipeline from being canceled.
func TestAPipelineGoesOnThoughItsLogCannotBeWritten(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	if _, _, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "p", Spec: specOf(t, aPipeline)}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Output.Append(t.Context(), scope, "p", path.Dir(trainyard.PipelineLog), 0, []byte("in the way")); err != nil {
		t.Fatal(err)
	}
	look := func() (*trainyard.Job, error) {
		t.Helper()
		_, failed := c.advancePipeline(t.Context(), trainyard.MakeJobKey(scope, "p"))
		j, err := c.Job(t.Context(), scope, "p")
		if err != nil {
			t.Fatal(err)
		}
		return j, failed
	}
	_, _ = look()
	if _, err := look(); err == nil {
		t.Fatal("its log could be written")
	}
	if _, err := c.Job(t.Context(), scope, "p-one"); err != nil {
		t.Errorf("its first step: %v", err)
	}
	if err := c.CancelJob(t.Context(), anAdmin, scope, "p"); err != nil {
		t.Fatal(err)
	}
	_, _ = look()
	if one, err := c.Job(t.Context(), scope, "p-one"); err != nil || one.Status.State != trainyard.JobCanceled {
		t.Errorf("its first step is %v, %v", one, err)
	}
	if j, err := look(); err == nil || j.Status.State.Terminal() {
		t.Errorf("it is %s before its log is whole, %v", j.Status.State, err)
	}
	c.Now = func() time.Time { return time.Now().Add(tellPatience + time.Second) }
	_, _ = look()
	if j, _ := look(); j.Status.State != trainyard.JobCanceled || !strings.Contains(strings.Join(j.Status.Warnings, "\n"), "the end of its log could not be written") {
		t.Errorf("it is %s with warnings %q", j.Status.State, j.Status.Warnings)
	}
}

// How the steps of a pipeline went is told of those that ended under an older version as well, which did not keep it.
func TestStepsOfAPipelineThatEndedBeforeTheyWereKept(t *testing.T) {
	for end, want := range map[trainyard.JobState]string{trainyard.JobCompleted: "Completed Completed", trainyard.JobFailed: "Failed NotRun", trainyard.JobCanceled: "Canceled NotRun"} {
		c, scope := newControl(t), trainyard.DefaultScope()
		if _, _, err := c.SubmitJob(t.Context(), anAdmin, &trainyard.Job{Scope: scope, Name: "p", Spec: specOf(t, aPipeline)}); err != nil {
			t.Fatal(err)
		}
		look := func() {
			if _, err := c.advancePipeline(t.Context(), trainyard.MakeJobKey(scope, "p")); err != nil {
				t.Fatal(err)
			}
		}
		look()
		moveJob(t, c, "p-one", trainyard.JobPreparing, trainyard.JobRunning)
		switch end {
		case trainyard.JobFailed:
			moveJob(t, c, "p-one", end)
		case trainyard.JobCompleted:
			moveJob(t, c, "p-one", trainyard.JobFinalizing, end)
			look()
			moveJob(t, c, "p-two", trainyard.JobPreparing, trainyard.JobRunning, trainyard.JobFinalizing, end)
		case trainyard.JobCanceled:
			if err := c.CancelJob(t.Context(), anAdmin, scope, "p"); err != nil {
				t.Fatal(err)
			}
			look()
			moveJob(t, c, "p-one", end)
		}
		for range 5 {
			look()
		}
		err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
			j, err := tx.Job(trainyard.MakeJobKey(scope, "p"))
			if err != nil {
				return err
			}
			j.Status.Steps = nil
			return tx.PutJob(j)
		})
		if err != nil {
			t.Fatal(err)
		}
		j, err := c.Job(t.Context(), scope, "p")
		if err != nil || j.Status.State != end || len(j.Status.Steps) != 2 {
			t.Fatalf("%s: %v, %+v", end, err, j.Status)
		}
		one, two := j.Status.Steps[0], j.Status.Steps[1]
		if got := string(one.State + " " + two.State); got != want || one.Started.IsZero() || end == trainyard.JobFailed && one.Why != "exit code 3" {
			t.Errorf("%s: the steps are %+v", end, j.Status.Steps)
		}
	}
}

package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// A pipeline's log has a line for whatever happens to a step, each once, in the order in which it happened.
func TestAPipelinesLogTellsEachChangeOfAStepOnce(t *testing.T) {
	j := &trainyard.Job{Scope: trainyard.DefaultScope(), Name: "p", Status: trainyard.JobStatus{State: trainyard.JobPreparing}}
	j.Plan.Pipeline = &trainyard.PipelinePlan{Steps: []trainyard.PipelineStep{{Name: "a"}, {Name: "long_name"}, {Name: "c", After: []string{"a", "long_name"}}}}
	step := func(name string, state trainyard.JobState, why string, started, ended int) *trainyard.Job {
		s := trainyard.JobStatus{State: state, Reason: trainyard.Reason{Code: string(state), Message: why}}
		if started > 0 {
			s.Started = noon.Add(time.Duration(started) * time.Second)
		}
		if ended > 0 {
			s.Ended = noon.Add(time.Duration(ended) * time.Second)
		}
		if state == trainyard.JobFailed {
			s.Failure = &trainyard.Failure{Class: trainyard.ClassUser, Message: why}
		}
		return &trainyard.Job{Name: "p-" + name, Status: s}
	}
	queued := func(name string) *trainyard.Job {
		j := step(name, trainyard.JobQueued, "waiting for its turn on local", 0, 0)
		j.Status.Reason.Code = "Submitted"
		return j
	}
	var log strings.Builder
	for i, jobs := range [][]*trainyard.Job{
		{nil, nil, nil},
		{queued("a"), queued("long_name"), nil},
		{queued("a"), queued("long_name"), nil},
		{step("a", trainyard.JobRunning, "the process runs", 4, 0), step("long_name", trainyard.JobPreparing, "building environment x on n", 0, 0), nil},
		{step("a", trainyard.JobFinalizing, "", 4, 0), step("long_name", trainyard.JobQueued, "node n was lost; it is tried again", 0, 0), nil},
		{step("a", trainyard.JobCompleted, "completed", 4, 7), step("long_name", trainyard.JobFailed, "exit code 3\nTraceback", 5, 6), nil},
		{step("a", trainyard.JobCompleted, "completed", 4, 7), step("long_name", trainyard.JobFailed, "exit code 3\nTraceback", 5, 6), nil},
	} {
		n := Decide(j, jobs)
		log.WriteString(Tell(j, n.Steps, noon.Add(time.Duration(2*i)*time.Second)))
		j.Status.Steps, j.Status.State = n.Steps, n.State
	}
	want := `pipeline p of 3 steps; the log of a step STEP is that of job p-STEP: trainyard job logs --name p-STEP
2026-11-21 12:00:02Z  a          Queued
2026-11-21 12:00:02Z  long_name  Queued
2026-11-21 12:00:04Z  a          Running
2026-11-21 12:00:06Z  long_name  Preparing   building environment x on n
2026-11-21 12:00:08Z  long_name  Queued      node n was lost; it is tried again
2026-11-21 12:00:06Z  long_name  Failed      exit code 3
    Traceback; see: trainyard job logs --name p-long_name
2026-11-21 12:00:07Z  a          Completed   after 3s
2026-11-21 12:00:10Z  c          NotRun      it takes outputs of long_name, and there are none
`
	if got := log.String(); got != want {
		t.Errorf("the log is\n%s\nwant\n%s", got, want)
	}
	if j.Status.State != trainyard.JobFailed {
		t.Errorf("the pipeline is %s", j.Status.State)
	}
}

func TestAStepSaysWhyItIsNotRunning(t *testing.T) {
	j := &trainyard.Job{Name: "p", Status: trainyard.JobStatus{State: trainyard.JobPreparing}}
	j.Plan.Pipeline = &trainyard.PipelinePlan{Steps: []trainyard.PipelineStep{{Name: "a"}, {Name: "b", Refused: "no such compute"}, {Name: "c", After: []string{"a"}}, {Name: "d", After: []string{"a", "b"}}}}
	a := &trainyard.Job{Name: "p-a", Status: trainyard.JobStatus{State: trainyard.JobRunning, Reason: trainyard.Reason{Code: "Running", Message: "the process runs"}}}
	for keen, want := range map[bool]string{
		false: "Running ; Failed its job could not be made: no such compute; NotRun the pipeline ended before its turn; NotRun it takes outputs of b, and there are none",
		true:  "Running ; Failed its job could not be made: no such compute; NotStarted waits for a; NotRun it takes outputs of b, and there are none",
	} {
		j.Plan.Pipeline.Continue = keen
		var got []string
		for _, s := range Decide(j, []*trainyard.Job{a, nil, nil, nil}).Steps {
			got = append(got, string(s.State)+" "+s.Why)
		}
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("continue %v: %s\nwant %s", keen, text, want)
		}
	}
}

package studio_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// addPipeline is a pipeline of four steps: one is over, one runs, one is in a queue, and one waits for it.
func (w *world) addPipeline() {
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	p := w.add("pipe", trainyard.JobRunning)
	p.Plan = trainyard.JobPlan{Nodes: 1, Processes: 1, Pipeline: &trainyard.PipelinePlan{Steps: []trainyard.PipelineStep{{Name: "read"}, {Name: "fit"}, {Name: "plot"}, {Name: "tell", After: []string{"fit", "plot"}}}}}
	p.Spec.JobType, p.Spec.Command = "Pipeline", ""
	p.Status.Reason = trainyard.Reason{Code: "Steps", Message: "1 of 4 steps completed; running: fit; queued: plot"}
	p.Status.Timeline = []trainyard.Span{{Name: "steps", Start: start, End: at(60)}}
	p.Status.Steps = []trainyard.StepStatus{{State: trainyard.JobCompleted, Started: at(5), Ended: at(20)}, {State: trainyard.JobRunning, Started: at(30)},
		{State: trainyard.JobQueued, Why: "no node is free"}, {State: trainyard.JobNotStarted, Why: "waits for fit and plot"}}
	w.say("pipe", trainyard.PipelineLog, "read  Completed\n")
	for name, state := range map[string]trainyard.JobState{"read": trainyard.JobCompleted, "fit": trainyard.JobRunning, "plot": trainyard.JobQueued} {
		j := w.add("pipe-"+name, state)
		j.Plan.Parent, j.Spec.DisplayName = "pipe", name
	}
}

func TestPageOfAPipelineShowsItsSteps(t *testing.T) {
	w := newWorld(t)
	w.addPipeline()
	b := w.admin()
	page := b.page("/jobs/pipe")
	expect(t, page.id(t, "job-head"), "Steps 1 of 4 completed", "read Completed 15s fit Running 30s plot Queued no node is free tell after fit, plot Not begun waits for fit and plot")
	expect(t, page, "read Completed")
	refuse(t, page, "Command", "Attempts", "Timeline")
	for name, want := range map[string]string{"read": "/jobs/pipe-read", "fit": "/jobs/pipe-fit", "plot": "/jobs/pipe-plot", "tell": ""} {
		if got := page.link(name); got != want {
			t.Errorf("step %s leads to %q, want %q", name, got, want)
		}
	}
	bars := page.id(t, "job-head").all(func(n *node) bool { return n.Data == "rect" })
	if len(bars) != 2 || bars[0].attr("x") != "83.3" || bars[0].attr("width") != "250.0" || bars[1].attr("x") != "500.0" || bars[1].attr("width") != "500.0" {
		t.Errorf("%d bars: %v", len(bars), bars)
	}
	step := b.page("/jobs/pipe-fit")
	expect(t, step, "Step of pipe", "Jobs / pipe / pipe-fit")
	if got := step.link("pipe"); got != "/jobs/pipe" {
		t.Errorf("a step leads to its pipeline at %q", got)
	}
	w.change("pipe", func(j *trainyard.Job) {
		j.Status.State, j.Status.Ended = trainyard.JobFailed, start.Add(50*time.Second)
		j.Status.Failure = &trainyard.Failure{Class: trainyard.ClassUser, Message: "step fit failed (job pipe-fit): exit code 3; not run: tell"}
		j.Status.Steps[1] = trainyard.StepStatus{State: trainyard.JobFailed, Why: "exit code 3", Started: start, Ended: start.Add(40 * time.Second)}
		j.Status.Steps[3] = trainyard.StepStatus{State: trainyard.StepNotRun, Why: "it takes outputs of fit, and there are none"}
	})
	expect(t, b.page("/jobs/pipe"), "step fit failed (job pipe-fit): exit code 3; not run: tell", "fit Failed exit code 3 40s", "Not run it takes outputs of fit, and there are none")
}

func TestStepsAreListedOnThePageOfTheirPipeline(t *testing.T) {
	w := newWorld(t)
	w.add("other", trainyard.JobCompleted)
	w.addPipeline()
	rows := func(query string) string {
		var names []string
		for _, row := range w.admin().page("/jobs" + query).all(tag("tr")) {
			if id := row.attr("id"); id != "" {
				names = append(names, strings.TrimPrefix(id, "job-"))
			}
		}
		return strings.Join(names, " ")
	}
	if got := rows(""); got != "pipe other" {
		t.Errorf("the list has %s", got)
	}
	expect(t, w.admin().page("/jobs"), "1 of 4 steps completed; running: fit; queued: plot Running 4 steps")
	if got := rows("?state=Queued"); got != "pipe-plot" {
		t.Errorf("what is queued: %s", got)
	}
	page := w.admin().page("/jobs?state=Queued")
	expect(t, page, "plot pipe-plot step of pipe")
	if got := page.link("pipe"); got != "/jobs/pipe" {
		t.Errorf("a step's pipeline is at %q", got)
	}
}

// A list without rows says so of what it looked at, not of all that there is.
func TestAListOfStepsAloneIsNotEmpty(t *testing.T) {
	w := newWorld(t)
	w.add("first", trainyard.JobCompleted)
	for i := range 2000 {
		w.add(fmt.Sprintf("step-%d", i), trainyard.JobCompleted).Plan.Parent = "pipe"
	}
	b := w.admin()
	page := b.page("/jobs")
	expect(t, page, "All the jobs looked at are steps of pipelines; there are older ones.")
	refuse(t, page, "No job was submitted yet", "trainyard job create")
	older := b.page(page.link("Older"))
	expect(t, older, "first")
	expect(t, b.page("/jobs?q=nothing"), "No job matches among those looked at; there are older ones.")
}

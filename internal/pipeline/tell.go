package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// status is how a step is. over says that no more steps begin.
func (d *decision) status(i int, over bool) trainyard.StepStatus {
	s, j := &d.plan.Steps[i], d.jobs[i]
	switch {
	case s.Refused != "":
		return trainyard.StepStatus{State: trainyard.JobFailed, Why: "its job could not be made: " + s.Refused}
	case j != nil:
		return trainyard.StepStatus{State: j.Status.State, Why: why(j), Started: j.Status.Started, Ended: j.Status.Ended}
	case d.out[s.Name] == lost:
		var bad []string
		for _, before := range s.After {
			if d.out[before] == lost {
				bad = append(bad, before)
			}
		}
		return trainyard.StepStatus{State: trainyard.StepNotRun, Why: "it takes outputs of " + strings.Join(bad, " and ") + ", and there are none"}
	case over:
		return trainyard.StepStatus{State: trainyard.StepNotRun, Why: "the pipeline ended before its turn"}
	case d.starts(i):
		return trainyard.StepStatus{State: trainyard.JobNotStarted, Why: "its job is being made"}
	}
	return trainyard.StepStatus{State: trainyard.JobNotStarted, Why: "waits for " + strings.Join(d.missing(s.After), " and ")}
}

// why is what is to be said of a step's job beside its state.
func why(j *trainyard.Job) string {
	s := &j.Status
	switch {
	case s.State == trainyard.JobCompleted, s.State == trainyard.JobRunning && s.Reason.Code == "Running", s.State == trainyard.JobQueued && s.Reason.Code == "Submitted":
		return "" // the state says it
	case s.State.Terminal() && s.Failure != nil && s.Failure.Message != "":
		return s.Failure.Message
	}
	return s.Reason.Message
}

// mostTold is how many bytes of a reason are told in one line.
const mostTold = 2000

// Tell is what a pipeline's log is to say when its steps are as given and were as its status has them: a line for each that has changed,
// in the order in which that happened. now stands for what has no time of its own.
func Tell(j *trainyard.Job, steps []trainyard.StepStatus, now time.Time) string {
	type line struct {
		at   time.Time
		text string
	}
	width, names := 0, j.Children()
	for _, s := range j.Plan.Pipeline.Steps {
		width = min(max(width, len(s.Name)), 32)
	}
	var lines []line
	for i, s := range steps {
		before := trainyard.JobNotStarted
		if i < len(j.Status.Steps) {
			before = j.Status.Steps[i].State
		}
		if s.State == before || s.State == trainyard.JobFinalizing || s.State == trainyard.JobCancelRequested { // what comes of these is told soon
			continue
		}
		at := now
		if s.State == trainyard.JobRunning && !s.Started.IsZero() {
			at = s.Started
		} else if s.State.Terminal() && !s.Ended.IsZero() {
			at = s.Ended
		}
		text := fmt.Sprintf("%s  %-*s  %-10s  %s", at.UTC().Format("2006-01-02 15:04:05Z"), width, j.Plan.Pipeline.Steps[i].Name, s.State, told(s, names[i]))
		lines = append(lines, line{at, strings.TrimRight(text, " ") + "\n"})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var out strings.Builder
	if len(j.Status.Steps) == 0 {
		fmt.Fprintf(&out, "pipeline %s of %d steps; the log of a step STEP is that of job %s: trainyard job logs --name %[3]s\n", j.Name, len(steps), trainyard.StepJob(j.Name, "STEP"))
	}
	for _, l := range lines {
		out.WriteString(l.text)
	}
	return out.String()
}

// told is what a line says beside the state.
func told(s trainyard.StepStatus, job string) string {
	why := strings.TrimSpace(s.Why)
	if len(why) > mostTold {
		why = strings.ToValidUTF8(why[:mostTold], "") + "…"
	}
	why = strings.ReplaceAll(why, "\n", "\n    ")
	switch {
	case s.State == trainyard.JobCompleted && !s.Started.IsZero():
		return "after " + took(s.Ended.Sub(s.Started))
	case s.State == trainyard.JobFailed && !s.Ended.IsZero(): // else there is no job
		return why + "; see: trainyard job logs --name " + job
	}
	return why
}

// took is a duration in as many digits as one wants to read.
func took(d time.Duration) string {
	switch {
	case d < time.Second:
		return max(d, 0).Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

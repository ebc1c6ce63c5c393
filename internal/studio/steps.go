package studio

import (
	"fmt"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// stepsView are the steps of a pipeline, each with its time to scale of the pipeline's.
type stepsView struct {
	Rows  []stepRow
	Done  int
	Total lasting
	Over  bool
}

type stepRow struct {
	Name, URL string // of its job; "" if there is none
	State     state
	After     string // steps that it takes outputs of
	Why       string // why it waits, what it does before it runs, or what went wrong
	Class     string // of its bar; "" if it has none
	X, W      string
	Took      lasting
}

func stepsOf(v *visit, j *trainyard.Job) stepsView {
	p := j.Plan.Pipeline
	if p == nil {
		return stepsView{}
	}
	out := stepsView{Total: lastingOf(v.now, j.Created, j.Status.Ended), Over: j.Status.State.Terminal()}
	for i, s := range p.Steps {
		now := trainyard.StepStatus{State: trainyard.JobNotStarted}
		if i < len(j.Status.Steps) {
			now = j.Status.Steps[i]
		}
		if now.State == trainyard.JobCompleted {
			out.Done++
		}
		r := stepRow{Name: s.Name, State: stepState(now.State), After: strings.Join(s.After, ", "), Why: now.Why}
		if now.State != trainyard.JobNotStarted && now.State != trainyard.StepNotRun && s.Refused == "" {
			r.URL = v.jobLink(trainyard.StepJob(j.Name, s.Name))
		}
		if !now.Started.IsZero() {
			r.Took = lastingOf(v.now, now.Started, now.Ended)
			r.Class = "t-user"
			if now.State == trainyard.JobFailed {
				r.Class = "n-unusable"
			}
			r.X, r.W = toScale(j.Created, endOf(trainyard.Span{End: j.Status.Ended}, v.now), now.Started, endOf(trainyard.Span{End: now.Ended}, v.now))
		}
		out.Rows = append(out.Rows, r)
	}
	return out
}

// toScale is where a time lies in another, and how long it is, for a drawing.
func toScale(first, last, from, to time.Time) (x, w string) {
	whole := float64(max(last.Sub(first), time.Microsecond))
	width := min(max(scale*float64(to.Sub(from))/whole, 10), scale) // what was there is seen
	at := min(max(scale*float64(from.Sub(first))/whole, 0), scale-width)
	return fmt.Sprintf("%.1f", at), fmt.Sprintf("%.1f", width)
}

func stepState(s trainyard.JobState) state {
	switch s {
	case trainyard.JobNotStarted:
		return state{"off", "Not begun"}
	case trainyard.StepNotRun:
		return state{"off", "Not run"}
	}
	return jobState(s)
}

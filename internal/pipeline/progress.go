package pipeline

import (
	"fmt"
	"strings"

	"github.com/trainyard/trainyard"
)

// Next is what is to be done to a pipeline now.
type Next struct {
	Start []int    // steps whose jobs are to be made
	Stop  []string // jobs that are to end
	State trainyard.JobState
	Why   trainyard.Reason
	Fail  *trainyard.Failure // of a pipeline that failed, or was canceled
	Steps []trainyard.StepStatus
}

// Decide says what comes next, given the pipeline's plan and state and the jobs of its steps, of which those are nil that were not made.
func Decide(j *trainyard.Job, jobs []*trainyard.Job) Next {
	d := &decision{plan: j.Plan.Pipeline, jobs: jobs, out: map[string]outcome{}}
	for i := range d.plan.Steps {
		d.look(i)
	}
	canceled := j.Status.State == trainyard.JobCancelRequested
	stop := canceled || d.failed != "" && !d.plan.Continue
	n := Next{State: j.Status.State, Why: trainyard.Reason{Code: "Steps"}}
	if stop {
		for _, one := range d.live {
			n.Stop = append(n.Stop, one.Name)
		}
	} else {
		n.Start = d.ready
	}
	switch {
	case len(d.live) > 0 || len(n.Start) > 0:
		n.Why.Message = d.words(stop)
		if canceled {
			n.Why = trainyard.Reason{Code: "CancelRequested", Message: j.Status.Canceled() + "; its steps are being stopped: " + n.Why.Message}
		} else if d.begun {
			n.State = trainyard.JobRunning
		}
	case d.completed == len(d.plan.Steps):
		n.State, n.Why = trainyard.JobCompleted, trainyard.Reason{Code: "Completed", Message: "completed"}
	case canceled:
		n.State, n.Why = trainyard.JobCanceled, trainyard.Reason{Code: "Canceled", Message: j.Status.Canceled()}
		n.Fail = &trainyard.Failure{Class: trainyard.ClassCanceled, Message: n.Why.Message}
	default:
		if never := d.never(); never != "" {
			d.failed += "; not run: " + never
		}
		n.State, n.Why = trainyard.JobFailed, trainyard.Reason{Code: "StepFailed", Message: d.failed}
		n.Fail = &trainyard.Failure{Class: d.class, Message: d.failed}
	}
	for i := range d.plan.Steps {
		n.Steps = append(n.Steps, d.status(i, stop || n.State.Terminal()))
	}
	return n
}

// outcome is how far a step is.
type outcome int

const (
	waits outcome = iota
	lives
	done
	lost // failed, or waits for one that did
)

type decision struct {
	plan      *trainyard.PipelinePlan
	jobs      []*trainyard.Job
	out       map[string]outcome
	ready     []int
	live      []*trainyard.Job
	begun     bool // a step's process has run
	completed int
	failed    string // what the first failure was
	class     trainyard.Class
}

// look finds out how far a step is. Those before it are known.
func (d *decision) look(i int) {
	s, j := &d.plan.Steps[i], d.jobs[i]
	if j != nil {
		d.begun = d.begun || !j.Status.Started.IsZero() || j.Status.State.Terminal()
	}
	switch {
	case s.Refused != "":
		d.out[s.Name] = lost
		d.fail(trainyard.ClassStart, fmt.Sprintf("step %s could not begin: %s", s.Name, s.Refused))
	case j == nil:
		d.out[s.Name] = waits
		ready := true
		for _, before := range s.After {
			if d.out[before] == lost {
				d.out[s.Name] = lost
			}
			ready = ready && d.out[before] == done
		}
		if ready {
			d.ready = append(d.ready, i)
		}
	case j.Status.State == trainyard.JobCompleted:
		d.out[s.Name] = done
		d.completed++
	case j.Status.State.Terminal():
		d.out[s.Name] = lost
		class, why := trainyard.ClassUser, j.Status.Reason.Message
		if f := j.Status.Failure; f != nil {
			class, why = f.Class, f.Message
		}
		d.fail(class, fmt.Sprintf("step %s %s (job %s): %s", s.Name, strings.ToLower(string(j.Status.State)), j.Name, why))
	default:
		d.out[s.Name] = lives
		d.live = append(d.live, j)
	}
}

// fail keeps the failure to tell of: the first, but rather one of a step than that a step was stopped on its account.
func (d *decision) fail(class trainyard.Class, text string) {
	if d.failed == "" || d.class == trainyard.ClassCanceled && class != trainyard.ClassCanceled {
		d.failed, d.class = text, class
	}
}

// words say how a pipeline goes: what runs, what is in a queue, and what waits for which steps.
func (d *decision) words(stop bool) string {
	parts := []string{fmt.Sprintf("%d of %d steps completed", d.completed, len(d.plan.Steps))}
	add := func(text string, list []string) {
		if len(list) > 0 {
			parts = append(parts, text+" "+strings.Join(list, ", "))
		}
	}
	var runs, prepares, queued, later, never []string
	for i, s := range d.plan.Steps {
		switch j := d.jobs[i]; {
		case d.out[s.Name] == lives && j.Status.State == trainyard.JobQueued:
			queued = append(queued, s.Name)
		case d.out[s.Name] == lives && j.Status.State == trainyard.JobPreparing:
			prepares = append(prepares, s.Name)
		case d.out[s.Name] == lives:
			runs = append(runs, s.Name)
		case d.out[s.Name] == waits && !stop && len(s.After) > 0 && !d.starts(i):
			later = append(later, s.Name+" (for "+strings.Join(d.missing(s.After), " and ")+")")
		case d.out[s.Name] == waits && !stop:
			queued = append(queued, s.Name)
		case j == nil && s.Refused == "":
			never = append(never, s.Name)
		}
	}
	if d.failed != "" {
		parts = append(parts, d.failed)
	}
	add("running:", runs)
	add("being prepared:", prepares)
	add("queued:", queued)
	add("waiting:", later)
	add("not to be run:", never)
	return strings.Join(parts, "; ")
}

func (d *decision) starts(i int) bool {
	for _, r := range d.ready {
		if r == i {
			return true
		}
	}
	return false
}

// missing are those of some steps that have not completed.
func (d *decision) missing(steps []string) (out []string) {
	for _, s := range steps {
		if d.out[s] != done {
			out = append(out, s)
		}
	}
	return out
}

// never are the steps that had no turn.
func (d *decision) never() string {
	var out []string
	for i, s := range d.plan.Steps {
		if d.jobs[i] == nil && s.Refused == "" {
			out = append(out, s.Name)
		}
	}
	return strings.Join(out, ", ")
}

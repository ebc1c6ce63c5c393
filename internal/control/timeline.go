package control

import (
	"slices"
	"time"

	"github.com/trainyard/trainyard"
)

// tooShort is a gap that nobody wants to read about.
const tooShort = 10 * time.Millisecond

// spanSteps is all of a pipeline's time: where it went, the jobs of its steps say.
const spanSteps = "steps"

// timeline accounts for every moment between a job's submission and its end (or now): the spans that its tasks reported, of the rank
// that ended last, with what lies between them named after what the job then waited for.
func timeline(j *trainyard.Job, now time.Time) []trainyard.Span {
	var out []trainyard.Span
	at := j.Created
	add := func(name string, end time.Time, note string) {
		if end.After(at) {
			out = append(out, trainyard.Span{Name: name, Start: at, End: end, Note: note})
			at = end
		}
	}
	for i := range j.Status.Attempts {
		a := &j.Status.Attempts[i]
		add(trainyard.SpanQueue, a.Placed, "")
		last := lastTask(a)
		waiting := trainyard.SpanNode
		for _, s := range inOrder(last.Spans) {
			if waiting == trainyard.SpanNode || s.Start.Sub(at) >= tooShort { // else it counts as part of what follows
				add(waiting, s.Start, "")
			}
			if waiting == trainyard.SpanNode {
				waiting = trainyard.SpanStart
			}
			end := s.End
			if end.IsZero() { // of a node that was lost nobody said when it ended
				end = now
				if !a.Ended.IsZero() {
					end = a.Ended
				}
			}
			add(s.Name, end, s.Note)
			if s.Name == trainyard.SpanUser || s.Name == trainyard.SpanUpload {
				waiting = trainyard.SpanFinish
			}
		}
		if !a.Ended.IsZero() {
			add(closing(waiting, last), a.Ended, "")
		}
	}
	switch {
	case j.Plan.Pipeline != nil && !j.Status.Ended.IsZero():
		add(spanSteps, j.Status.Ended, "")
	case j.Plan.Pipeline != nil:
		add(spanSteps, now, j.Status.Reason.Message)
	case !j.Status.Ended.IsZero() && len(j.Status.Attempts) == 0: // it never got further
		add(trainyard.SpanQueue, j.Status.Ended, "")
	case !j.Status.Ended.IsZero():
		add(trainyard.SpanFinish, j.Status.Ended, "")
	case j.Status.State == trainyard.JobQueued:
		add(trainyard.SpanQueue, now, j.Status.Reason.Message)
	default:
		add(trainyard.SpanNode, now, j.Status.Reason.Message)
	}
	return out
}

// closing names what lies between an attempt's last span and its end.
func closing(waiting string, t *trainyard.RunTask) string {
	if t.Result != nil && t.Result.Class == trainyard.ClassNodeLost {
		return trainyard.SpanNode // waiting for a node that did not come back
	}
	return waiting
}

// lastTask is the task of an attempt that took longest.
func lastTask(a *trainyard.Attempt) *trainyard.RunTask {
	best, at := &a.Tasks[0], time.Time{}
	for i := range a.Tasks {
		for _, s := range a.Tasks[i].Spans {
			if s.End.After(at) {
				best, at = &a.Tasks[i], s.End
			}
		}
	}
	return best
}

func inOrder(spans []trainyard.Span) []trainyard.Span {
	return slices.SortedStableFunc(slices.Values(spans), func(a, b trainyard.Span) int { return a.Start.Compare(b.Start) })
}

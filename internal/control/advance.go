package control

import (
	"fmt"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// advance is the one function of policy: given what the tasks of the current attempt say, it moves the job on. It returns the tasks that
// must now be stopped. It looks at nothing but the job and now.
func advance(j *trainyard.Job, now time.Time) (stop bool, err error) {
	a := j.Status.Current()
	if a == nil || j.Status.State.Terminal() || !a.Ended.IsZero() {
		return false, nil
	}
	live, started, uploading := 0, 0, 0
	var bad *trainyard.Result
	for i := range a.Tasks {
		t := &a.Tasks[i]
		if t.State != trainyard.TaskEnded {
			live++
		} else if t.Result != nil && worse(t.Result, bad) {
			bad = t.Result
		}
		if t.State.Rank() >= trainyard.TaskRunning.Rank() {
			started++
		}
		if t.State.Rank() >= trainyard.TaskUploading.Rank() {
			uploading++
		}
	}
	noteStart(j, a)
	switch {
	case live == 0:
		return false, end(j, a, bad, now)
	case j.Status.State == trainyard.JobCancelRequested: // all were asked to end
		return false, j.MoveTo(trainyard.JobCancelRequested, canceling(j, a), now)
	case bad != nil: // one rank failed: the others have nothing left to work for
		for i := range a.Tasks {
			if t := &a.Tasks[i]; t.State != trainyard.TaskEnded && t.StopWhy == "" {
				t.StopWhy, stop = trainyard.ClassSibling, true
			}
		}
		return stop, nil
	case uploading == len(a.Tasks):
		return false, j.MoveTo(trainyard.JobFinalizing, trainyard.Reason{Code: "Uploading", Message: "the process has ended; outputs and logs are being stored"}, now)
	case started > 0 && (j.Status.State == trainyard.JobPreparing || j.Status.State == trainyard.JobRunning):
		return false, j.MoveTo(trainyard.JobRunning, runs(j, a), now)
	case j.Status.State == trainyard.JobPreparing:
		return false, j.MoveTo(trainyard.JobPreparing, preparing(j, a), now)
	}
	return false, nil
}

// worse says whether a task's result, rather than that of the tasks before it, is why an attempt ended. That a node gave way comes first:
// peers that lost their connection to it did not fail.
func worse(r, than *trainyard.Result) bool {
	switch {
	case r.Class == trainyard.ClassOK:
		return false
	case than == nil:
		return true
	case r.Class == trainyard.ClassPreempted:
		return than.Class != trainyard.ClassPreempted
	}
	return than.Class == trainyard.ClassSibling
}

// preparing says what a job that is not running yet waits for.
func preparing(j *trainyard.Job, a *trainyard.Attempt) trainyard.Reason {
	why := trainyard.Reason{Code: "Placed", Message: fmt.Sprintf("placed on %s", a.Tasks[0].Node)}
	for i := range a.Tasks {
		if t := &a.Tasks[i]; t.Progress != "" && t.State.Rank() < trainyard.TaskRunning.Rank() {
			why = trainyard.Reason{Code: "Preparing", Message: fmt.Sprintf("%s on %s", t.Progress, t.Node)}
			break
		}
	}
	if away := unseen(a); away != "" {
		return engineAway(j, why.Message+"; it cannot begin: ", away, "; it is asked for again and again")
	}
	return why
}

// runs says how a job runs, as far as is known.
func runs(j *trainyard.Job, a *trainyard.Attempt) trainyard.Reason {
	if why := unseen(a); why != "" {
		return engineAway(j, "the process ran when it was last seen; now it cannot be seen: ", why, "; it is asked for again and again")
	}
	return trainyard.Reason{Code: "Running", Message: "the process runs"}
}

// canceling says how the end of a job comes on.
func canceling(j *trainyard.Job, a *trainyard.Attempt) trainyard.Reason {
	if why := unseen(a); why != "" {
		return engineAway(j, j.Status.Canceled()+"; the process cannot be reached: ", why, "; it ends when that answers")
	}
	return trainyard.Reason{Code: "CancelRequested", Message: j.Status.Canceled() + "; the process is being stopped"}
}

// codeUnseen is of a job whose engine does not answer.
const codeUnseen = "EngineAway"

// engineAway is the reason of a job whose engine does not answer, since it began not to: why, in a sentence.
func engineAway(j *trainyard.Job, before, why, after string) trainyard.Reason {
	r := trainyard.Reason{Code: codeUnseen, Message: before + why + after, Cause: why}
	if j.Status.Reason.Code == codeUnseen {
		r.Since = j.Status.Reason.Since
	}
	return r
}

// unseen is why nothing new is known of a task that has not ended; "" if all can be seen.
func unseen(a *trainyard.Attempt) string {
	for i := range a.Tasks {
		if t := &a.Tasks[i]; t.Away != "" && t.State.Rank() <= trainyard.TaskRunning.Rank() {
			return fmt.Sprintf("%s (node %s)", t.Away, t.Node)
		}
	}
	return ""
}

// noteStart remembers when the user's process first began.
func noteStart(j *trainyard.Job, a *trainyard.Attempt) {
	for i := range a.Tasks {
		for _, s := range a.Tasks[i].Spans {
			if s.Name == trainyard.SpanUser && (j.Status.Started.IsZero() || s.Start.Before(j.Status.Started)) {
				j.Status.Started = s.Start
			}
		}
	}
}

// end closes an attempt of which every task has ended: done, retry, canceled or failed.
func end(j *trainyard.Job, a *trainyard.Attempt, bad *trainyard.Result, now time.Time) error {
	a.Ended, a.Class = now, trainyard.ClassOK
	asked := j.Status.State == trainyard.JobCancelRequested
	if bad == nil {
		zero := 0
		j.Status.ExitCode = &zero
		return j.MoveTo(trainyard.JobCompleted, trainyard.Reason{Code: "Completed", Message: "completed"}, now)
	}
	a.Class = bad.Class
	code := bad.ExitCode
	if asked || bad.Class == trainyard.ClassCanceled {
		why := j.Status.Canceled()
		if !asked && bad.Message != "" { // not by anybody here: the engine says by whom
			why = bad.Message
		}
		j.Status.Failure = &trainyard.Failure{Class: trainyard.ClassCanceled, Message: why}
		if j.Status.State != trainyard.JobCancelRequested {
			if err := j.MoveTo(trainyard.JobCancelRequested, trainyard.Reason{}, now); err != nil {
				return err
			}
		}
		return j.MoveTo(trainyard.JobCanceled, trainyard.Reason{Code: "Canceled", Message: why}, now)
	}
	if bad.Class == trainyard.ClassPreempted {
		why := fmt.Sprintf("attempt %d was preempted: %s; waiting for room to run again", a.Number, bad.Message)
		return j.MoveTo(trainyard.JobQueued, trainyard.Reason{Code: "Preempted", Message: why}, now)
	}
	if retryable(bad.Class) && tries(j) < j.Plan.MaxAttempts {
		why := fmt.Sprintf("%s ended because %s; waiting for room to run again", which(j), bad.Message)
		return j.MoveTo(trainyard.JobQueued, trainyard.Reason{Code: "Retrying", Message: why}, now)
	}
	message := bad.Message + earlier(j)
	j.Status.Failure = &trainyard.Failure{Class: bad.Class, Message: message}
	if code >= 0 {
		j.Status.ExitCode = &code
	}
	to := trainyard.JobFailed
	if bad.Class == trainyard.ClassTimeout { // Azure ML ends jobs that run over their limit as Canceled
		to = trainyard.JobCanceled
		if err := j.MoveTo(trainyard.JobCancelRequested, trainyard.Reason{}, now); err != nil {
			return err
		}
	}
	return j.MoveTo(to, trainyard.Reason{Code: string(bad.Class), Message: message}, now)
}

// earlierWords is how many characters are told of the end of an attempt that was not the last.
const earlierWords = 160

// earlier says of a job whose attempts are used up how many there were and how those before the last ended; "" of a job that failed for what
// is its own, and of one that had no other attempt that counts.
func earlier(j *trainyard.Job) string {
	n := tries(j)
	if n < 2 || !retryable(j.Status.Current().Class) {
		return ""
	}
	var ends []string
	for i := range j.Status.Attempts[:len(j.Status.Attempts)-1] {
		a := &j.Status.Attempts[i]
		if a.Class == trainyard.ClassPreempted {
			continue
		}
		why := "no word of its end"
		if r := reason(a); r != nil && r.Message != "" {
			why = shorten(r.Message, earlierWords)
		}
		ends = append(ends, fmt.Sprintf("attempt %d: %s", a.Number, why))
	}
	return fmt.Sprintf("; it was %s (%s)", which(j), strings.Join(ends, ", "))
}

// which names the attempt that was last, and how many of those there may be it is.
func which(j *trainyard.Job) string {
	n, number := tries(j), j.Status.Current().Number
	if n == number {
		return fmt.Sprintf("attempt %d of %d", n, j.Plan.MaxAttempts)
	}
	return fmt.Sprintf("attempt %d (%d of %d that count)", number, n, j.Plan.MaxAttempts)
}

// reason is why an attempt that has ended did not end well, nil if that is not known.
func reason(a *trainyard.Attempt) (bad *trainyard.Result) {
	for i := range a.Tasks {
		if r := a.Tasks[i].Result; r != nil && worse(r, bad) {
			bad = r
		}
	}
	return bad
}

// shorten is text of one line and at most so many characters.
func shorten(text string, most int) string {
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most-1]) + "…"
}

// tries counts the attempts that were not cut short by preemption.
func tries(j *trainyard.Job) int {
	n := 0
	for i := range j.Status.Attempts {
		if j.Status.Attempts[i].Class != trainyard.ClassPreempted {
			n++
		}
	}
	return n
}

// retryable says which ends are nobody's fault but ours.
func retryable(class trainyard.Class) bool {
	return class == trainyard.ClassNodeLost || class == trainyard.ClassStart
}

// step runs advance in a transaction, stores the job and says what happened. It returns the nodes that must hear of it.
func (c *Control) step(tx *store.Tx, j *trainyard.Job) ([]trainyard.NodeID, error) {
	before, was := j.Status.State, j.Status.Reason
	stop, err := advance(j, c.Now())
	if err != nil {
		return nil, err
	}
	if a := j.Status.Current(); j.Status.State == trainyard.JobQueued && before != trainyard.JobQueued && a != nil {
		if a.Logs, err = c.logSizes(j); err != nil {
			return nil, err
		}
	}
	if j.Status.State != before {
		tx.Event(c.event(j.Scope, "job", j.Name, eventName(j.Status.State), "", j.Status.Reason.Message))
		if j.Status.State == trainyard.JobCompleted {
			if err := c.registerOutputs(tx, j); err != nil {
				return nil, err
			}
		}
	}
	c.noteUnseen(tx, j, was)
	if err := tx.PutJob(j); err != nil {
		return nil, err
	}
	if !stop {
		return nil, nil
	}
	var nodes []trainyard.NodeID
	for _, t := range j.Status.Current().Tasks {
		nodes = append(nodes, t.Node)
	}
	return nodes, nil
}

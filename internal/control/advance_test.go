package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

var t0 = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// attempt is a job whose current attempt has tasks in these states; a result other than OK is written as a class.
func attempt(state trainyard.JobState, tasks ...trainyard.RunTask) *trainyard.Job {
	j := &trainyard.Job{Name: "j", Created: t0, Plan: trainyard.JobPlan{MaxAttempts: 3}}
	j.Status.State = state
	j.Status.Attempts = []trainyard.Attempt{{Number: 1, Placed: t0, Tasks: tasks}}
	return j
}

func running() trainyard.RunTask { return trainyard.RunTask{Node: "n", State: trainyard.TaskRunning} }

func ended(class trainyard.Class, code int) trainyard.RunTask {
	return trainyard.RunTask{Node: "n", State: trainyard.TaskEnded, Result: &trainyard.Result{Class: class, ExitCode: code, Message: "because"}}
}

func TestAdvance(t *testing.T) {
	staging := trainyard.RunTask{Node: "n", State: trainyard.TaskStaging, Progress: "building environment"}
	uploading := trainyard.RunTask{Node: "n", State: trainyard.TaskUploading}
	away := trainyard.RunTask{Node: "n", State: trainyard.TaskRunning, Away: "the engine hangs"}
	stuck := trainyard.RunTask{Node: "m", State: trainyard.TaskStaging, Progress: "building environment", Away: "the engine hangs"}
	tests := []struct {
		name string
		job  *trainyard.Job
		want trainyard.JobState
		stop bool
		why  string
	}{
		{"staging keeps it preparing and says what it does", attempt(trainyard.JobPreparing, staging), trainyard.JobPreparing, false, "building environment on n"},
		{"the first rank that runs makes it running", attempt(trainyard.JobPreparing, running(), staging), trainyard.JobRunning, false, "the process runs"},
		{"all ranks uploading makes it finalizing", attempt(trainyard.JobRunning, uploading, ended(trainyard.ClassOK, 0)), trainyard.JobFinalizing, false, "the process has ended; outputs and logs are being stored"},
		{"all ended well completes it", attempt(trainyard.JobFinalizing, ended(trainyard.ClassOK, 0), ended(trainyard.ClassOK, 0)), trainyard.JobCompleted, false, "completed"},
		{"a short task may end before anybody saw it run", attempt(trainyard.JobPreparing, ended(trainyard.ClassOK, 0)), trainyard.JobCompleted, false, "completed"},
		{"one failed rank stops the others", attempt(trainyard.JobRunning, ended(trainyard.ClassUser, 3), running()), trainyard.JobRunning, true, ""},
		{"the rank that failed first is the reason", attempt(trainyard.JobRunning, ended(trainyard.ClassSibling, 143), ended(trainyard.ClassUser, 3)), trainyard.JobFailed, false, "because"},
		{"a rank that gave way is the reason, whatever its peers died of", attempt(trainyard.JobRunning, ended(trainyard.ClassUser, 1), ended(trainyard.ClassPreempted, 143), ended(trainyard.ClassSibling, 143)),
			trainyard.JobQueued, false, "attempt 1 was preempted: because; waiting for room to run again"},
		{"a cancel wins over giving way", attempt(trainyard.JobCancelRequested, ended(trainyard.ClassPreempted, 143), ended(trainyard.ClassCanceled, 143)), trainyard.JobCanceled, false, "canceled"},
		{"a lost node queues it again", attempt(trainyard.JobRunning, ended(trainyard.ClassNodeLost, -1)), trainyard.JobQueued, false, "attempt 1 of 3 ended because because; waiting for room to run again"},
		{"a user's own failure is not tried again", attempt(trainyard.JobRunning, ended(trainyard.ClassUser, 1)), trainyard.JobFailed, false, "because"},
		{"out of memory fails it", attempt(trainyard.JobRunning, ended(trainyard.ClassOutOfMemory, 137)), trainyard.JobFailed, false, "because"},
		{"running over the limit cancels it, as Azure ML does", attempt(trainyard.JobRunning, ended(trainyard.ClassTimeout, 143)), trainyard.JobCanceled, false, "because"},
		{"a cancel that was asked for ends canceled", attempt(trainyard.JobCancelRequested, ended(trainyard.ClassCanceled, 143)), trainyard.JobCanceled, false, "canceled"},
		{"a node lost during a cancel ends canceled too", attempt(trainyard.JobCancelRequested, ended(trainyard.ClassNodeLost, -1)), trainyard.JobCanceled, false, "canceled"},
		{"a cancel says that the engine is waited for", attempt(trainyard.JobCancelRequested, running(), away), trainyard.JobCancelRequested, false,
			"canceled; the process cannot be reached: the engine hangs (node n); it ends when that answers"},
		{"also where nothing runs yet", attempt(trainyard.JobCancelRequested, ended(trainyard.ClassCanceled, 143), stuck), trainyard.JobCancelRequested, false,
			"canceled; the process cannot be reached: the engine hangs (node m); it ends when that answers"},
		{"what is only being prepared is no such wait", attempt(trainyard.JobCancelRequested, staging), trainyard.JobCancelRequested, false, "canceled; the process is being stopped"},
		{"a job that is prepared says that its engine is away", attempt(trainyard.JobPreparing, stuck), trainyard.JobPreparing, false,
			"building environment on m; it cannot begin: the engine hangs (node m); it is asked for again and again"},
		{"a job that completed before the cancel reached it completes", attempt(trainyard.JobCancelRequested, ended(trainyard.ClassOK, 0)), trainyard.JobCompleted, false, "completed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			stop, err := advance(tt.job, t0.Add(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			s := tt.job.Status
			if s.State != tt.want || stop != tt.stop {
				t.Errorf("state %s, stop %v; want %s, %v", s.State, stop, tt.want, tt.stop)
			}
			if tt.why != "" && s.Reason.Message != tt.why {
				t.Errorf("reason %q, want %q", s.Reason.Message, tt.why)
			}
			if s.State.Terminal() != !s.Ended.IsZero() {
				t.Errorf("state %s ended at %v", s.State, s.Ended)
			}
		})
	}
}

func TestALostNodeIsTriedOnlySoOften(t *testing.T) {
	j := attempt(trainyard.JobRunning, ended(trainyard.ClassNodeLost, -1))
	j.Plan.MaxAttempts = 1
	if _, err := advance(j, t0); err != nil || j.Status.State != trainyard.JobFailed {
		t.Fatalf("state %s, %v; want Failed", j.Status.State, err)
	}
}

// What a job fails with tells that it was tried, how often, and how each try ended: the last may be the least telling.
func TestAJobWhoseAttemptsAreUsedUpTellsOfAllOfThem(t *testing.T) {
	tried := func(last trainyard.Class, before ...trainyard.Class) string {
		j := attempt(trainyard.JobRunning)
		j.Status.Attempts = nil
		for i, class := range append(before, last) {
			task := ended(class, -1)
			task.Result.Message = fmt.Sprintf("cause %d", i+1)
			j.Status.Attempts = append(j.Status.Attempts, trainyard.Attempt{Number: i + 1, Placed: t0, Ended: t0, Class: class, Tasks: []trainyard.RunTask{task}})
		}
		j.Status.Current().Ended = time.Time{}
		if _, err := advance(j, t0); err != nil || j.Status.State != trainyard.JobFailed || j.Status.Failure.Message != j.Status.Reason.Message {
			t.Fatalf("%s, %+v, %+v, %v", j.Status.State, j.Status.Failure, j.Status.Reason, err)
		}
		return j.Status.Failure.Message
	}
	lost, preempted := trainyard.ClassNodeLost, trainyard.ClassPreempted
	tests := []struct{ name, got, want string }{
		{"three lost nodes", tried(lost, lost, trainyard.ClassStart), "cause 3; it was attempt 3 of 3 (attempt 1: cause 1, attempt 2: cause 2)"},
		{"a preemption is no attempt", tried(lost, lost, preempted, lost),
			"cause 4; it was attempt 4 (3 of 3 that count) (attempt 1: cause 1, attempt 3: cause 3)"},
		{"what is the job's own is told alone", tried(trainyard.ClassUser, lost), "cause 2"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
	if got := shorten("Grüße\nund "+strings.Repeat("é", 200), 20); got != "Grüße und ééééééééé…" {
		t.Errorf("a long reason of two lines becomes %q", got)
	}
}

func TestAGangGivesWayAsAWhole(t *testing.T) {
	on := func(node trainyard.NodeID, state trainyard.TaskState, why trainyard.Class) trainyard.RunTask {
		return trainyard.RunTask{Node: node, State: state, StopWhy: why}
	}
	j := attempt(trainyard.JobRunning, on("a", trainyard.TaskRunning, ""), on("b", trainyard.TaskStaging, ""), on("c", trainyard.TaskUploading, ""),
		on("d", trainyard.TaskRunning, trainyard.ClassCanceled), ended(trainyard.ClassOK, 0))
	for _, id := range []trainyard.NodeID{"c", "n", "elsewhere"} {
		if got := preemptJob(j, id); len(got) > 0 {
			t.Errorf("%s has nothing at work, and tasks on %v must end", id, got)
		}
	}
	if got := preemptJob(j, "a"); !slices.Equal(got, []trainyard.NodeID{"a", "b"}) {
		t.Errorf("tasks on %v must end, want a and b", got)
	}
	for i, want := range []trainyard.Class{trainyard.ClassPreempted, trainyard.ClassPreempted, "", trainyard.ClassCanceled, ""} {
		if got := j.Status.Attempts[0].Tasks[i].StopWhy; got != want {
			t.Errorf("task %d is to end because %q, want %q", i, got, want)
		}
	}
}

func TestAJobThatNeverBeganOnlyWaited(t *testing.T) {
	j := attempt(trainyard.JobCanceled)
	j.Status.Attempts, j.Status.Ended = nil, t0.Add(time.Minute)
	spans := timeline(j, t0.Add(time.Hour))
	if len(spans) != 1 || spans[0].Name != trainyard.SpanQueue || !spans[0].End.Equal(j.Status.Ended) {
		t.Errorf("its time went to %+v", spans)
	}
}

func TestTimelineHasNoGaps(t *testing.T) {
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	j := attempt(trainyard.JobCompleted, ended(trainyard.ClassOK, 0))
	j.Status.Attempts[0].Placed, j.Status.Attempts[0].Ended, j.Status.Ended = at(5), at(30), at(30)
	j.Status.Attempts[0].Tasks[0].Spans = []trainyard.Span{
		{Name: trainyard.SpanData, Start: at(8), End: at(9)}, {Name: trainyard.SpanCode, Start: at(6), End: at(7)},
		{Name: trainyard.SpanUser, Start: at(10), End: at(28)}, {Name: trainyard.SpanUpload, Start: at(28), End: at(29)},
	}
	spans := timeline(j, at(100))
	if spans[0].Name != trainyard.SpanQueue || !spans[0].Start.Equal(t0) || !spans[len(spans)-1].End.Equal(at(30)) {
		t.Fatalf("from %v to %v: %v", spans[0].Start, spans[len(spans)-1].End, spans)
	}
	for i := 1; i < len(spans); i++ {
		if !spans[i].Start.Equal(spans[i-1].End) {
			t.Errorf("a gap between %v and %v", spans[i-1], spans[i])
		}
	}
}

// Of a task whose node was lost nobody said when it ended; its attempt's end is known.
func TestTimelineOfALostAttemptEndsWithIt(t *testing.T) {
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	j := attempt(trainyard.JobCompleted, ended(trainyard.ClassNodeLost, -1))
	j.Status.Attempts = append(j.Status.Attempts, attempt(trainyard.JobCompleted, ended(trainyard.ClassOK, 0)).Status.Attempts[0])
	first, second := &j.Status.Attempts[0], &j.Status.Attempts[1]
	first.Placed, first.Ended, second.Placed, second.Ended, j.Status.Ended = at(1), at(60), at(61), at(80), at(80)
	first.Tasks[0].Spans = []trainyard.Span{{Name: trainyard.SpanUser, Start: at(2)}}
	second.Tasks[0].Spans = []trainyard.Span{{Name: trainyard.SpanUser, Start: at(62), End: at(80)}}
	var users []trainyard.Span
	for _, s := range timeline(j, at(500)) {
		if s.Name == trainyard.SpanUser {
			users = append(users, s)
		}
	}
	if len(users) != 2 || !users[0].End.Equal(at(60)) || !users[1].Start.Equal(at(62)) || !users[1].End.Equal(at(80)) {
		t.Errorf("its process ran %v", users)
	}
}

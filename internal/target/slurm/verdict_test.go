package slurm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
)

func TestVerdict(t *testing.T) {
	began := time.Unix(1_000_000, 0)
	result := func(class trainyard.Class, code int, at int) trainyard.TaskEnd {
		return trainyard.TaskEnd{Result: trainyard.Result{Class: class, ExitCode: code, Message: "said"}, Started: began, Ended: began.Add(time.Duration(at) * time.Second)}
	}
	one := record{Task: trainyard.Task{Hi: 1, Nodes: 1}}
	two := record{Task: trainyard.Task{Lo: 4, Hi: 6, Nodes: 6}}
	type ends = map[int]trainyard.TaskEnd
	for name, c := range map[string]struct {
		f     facts
		j     slurm.Job
		class trainyard.Class
		code  int
		words string
	}{
		"a node that failed is a lost node, whatever the program made of its end": {facts{rec: one, running: began, ends: ends{0: result(trainyard.ClassCanceled, 143, 1)}},
			slurm.Job{State: slurm.NodeFail, NodeList: "n3"}, trainyard.ClassNodeLost, -1, "NODE_FAIL, n3"},
		"a node that did not boot is a lost node": {facts{rec: one}, slurm.Job{State: slurm.BootFail}, trainyard.ClassNodeLost, -1, "BOOT_FAIL"},
		"a job that nobody knows is a lost node":  {facts{rec: one, running: began}, slurm.Job{ID: "7"}, trainyard.ClassNodeLost, -1, "does not know job 7"},
		"a job that waits again was taken off its nodes, whatever the program made of its end": {facts{rec: one, running: began, ends: ends{0: result(trainyard.ClassCanceled, 143, 1)}},
			slurm.Job{ID: "7", State: slurm.Pending}, trainyard.ClassPreempted, -1, "took job 7 off its nodes and put it back in its queue"},
		"a job that an administrator holds back was taken off its nodes": {facts{rec: one, running: began}, slurm.Job{ID: "7", State: slurm.RequeueHold},
			trainyard.ClassPreempted, -1, "put it back"},
		"a job that began again after its script had begun was taken off its nodes": {facts{rec: one, running: began, restarts: 1, ends: ends{0: result(trainyard.ClassCanceled, 143, 1)}},
			slurm.Job{ID: "7", State: slurm.Completed, Restarts: 2}, trainyard.ClassPreempted, -1, "put it back"},
		"a job that was put back before its script began ended by itself": {facts{rec: one, running: began, restarts: 1, ends: ends{0: result(trainyard.ClassUser, 3, 1)}},
			slurm.Job{State: slurm.Failed, Restarts: 1, ExitCode: 3}, trainyard.ClassUser, 3, "said"},
		"a job that was put back and then canceled was canceled": {facts{rec: one, running: began}, slurm.Job{ID: "7", State: slurm.Cancelled, Restarts: 1},
			trainyard.ClassCanceled, 137, "canceled in Slurm"},
		"a job that we stopped was stopped, even if it waits again": {facts{rec: one, running: began, stop: &stopRecord{}}, slurm.Job{State: slurm.Pending},
			trainyard.ClassCanceled, 137, "stopped"},
		"a program that somebody else asked to end was not canceled": {facts{rec: one, running: began, ends: ends{0: result(trainyard.ClassCanceled, 143, 1)}},
			slurm.Job{ID: "7", State: slurm.Failed, ExitCode: 143}, trainyard.ClassNodeLost, 143, "not from here"},
		"a job that Slurm canceled for somebody says for whom": {facts{rec: one, running: began}, slurm.Job{ID: "7", State: slurm.Cancelled, By: "ann"},
			trainyard.ClassCanceled, 137, "job 7 was canceled in Slurm (scancel by ann)"},
		"a job over its time limit ran out of time": {facts{rec: one, running: began, ends: ends{0: result(trainyard.ClassCanceled, 143, 1)}},
			slurm.Job{State: slurm.Timeout, TimeLimit: "1:00:00"}, trainyard.ClassTimeout, 143, "time limit of 1:00:00"},
		"a job that we stopped was stopped, however Slurm calls it": {facts{rec: one, running: began, stop: &stopRecord{}}, slurm.Job{State: slurm.Failed, Signal: 9},
			trainyard.ClassCanceled, 137, "stopped"},
		"a program that died is known by its signal": {facts{rec: one, running: began}, slurm.Job{State: slurm.Failed, Signal: 9, NodeList: "n1"},
			trainyard.ClassUser, 137, "node n1 was out of memory"},
		"a program that left no word is known by its exit code": {facts{rec: one, running: began, tail: "panic: oh"}, slurm.Job{State: slurm.Failed, ExitCode: 2},
			trainyard.ClassUser, 2, "panic: oh"},
		"a script that never began did not start":        {facts{rec: one, tail: "no such folder"}, slurm.Job{State: slurm.Failed, ExitCode: 1}, trainyard.ClassStart, -1, "no such folder"},
		"a job that ended well and said nothing is lost": {facts{rec: one, running: began}, slurm.Job{State: slurm.Completed}, trainyard.ClassNodeLost, -1, "left no word"},
		"of a gang the first rank that failed by itself is to blame": {facts{rec: two, running: began, stop: &stopRecord{Sibling: true},
			ends: ends{0: result(trainyard.ClassCanceled, 143, 1), 1: result(trainyard.ClassUser, 9, 2)}}, slurm.Job{State: slurm.Failed, ExitCode: 9}, trainyard.ClassUser, 9, "rank 5: said"},
		"a gang of which a rank vanished is lost": {facts{rec: two, running: began, ends: ends{0: result(trainyard.ClassOK, 0, 1)}}, slurm.Job{State: slurm.Failed, ExitCode: 1},
			trainyard.ClassNodeLost, -1, "1 of its 2 ranks"},
	} {
		e := c.f.verdict(c.j)
		if e.Result.Class != c.class || e.Result.ExitCode != c.code || !strings.Contains(e.Result.Message, c.words) || e.Ended.Before(e.Started) {
			t.Errorf("%s: %+v from %v to %v, want %s, %d and %q", name, e.Result, e.Started, e.Ended, c.class, c.code, c.words)
		}
	}
}

func TestWithoutSlurmsWordOnlyWhatWeAskedToEndIsCanceled(t *testing.T) {
	f := facts{rec: record{Task: trainyard.Task{Hi: 1}}, ends: map[int]trainyard.TaskEnd{0: {Result: trainyard.Result{Class: trainyard.ClassCanceled, ExitCode: 143}}}}
	if r := f.untold().Result; r.Class != trainyard.ClassNodeLost || !strings.Contains(r.Message, "not from here") {
		t.Errorf("asked by somebody else: %+v", r)
	}
	f.stop = &stopRecord{}
	if r := f.untold().Result; r.Class != trainyard.ClassCanceled || r.Message != "stopped" {
		t.Errorf("asked by us: %+v", r)
	}
}

func TestWhatTheRanksAloneDecide(t *testing.T) {
	end := func(class trainyard.Class, code int) map[int]trainyard.TaskEnd {
		return map[int]trainyard.TaskEnd{0: {Result: trainyard.Result{Class: class, ExitCode: code}, Ended: time.Unix(5, 0)}}
	}
	one := record{Task: trainyard.Task{Hi: 1}}
	limited := one
	limited.Resources.MemoryMB = 100
	for name, c := range map[string]struct {
		f    facts
		want bool
	}{
		"success":                               {facts{rec: limited, ends: end(trainyard.ClassOK, 0)}, true},
		"an exit code":                          {facts{rec: one, ends: end(trainyard.ClassUser, 3)}, true},
		"an exit code within a limit of memory": {facts{rec: limited, ends: end(trainyard.ClassUser, 3)}, false},
		"a kill from somewhere":                 {facts{rec: one, ends: end(trainyard.ClassUser, 137)}, false},
		"a stop that nobody here asked for":     {facts{rec: one, ends: end(trainyard.ClassCanceled, 143)}, false},
		"a stop that was asked for":             {facts{rec: one, ends: end(trainyard.ClassCanceled, 143), stop: &stopRecord{}}, true},
		"a time limit that the program keeps":   {facts{rec: one, ends: end(trainyard.ClassTimeout, 143)}, true},
		"no word yet":                           {facts{rec: one}, false},
	} {
		if e, said := c.f.certain(); (e != nil) != c.want || said != c.want {
			t.Errorf("%s: certain %v, want %v", name, e, c.want)
		}
	}
}

// A busy Slurm is asked less, but soon enough that it, and not the minute that tasks wait for it, says how they ended. One that refuses at once
// is not asked at once again.
func TestPaceOfQuestions(t *testing.T) {
	away := errors.New("connection refused")
	for _, c := range []struct {
		v          view
		most, want time.Duration
	}{
		{view{took: 10 * time.Millisecond}, soon, soon},
		{view{took: 500 * time.Millisecond}, soon, 10 * time.Second},
		{view{took: 50 * time.Second}, soon, stuck / 2},
		{view{took: time.Millisecond, err: away}, 0, soon},
		{view{took: 10 * time.Second, err: away}, soon, 30 * time.Second},
	} {
		if got := c.v.pace(c.most); got != c.want {
			t.Errorf("%+v and %s: %s, want %s", c.v, c.most, got, c.want)
		}
	}
}

func TestLooksThatWaitedDoNotCount(t *testing.T) {
	var l looks
	if l.shortest() != 0 {
		t.Errorf("before any look: %s", l.shortest())
	}
	for _, c := range []struct{ took, want time.Duration }{
		{80, 80},                 // the first is all that is known
		{2, 2}, {90, 2}, {70, 2}, // some waited
		{60, 2}, {50, 50}, // four that did: it is slow now
	} {
		if l.add(c.took * time.Millisecond); l.shortest() != c.want*time.Millisecond {
			t.Errorf("after a look of %d ms: %s, want %d ms", c.took, l.shortest(), c.want)
		}
	}
}

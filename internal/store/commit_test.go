package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func placement(job string, nodes ...string) trainyard.Placement {
	p := trainyard.Placement{Job: key(job)}
	for _, n := range nodes {
		p.Nodes, p.Epochs = append(p.Nodes, trainyard.NodeID(n)), append(p.Epochs, 1)
	}
	return p
}

func plan(placed ...trainyard.Placement) trainyard.Plan { return trainyard.Plan{Placed: placed} }

func TestCommitStartsAttempts(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		add(t, s, cluster("c", 4), aNode("a", "c", 0), aNode("b", "c", 0), aNode("d", "c", 0), aJob("gang", "c", 1, 2), aJob("one", "c", 1, 1))
		later := t0.Add(time.Minute)
		placed, err := s.Commit(bg, plan(placement("gang", "a", "b"), placement("one", "d")), later)
		if err != nil || len(placed) != 2 {
			t.Fatalf("placed %v, %v", placed, err)
		}
		for range 2 { // from memory, and after opening again
			j, err := s.Job(bg, key("gang"))
			if err != nil {
				t.Fatal(err)
			}
			if j.Status.State != trainyard.JobPreparing || j.Status.Reason.Code != "Placed" || !strings.Contains(j.Status.Reason.Message, "a, b") {
				t.Errorf("state %s, reason %+v", j.Status.State, j.Status.Reason)
			}
			sameJSON(t, "timeline", j.Status.Timeline, []trainyard.Span{{Name: trainyard.SpanQueue, Start: t0, End: later}, {Name: trainyard.SpanNode, Start: later}})
			sameJSON(t, "attempts", j.Status.Attempts, []trainyard.Attempt{{Number: 1, Placed: later, Tasks: []trainyard.RunTask{
				{ID: trainyard.MakeTaskID(key("gang"), 1, 0), Node: "a", Lo: 0, Hi: 1, State: trainyard.TaskAssigned},
				{ID: trainyard.MakeTaskID(key("gang"), 1, 1), Node: "b", Lo: 1, Hi: 2, State: trainyard.TaskAssigned}}}})
			if refs := s.NodeTasks("b"); len(refs) != 1 || refs[0].Job.Name != "gang" || refs[0].Task().Lo != 1 {
				t.Errorf("tasks of b: %+v", refs)
			}
			if q, r := s.Counts(computeKey("c")); q != 0 || r != 2 {
				t.Errorf("%d queued, %d running", q, r)
			}
			events, err := s.Events(bg, trainyard.EventQuery{Kind: "job", Subject: "gang"})
			if err != nil || len(events) != 1 || events[0].What != "placed" || !events[0].Time.Equal(later) {
				t.Errorf("events %+v, %v", events, err)
			}
			s.Close()
			s = opened(t, dsn)
		}
	})
}

func TestCommitIsWholeOrAConflict(t *testing.T) {
	tests := []struct {
		name   string
		change func(tx *Tx) error // what happened since the snapshot
		plan   trainyard.Plan
		says   string
	}{
		{"the job was canceled", func(tx *Tx) error { return end(tx, "j1", trainyard.JobCanceled) }, plan(placement("j0", "a"), placement("j1", "b")), "j1"},
		{"the job was deleted", func(tx *Tx) error { return tx.DeleteJob(key("j1")) }, plan(placement("j0", "a"), placement("j1", "b")), `job "j1" was deleted`},
		{"the node joined anew", func(tx *Tx) error { n, _ := tx.Node("b"); n.Epoch++; return tx.PutNode(n) }, plan(placement("j0", "a"), placement("j1", "b")), "joined anew"},
		{"the node was lost", func(tx *Tx) error { n, _ := tx.Node("b"); n.State = trainyard.NodeUnusable; return tx.PutNode(n) }, plan(placement("j0", "a"), placement("j1", "b")), "unusable"},
		{"the node is gone", func(tx *Tx) error { return tx.DeleteNode("b") }, plan(placement("j0", "a"), placement("j1", "b")), `"b"`},
		{"the compute was stopped", func(tx *Tx) error { c, _ := tx.Compute(computeKey("c")); c.Stopped = true; return tx.PutCompute(c) }, plan(placement("j0", "a")), "stopped"},
		{"one node twice", nil, plan(placement("j0", "a"), placement("j1", "a")), "no room"},
		{"one node twice in a gang", nil, plan(placement("gang", "a", "b", "a")), "no room"},
		{"a node of another compute", nil, plan(placement("j0", "l0")), "does not have"},
		{"the same job twice", nil, plan(placement("j0", "a"), placement("j0", "b")), "does not wait"},
		{"nowhere", nil, plan(placement("j0")), "does not wait"},
		{"more than local has", nil, plan(placement("l", "l0"), placement("m", "l0"), placement("n", "l0")), "no room"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := opened(t, sqliteDSN(t))
			add(t, s, cluster("c", 4), aNode("a", "c", 0), aNode("b", "c", 0), aJob("j0", "c", 1, 1), aJob("j1", "c", 1, 1), aJob("gang", "c", 1, 3),
				localCompute(), aNode("l0", "local", 2), aJob("l", "local", 1, 1), aJob("m", "local", 1, 1), aJob("n", "local", 1, 1))
			if tt.change != nil {
				must(t, s, tt.change)
			}
			s.Snapshot(t0, false)
			_, err := s.Commit(bg, tt.plan, t0)
			wantError(t, err, trainyard.CodeConflict, tt.says)
			for _, id := range []trainyard.NodeID{"a", "b", "l0"} {
				if refs := s.NodeTasks(id); len(refs) > 0 {
					t.Errorf("half of the plan was stored: %s holds %+v", id, refs)
				}
			}
			if snap := s.Snapshot(t0, false); len(snap.Computes) == 0 {
				t.Error("the scheduler will not look again")
			}
		})
	}
}

func end(tx *Tx, job string, state trainyard.JobState) error {
	j, err := tx.Job(key(job))
	if err != nil {
		return err
	}
	if err := j.MoveTo(state, trainyard.Reason{Code: string(state)}, t0); err != nil {
		return err
	}
	return tx.PutJob(j)
}

func TestFreeOnLocalCountsRanksAndOnClustersWholeNodes(t *testing.T) {
	s := opened(t, sqliteDSN(t))
	add(t, s, localCompute(), aNode("l0", "local", 4), aJob("gang", "local", 1, 2), aJob("one", "local", 1, 1), aJob("huge", "local", 1, 9),
		cluster("c", 3), aNode("a", "c", 8), aJob("j", "c", 1, 1))
	free := func(compute string) trainyard.Resources {
		for _, c := range s.Snapshot(t0, true).Computes {
			if c.Name == compute {
				return c.Nodes[0].Free
			}
		}
		t.Fatal("no such compute")
		return trainyard.Resources{}
	}
	if got := free("local").Slots; got != 4 {
		t.Errorf("%d free at first", got)
	}
	if got := free("c"); got.Slots != 1 || got.CPUs != 4 {
		t.Errorf("cluster node %+v free at first", got)
	}
	if _, err := s.Commit(bg, plan(placement("gang", "l0", "l0"), placement("one", "l0"), placement("j", "a")), t0); err != nil {
		t.Fatal(err)
	}
	j, _ := s.LiveJob(key("gang"))
	if n := len(j.Status.Attempts[0].Tasks); n != 1 || j.Status.Attempts[0].Tasks[0].Hi != 2 {
		t.Errorf("a gang on one node has %d tasks, want one of two ranks", n)
	}
	if got := free("local").Slots; got != 1 {
		t.Errorf("%d free with three ranks of four", got)
	}
	if got := free("c"); got != (trainyard.Resources{}) {
		t.Errorf("cluster node %+v free when taken", got)
	}
	s.Snapshot(t0, false)
	must(t, s, func(tx *Tx) error {
		j, err := tx.Job(key("gang"))
		if err != nil {
			return err
		}
		j.Status.Attempts[0].Tasks[0].State = trainyard.TaskUploading
		return tx.PutJob(j)
	})
	if snap := s.Snapshot(t0, false); len(snap.Computes) != 1 || snap.Computes[0].Nodes[0].Free.Slots != 3 {
		t.Errorf("while it uploads a task holds no places, and the scheduler is told: %+v", snap.Computes)
	}
	for _, name := range []string{"gang", "one"} {
		must(t, s, func(tx *Tx) error { return end(tx, name, trainyard.JobFailed) })
	}
	all := []string{"l0", "l0", "l0", "l0", "l0", "l0", "l0", "l0", "l0"}
	if _, err := s.Commit(bg, plan(placement("huge", all...)), t0); err != nil {
		t.Fatalf("a gang larger than local takes all of it: %v", err)
	}
	if got := free("local").Slots; got != 0 {
		t.Errorf("%d free under a gang larger than the node", got)
	}
}

func TestTasksAreLiveUntilTheyOrTheirAttemptEnd(t *testing.T) {
	s := opened(t, sqliteDSN(t))
	add(t, s, cluster("c", 3), aNode("a", "c", 0), aNode("b", "c", 0), aJob("j", "c", 1, 2))
	if _, err := s.Commit(bg, plan(placement("j", "a", "b")), t0); err != nil {
		t.Fatal(err)
	}
	s.Snapshot(t0, false)
	must(t, s, func(tx *Tx) error {
		if refs := tx.NodeTasks("a"); len(refs) != 1 {
			t.Errorf("before: %+v", refs)
		}
		j, _ := tx.Job(key("j"))
		j.Status.Attempts[0].Tasks[0].State = trainyard.TaskEnded
		if err := tx.PutJob(j); err != nil {
			return err
		}
		if refs := tx.NodeTasks("a"); len(refs) != 0 {
			t.Errorf("the transaction still sees %+v", refs)
		}
		if refs := tx.NodeTasks("b"); len(refs) != 1 || refs[0].Job.Status.Attempts[0].Tasks[0].State != trainyard.TaskEnded {
			t.Errorf("the other rank: %+v", refs)
		}
		return nil
	})
	if len(s.NodeTasks("a")) != 0 || len(s.NodeTasks("b")) != 1 {
		t.Error("the task that ended holds its node")
	}
	if snap := s.Snapshot(t0, false); len(snap.Computes) != 1 || snap.Computes[0].Nodes[0].Free.Slots != 1 || snap.Computes[0].Nodes[1].Free.Slots != 0 {
		t.Errorf("snapshot %+v", snap)
	}
	must(t, s, func(tx *Tx) error { // lost: the attempt ends, the job waits again, in its old place
		j, _ := tx.Job(key("j"))
		j.Status.Attempts[0].Ended = t0
		if err := j.MoveTo(trainyard.JobQueued, trainyard.Reason{Code: "Retrying"}, t0.Add(time.Second)); err != nil {
			return err
		}
		return tx.PutJob(j)
	})
	if len(s.NodeTasks("b")) != 0 {
		t.Error("a task of an attempt that ended holds its node")
	}
	if _, ok := s.LiveJob(key("j")); ok {
		t.Error("a waiting job is live")
	}
	if q := s.QueueOf(computeKey("c")); len(q) != 1 || !q[0].Since.Equal(t0.Add(time.Second)) {
		t.Errorf("queue %+v", q)
	}
	if _, err := s.Commit(bg, plan(placement("j", "a", "b")), t0); err != nil {
		t.Fatal(err)
	}
	if j, _ := s.Job(bg, key("j")); len(j.Status.Attempts) != 2 || j.Status.Attempts[1].Number != 2 {
		t.Errorf("attempts %+v", j.Status.Attempts)
	}
}

func TestReasonsAndPlacesInTheQueue(t *testing.T) {
	s := opened(t, sqliteDSN(t))
	add(t, s, cluster("c", 3), cluster("d", 3))
	for i := range 10 {
		add(t, s, aJob(fmt.Sprintf("c%d", i), "c", 1, 1), aJob(fmt.Sprintf("d%d", i), "d", 1, 1))
	}
	whyC, whyD, never := &trainyard.Reason{Code: "C"}, &trainyard.Reason{Code: "D"}, &trainyard.Reason{Code: "Never"}
	var p trainyard.Plan
	for _, c := range s.Snapshot(t0, true).Computes {
		for i, q := range c.Queue {
			why := map[string]*trainyard.Reason{"c": whyC, "d": whyD}[c.Name]
			if i == 4 {
				why = never
			}
			p.Waiting = append(p.Waiting, trainyard.Waiting{Job: q.Key, Reason: why})
		}
	}
	must(t, s, func(tx *Tx) error { return end(tx, "c2", trainyard.JobCanceled) }) // before the plan is stored
	if _, err := s.Commit(bg, p, t0); err != nil {
		t.Fatal(err)
	}
	urgent := aJob("urgent", "c", 3, 1)
	add(t, s, urgent)
	must(t, s, func(tx *Tx) error { return end(tx, "c0", trainyard.JobCanceled) }) // and after
	for name, want := range map[string]string{"urgent": " 1", "c1": "C 2", "c3": "C 3", "c4": "Never 4", "c9": "C 9", "d0": "D 1", "d4": "Never 5", "d9": "D 10", "c0": " 0", "c2": " 0", "nobody": " 0"} {
		why, at := s.Reason(key(name))
		if got := fmt.Sprintf("%s %d", why.Code, at); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if got := s.Waits(key(name)); got != (at > 0) {
			t.Errorf("%s waits at %d: %v", name, at, got)
		}
	}
}

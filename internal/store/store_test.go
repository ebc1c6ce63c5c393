package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/trainyard/trainyard"
)

var (
	scope = trainyard.DefaultScope()
	t0    = time.Date(2026, 11, 21, 8, 0, 0, 123456789, time.UTC)
	bg    = context.Background()
)

func aJob(name, compute string, priority, nodes int) *trainyard.Job {
	j := &trainyard.Job{
		Scope: scope, Name: name, Created: t0, Modified: t0, CreatedBy: "ada",
		Spec: trainyard.JobSpec{JobType: "Command", Command: "python train.py --lr ${{inputs.lr}}", Tags: map[string]string{"team": "vision"},
			Inputs: map[string]*trainyard.JobInput{"lr": {JobInputType: "literal", Value: "0.1"}}, Extra: trainyard.Extra{"unknown": json.RawMessage(`{"kept":true}`)}},
		Plan: trainyard.JobPlan{Compute: compute, Nodes: nodes, Processes: 1, Priority: priority, MaxAttempts: 3},
	}
	if err := j.MoveTo(trainyard.JobQueued, trainyard.Reason{Code: "Submitted", Message: "waiting"}, t0); err != nil {
		panic(err)
	}
	j.Status.Timeline = []trainyard.Span{{Name: trainyard.SpanQueue, Start: t0}}
	return j
}

func cluster(name string, most int) *trainyard.Compute {
	return &trainyard.Compute{Scope: scope, Name: name, Location: "westeurope", Where: "local", Created: t0, Modified: t0,
		Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeCluster, Properties: trainyard.ClusterProperties{VMSize: "Standard_DS3_v2", ScaleSettings: &trainyard.ScaleSettings{MaxNodeCount: most}}}}
}

func localCompute() *trainyard.Compute {
	return &trainyard.Compute{Scope: scope, Name: "local", Created: t0, Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeLocal}}
}

func aNode(id string, compute string, slots int) *trainyard.Node {
	return &trainyard.Node{ID: trainyard.NodeID(id), Compute: trainyard.MakeComputeKey(scope, compute), State: trainyard.NodeIdle, Epoch: 1, Size: "Standard_DS3_v2",
		Capacity: trainyard.Resources{CPUs: 4, MemoryMB: 1 << 14, Slots: slots}, Created: t0, IdleFrom: t0}
}

func key(name string) trainyard.JobKey { return trainyard.MakeJobKey(scope, name) }

func computeKey(name string) trainyard.ComputeKey { return trainyard.MakeComputeKey(scope, name) }

// must runs an Update that has to succeed.
func must(t reporter, s *Store, fn func(*Tx) error) {
	t.Helper()
	if err := s.Update(bg, fn); err != nil {
		t.Fatalf("update: %v", err)
	}
}

// add stores computes, nodes and jobs.
func add(t reporter, s *Store, things ...any) {
	t.Helper()
	must(t, s, func(tx *Tx) error {
		for _, v := range things {
			var err error
			switch v := v.(type) {
			case *trainyard.Compute:
				err = tx.PutCompute(v)
			case *trainyard.Node:
				err = tx.PutNode(v)
			case *trainyard.Job:
				err = tx.InsertJob(v)
			case *trainyard.Resource:
				_, err = tx.PutResource(v)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func sameJSON(t testing.TB, what string, got, want any) {
	t.Helper()
	g, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	w, err := json.MarshalIndent(want, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(w), string(g)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func wantError(t testing.TB, err error, code trainyard.ErrorCode, parts ...string) {
	t.Helper()
	if trainyard.CodeOf(err) != code {
		t.Errorf("error is %v (%s), want code %s", err, trainyard.CodeOf(err), code)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func TestAJobIsReadBackAsItWasStored(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		j := aJob("train-1", "cpu-cluster", 2, 1)
		add(t, s, cluster("CPU-Cluster", 2), j)
		if j.Seq == 0 {
			t.Error("InsertJob set no Seq")
		}
		got, err := s.Job(bg, key("train-1"))
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, "job", got, j)

		must(t, s, func(tx *Tx) error {
			in, err := tx.Job(key("train-1"))
			if err != nil {
				return err
			}
			in.Spec.Tags["team"] = "speech"
			in.Status.Warnings = []string{"image not used"}
			if again, _ := tx.Job(key("train-1")); again.Spec.Tags["team"] != "vision" {
				t.Error("a change to what was handed out is seen before it is put")
			}
			if err := tx.PutJob(in); err != nil {
				return err
			}
			again, _ := tx.Job(key("train-1"))
			if again.Spec.Tags["team"] != "speech" || len(again.Status.Warnings) != 1 {
				t.Error("the transaction does not see its own write")
			}
			in.Spec.Tags["team"] = "changed after it was put"
			return nil
		})
		got, _ = s.Job(bg, key("train-1"))
		if got.Spec.Tags["team"] != "speech" || got.Seq != j.Seq {
			t.Errorf("tags %v, seq %d; want speech, %d", got.Spec.Tags, got.Seq, j.Seq)
		}
		err = s.Update(bg, func(tx *Tx) error { return tx.InsertJob(aJob("train-1", "cpu-cluster", 2, 1)) })
		wantError(t, err, trainyard.CodeConflict, "train-1")
		must(t, s, func(tx *Tx) error { return tx.DeleteJob(key("train-1")) })
		_, err = s.Job(bg, key("train-1"))
		wantError(t, err, trainyard.CodeNotFound)
		if err == nil || err.Error() != `job "train-1" does not exist in workspace "default"` {
			t.Errorf("error is %q", err)
		}
		err = s.Update(bg, func(tx *Tx) error { return tx.PutJob(j) })
		wantError(t, err, trainyard.CodeNotFound, "train-1")
	})
}

func TestScopesCompareWithoutRegardToCaseAndAreShownAsWritten(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		j := aJob("Job", "c", 1, 1)
		j.Scope = trainyard.Scope{Subscription: "SUB", ResourceGroup: "Rg", Workspace: "WorkSpace"}
		add(t, s, j)
		got, err := s.Job(bg, trainyard.MakeJobKey(trainyard.Scope{Subscription: "sub", ResourceGroup: "RG", Workspace: "workspace"}, "Job"))
		if err != nil || got.Scope != j.Scope {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestAFailedFunctionTakesBackItsOwnWritesOnly(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		hold, holding := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { s.Update(bg, func(*Tx) error { close(holding); <-hold; return nil }) })
		<-holding // the writer is busy: what comes now shares one batch
		errs := make([]error, 9)
		for i := range errs {
			wg.Go(func() {
				errs[i] = s.Update(bg, func(tx *Tx) error {
					if err := tx.InsertJob(aJob(fmt.Sprintf("j%d", i), "c", 1, 1)); err != nil {
						return err
					}
					tx.Event(trainyard.Event{Time: t0, Scope: scope, Kind: "job", Subject: fmt.Sprintf("j%d", i), What: "queued"})
					if i%3 == 1 {
						return errors.New("no")
					}
					return nil
				})
			})
		}
		within(t, 5*time.Second, "all wait for the writer", func() bool { return len(s.requests) == len(errs) })
		close(hold)
		wg.Wait()
		for i, err := range errs {
			_, readErr := s.Job(bg, key(fmt.Sprintf("j%d", i)))
			if failed := i%3 == 1; failed != (err != nil) || failed != trainyard.IsNotFound(readErr) {
				t.Errorf("j%d: update says %v, reading says %v", i, err, readErr)
			}
		}
		events, err := s.Events(bg, trainyard.EventQuery{Scope: scope})
		if err != nil || len(events) != 6 {
			t.Errorf("%d events (%v), want 6", len(events), err)
		}
		if queued, _ := s.Counts(computeKey("c")); queued != 6 {
			t.Errorf("%d in the queue, want 6", queued)
		}
	})
}

func TestFunctionsOfOneBatchSeeEachOther(t *testing.T) {
	s := opened(t, sqliteDSN(t))
	hold, holding := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { s.Update(bg, func(*Tx) error { close(holding); <-hold; return nil }) })
	<-holding
	conflicts := make(chan error, 20)
	for range 20 {
		wg.Go(func() { conflicts <- s.Update(bg, func(tx *Tx) error { return tx.InsertJob(aJob("same", "c", 1, 1)) }) })
	}
	within(t, 5*time.Second, "all wait for the writer", func() bool { return len(s.requests) == 20 })
	close(hold)
	wg.Wait()
	won := 0
	for range 20 {
		if err := <-conflicts; err == nil {
			won++
		} else {
			wantError(t, err, trainyard.CodeConflict)
		}
	}
	if won != 1 {
		t.Errorf("%d inserted the same job", won)
	}
}

func TestDeleteAndMakeAgainInOneTransaction(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		add(t, s, aJob("j", "c", 1, 1), data("iris", "1"), data("iris", "2"))
		must(t, s, func(tx *Tx) error {
			for range 2 {
				if err := tx.DeleteJob(key("j")); err != nil {
					return err
				}
				n := aJob("j", "d", 1, 1)
				n.Spec.Command = "second"
				if err := tx.InsertJob(n); err != nil {
					return err
				}
			}
			if err := tx.DeleteResource(scope, trainyard.KindData, "iris", "1"); err != nil {
				return err
			}
			created, err := tx.PutResource(data("iris", "1"))
			if !created {
				t.Error("made again, and said to be there")
			}
			latest, next, _ := tx.NextVersion(scope, trainyard.KindData, "IRIS")
			if latest != "1" || next != "3" {
				t.Errorf("latest %q next %q, want 1 (made last) and 3", latest, next)
			}
			return err
		})
		got, err := s.Job(bg, key("j"))
		if err != nil || got.Spec.Command != "second" {
			t.Errorf("job %+v, %v", got, err)
		}
		if latest, next, _ := s.NextVersion(bg, scope, trainyard.KindData, "Iris"); latest != "1" || next != "3" {
			t.Errorf("stored: latest %q next %q", latest, next)
		}
		if c, _ := s.Counts(computeKey("c")); c != 0 {
			t.Error("the first job is still in its queue")
		}
		if d, _ := s.Counts(computeKey("d")); d != 1 {
			t.Error("the second job is not in its queue")
		}
	})
}

func TestAContextThatEndsBeforeTheTurnComes(t *testing.T) {
	s := opened(t, sqliteDSN(t))
	hold, holding := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { s.Update(bg, func(*Tx) error { close(holding); <-hold; return nil }) })
	<-holding
	ctx, cancel := context.WithCancel(bg)
	wg.Go(func() {
		if err := s.Update(ctx, func(*Tx) error { t.Error("ran"); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v", err)
		}
	})
	within(t, 5*time.Second, "it waits", func() bool { return len(s.requests) == 1 })
	cancel()
	close(hold)
	wg.Wait()
}

func TestAPanicIsTheCallers(t *testing.T) {
	s := opened(t, sqliteDSN(t))
	func() {
		defer func() {
			if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "boom") {
				t.Errorf("recovered %v", p)
			}
		}()
		s.Update(bg, func(tx *Tx) error { tx.PutSetting("half", []byte("x")); panic("boom") })
	}()
	if _, err := s.Setting(bg, "half"); !trainyard.IsNotFound(err) {
		t.Errorf("what it wrote: %v", err)
	}
	if err := s.PutSetting(bg, "whole", nil); err != nil {
		t.Errorf("the store after it: %v", err)
	}
}

func TestCloseRefusesIsRepeatableAndLeavesNothingRunning(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := open(t, sqliteDSN(t))
	add(t, s, aJob("j", "c", 1, 1))
	jobNames(t, s, trainyard.JobQuery{})
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.Update(bg, func(*Tx) error { return nil }), trainyard.CodeBusy, "stopping")
}

func TestSubscribersHearOfEveryBatchInOrder(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		var mu sync.Mutex
		var seqs []int64
		jobs := map[trainyard.JobKey]bool{}
		stop := s.Subscribe(func(c trainyard.Change) {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range c.Jobs {
				if _, err := s.Job(bg, k); err != nil {
					t.Errorf("told of %s before it can be read: %v", k, err)
				}
				jobs[k] = true
			}
			for _, e := range c.Events {
				seqs = append(seqs, e.Seq)
			}
		})
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				must(t, s, func(tx *Tx) error {
					name := fmt.Sprintf("j%d", i)
					tx.Event(trainyard.Event{Time: t0, Scope: scope, Kind: "job", Subject: name, What: "queued"})
					return tx.InsertJob(aJob(name, "c", 1, 1))
				})
			})
		}
		wg.Wait()
		within(t, 5*time.Second, "all heard", func() bool { mu.Lock(); defer mu.Unlock(); return len(jobs) == 50 && len(seqs) == 50 })
		if !slices.IsSorted(seqs) {
			t.Errorf("events out of order: %v", seqs)
		}
		stop()
		must(t, s, func(tx *Tx) error { return tx.InsertJob(aJob("late", "c", 1, 1)) })
		s.Close()
		if jobs[key("late")] {
			t.Error("told after stop")
		}
	})
}

func TestPuttingWhatIsThereWritesNothing(t *testing.T) {
	eachEngine(t, func(t *testing.T, dsn string) {
		s := opened(t, dsn)
		told := make(chan trainyard.Change, 10)
		defer s.Subscribe(func(c trainyard.Change) { told <- c })()
		add(t, s, cluster("c", 1), aNode("n", "c", 1), aJob("j", "c", 1, 1))
		<-told
		s.Snapshot(t0, true)
		must(t, s, func(tx *Tx) error {
			j, _ := tx.Job(key("j"))
			c, _ := tx.Compute(computeKey("c"))
			n, err := tx.Node("n")
			if err != nil {
				return err
			}
			n.Seen = t0.Add(time.Hour)
			if list, _ := s.statements(tx.own); len(list) != 0 {
				t.Errorf("before: %v", list)
			}
			if err := errors.Join(tx.PutJob(j), tx.PutCompute(c), tx.PutNode(n)); err != nil {
				return err
			}
			if list, _ := s.statements(tx.own); len(list) != 0 {
				t.Errorf("would write %v", list)
			}
			return nil
		})
		if n, _ := s.Node(bg, "n"); !n.Seen.Equal(t0.Add(time.Hour)) {
			t.Errorf("Seen is %s in memory", n.Seen)
		}
		if snap := s.Snapshot(t0, false); len(snap.Computes) != 0 {
			t.Error("the scheduler is asked to look at nothing new")
		}
		must(t, s, func(tx *Tx) error { j, _ := tx.Job(key("j")); j.Status.Warnings = []string{"w"}; return tx.PutJob(j) })
		if c := <-told; len(c.Jobs) != 1 || len(c.Nodes)+len(c.Computes) > 0 {
			t.Errorf("told of %+v", c)
		}
	})
}

func TestPutJobWritesTheSpecOnlyIfItChanged(t *testing.T) {
	s := opened(t, sqliteDSN(t))
	add(t, s, aJob("j", "c", 1, 1))
	written := func(change func(*trainyard.Job)) (texts []string) {
		must(t, s, func(tx *Tx) error {
			j, err := tx.Job(key("j"))
			if err != nil {
				return err
			}
			change(j)
			if err := tx.PutJob(j); err != nil {
				return err
			}
			list, _ := s.statements(tx.own)
			for _, st := range list {
				texts = append(texts, st.sql)
			}
			return nil
		})
		return texts
	}
	if got := written(func(j *trainyard.Job) { j.Status.Warnings = append(j.Status.Warnings, "w") }); len(got) != 1 || strings.Contains(got[0], "phase") {
		t.Errorf("a status costs %q", got)
	}
	if got := written(func(j *trainyard.Job) { j.Spec.Tags["new"] = "tag" }); len(got) != 5 { // row, spec, tags away, two tags
		t.Errorf("a tag costs %q", got)
	}
}

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trainyard/trainyard"
)

// After any sequence of Updates, failing ones and ones that share a batch among them: the image is what reading the database again would
// make; the computes that changed, and so all of them by and by, are in the next Snapshot; and no Snapshot ever changes.
func TestImageIsWhatTheDatabaseSays(t *testing.T) {
	eachEngine(t, func(outer *testing.T, _ string) {
		postgres := strings.Contains(outer.Name(), "postgres")
		rapid.Check(outer, func(t *rapid.T) {
			dsn := ""
			if postgres {
				dsn = thePostgres.database(outer)
			} else {
				dir, err := os.MkdirTemp(outer.TempDir(), "")
				if err != nil {
					t.Fatal(err)
				}
				dsn = "sqlite:" + dir + "/trainyard.db"
			}
			w := &world{t: t, s: open(t, dsn), seen: map[trainyard.ComputeKey]string{}}
			defer func() { w.s.Close() }()
			for range rapid.IntRange(1, 25).Draw(t, "steps") {
				w.step()
				w.check()
			}
			w.s.Close()
			w.s = open(t, dsn)
			w.check()
			w.unchanged()
		})
	})
}

// world is a store under random use.
type world struct {
	t     *rapid.T
	s     *Store
	seen  map[trainyard.ComputeKey]string // the newest view of each compute that a Snapshot showed
	snaps []trainyard.Snapshot
	was   []string // what the snapshots were when they were new
	jobs  int
}

func text(v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err)
	}
	return string(b)
}

// step runs one Update, several that share a batch, or a Commit.
func (w *world) step() {
	if rapid.IntRange(0, 3).Draw(w.t, "commit") == 0 {
		w.commit()
		return
	}
	var fns []func(*Tx) error
	for range rapid.IntRange(1, 3).Draw(w.t, "together") {
		var ops []func(*Tx) error
		for range rapid.IntRange(1, 4).Draw(w.t, "ops") {
			ops = append(ops, w.op())
		}
		fail := rapid.IntRange(0, 4).Draw(w.t, "fail") == 0
		fns = append(fns, func(tx *Tx) error {
			for _, op := range ops {
				if err := op(tx); err != nil && trainyard.CodeOf(err) == trainyard.CodeInternal {
					w.t.Errorf("%v", err)
				}
			}
			if fail {
				return errors.New("take it back")
			}
			return nil
		})
	}
	hold, holding := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { w.s.Update(bg, func(*Tx) error { close(holding); <-hold; return nil }) })
	<-holding
	for _, fn := range fns {
		r := &request{ctx: context.Background(), fn: fn, done: make(chan struct{})} // in this order
		w.s.requests <- r
		wg.Go(func() { <-r.done })
	}
	close(hold)
	wg.Wait()
}

var computesOfWorld = []string{"local", "c", "d"}

func (w *world) op() func(*Tx) error {
	t := w.t
	compute := rapid.SampledFrom(computesOfWorld).Draw(t, "compute")
	node := rapid.SampledFrom([]string{"n0", "n1", "n2"}).Draw(t, "node") + "-" + compute
	job := key(fmt.Sprintf("j%d", rapid.IntRange(0, max(0, w.jobs-1)).Draw(t, "job")))
	number := rapid.IntRange(0, 5).Draw(t, "number")
	now := t0.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "at")) * time.Second)
	switch rapid.IntRange(0, 9).Draw(t, "op") {
	case 0:
		c := cluster(compute, number)
		if compute == "local" {
			c = localCompute()
		}
		c.Stopped, c.Wanted = number == 5, number
		return func(tx *Tx) error { return tx.PutCompute(c) }
	case 1:
		return func(tx *Tx) error { return tx.DeleteCompute(computeKey(compute)) }
	case 2, 3:
		n := aNode(node, compute, number)
		n.State = rapid.SampledFrom([]trainyard.NodeState{trainyard.NodeIdle, trainyard.NodeIdle, trainyard.NodeRunning, trainyard.NodeUnusable, trainyard.NodeCreating}).Draw(t, "state")
		n.Epoch, n.Seen = int64(1+number/4), now
		return func(tx *Tx) error { return tx.PutNode(n) }
	case 4:
		return func(tx *Tx) error { return tx.DeleteNode(trainyard.NodeID(node)) }
	case 5, 6:
		name := fmt.Sprintf("j%d", w.jobs)
		w.jobs++
		return func(tx *Tx) error { return tx.InsertJob(aJob(name, compute, 1+number/2, 1+number%3)) }
	case 7:
		return func(tx *Tx) error { return tx.DeleteJob(job) }
	}
	to := rapid.SampledFrom([]trainyard.JobState{trainyard.JobQueued, trainyard.JobRunning, trainyard.JobFinalizing, trainyard.JobCancelRequested, trainyard.JobCompleted, trainyard.JobFailed, trainyard.JobCanceled}).Draw(t, "to")
	return func(tx *Tx) error { return live(tx, job, to, number, now) }
}

// live moves a job on, with its tasks.
func live(tx *Tx, k trainyard.JobKey, to trainyard.JobState, number int, now time.Time) error {
	j, err := tx.Job(k)
	if err != nil {
		return err
	}
	if number == 0 {
		j.Spec.Tags = map[string]string{"touched": now.String()}
	}
	if a := j.Status.Current(); a != nil && len(a.Tasks) > 0 {
		if number < 4 {
			a.Tasks[number%len(a.Tasks)].State = []trainyard.TaskState{trainyard.TaskRunning, trainyard.TaskEnded, trainyard.TaskUploading}[number%3]
		}
		if to == trainyard.JobQueued {
			a.Ended = now
		}
	}
	if err := j.MoveTo(to, trainyard.Reason{Code: string(to), Message: fmt.Sprint(number)}, now); err != nil && number > 2 {
		return err
	}
	return tx.PutJob(j)
}

// commit makes a plan of some waiting jobs and any nodes, right or wrong.
func (w *world) commit() {
	var p trainyard.Plan
	for _, c := range w.s.Snapshot(t0, true).Computes {
		w.remember(trainyard.Snapshot{Computes: []trainyard.ComputeView{c}})
		for _, q := range c.Queue {
			pl := trainyard.Placement{Job: q.Key}
			for range q.Nodes {
				if len(c.Nodes) > 0 {
					n := rapid.SampledFrom(c.Nodes).Draw(w.t, "on")
					pl.Nodes, pl.Epochs = append(pl.Nodes, n.ID), append(pl.Epochs, n.Epoch)
				}
			}
			if len(pl.Nodes) == q.Nodes && rapid.Bool().Draw(w.t, "place") {
				p.Placed = append(p.Placed, pl)
			} else {
				p.Waiting = append(p.Waiting, trainyard.Waiting{Job: q.Key, Reason: &trainyard.Reason{Code: string(q.Key)}})
			}
		}
	}
	if len(p.Placed) > 1 { // most plans would be wrong otherwise
		p.Placed = p.Placed[:1]
	}
	_, err := w.s.Commit(bg, p, t0)
	if err != nil && !trainyard.IsConflict(err) {
		w.t.Fatalf("commit: %v", err)
	}
	if err == nil {
		for _, wait := range p.Waiting {
			if why, at := w.s.Reason(wait.Job); why.Code != string(wait.Job) || at == 0 {
				w.t.Fatalf("reason of %s is %+v at %d", wait.Job, why, at)
			}
		}
	}
}

func (w *world) remember(s trainyard.Snapshot) {
	w.snaps, w.was = append(w.snaps, s), append(w.was, text(s))
	for _, v := range s.Computes {
		w.seen[v.Key] = viewText(v)
	}
}

func viewText(v trainyard.ComputeView) string {
	v.Nodes = slices.Clone(v.Nodes)
	for i := range v.Nodes { // which of a node's jobs comes first is nobody's business
		v.Nodes[i].Jobs = slices.Sorted(slices.Values(v.Nodes[i].Jobs))
	}
	return text(v)
}

// check compares the image with one that is read from the database.
func (w *world) check() {
	w.t.Helper()
	fresh := newImage()
	err := w.s.Update(bg, func(tx *Tx) error {
		for _, part := range []func(context.Context, querier, *image) error{loadComputes, loadNodes, loadWaiting, loadPlaced} {
			if err := part(bg, w.s.conn, fresh); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatalf("load: %v", err)
	}
	if diff := cmp.Diff(dump(fresh), dump(w.s.image)); diff != "" {
		w.t.Fatalf("the image is not what the database says (-database +image):\n%s", diff)
	}
	w.remember(w.s.Snapshot(t0, false))
	want := map[trainyard.ComputeKey]string{}
	for _, v := range fresh.snapshot(true) {
		want[v.Key] = viewText(v)
		for _, n := range v.Nodes {
			if v.Exclusive && len(w.s.NodeTasks(n.ID)) > 1 {
				w.t.Fatalf("node %s holds %d tasks", n.ID, len(w.s.NodeTasks(n.ID)))
			}
		}
	}
	for k := range w.seen {
		if _, ok := want[k]; !ok {
			delete(w.seen, k) // deleted computes are not shown
		}
	}
	if diff := cmp.Diff(want, w.seen); diff != "" {
		w.t.Fatalf("a compute changed and no Snapshot showed it (-is +seen):\n%s", diff)
	}
}

func (w *world) unchanged() {
	for i, s := range w.snaps {
		if now := text(s); now != w.was[i] {
			w.t.Fatalf("a Snapshot changed:\n%s", cmp.Diff(w.was[i], now))
		}
	}
}

// dump is all that an image holds, in words, but for what only lives in memory.
func dump(im *image) map[string]string {
	out := map[string]string{}
	for k, c := range im.computes {
		out["compute "+string(k)] = text(c.compute) + text(c.queue.view()) + fmt.Sprint(c.running)
		for _, n := range c.nodes {
			copied := *n.node
			copied.Seen = time.Time{}
			out["node "+string(n.node.ID)+" of "+string(k)] = text(copied)
		}
	}
	out["nodes"] = fmt.Sprint(len(im.nodes))
	for k, w := range im.waiting {
		out["waiting "+string(k)] = fmt.Sprint(w.in.key, w.seq, w.priority, w.nodes, w.since)
	}
	for k, j := range im.live {
		out["live "+string(k)] = text(j)
	}
	for id, list := range im.tasks {
		var tasks []string
		for _, r := range list {
			tasks = append(tasks, string(r.Task().ID)+" "+string(r.Task().State))
			if im.live[r.Job.Key()] != r.Job {
				tasks = append(tasks, "an old job")
			}
		}
		slices.Sort(tasks)
		out["tasks "+string(id)] = strings.Join(tasks, ", ")
	}
	return out
}

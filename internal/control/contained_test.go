package control

import (
	"slices"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// On a cluster of which some nodes have a container engine, a job whose environment has an image goes to one that has, whoever came first.
func TestAJobInAContainerGoesWhereAnEngineIs(t *testing.T) {
	w := newWaiter(t, 3, "a", "b", "c")
	err := w.c.Store.Update(t.Context(), func(tx *store.Tx) error {
		for _, id := range []trainyard.NodeID{"a", "b"} {
			n, err := tx.Node(id)
			if err != nil {
				return err
			}
			n.Engines = nil
			if err := tx.PutNode(n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	on := func(job string) (nodes []trainyard.NodeID) {
		t.Helper()
		if a := w.job(job).Status.Current(); a != nil {
			for _, task := range a.Tasks {
				nodes = append(nodes, task.Node)
			}
		}
		return nodes
	}
	var freed string // the job that is on the node with an engine
	for _, id := range []string{"on-a", "on-b", "on-c"} {
		if slices.Equal(on(id), []trainyard.NodeID{"c"}) {
			freed = id
		} else {
			w.end(id)
		}
	}
	w.round()
	if got := on("waits"); got != nil {
		t.Fatalf("while only nodes without an engine are free it is placed on %v", got)
	}
	w.end(freed)
	w.round()
	if got := on("waits"); !slices.Equal(got, []trainyard.NodeID{"c"}) {
		t.Errorf("it is placed on %v", got)
	}
}

// A cluster that has gone to zero is taken to have the engines that its newest node had.
func TestAClusterAtZeroRemembersItsEngines(t *testing.T) {
	c := newControl(t)
	comp := putCluster(t, c, "far", 0, 1, "node")
	for _, engines := range [][]string{{"docker"}, nil} {
		err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
			n, err := tx.Node("node")
			if err != nil {
				return err
			}
			n.Engines = engines
			return rememberEngines(tx, n)
		})
		if err != nil {
			t.Fatal(err)
		}
		kept, err := c.Store.Compute(t.Context(), comp.Key())
		if err != nil {
			t.Fatal(err)
		}
		if got := c.contains(t.Context(), kept); got != (engines != nil) { // its one node has never joined
			t.Errorf("after a node with %v it is taken to have an engine: %t", engines, got)
		}
	}
}

// end has the job's task end well, as its agent would say.
func (w *waiter) end(job string) {
	w.Helper()
	task := w.job(job).Status.Current().Tasks[0]
	n, err := w.c.Store.Node(w.Context(), task.Node)
	if err == nil {
		err = w.c.Report(w.Context(), trainyard.Report{Node: n.ID, Epoch: n.Epoch,
			Tasks: []trainyard.TaskReport{{ID: task.ID, State: trainyard.TaskEnded, Result: &trainyard.Result{Class: trainyard.ClassOK}}}})
	}
	if err != nil {
		w.Fatal(err)
	}
}

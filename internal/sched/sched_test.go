package sched

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trainyard/trainyard"
)

func node(id string, state trainyard.NodeState, free, all int, jobs ...string) trainyard.NodeView {
	return trainyard.NodeView{ID: trainyard.NodeID(id), Epoch: 1, State: state, Free: trainyard.Resources{Slots: free}, All: trainyard.Resources{Slots: all}, Jobs: jobs}
}

func queue(gangs ...int) []trainyard.QueuedJob {
	var out []trainyard.QueuedJob
	for i, n := range gangs {
		name := fmt.Sprintf("j%d", i)
		out = append(out, trainyard.QueuedJob{Key: trainyard.JobKey("s/r/w/" + name), Name: name, Seq: int64(i), Nodes: n})
	}
	return out
}

func cluster(max int, nodes []trainyard.NodeView, q []trainyard.QueuedJob) trainyard.ComputeView {
	return trainyard.ComputeView{Key: "s/r/w/c", Name: "cpu-cluster", Type: trainyard.ComputeCluster, MaxNodes: max, Exclusive: true, Nodes: nodes, Queue: q}
}

func bounded(c trainyard.ComputeView, nodes int) trainyard.ComputeView {
	c.Bound = &trainyard.Bound{Location: "lab", Size: "small", Nodes: nodes}
	return c
}

func holds(c trainyard.ComputeView, below, keep int) trainyard.ComputeView {
	c.Hold = &trainyard.Hold{Below: below, Keep: keep, Why: trainyard.Reason{Code: "HigherPriority", Message: "room of lab goes to job x"}}
	return c
}

// contains gives nodes a container engine.
func contains(c trainyard.ComputeView, ids ...trainyard.NodeID) trainyard.ComputeView {
	for i := range c.Nodes {
		c.Nodes[i].Contains = slices.Contains(ids, c.Nodes[i].ID)
	}
	return c
}

// contained has jobs of the queue run in containers.
func contained(c trainyard.ComputeView, jobs ...int) trainyard.ComputeView {
	for _, i := range jobs {
		c.Queue[i].Contained = true
	}
	return c
}

func TestDecide(t *testing.T) {
	idle, running, creating := trainyard.NodeIdle, trainyard.NodeRunning, trainyard.NodeCreating
	tests := []struct {
		name   string
		view   trainyard.ComputeView
		placed []string // "j0:a,b"
		reason string   // of the first that waits
	}{
		{"a job goes to an idle node", cluster(2, []trainyard.NodeView{node("a", idle, 1, 1)}, queue(1)), []string{"j0:a"}, ""},
		{"a job in a container goes only where there is an engine, and others where there is none first",
			contained(contains(cluster(3, []trainyard.NodeView{node("a", idle, 1, 1), node("b", idle, 1, 1), node("c", idle, 1, 1)}, queue(1, 1, 1)), "a", "c"), 1), []string{"j0:b", "j1:a", "j2:c"}, ""},
		{"it waits for such a node beside an idle one that has none",
			contained(contains(cluster(2, []trainyard.NodeView{node("a", running, 0, 1, "x"), node("b", idle, 1, 1)}, queue(1, 1)), "a"), 0), nil,
			"the job needs a container engine, and the nodes of cpu-cluster that have one are taken: job x is there"},
		{"where no node has one it is passed over", contained(cluster(1, []trainyard.NodeView{node("a", idle, 1, 1)}, queue(1, 1)), 0), []string{"j1:a"},
			"the job's environment has an image or a build context, and no node of cpu-cluster has a container engine any more"},
		{"a node that is on its way may have one", contained(cluster(1, []trainyard.NodeView{node("a", creating, 0, 1)}, queue(1)), 0), nil, "cpu-cluster is starting 1 node"},
		{"a gang takes nodes of both kinds", contains(cluster(2, []trainyard.NodeView{node("a", idle, 1, 1), node("b", idle, 1, 1)}, queue(2)), "a"), []string{"j0:b,a"}, ""},
		{"a node holds one job at a time", cluster(1, []trainyard.NodeView{node("a", idle, 1, 1)}, queue(1, 1)), []string{"j0:a"}, "cpu-cluster is at its maximum of 1 node"},
		{"a gang starts on all its nodes or on none", cluster(3, []trainyard.NodeView{node("a", idle, 1, 1), node("b", running, 0, 1, "x")}, queue(2)), nil, "cpu-cluster has 2 nodes and is about to grow; job j0 needs 2 nodes at once, 1 free now"},
		{"a gang at the head keeps the nodes it waits for", cluster(2, []trainyard.NodeView{node("a", idle, 1, 1), node("b", running, 0, 1, "x")}, queue(2, 1)), nil, "cpu-cluster is at its maximum of 2 nodes; job x is there; job j0 needs 2 nodes at once, 1 free now"},
		{"a job that can never fit is passed over", cluster(1, []trainyard.NodeView{node("a", idle, 1, 1)}, queue(2, 1)), []string{"j1:a"}, "the job asks for 2 nodes and cpu-cluster has at most 1"},
		{"a job that its location can never hold is passed over", bounded(cluster(9, []trainyard.NodeView{node("a", idle, 1, 1)}, queue(3, 1)), 2), []string{"j1:a"},
			"the job needs 3 nodes of size small at once and location lab has room for 2; cancel it, or lower resources.instance_count"},
		{"so is one for which a single node is too much", bounded(cluster(9, nil, queue(1)), 0), nil, "location lab has no room for a node of size small; cancel the job"},
		{"nobody can raise the maximum of serverless compute", func() trainyard.ComputeView {
			c := bounded(cluster(100, nil, queue(150)), 200)
			c.Serverless = true
			return c
		}(), nil, "the job asks for 150 nodes and serverless compute has at most 100 at once; lower resources.instance_count, or name a cluster of your own"},
		{"how much is missing is said once", func() trainyard.ComputeView {
			c := cluster(9, []trainyard.NodeView{node("a", idle, 1, 1)}, queue(3))
			c.Full = "location lab has too little room for the next job (3 of 4 nodes are taken)"
			return c
		}(), nil, "location lab has too little room for the next job (3 of 4 nodes are taken); job j0 needs 3 nodes at once, 1 free now"},
		{"a job of lower priority leaves the nodes to a better one elsewhere", holds(cluster(9, []trainyard.NodeView{node("a", idle, 1, 1)}, queue(1)), 1, 0), nil, "room of lab goes to job x"},
		{"one of the same priority does not", holds(cluster(9, []trainyard.NodeView{node("a", idle, 1, 1)}, queue(1)), 0, 0), []string{"j0:a"}, ""},
		{"what the cluster keeps for ever goes on with its own jobs", holds(cluster(9, []trainyard.NodeView{node("a", idle, 1, 1), node("b", idle, 1, 1), node("c", running, 0, 1, "x")}, queue(1, 1)), 1, 2),
			[]string{"j0:a"}, "room of lab goes to job x"},
		{"a gang that is too large for that is held back", holds(cluster(9, []trainyard.NodeView{node("a", idle, 1, 1), node("b", idle, 1, 1)}, queue(2, 1)), 1, 1), nil, "room of lab goes to job x"},
		{"a node that is starting is said", cluster(2, []trainyard.NodeView{node("a", creating, 0, 1)}, queue(1)), nil, "cpu-cluster is starting 1 node"},
		{"a full cluster names the jobs on it", cluster(2, []trainyard.NodeView{node("a", running, 0, 1, "x"), node("b", running, 0, 1, "y")}, queue(1)), nil, "cpu-cluster is at its maximum of 2 nodes; jobs x and y are there"},
		{"a leaving node takes nothing", cluster(2, []trainyard.NodeView{node("a", trainyard.NodeLeaving, 1, 1)}, queue(1)), nil, "cpu-cluster has 1 node and is about to grow"},
		{"a stopped compute says how to start it", func() trainyard.ComputeView {
			c := cluster(2, []trainyard.NodeView{node("a", idle, 1, 1)}, queue(1))
			c.Stopped = true
			return c
		}(), nil, "cpu-cluster is stopped; start it with"},
		{"local runs as many at once as it has places", trainyard.ComputeView{Name: "local", MaxNodes: 1, Nodes: []trainyard.NodeView{node("l", idle, 2, 2)}, Queue: queue(1, 1, 1)}, []string{"j0:l", "j1:l"}, "all places of local are taken"},
		{"a gang larger than local takes all of it", trainyard.ComputeView{Name: "local", MaxNodes: 1, Nodes: []trainyard.NodeView{node("l", idle, 2, 2)}, Queue: queue(3)}, []string{"j0:l,l,l"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plan := Decide(trainyard.Snapshot{Computes: []trainyard.ComputeView{tt.view}})
			var placed []string
			for _, p := range plan.Placed {
				var ids []string
				for _, id := range p.Nodes {
					ids = append(ids, string(id))
				}
				key := string(p.Job)
				placed = append(placed, key[strings.LastIndexByte(key, '/')+1:]+":"+strings.Join(ids, ","))
			}
			if got, want := strings.Join(placed, " "), strings.Join(tt.placed, " "); got != want {
				t.Errorf("placed %q, want %q", got, want)
			}
			reason := ""
			if len(plan.Waiting) > 0 {
				reason = plan.Waiting[0].Reason.Message
			}
			if !strings.HasPrefix(reason, tt.reason) || (tt.reason == "") != (reason == "") {
				t.Errorf("reason %q, want %q", reason, tt.reason)
			}
		})
	}
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		exclusive := rapid.Bool().Draw(t, "exclusive")
		var nodes []trainyard.NodeView
		for i := range rapid.IntRange(0, 6).Draw(t, "nodes") {
			all := 1
			if !exclusive {
				all = rapid.IntRange(1, 4).Draw(t, "slots")
			}
			state := rapid.SampledFrom([]trainyard.NodeState{trainyard.NodeIdle, trainyard.NodeRunning, trainyard.NodeCreating, trainyard.NodeLeaving, trainyard.NodeUnusable}).Draw(t, "state")
			nodes = append(nodes, node(fmt.Sprintf("n%d", i), state, rapid.IntRange(0, all).Draw(t, "free"), all))
		}
		view := cluster(rapid.IntRange(0, 8).Draw(t, "max"), nodes, queue(rapid.SliceOfN(rapid.IntRange(1, 5), 0, 12).Draw(t, "gangs")...))
		view.Exclusive = exclusive
		if rapid.Bool().Draw(t, "bounded") {
			view = bounded(view, rapid.IntRange(0, 4).Draw(t, "bound"))
		}
		if rapid.Bool().Draw(t, "held") {
			view = holds(view, rapid.IntRange(-1, 2).Draw(t, "below"), rapid.IntRange(0, 3).Draw(t, "keep"))
		}
		plan := Decide(trainyard.Snapshot{Computes: []trainyard.ComputeView{view}})
		if len(plan.Placed)+len(plan.Waiting) != len(view.Queue) {
			t.Fatalf("%d placed and %d waiting of %d", len(plan.Placed), len(plan.Waiting), len(view.Queue))
		}
		used := map[trainyard.NodeID]int{}
		for _, p := range plan.Placed {
			for _, id := range p.Nodes {
				used[id]++
			}
		}
		for _, n := range nodes {
			if used[n.ID] > 0 && !n.State.Usable() {
				t.Fatalf("placed on a node that is %s", n.State)
			}
			if exclusive && used[n.ID] > n.Free.Slots {
				t.Fatalf("node %s has %d places and got %d", n.ID, n.Free.Slots, used[n.ID])
			}
		}
		larger := 0
		for _, q := range view.Queue {
			if view.Exclusive && view.Bound != nil && q.Nodes > view.Bound.Nodes {
				larger++
			}
		}
		for _, w := range plan.Waiting {
			if w.Reason != nil && w.Reason.Code == "LargerThanLocation" {
				larger--
			}
			if w.Reason == nil || w.Reason.Code == "" || w.Reason.Message == "" {
				t.Fatalf("job %s waits without a reason", w.Job)
			}
		}
		if larger != 0 {
			t.Fatalf("%d jobs are larger than the location and not told so, or told so and are not", larger)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	for _, size := range []struct{ nodes, jobs int }{{100, 1000}, {1000, 10000}, {10000, 100000}} {
		b.Run(fmt.Sprintf("%dnodes/%djobs", size.nodes, size.jobs), func(b *testing.B) {
			var nodes []trainyard.NodeView
			for i := range size.nodes {
				nodes = append(nodes, node(fmt.Sprintf("n%d", i), trainyard.NodeIdle, 1, 1))
			}
			gangs := make([]int, size.jobs)
			for i := range gangs {
				gangs[i] = 1
			}
			snap := trainyard.Snapshot{Computes: []trainyard.ComputeView{cluster(size.nodes, nodes, queue(gangs...))}}
			for b.Loop() {
				Decide(snap)
			}
		})
	}
}

package scale

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trainyard/trainyard"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func n(id string, state trainyard.NodeState, idleFor time.Duration) trainyard.NodeAge {
	a := trainyard.NodeAge{ID: trainyard.NodeID(id), State: state}
	if state == trainyard.NodeIdle {
		a.IdleFrom = now.Add(-idleFor)
	}
	return a
}

// jobs are waiting jobs of the same priority, by the nodes that they need.
func jobs(nodes ...int) (out []trainyard.QueuedJob) { return ranked(0, nodes...) }

// ranked are waiting jobs of a priority, by the nodes that they need.
func ranked(priority int, nodes ...int) (out []trainyard.QueuedJob) {
	for i, n := range nodes {
		out = append(out, trainyard.QueuedJob{Name: fmt.Sprintf("p%d-%d", priority, i), Priority: priority, Nodes: n})
	}
	return out
}

// drawJobs is a queue in order.
func drawJobs(t *rapid.T, most int) (out []trainyard.QueuedJob) {
	for priority := 3; priority > 0; priority-- {
		out = append(out, ranked(priority, rapid.SliceOfN(rapid.IntRange(1, most), 0, 2).Draw(t, fmt.Sprint("of priority ", priority))...)...)
	}
	return out
}

func TestDecide(t *testing.T) {
	idle, busy, creating := trainyard.NodeIdle, trainyard.NodeRunning, trainyard.NodeCreating
	tests := []struct {
		name   string
		d      trainyard.Demand
		add    int
		remove int
		again  time.Duration // after now; 0: never
	}{
		{"a waiting job brings a node", trainyard.Demand{Max: 4, Queued: jobs(1)}, 1, 0, 0},
		{"a gang brings all its nodes", trainyard.Demand{Max: 4, Queued: jobs(3)}, 3, 0, 0},
		{"never more than the maximum", trainyard.Demand{Max: 2, Queued: jobs(1, 1, 1, 1), Nodes: []trainyard.NodeAge{n("a", busy, 0)}}, 1, 0, 0},
		{"nodes on their way count", trainyard.Demand{Max: 4, Queued: jobs(1, 1), Nodes: []trainyard.NodeAge{n("a", creating, 0), n("b", creating, 0)}}, 0, 0, 0},
		{"a gang larger than the cluster brings nothing", trainyard.Demand{Max: 2, Queued: jobs(5)}, 0, 0, 0},
		{"nor does one that its location can never hold, and those behind it get theirs", trainyard.Demand{Max: 9, Bound: &trainyard.Bound{Nodes: 2}, Queued: jobs(5, 3, 2)}, 2, 0, 0},
		{"the minimum is kept without work", trainyard.Demand{Min: 2, Max: 4}, 2, 0, 0},
		{"an idle node stays for its idle time", trainyard.Demand{Max: 4, Idle: time.Minute, Nodes: []trainyard.NodeAge{n("a", idle, 20*time.Second)}}, 0, 0, 40 * time.Second},
		{"and goes after it", trainyard.Demand{Max: 4, Idle: time.Minute, Nodes: []trainyard.NodeAge{n("a", idle, time.Minute)}}, 0, 1, 0},
		{"but not below the minimum", trainyard.Demand{Min: 1, Max: 4, Idle: time.Minute, Nodes: []trainyard.NodeAge{n("a", idle, time.Hour), n("b", idle, time.Hour)}}, 0, 1, 0},
		{"an idle node that a waiting job will take stays", trainyard.Demand{Max: 4, Idle: time.Minute, Queued: jobs(1), Nodes: []trainyard.NodeAge{n("a", idle, time.Hour)}}, 0, 0, 0},
		{"stopping lets idle nodes go at once and leaves busy ones", trainyard.Demand{Max: 4, Stopped: true, Idle: time.Hour, Nodes: []trainyard.NodeAge{n("a", idle, 0), n("b", busy, 0)}}, 0, 1, 0},
		{"deleting takes nodes that have not come yet away", trainyard.Demand{Max: 4, Deleting: true, Queued: jobs(1), Nodes: []trainyard.NodeAge{n("a", creating, 0)}}, 0, 1, 0},
		{"an unusable node takes room until it is gone", trainyard.Demand{Max: 1, Queued: jobs(1), Nodes: []trainyard.NodeAge{n("a", trainyard.NodeUnusable, 0)}}, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.d.Now = now
			s := Decide(tt.d)
			if s.Add != tt.add || len(s.Remove) != tt.remove {
				t.Errorf("add %d remove %v, want %d and %d", s.Add, s.Remove, tt.add, tt.remove)
			}
			var again time.Duration
			if !s.Again.IsZero() {
				again = s.Again.Sub(now)
			}
			if again != tt.again {
				t.Errorf("look again after %s, want %s", again, tt.again)
			}
			if s.Why.Message == "" {
				t.Error("no reason given")
			}
		})
	}
}

// A machine that is attached has no min_instances and no max_instances, and names none.
func TestWhyOfAMachine(t *testing.T) {
	for _, tt := range []struct {
		state  trainyard.NodeState
		queued []trainyard.QueuedJob
		want   string
	}{
		{trainyard.NodeCreating, nil, "its machine is not there yet"},
		{trainyard.NodeIdle, nil, "its machine is there"},
		{trainyard.NodeIdle, jobs(1), "its machine is asked for by waiting jobs"},
		{trainyard.NodeRunning, nil, "its machine is busy"},
		{trainyard.NodeRunning, jobs(1, 1), "its machine is busy"},
	} {
		d := trainyard.Demand{Now: now, Min: 1, Max: 1, Machine: true, Queued: tt.queued, Nodes: []trainyard.NodeAge{n("a", tt.state, 0)}}
		if got := Decide(d).Why.Message; got != tt.want {
			t.Errorf("%s with %d waiting: %q, want %q", tt.state, len(tt.queued), got, tt.want)
		}
	}
}

func TestProperties(t *testing.T) {
	states := []trainyard.NodeState{trainyard.NodeIdle, trainyard.NodeRunning, trainyard.NodePreparing, trainyard.NodeCreating, trainyard.NodeUnusable}
	rapid.Check(t, func(t *rapid.T) {
		d := trainyard.Demand{Now: now, Min: rapid.IntRange(0, 3).Draw(t, "min"), Idle: time.Minute, Queued: drawJobs(t, 4)}
		d.Max = d.Min + rapid.IntRange(0, 6).Draw(t, "more")
		d.Stopped = rapid.Bool().Draw(t, "stopped")
		for i := range rapid.IntRange(0, d.Max).Draw(t, "nodes") {
			d.Nodes = append(d.Nodes, n(string(rune('a'+i)), rapid.SampledFrom(states).Draw(t, "state"), rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "idle")))
		}
		s := Decide(d)
		if s.Add < 0 || len(d.Nodes)+s.Add > max(d.Max, len(d.Nodes)) {
			t.Fatalf("%d nodes and %d more with at most %d allowed", len(d.Nodes), s.Add, d.Max)
		}
		for _, id := range s.Remove {
			for _, a := range d.Nodes {
				if a.ID == id && (a.State == trainyard.NodeRunning || a.State == trainyard.NodePreparing) {
					t.Fatalf("node %s works and would be let go", id)
				}
			}
		}
		if s.Add > 0 && len(s.Remove) > 0 {
			t.Fatalf("adds %d and removes %v at once", s.Add, s.Remove)
		}
	})
}

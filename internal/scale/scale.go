// Package scale decides how many nodes a cluster should have. It is a pure function of a demand and a time passed in; it starts and
// stops nothing.
package scale

import (
	"fmt"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
)

// Decide wants a node for every task that runs or waits, within the cluster's bounds, and lets go of nodes that were idle for the
// cluster's idle time. Nodes that run something are never let go.
func Decide(d trainyard.Demand) trainyard.Scale {
	low, high := d.Min, max(d.Max, d.Min)
	if d.Stopped || d.Deleting {
		low, high = 0, 0
	}
	busy, idle, coming, present := tally(d.Nodes)
	waiting := 0
	for _, g := range gangs(d, high) {
		waiting += g.Nodes
	}
	need := min(max(busy+waiting, low), high)
	out := trainyard.Scale{Wanted: max(need, busy), Why: why(d, busy, waiting, need)}
	if missing := need - busy - len(idle) - coming; missing > 0 {
		out.Add = min(missing, max(high-present, 0))
	}
	spare := busy + len(idle) + coming - need
	keep := d.Idle
	if high == 0 {
		keep = 0
	}
	for _, n := range idle {
		if spare <= 0 {
			break
		}
		at := n.IdleFrom.Add(keep)
		if d.Now.Before(at) {
			if out.Again.IsZero() || at.Before(out.Again) {
				out.Again = at
			}
			out.Wanted++
			continue
		}
		out.Remove = append(out.Remove, n.ID)
		spare--
	}
	if high == 0 {
		out.Remove = append(out.Remove, notYet(d.Nodes)...)
	}
	return out
}

// tally sorts the nodes: at work, idle, on their way; present counts unusable ones too, which take room until they are gone.
func tally(nodes []trainyard.NodeAge) (busy int, idle []trainyard.NodeAge, coming, present int) {
	for _, n := range nodes {
		present++
		switch n.State {
		case trainyard.NodeRunning, trainyard.NodePreparing:
			busy++
		case trainyard.NodeIdle:
			idle = append(idle, n)
		case trainyard.NodeCreating:
			coming++
		}
	}
	return busy, idle, coming, present
}

// gangs are the waiting jobs that nodes are wanted for, stopping at what the cluster could ever give. Jobs larger than it, or
// than its location can ever hold, ask for nothing.
func gangs(d trainyard.Demand, high int) []trainyard.QueuedJob {
	var out []trainyard.QueuedJob
	n := 0
	for _, g := range d.Queued {
		if g.Nodes > high || d.Bound != nil && g.Nodes > d.Bound.Nodes {
			continue
		}
		out = append(out, g)
		if n += g.Nodes; n >= high {
			break
		}
	}
	return out
}

// Ask is what a cluster asks of its location once Decide has said what it would have.
func Ask(d trainyard.Demand, s trainyard.Scale) trainyard.Ask {
	a := trainyard.Ask{Add: s.Add, Min: d.Min}
	if d.Stopped || d.Deleting {
		a.Min = 0
	} else {
		a.Gangs = gangs(d, max(d.Max, d.Min))
	}
	busy, idle, coming, _ := tally(d.Nodes)
	for _, n := range idle {
		if !slices.Contains(s.Remove, n.ID) {
			a.Idle = append(a.Idle, n.ID)
		}
	}
	if !d.Stopped && !d.Deleting {
		a.Coming = coming
	}
	a.Have = busy + len(a.Idle) + a.Coming
	for _, n := range d.Nodes {
		if n.Serves {
			a.Serving++
		}
	}
	return a
}

func notYet(nodes []trainyard.NodeAge) []trainyard.NodeID {
	var out []trainyard.NodeID
	for _, n := range nodes {
		if n.State == trainyard.NodeCreating || n.State == trainyard.NodeUnusable {
			out = append(out, n.ID)
		}
	}
	return out
}

func why(d trainyard.Demand, busy, waiting, need int) trainyard.Reason {
	switch {
	case d.Deleting:
		return trainyard.Reason{Code: "Deleting", Message: "the compute is being deleted"}
	case d.Stopped:
		return trainyard.Reason{Code: "Stopped", Message: "the compute was stopped"}
	case d.Machine && busy > 0:
		return trainyard.Reason{Code: "Busy", Message: "its machine is busy"}
	case d.Machine && waiting == 0 && !slices.ContainsFunc(d.Nodes, func(n trainyard.NodeAge) bool { return n.State == trainyard.NodeIdle }):
		return trainyard.Reason{Code: "Coming", Message: "its machine is not there yet"}
	case d.Machine && waiting == 0:
		return trainyard.Reason{Code: "Idle", Message: "its machine is there"}
	case d.Machine:
		return trainyard.Reason{Code: "Demand", Message: "its machine is asked for by waiting jobs"}
	case busy+waiting > need:
		return trainyard.Reason{Code: "AtMaximumNodes", Message: fmt.Sprintf("%d busy and %d asked for, at most %d allowed", busy, waiting, d.Max)}
	case waiting > 0:
		return trainyard.Reason{Code: "Demand", Message: fmt.Sprintf("%d busy and %d asked for by waiting jobs", busy, waiting)}
	case busy > 0:
		return trainyard.Reason{Code: "Busy", Message: fmt.Sprintf("%d busy", busy)}
	case need > 0:
		return trainyard.Reason{Code: "AtMinimumNodes", Message: fmt.Sprintf("at least %d asked for by min_instances", d.Min)}
	}
	return trainyard.Reason{Code: "Idle", Message: fmt.Sprintf("no work; idle nodes go after %s", d.Idle.Round(time.Second))}
}

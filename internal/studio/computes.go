package studio

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

const computesEvery = 10 * time.Second

type computesPage struct {
	frame
	List []computeView
}

// computeView is a compute as the list and its own page show it.
type computeView struct {
	Name, URL, Type, SizeName, Tier, Description, Location string
	State                                                  state
	Nodes                                                  int
	Wanted                                                 string // "2 wanted, 0 to 4 allowed"
	Why                                                    string
	Idle                                                   string
	Counts                                                 []nodeCount
	Errors, Warnings                                       []string
	Jobs                                                   string // address of its jobs
	Created                                                moment
	By                                                     string
	Tags                                                   []fact
}

// nodeCount is how many nodes are in a state; X and W draw it, of 1000.
type nodeCount struct {
	State string
	Class string
	N     int
	X, W  string
}

func (d *door) showComputes(v *visit) error {
	list, err := d.computeList(v)
	if err != nil {
		return err
	}
	p := computesPage{frame: d.frame(v, "Computes", "computes"), List: list}
	p.Live = v.link("/studio/live/computes")
	return d.show(v.w, http.StatusOK, "computes", p)
}

func (d *door) streamComputes(v *visit) error {
	return d.keep(v, computesEvery, v.movesNodes, func(s *stream) error {
		list, err := d.computeList(v)
		if err != nil {
			return err
		}
		html, err := d.render("computes-list", list)
		if err != nil {
			return err
		}
		return s.part("computes-list", html, v.now)
	})
}

// movesNodes says whether a change may touch what computes show: nodes, whose state is that of the jobs they run, and computes.
func (v *visit) movesNodes(c trainyard.Change) bool { return len(c.Nodes) > 0 || v.inScope(c) }

func (d *door) computeList(v *visit) ([]computeView, error) {
	all, err := d.Computes.Computes(v.Context(), v.scope)
	if err != nil {
		return nil, err
	}
	var list []computeView
	for _, c := range all {
		nodes, err := d.Computes.Nodes(v.Context(), v.scope, c.Name)
		if trainyard.IsNotFound(err) {
			continue // gone since
		}
		if err != nil {
			return nil, err
		}
		list = append(list, computeOf(v, c, nodes))
	}
	return list, nil
}

func computeOf(v *visit, c *trainyard.Compute, nodes []trainyard.NodeStatus) computeView {
	p := &c.Spec.Properties
	w := computeView{Name: c.Name, URL: v.computeLink(c.Name), Type: c.Spec.ComputeType, SizeName: p.VMSize, Tier: p.VMPriority,
		Description: c.Spec.Description, Nodes: len(nodes), Why: c.Why(nodes).Message, Counts: countNodes(nodes),
		Errors: c.Errors, Warnings: c.Warnings, Jobs: v.link("/jobs", "compute", c.Name), Created: momentOf(v.now, c.Created), By: c.CreatedBy}
	if s := p.ScaleSettings; s != nil {
		w.Wanted = fmt.Sprintf("%d wanted, %d to %d allowed", c.Wanted, s.MinNodeCount, s.MaxNodeCount)
		if idle, err := trainyard.ParseISODuration(s.NodeIdleTimeBeforeScaleDown); err == nil && idle > 0 {
			w.Idle = "an idle node goes after " + long(idle)
		}
	}
	w.State = computeState(c, nodes)
	for _, k := range sortedKeys(c.Tags) {
		w.Tags = append(w.Tags, fact{Name: k, Words: c.Tags[k]})
	}
	return w
}

// computeState is what a person wants to know: going, stopped, resizing, ready.
func computeState(c *trainyard.Compute, nodes []trainyard.NodeStatus) state {
	moving := slices.ContainsFunc(nodes, func(n trainyard.NodeStatus) bool {
		return n.Node.State == trainyard.NodeCreating || n.Node.State == trainyard.NodeLeaving
	})
	word := "Ready"
	switch {
	case c.Deleting:
		word = "Deleting"
	case c.Stopped:
		word = "Stopped"
	case moving, c.Spec.ComputeType == trainyard.ComputeCluster && len(nodes) != c.Wanted:
		word = "Resizing"
	}
	return state{stateClass(word), word}
}

// nodeStates in the order in which they are drawn.
var nodeStates = []trainyard.NodeState{trainyard.NodeRunning, trainyard.NodePreparing, trainyard.NodeIdle, trainyard.NodeCreating,
	trainyard.NodeLeaving, trainyard.NodePreempted, trainyard.NodeUnusable}

func countNodes(nodes []trainyard.NodeStatus) []nodeCount {
	by := map[trainyard.NodeState]int{}
	for _, n := range nodes {
		by[n.Node.State]++
	}
	var out []nodeCount
	x := 0.0
	for _, s := range nodeStates {
		if by[s] == 0 {
			continue
		}
		w := scale * float64(by[s]) / float64(len(nodes))
		out = append(out, nodeCount{State: string(s), Class: stateClass(string(s)), N: by[s], X: fmt.Sprintf("%.1f", x), W: fmt.Sprintf("%.1f", w)})
		x += w
	}
	return out
}

// bySight puts the nodes that need a look first, then those at work.
func bySight(a, b trainyard.NodeStatus) int {
	rank := func(n trainyard.NodeStatus) int {
		order := []trainyard.NodeState{trainyard.NodeUnusable, trainyard.NodePreempted, trainyard.NodeRunning, trainyard.NodePreparing,
			trainyard.NodeCreating, trainyard.NodeLeaving, trainyard.NodeIdle}
		return slices.Index(order, n.Node.State)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(string(a.Node.ID), string(b.Node.ID)))
}

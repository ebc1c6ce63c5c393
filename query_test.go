package trainyard

import (
	"testing"
	"time"
)

// Whatever is being deleted says what it waits for, and what keeps that from being over.
func TestAComputeThatIsBeingDeletedSaysWhatItWaitsFor(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	away := Reason{Code: "EngineAway", Message: "the Kubernetes API has not answered since 03:00:00 UTC"}
	leaving := &Node{ID: "n", State: NodeLeaving, Reason: Reason{Message: "k8s is being deleted", Since: since}}
	at := &Node{ID: "n", State: NodeRunning}
	engine := func(errors ...string) *Compute {
		return &Compute{Name: "k8s", Deleting: true, Engine: "kube", Errors: errors}
	}
	for name, c := range map[string]struct {
		comp  *Compute
		nodes []NodeStatus
		want  string
	}{
		"a job":                        {engine(), []NodeStatus{{Node: at, Jobs: []string{"a", "a"}}}, "job a is to end first"},
		"jobs":                         {engine(), []NodeStatus{{Node: at, Jobs: []string{"b", "a"}}, {Node: at, Jobs: []string{"d", "c"}}}, "4 jobs are to end first: a, b, c, …"},
		"a job of an engine away":      {engine(), []NodeStatus{{Node: at, Jobs: []string{"a"}, Away: away}}, "job a is to end first; " + away.Message},
		"a node":                       {engine(), []NodeStatus{{Node: leaving}}, "its node is being let go of"},
		"a machine that is cut off":    {&Compute{Deleting: true, Errors: []string{"no route to host"}}, []NodeStatus{{Node: leaving, Remark: "no route to host"}}, "its node is being let go of; no route to host"},
		"nodes of a cluster":           {&Compute{Deleting: true, Spec: ComputeSpec{ComputeType: ComputeCluster}}, []NodeStatus{{Node: leaving}, {Node: leaving}}, "its 2 nodes are being let go of"},
		"an engine without an agent":   {engine("the cluster cannot be reached"), []NodeStatus{{Node: at}}, "its node is being let go of; the cluster cannot be reached"},
		"nothing but its own turn yet": {engine(), nil, "it is being taken away"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.comp.Why(c.nodes); got.Message != c.want || got.Code != "Deleting" {
				t.Errorf("it says %+v, want %q", got, c.want)
			}
		})
	}
	if got := engine().Why([]NodeStatus{{Node: leaving}}); !got.Since.Equal(since) {
		t.Errorf("since %s, want %s", got.Since, since)
	}
}

// A compute whose nodes' engines do not answer says so beside why it has so many nodes: of the first, and how many others there are.
func TestAComputeSaysThatEnginesOfItsNodesAreAway(t *testing.T) {
	away := func(id NodeID, why string) NodeStatus {
		return NodeStatus{Node: &Node{ID: id, State: NodeRunning}, Away: Reason{Code: "EngineAway", Message: why}}
	}
	a, b, c, well := away("a", "dockerd is away"), away("b", "Docker is slow"), away("c", "dockerd is away"), away("w", "")
	for _, tt := range []struct {
		kind  string
		nodes []NodeStatus
		want  string
	}{
		{ComputeCluster, []NodeStatus{well}, "1 busy"},
		{ComputeCluster, []NodeStatus{well, a}, "1 busy; dockerd is away (node a)"},
		{ComputeCluster, []NodeStatus{b, well, a}, "1 busy; Docker is slow (node b and 1 other)"},
		{ComputeCluster, []NodeStatus{a, b, c}, "1 busy; dockerd is away (node a and 2 others)"},
		{"VirtualMachine", []NodeStatus{a}, "1 busy; dockerd is away (node a)"},
	} {
		comp := &Compute{Spec: ComputeSpec{ComputeType: tt.kind}, WantedWhy: Reason{Code: "Busy", Message: "1 busy"}}
		if got := comp.Why(tt.nodes); got.Message != tt.want || got.Code != "Busy" {
			t.Errorf("%s says %+v, want %q", tt.kind, got, tt.want)
		}
	}
}

// What a machine lacks is said of one that is heard, too, but not as if it could not be reached.
func TestAMachineThatIsHeardIsNotSaidToBeOutOfReach(t *testing.T) {
	for name, c := range map[string]struct {
		cut           bool
		away          string
		code, message string
	}{
		"heard":              {false, "", "Joined", "no python3 there"},
		"its engine is away": {false, "dockerd is away", "", "dockerd is away (node n)"},
		"cut off":            {true, "", "NodeUnreachable", "no python3 there"},
		"cut off, as it was": {true, "dockerd is away", "NodeUnreachable", "no python3 there"},
	} {
		n := NodeStatus{Node: &Node{ID: "n", State: NodeIdle, Reason: Reason{Code: "Joined", Message: "its agent has joined"}}, Remark: "no python3 there", Cut: c.cut, Away: Reason{Message: c.away}}
		machine := &Compute{Spec: ComputeSpec{ComputeType: "VirtualMachine"}}
		if got := machine.Why([]NodeStatus{n}); got.Code != c.code || got.Message != c.message {
			t.Errorf("%s: it says %+v", name, got)
		}
	}
}

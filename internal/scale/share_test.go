package scale

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trainyard/trainyard"
)

var (
	small = trainyard.VMSize{Name: "small", VCPUs: 2}
	large = trainyard.VMSize{Name: "large", VCPUs: 8}
)

func low(id string, size trainyard.VMSize, ago time.Duration) trainyard.LowNode {
	n := trainyard.LowNode{ID: trainyard.NodeID(id), Size: size}
	if ago > 0 {
		n.Began = now.Add(-ago)
	}
	return n
}

func TestShare(t *testing.T) {
	dedicated := func(add int, s trainyard.VMSize) trainyard.Ask {
		return trainyard.Ask{Compute: "d", Add: add, Size: s}
	}
	spare := func(add int, s trainyard.VMSize) trainyard.Ask {
		return trainyard.Ask{Compute: "l", Add: add, Size: s, Low: true}
	}
	tests := []struct {
		name    string
		room    trainyard.Room
		grant   string
		preempt []trainyard.NodeID
	}{
		{"without limits everyone gets all", trainyard.Room{Asks: []trainyard.Ask{spare(3, large), dedicated(2, small)}}, "d2 l3", nil},
		{"dedicated nodes come first", trainyard.Room{Capacity: trainyard.Capacity{Nodes: 3}, Asks: []trainyard.Ask{spare(3, small), dedicated(2, small)}}, "d2 l1", nil},
		{"low priority never makes others give way", trainyard.Room{Capacity: trainyard.Capacity{Nodes: 1}, Used: trainyard.Capacity{Nodes: 1},
			Low: []trainyard.LowNode{low("a", small, 0)}, Asks: []trainyard.Ask{spare(1, small)}}, "", nil},
		{"an idle node gives way before a busy one", trainyard.Room{Capacity: trainyard.Capacity{Nodes: 2}, Used: trainyard.Capacity{Nodes: 2},
			Low: []trainyard.LowNode{low("busy", small, time.Second), low("idle", small, 0)}, Asks: []trainyard.Ask{dedicated(1, small)}}, "", []trainyard.NodeID{"idle"}},
		{"the newest work gives way first, the oldest last", trainyard.Room{Capacity: trainyard.Capacity{Nodes: 3}, Used: trainyard.Capacity{Nodes: 3},
			Low:  []trainyard.LowNode{low("old", small, time.Hour), low("new", small, time.Minute), low("older", small, 2*time.Hour)},
			Asks: []trainyard.Ask{dedicated(2, small)}}, "", []trainyard.NodeID{"new", "old"}},
		{"as many give way as one large node takes", trainyard.Room{Capacity: trainyard.Capacity{VCPUs: 10}, Used: trainyard.Capacity{Nodes: 5, VCPUs: 10},
			Low: []trainyard.LowNode{low("a", small, time.Hour), low("b", small, 3*time.Hour), low("c", small, 2*time.Hour), low("d", small, 4*time.Hour),
				low("e", small, 5*time.Hour)}, Asks: []trainyard.Ask{dedicated(1, large)}}, "", []trainyard.NodeID{"a", "c", "b", "d"}},
		{"nobody gives way when that is not enough", trainyard.Room{Capacity: trainyard.Capacity{VCPUs: 4}, Used: trainyard.Capacity{Nodes: 2, VCPUs: 4},
			Low: []trainyard.LowNode{low("a", small, time.Hour)}, Asks: []trainyard.Ask{dedicated(1, large)}}, "", nil},
		{"nodes on their way out are enough", trainyard.Room{Capacity: trainyard.Capacity{Nodes: 2}, Used: trainyard.Capacity{Nodes: 2}, Yielding: trainyard.Capacity{Nodes: 1},
			Low: []trainyard.LowNode{low("a", small, time.Hour)}, Asks: []trainyard.Ask{dedicated(1, small)}}, "", nil},
		{"room that comes free for a dedicated node is not given to others", trainyard.Room{Capacity: trainyard.Capacity{Nodes: 3}, Used: trainyard.Capacity{Nodes: 2},
			Low: []trainyard.LowNode{low("a", small, time.Hour)}, Asks: []trainyard.Ask{spare(5, small), dedicated(2, small)}}, "d1", []trainyard.NodeID{"a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Share(tt.room)
			var grant []string
			for _, k := range []trainyard.ComputeKey{"d", "l"} {
				if got.Grant[k] > 0 {
					grant = append(grant, fmt.Sprintf("%s%d", k, got.Grant[k]))
				}
			}
			if g := strings.Join(grant, " "); g != tt.grant || !slices.Equal(got.Preempt, tt.preempt) {
				t.Errorf("granted %q and preempted %v, want %q and %v", g, got.Preempt, tt.grant, tt.preempt)
			}
		})
	}
}

func TestSharingNeverOverfillsAndAlwaysSaysWhy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := trainyard.Room{Name: "x", Capacity: trainyard.Capacity{Nodes: rapid.IntRange(0, 8).Draw(t, "nodes"), VCPUs: rapid.IntRange(0, 30).Draw(t, "vcpus")}}
		size := rapid.SampledFrom([]trainyard.VMSize{small, large})
		for i := range rapid.IntRange(0, 6).Draw(t, "low") {
			s := size.Draw(t, "size")
			r.Low = append(r.Low, low(fmt.Sprint(i), s, time.Duration(rapid.IntRange(0, 5).Draw(t, "age"))*time.Minute))
			r.Used = r.Used.Plus(1, s)
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "asks") {
			r.Asks = append(r.Asks, trainyard.Ask{Compute: trainyard.ComputeKey(fmt.Sprint(i)), Add: rapid.IntRange(0, 4).Draw(t, "add"), Size: size.Draw(t, "size"), Low: rapid.Bool().Draw(t, "low")})
		}
		got := Share(r)
		after := r.Used
		for _, a := range r.Asks {
			after = after.Plus(got.Grant[a.Compute], a.Size)
			if got.Grant[a.Compute] < a.Add && got.Why[a.Compute].Message == "" {
				t.Fatalf("%s did not get all and nobody says why", a.Compute)
			}
		}
		if len(got.Grant) > 0 && !r.Capacity.Holds(after) {
			t.Fatalf("granted %v: %+v of %+v", got.Grant, after, r.Capacity)
		}
		wanted := slices.ContainsFunc(r.Asks, func(a trainyard.Ask) bool { return !a.Low && got.Grant[a.Compute] < a.Add })
		if len(got.Preempt) > 0 && !wanted {
			t.Fatalf("%v gave way and nobody dedicated wanted it", got.Preempt)
		}
	})
}

func ids(prefix string, n int) (out []trainyard.NodeID) {
	for i := range n {
		out = append(out, trainyard.NodeID(fmt.Sprint(prefix, i)))
	}
	return out
}

func TestShareServesWholeGangs(t *testing.T) {
	four := trainyard.Capacity{Nodes: 4}
	worker := func(id string) trainyard.LowNode { return low(id, small, time.Hour) }
	tests := []struct {
		name    string
		room    trainyard.Room
		grant   string
		preempt int
		release string
		why     string // of a
	}{
		{"one that the location can never hold makes nobody give way", trainyard.Room{Capacity: four, Used: trainyard.Capacity{Nodes: 2}, Low: []trainyard.LowNode{worker("x"), worker("y")},
			Asks: []trainyard.Ask{{Compute: "a", Add: 6, Size: small, Gangs: jobs(5, 1)}}}, "", 0, "", "location lab has too little room for the next job (2 of 4 nodes are taken)"},
		{"what others keep for ever is not room", trainyard.Room{Capacity: four, Used: trainyard.Capacity{Nodes: 3}, Low: []trainyard.LowNode{worker("x")},
			Asks: []trainyard.Ask{{Compute: "a", Add: 3, Size: small, Gangs: jobs(3)}, {Compute: "b", Size: small, Have: 2, Min: 2}}}, "", 0, "", "too little room"},
		{"all or nothing", trainyard.Room{Capacity: four, Used: trainyard.Capacity{Nodes: 3}, Low: []trainyard.LowNode{worker("x")},
			Asks: []trainyard.Ask{{Compute: "a", Add: 3, Size: small, Gangs: jobs(3)}}}, "", 0, "", "too little room for the next job (3 of 4 nodes are taken)"},
		{"room is kept for one that others give way for", trainyard.Room{Capacity: four, Used: trainyard.Capacity{Nodes: 3}, Low: []trainyard.LowNode{worker("x")},
			Asks: []trainyard.Ask{{Compute: "a", Add: 2, Size: small, Gangs: jobs(2)}, {Compute: "b", Add: 1, Size: small, Gangs: jobs(1)}}}, "", 1, "", "low-priority nodes are giving way"},
		{"it takes its own idle nodes first", trainyard.Room{Capacity: four, Used: trainyard.Capacity{Nodes: 2},
			Asks: []trainyard.Ask{{Compute: "a", Add: 2, Size: small, Gangs: jobs(4), Idle: ids("a", 1), Coming: 1, Have: 2}}}, "a2", 0, "", ""},
		{"of two that hold half each, one lets go", trainyard.Room{Capacity: four, Used: trainyard.Capacity{Nodes: 4},
			Asks: []trainyard.Ask{{Compute: "a", Add: 2, Size: small, Gangs: jobs(4), Idle: ids("a", 2), Have: 2},
				{Compute: "b", Name: "bee", Add: 2, Size: small, Gangs: jobs(4), Idle: ids("b", 2), Have: 2}}}, "", 0, "b2", "idle nodes of bee are going"},
		{"one that can never be lets its idle nodes go to others", trainyard.Room{Capacity: four, Used: trainyard.Capacity{Nodes: 4},
			Asks: []trainyard.Ask{{Compute: "a", Add: 2, Size: small, Gangs: jobs(5), Idle: ids("a", 3), Have: 3, Min: 1}, {Compute: "b", Add: 3, Size: small, Low: true, Gangs: jobs(1, 1, 1)}}},
			"", 0, "a2", "too little room"},
		{"idle nodes stay where nobody wants their room", trainyard.Room{Capacity: four, Used: trainyard.Capacity{Nodes: 3},
			Asks: []trainyard.Ask{{Compute: "a", Add: 2, Size: small, Gangs: jobs(5), Idle: ids("a", 3), Have: 3}}}, "", 0, "", "too little room"},
		{"idle nodes above the minimum go before others give way", trainyard.Room{Capacity: four, Used: trainyard.Capacity{Nodes: 4}, Low: []trainyard.LowNode{worker("x")},
			Asks: []trainyard.Ask{{Compute: "a", Add: 2, Size: small, Gangs: jobs(2)}, {Compute: "b", Name: "bee", Size: small, Idle: ids("b", 2), Have: 3, Min: 2}}},
			"", 1, "b1", "idle nodes of bee are going; low-priority nodes are giving way"},
		{"idle nodes that a job is about to take stay", trainyard.Room{Capacity: four, Used: trainyard.Capacity{Nodes: 4},
			Asks: []trainyard.Ask{{Compute: "a", Add: 1, Size: small, Gangs: jobs(1)}, {Compute: "b", Size: small, Gangs: jobs(2), Idle: ids("b", 2), Have: 2}}}, "", 0, "", "location lab is full"},
		{"what does not help is let be", trainyard.Room{Capacity: trainyard.Capacity{Nodes: 4, VCPUs: 12}, Used: trainyard.Capacity{Nodes: 3, VCPUs: 12},
			Low:  []trainyard.LowNode{low("x", small, time.Minute), low("y", large, time.Hour)},
			Asks: []trainyard.Ask{{Compute: "a", Add: 1, Size: large, Gangs: jobs(1)}}}, "", 1, "", "giving way"},
		{"the minimum is kept though a job cannot be served", trainyard.Room{Capacity: four,
			Asks: []trainyard.Ask{{Compute: "a", Add: 5, Size: small, Gangs: jobs(5), Min: 2}}}, "a2", 0, "", "too little room"},
		{"a job that waits for the cluster's own work to end gets nothing yet", trainyard.Room{Capacity: four, Used: trainyard.Capacity{Nodes: 2},
			Asks: []trainyard.Ask{{Compute: "a", Add: 1, Size: small, Gangs: jobs(3), Have: 2}}}, "", 0, "", "than the cluster may have beside those at work"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.room.Name = "lab"
			got := Share(tt.room)
			var grant, release []string
			for _, k := range []trainyard.ComputeKey{"a", "b"} {
				if got.Grant[k] > 0 {
					grant = append(grant, fmt.Sprintf("%s%d", k, got.Grant[k]))
				}
				if n := len(got.Release[k]); n > 0 {
					release = append(release, fmt.Sprintf("%s%d", k, n))
				}
			}
			if g, r := strings.Join(grant, " "), strings.Join(release, " "); g != tt.grant || r != tt.release || len(got.Preempt) != tt.preempt {
				t.Errorf("granted %q, let %q go and preempted %v; want %q, %q and %d", g, r, got.Preempt, tt.grant, tt.release, tt.preempt)
			}
			if why := got.Why["a"].Message; !strings.Contains(why, tt.why) || (why == "") != (tt.why == "") {
				t.Errorf("says %q, want %q", why, tt.why)
			}
		})
	}
}

// drawRoom is a location of one size of machine, whose clusters hold idle, coming and working nodes and want more for their gangs.
func drawRoom(t *rapid.T) trainyard.Room {
	r := trainyard.Room{Name: "x", Capacity: trainyard.Capacity{Nodes: rapid.IntRange(1, 10).Draw(t, "nodes")}}
	for i := range rapid.IntRange(1, 4).Draw(t, "clusters") {
		key := fmt.Sprint(string(rune('a' + i)))
		d := trainyard.Demand{Now: now, Idle: time.Hour, Min: rapid.IntRange(0, 2).Draw(t, "min"), Queued: drawJobs(t, 6)}
		d.Max = d.Min + rapid.IntRange(0, 8).Draw(t, "more")
		cheap := rapid.Bool().Draw(t, "low")
		for k := range rapid.IntRange(0, min(d.Max, r.Capacity.Nodes-r.Used.Nodes)).Draw(t, "have") {
			state := rapid.SampledFrom([]trainyard.NodeState{trainyard.NodeIdle, trainyard.NodeRunning, trainyard.NodeCreating}).Draw(t, "state")
			id := fmt.Sprint(key, k)
			d.Nodes = append(d.Nodes, n(id, state, time.Minute))
			r.Used = r.Used.Plus(1, small)
			if cheap {
				r.Low = append(r.Low, low(id, small, map[bool]time.Duration{true: time.Minute}[state == trainyard.NodeRunning]))
			}
		}
		a := Ask(d, Decide(d))
		a.Compute, a.Name, a.Size, a.Low = trainyard.ComputeKey(key), key, small, cheap
		r.Asks = append(r.Asks, a)
	}
	return r
}

func TestSharingAmongGangs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRoom(t)
		got := Share(r)
		total, gone, dedicated := r.Used.Nodes, map[trainyard.NodeID]bool{}, false
		for _, id := range got.Preempt {
			gone[id] = true
		}
		for _, a := range r.Asks {
			total += got.Grant[a.Compute]
			if got.Grant[a.Compute] < a.Add && got.Why[a.Compute].Message == "" {
				t.Fatalf("%s did not get all and nobody says why", a.Name)
			}
			let := got.Release[a.Compute]
			for _, id := range let {
				if !slices.Contains(a.Idle, id) || gone[id] {
					t.Fatalf("%s is not idle, or goes twice", id)
				}
				gone[id] = true
			}
			if len(let) > 0 && a.Have-len(let) < a.Min {
				t.Fatalf("%s keeps %d of its %d", a.Name, a.Have-len(let), a.Min)
			}
			whole(t, a, got)
		}
		for _, a := range r.Asks {
			dedicated = dedicated || !a.Low && completes(r, a, got, gone)
		}
		if total > r.Capacity.Nodes && total > r.Used.Nodes {
			t.Fatalf("%d nodes of %d", total, r.Capacity.Nodes)
		}
		if len(got.Preempt) > 0 && !dedicated {
			t.Fatalf("%v gave way and completes no dedicated job", got.Preempt)
		}
		if again := Share(r); fmt.Sprint(again) != fmt.Sprint(got) {
			t.Fatalf("said %v and then %v", got, again)
		}
	})
}

// completes says whether a cluster's first unserved job, or its minimum, can be had once all that goes has gone.
func completes(r trainyard.Room, a trainyard.Ask, got trainyard.Sharing, gone map[trainyard.NodeID]bool) bool {
	room := r.Capacity.Nodes - r.Used.Nodes + len(gone)
	for _, o := range r.Asks {
		room -= got.Grant[o.Compute]
	}
	lacks := a.Add - got.Grant[a.Compute]
	if lacks <= 0 || room <= 0 {
		return false
	}
	if a.Have+got.Grant[a.Compute] < a.Min {
		return true
	}
	free := len(a.Idle) - len(got.Release[a.Compute]) + a.Coming + got.Grant[a.Compute]
	for _, g := range a.Gangs {
		if free -= g.Nodes; free < 0 {
			return -free <= room
		}
	}
	return false
}

// whole fails if a cluster was given part of a gang.
func whole(t *rapid.T, a trainyard.Ask, got trainyard.Sharing) {
	grant := got.Grant[a.Compute]
	free := len(a.Idle) - len(got.Release[a.Compute]) + a.Coming
	need := -free
	for _, g := range a.Gangs {
		if need += g.Nodes; need >= grant {
			break
		}
	}
	if grant > 0 && need != grant && a.Have+grant > a.Min {
		t.Fatalf("%s got %d nodes for jobs of %v beside %d free ones", a.Name, grant, a.Gangs, free)
	}
}

// Two jobs that need the whole location each are served one after the other, whoever holds what at first.
func TestTwoGangsNeverWaitForEachOther(t *testing.T) {
	have := map[string]int{"a": 2, "b": 2}
	for range 3 { // let go, gone, granted
		r := trainyard.Room{Name: "lab", Capacity: trainyard.Capacity{Nodes: 4}}
		for _, key := range []string{"a", "b"} {
			d := trainyard.Demand{Now: now, Max: 4, Idle: time.Hour, Queued: jobs(4)}
			for _, id := range ids(key, have[key]) {
				d.Nodes = append(d.Nodes, n(string(id), trainyard.NodeIdle, 0))
				r.Used = r.Used.Plus(1, small)
			}
			a := Ask(d, Decide(d))
			a.Compute, a.Name, a.Size = trainyard.ComputeKey(key), key, small
			r.Asks = append(r.Asks, a)
		}
		got := Share(r)
		for key := range have {
			have[key] += got.Grant[trainyard.ComputeKey(key)] - len(got.Release[trainyard.ComputeKey(key)])
		}
	}
	if have["a"] != 4 || have["b"] != 0 {
		t.Errorf("nodes %v, want all at a", have)
	}
}

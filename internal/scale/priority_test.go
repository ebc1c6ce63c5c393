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

func TestShareServesByPriority(t *testing.T) {
	two := trainyard.Capacity{Nodes: 2}
	full := trainyard.Room{Capacity: two, Used: two}
	with := func(r trainyard.Room, asks ...trainyard.Ask) trainyard.Room {
		r.Name, r.Asks = "lab", asks
		return r
	}
	ask := func(of string, add, have, low int, idle []trainyard.NodeID, gangs ...trainyard.QueuedJob) trainyard.Ask {
		return trainyard.Ask{Compute: trainyard.ComputeKey(of), Name: of, Add: add, Size: small, Gangs: gangs, Idle: idle, Have: have, Min: low}
	}
	since := func(at time.Time, j []trainyard.QueuedJob) []trainyard.QueuedJob {
		j[0].Since = at
		return j
	}
	cheap := func(a trainyard.Ask) trainyard.Ask {
		a.Low = true
		return a
	}
	tests := []struct {
		name    string
		room    trainyard.Room
		grant   string
		release string
		hold    string // with the priority below which, and how many nodes stay
	}{
		{"the best job is served first, wherever it waits", with(trainyard.Room{Capacity: two}, ask("a", 2, 0, 0, nil, ranked(1, 1, 1)...), ask("b", 1, 0, 0, nil, ranked(3, 1)...)), "a1 b1", "", ""},
		{"then the one that waits longer", with(trainyard.Room{Capacity: trainyard.Capacity{Nodes: 1}}, ask("a", 1, 0, 0, nil, since(now, ranked(2, 1))...),
			ask("b", 1, 0, 0, nil, since(now.Add(-time.Second), ranked(2, 1))...)), "b1", "", ""},
		{"then the first cluster", with(trainyard.Room{Capacity: trainyard.Capacity{Nodes: 1}}, ask("a", 1, 0, 0, nil, ranked(2, 1)...), ask("b", 1, 0, 0, nil, ranked(2, 1)...)), "a1", "", ""},
		{"a better job holds back what waits on others", with(full, ask("a", 5, 2, 0, nil, ranked(1, 1, 1)...), ask("b", 1, 0, 0, nil, ranked(3, 1)...)), "", "", "a3/0"},
		{"one of the same priority does not", with(full, ask("a", 5, 2, 0, nil, ranked(3, 1, 1)...), ask("b", 1, 0, 0, nil, ranked(3, 1)...)), "", "", ""},
		{"an idle node goes to the better job and not to the next one there", with(full, ask("a", 4, 2, 0, ids("a", 1), ranked(1, 1, 1)...), ask("b", 1, 0, 0, nil, ranked(3, 1)...)), "", "a1", ""},
		{"but stays for one of the same priority", with(full, ask("a", 4, 2, 0, ids("a", 1), ranked(3, 1, 1)...), ask("b", 1, 0, 0, nil, ranked(3, 1)...)), "", "", ""},
		{"idle nodes wait for a gang until it has all", with(full, ask("a", 4, 2, 0, ids("a", 1), ranked(1, 1, 1)...), ask("b", 2, 0, 0, nil, ranked(3, 2)...)), "", "", "a3/0"},
		{"and go together", with(full, ask("a", 4, 2, 0, ids("a", 2), ranked(1, 1, 1)...), ask("b", 2, 0, 0, nil, ranked(3, 2)...)), "", "a2", ""},
		{"free room waits for it too", with(trainyard.Room{Capacity: two, Used: trainyard.Capacity{Nodes: 1}}, ask("a", 4, 1, 0, nil, ranked(1, 1, 1)...), ask("b", 2, 0, 0, nil, ranked(3, 2)...)), "", "", "a3/0"},
		{"the minimum goes on with its own work", with(full, ask("a", 5, 2, 1, nil, ranked(1, 1, 1)...), ask("b", 1, 0, 0, nil, ranked(3, 1)...)), "", "", "a3/1"},
		{"and where there is no more than that nobody is held back", with(full, ask("a", 0, 2, 2, nil, ranked(1, 1, 1)...), ask("b", 1, 0, 0, nil, ranked(3, 1)...)), "", "", ""},
		{"nor where others have it", with(full, ask("a", 0, 1, 1, nil, ranked(1, 1, 1)...), ask("b", 1, 0, 0, nil, ranked(3, 1)...), ask("c", 1, 1, 0, nil, ranked(1, 1)...)), "", "", "c3/0"},
		{"nobody is held back for one that gets its nodes where others wait in vain", with(trainyard.Room{Capacity: trainyard.Capacity{Nodes: 5}, Used: trainyard.Capacity{Nodes: 5}},
			ask("a", 1, 2, 0, nil, ranked(1, 1)...), ask("b", 2, 1, 0, ids("b", 1), ranked(3, 3)...), ask("d", 2, 2, 0, ids("d", 2), ranked(3, 4)...)), "", "d2", ""},
		{"jobs as good as it go on and make no room", with(full, ask("a", 0, 1, 0, nil, ranked(3, 1, 1)...), ask("b", 2, 0, 0, nil, ranked(3, 2)...), ask("c", 2, 1, 0, nil, ranked(1, 1)...)), "", "", ""},
		{"a job that waits for the cluster's own work holds nobody back", with(full, ask("a", 2, 1, 0, nil, ranked(1, 1, 1)...), ask("b", 0, 1, 0, nil, ranked(3, 1)...)), "", "", ""},
		{"low-priority nodes never hold dedicated work back", with(full, ask("a", 2, 2, 0, nil, ranked(1, 1, 1)...), cheap(ask("b", 1, 0, 0, nil, ranked(3, 1)...))), "", "", ""},
		{"among themselves they do", with(full, cheap(ask("a", 2, 2, 0, nil, ranked(1, 1, 1)...)), cheap(ask("b", 1, 0, 0, nil, ranked(3, 1)...))), "", "", "a3/0"},
		{"room that is coming is enough", with(trainyard.Room{Capacity: two, Used: two, Yielding: trainyard.Capacity{Nodes: 1}}, ask("a", 2, 1, 0, nil, ranked(1, 1, 1)...),
			ask("b", 1, 0, 0, nil, ranked(3, 1)...)), "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Share(tt.room)
			var grant, release, hold []string
			for _, a := range tt.room.Asks {
				if n := got.Grant[a.Compute]; n > 0 {
					grant = append(grant, fmt.Sprintf("%s%d", a.Name, n))
				}
				if n := len(got.Release[a.Compute]); n > 0 {
					release = append(release, fmt.Sprintf("%s%d", a.Name, n))
				}
				if h, ok := got.Hold[a.Compute]; ok {
					hold = append(hold, fmt.Sprintf("%s%d/%d", a.Name, h.Below, h.Keep))
					if want := "room of location lab goes to job p3-0 of higher priority on b"; h.Why.Message != want || a.Add > 0 && got.Why[a.Compute] != h.Why {
						t.Errorf("%s is held back because %q, and gets nothing because %q; want %q", a.Name, h.Why.Message, got.Why[a.Compute].Message, want)
					}
				}
			}
			for _, p := range []struct{ what, got, want string }{{"granted", strings.Join(grant, " "), tt.grant}, {"let go", strings.Join(release, " "), tt.release}, {"held back", strings.Join(hold, " "), tt.hold}} {
				if p.got != p.want {
					t.Errorf("%s %q, want %q", p.what, p.got, p.want)
				}
			}
		})
	}
}

func TestNobodyIsHeldBackWithoutABetterJobThatWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRoom(t)
		got := Share(r)
		for _, o := range r.Asks {
			h, ok := got.Hold[o.Compute]
			if !ok {
				continue
			}
			if !slices.ContainsFunc(o.Gangs, func(j trainyard.QueuedJob) bool { return j.Priority < h.Below }) {
				t.Fatalf("%s has no job that is held back by %+v", o.Name, h)
			}
			cause := slices.ContainsFunc(r.Asks, func(c trainyard.Ask) bool {
				return c.Compute != o.Compute && c.Low == o.Low && got.Grant[c.Compute] < c.Add && strings.HasSuffix(h.Why.Message, " on "+c.Name) &&
					slices.ContainsFunc(c.Gangs, func(j trainyard.QueuedJob) bool { return j.Priority == h.Below && j.Nodes <= r.Capacity.Nodes })
			})
			if !cause || h.Keep != o.Min {
				t.Fatalf("%s is held back without a cause: %+v", o.Name, h)
			}
		}
		for _, a := range r.Asks {
			if gone := map[trainyard.NodeID]bool{}; len(got.Release[a.Compute]) > 0 {
				for _, id := range slices.Concat(append(released(got), got.Preempt)...) {
					gone[id] = true
				}
				if !slices.ContainsFunc(r.Asks, func(c trainyard.Ask) bool { return completes(r, c, got, gone) }) {
					t.Fatalf("nodes of %s go and nobody has a use for them", a.Name)
				}
			}
		}
	})
}

func released(s trainyard.Sharing) (out [][]trainyard.NodeID) {
	for _, ids := range s.Release {
		out = append(out, ids)
	}
	return out
}

// yard is a location of one size of machine, whose clusters run their queues in order.
type yard struct {
	nodes    int // most
	clusters []*worker
}

type worker struct {
	trainyard.Demand
	name    string
	made    int
	running []trainyard.QueuedJob
	idle    []trainyard.NodeID
}

func (w *worker) busy() (n int) {
	for _, j := range w.running {
		n += j.Nodes
	}
	return n
}

// demand is how the scaler sees a cluster.
func (y *yard) demand(w *worker) trainyard.Demand {
	d := w.Demand
	room := y.nodes
	for _, o := range y.clusters {
		if o != w {
			room -= min(o.Min, o.busy()+len(o.idle))
		}
	}
	d.Bound = &trainyard.Bound{Nodes: max(room, 0)}
	for i := range w.busy() {
		d.Nodes = append(d.Nodes, n(fmt.Sprint(w.name, "-busy", i), trainyard.NodeRunning, 0))
	}
	for _, id := range w.idle {
		d.Nodes = append(d.Nodes, n(string(id), trainyard.NodeIdle, 0))
	}
	return d
}

// round lets the scaler look and the clusters place what they may. It says whether anything changed.
func (y *yard) round(t *rapid.T) bool {
	r := trainyard.Room{Name: "x", Capacity: trainyard.Capacity{Nodes: y.nodes}}
	changed := false
	for _, w := range y.clusters {
		d := y.demand(w)
		a := Ask(d, Decide(d))
		a.Compute, a.Name, a.Size = trainyard.ComputeKey(w.name), w.name, small
		r.Asks, r.Used = append(r.Asks, a), r.Used.Plus(len(d.Nodes), small)
	}
	if r.Used.Nodes > y.nodes {
		t.Fatalf("%d nodes of %d", r.Used.Nodes, y.nodes)
	}
	got := Share(r)
	for _, w := range y.clusters {
		key := trainyard.ComputeKey(w.name)
		for _, id := range got.Release[key] {
			w.idle = slices.DeleteFunc(w.idle, func(i trainyard.NodeID) bool { return i == id })
			changed = true
		}
		for range got.Grant[key] {
			w.made++
			w.idle = append(w.idle, trainyard.NodeID(fmt.Sprint(w.name, w.made)))
			changed = true
		}
		hold := got.Hold[key]
		for i := 0; i < len(w.Queued); {
			j := w.Queued[i]
			switch {
			case j.Nodes > min(w.Max, y.demand(w).Bound.Nodes):
				i++
				continue
			case j.Priority < hold.Below && w.busy()+j.Nodes > hold.Keep, j.Nodes > len(w.idle):
				i = len(w.Queued)
				continue
			}
			w.idle, w.running, w.Queued = w.idle[j.Nodes:], append(w.running, j), slices.Delete(slices.Clone(w.Queued), i, i+1)
			changed = true
		}
	}
	return changed
}

// end has one of the jobs that run end.
func (y *yard) end(t *rapid.T) bool {
	var at []*worker
	for _, w := range y.clusters {
		if len(w.running) > 0 {
			at = append(at, w)
		}
	}
	if len(at) == 0 {
		return false
	}
	w := rapid.SampledFrom(at).Draw(t, "ends on")
	i := rapid.IntRange(0, len(w.running)-1).Draw(t, "ends")
	for range w.running[i].Nodes {
		w.made++
		w.idle = append(w.idle, trainyard.NodeID(fmt.Sprint(w.name, w.made)))
	}
	w.running = slices.Delete(w.running, i, i+1)
	return true
}

// Whatever waits where with which priority, everything that fits has run in the end, and nodes do not go to and fro for nothing.
func TestEverythingRunsInTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := &yard{nodes: rapid.IntRange(1, 6).Draw(t, "nodes")}
		left := y.nodes
		for i := range rapid.IntRange(1, 4).Draw(t, "clusters") {
			w := &worker{name: string(rune('a' + i)), Demand: trainyard.Demand{Now: now, Idle: time.Hour, Queued: drawJobs(t, 4)}}
			w.Min = rapid.IntRange(0, min(left, 2)).Draw(t, "min")
			w.Max = w.Min + rapid.IntRange(0, 6).Draw(t, "more")
			left -= w.Min
			y.clusters = append(y.clusters, w)
		}
		for range 100 {
			still := 0
			for y.round(t) {
				if still++; still > 50 {
					t.Fatal("nodes go to and fro though no work ends")
				}
			}
			if !y.end(t) {
				break
			}
		}
		for _, w := range y.clusters {
			for _, j := range w.Queued {
				if j.Nodes <= min(w.Max, y.demand(w).Bound.Nodes) {
					t.Fatalf("job %s of %d nodes on %s never ran", j.Name, j.Nodes, w.name)
				}
			}
		}
	})
}

// A job of high priority has the first node that comes free, whichever cluster had it, and what waits there goes on after it.
func TestABetterJobHasTheNextNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		y := &yard{nodes: rapid.IntRange(1, 3).Draw(t, "nodes"), clusters: []*worker{
			{name: "a", Demand: trainyard.Demand{Now: now, Idle: time.Hour, Max: 9, Queued: ranked(1, slices.Repeat([]int{1}, 11)...)}}}}
		for y.round(t) {
		}
		best := &worker{name: "b", Demand: trainyard.Demand{Now: now, Idle: time.Hour, Max: 1, Queued: ranked(3, 1)}}
		y.clusters = append(y.clusters, best)
		for y.round(t) {
		}
		y.end(t)
		for y.round(t) {
		}
		if len(best.running) != 1 {
			t.Fatalf("it still waits, and %d of low priority have been placed", 11-len(y.clusters[0].Queued))
		}
		for y.end(t) {
			for y.round(t) {
			}
		}
		if n := len(y.clusters[0].Queued); n > 0 {
			t.Fatalf("%d of the others never ran", n)
		}
	})
}

// What serves does not end: a job that lacks its room has none in the end, and holds nobody back.
func TestNobodyIsHeldBackForRoomThatReplicasHave(t *testing.T) {
	one := trainyard.VMSize{Name: "A", VCPUs: 1}
	s := Share(trainyard.Room{Name: "lab", Capacity: trainyard.Capacity{Nodes: 3}, Used: trainyard.Capacity{Nodes: 3, VCPUs: 3}, Asks: []trainyard.Ask{
		{Compute: "served", Name: "served", Size: one, Have: 2, Serving: 2},
		{Compute: "gang", Name: "gang", Size: one, Add: 3, Gangs: []trainyard.QueuedJob{{Name: "three", Nodes: 3, Priority: 3}}},
		{Compute: "other", Name: "other", Size: one, Add: 1, Have: 1, Gangs: []trainyard.QueuedJob{{Name: "x", Nodes: 1, Priority: 2}, {Name: "y", Nodes: 1, Priority: 2}}},
	}})
	if len(s.Hold) > 0 {
		t.Errorf("held back: %+v", s.Hold)
	}
}

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

package scale

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// Share gives a location's room to the clusters that ask for nodes: dedicated ones first, in the order given. What dedicated ones still
// lack, low-priority nodes give way for: idle ones first, then those whose work began last, so that least is lost; never more of them
// than that takes. Nodes that are on their way out count as room to come, so that nobody else gives way for the same wish.
func Share(r trainyard.Room) trainyard.Sharing {
	out := trainyard.Sharing{Grant: map[trainyard.ComputeKey]int{}, Why: map[trainyard.ComputeKey]trainyard.Reason{}}
	low := slices.Clone(r.Low)
	slices.SortStableFunc(low, func(a, b trainyard.LowNode) int {
		switch {
		case a.Began.IsZero() != b.Began.IsZero():
			if a.Began.IsZero() {
				return -1
			}
			return 1
		case !a.Began.Equal(b.Began):
			return b.Began.Compare(a.Began)
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	asks := slices.Clone(r.Asks)
	slices.SortStableFunc(asks, func(a, b trainyard.Ask) int {
		switch {
		case a.Low == b.Low:
			return 0
		case b.Low:
			return -1
		}
		return 1
	})
	used := r.Used                    // now
	later := less(r.Used, r.Yielding) // when those that give way are gone, with what is promised until then
	for _, a := range asks {
		for range a.Add {
			switch one := used.Plus(1, a.Size); {
			case r.Capacity.Holds(one) && r.Capacity.Holds(later.Plus(1, a.Size)):
				out.Grant[a.Compute]++
				used, later = one, later.Plus(1, a.Size)
				continue
			case a.Low:
			default:
				n, after := giveWay(r.Capacity, later, a.Size, low)
				if n < 0 {
					break
				}
				for _, v := range low[:n] {
					out.Preempt = append(out.Preempt, v.ID)
				}
				low, later = low[n:], after.Plus(1, a.Size) // kept for it
			}
			out.Why[a.Compute] = full(r, a, len(out.Preempt) > 0 || r.Yielding != trainyard.Capacity{})
		}
	}
	return out
}

// giveWay is how many of the nodes, taken in order, must go so that one more machine has room; -1 if all of them are not enough.
func giveWay(limit, later trainyard.Capacity, size trainyard.VMSize, low []trainyard.LowNode) (n int, after trainyard.Capacity) {
	for n = 0; ; n++ {
		if limit.Holds(later.Plus(1, size)) {
			return n, later
		}
		if n == len(low) {
			return -1, later
		}
		later = less(later, trainyard.Capacity{}.Plus(1, low[n].Size))
	}
}

func less(a, b trainyard.Capacity) trainyard.Capacity {
	return trainyard.Capacity{Nodes: a.Nodes - b.Nodes, VCPUs: a.VCPUs - b.VCPUs, GPUs: a.GPUs - b.GPUs}
}

// full says why a cluster does not get a node.
func full(r trainyard.Room, a trainyard.Ask, yielding bool) trainyard.Reason {
	var parts []string
	for _, p := range []struct {
		what        string
		used, limit int
	}{{"nodes", r.Used.Nodes, r.Capacity.Nodes}, {"vCPUs", r.Used.VCPUs, r.Capacity.VCPUs}, {"GPUs", r.Used.GPUs, r.Capacity.GPUs}} {
		if p.limit > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d %s", p.used, p.limit, p.what))
		}
	}
	text := fmt.Sprintf("location %s is full (%s are taken)", r.Name, strings.Join(parts, ", "))
	switch {
	case !r.Capacity.Holds(trainyard.Capacity{}.Plus(1, a.Size)):
		text = fmt.Sprintf("location %s is too small for a node of size %s", r.Name, a.Size.Name)
	case yielding && !a.Low:
		text += "; low-priority nodes are giving way"
	case a.Low:
		text += "; low-priority nodes get what dedicated ones leave"
	}
	return trainyard.Reason{Code: "LocationFull", Message: text}
}

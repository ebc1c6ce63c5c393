package scale

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// Share gives a location's room to the clusters that ask for nodes: dedicated ones first, in the order given. A waiting job gets all the
// nodes that it lacks or none, and while it cannot have them nothing is given to those behind it in its queue. For what is lacking, nodes
// of other clusters go that are idle and above their minimum, then, if it is for dedicated work, low-priority nodes: idle ones first, then
// those whose work began last, so that least is lost; never more than that takes. Idle nodes that wait for a job which cannot be completed
// go too. Nodes on their way out count as room to come, so that nobody else gives way for the same wish.
func Share(r trainyard.Room) trainyard.Sharing {
	s := &sharing{Room: r, gone: map[trainyard.NodeID]bool{}, low: slices.Clone(r.Low), used: r.Used, later: less(r.Used, r.Yielding)}
	s.out = trainyard.Sharing{Grant: map[trainyard.ComputeKey]int{}, Release: map[trainyard.ComputeKey][]trainyard.NodeID{},
		Why: map[trainyard.ComputeKey]trainyard.Reason{}}
	slices.SortStableFunc(s.low, func(a, b trainyard.LowNode) int {
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
	for _, a := range r.Asks {
		c := &cluster{Ask: a, left: a.Add}
		for _, g := range a.Gangs {
			c.claim += g
		}
		s.clusters = append(s.clusters, c)
	}
	for _, low := range []bool{false, true} {
		for range 2 { // the second time, idle nodes go that the first found to wait in vain
			for _, c := range s.clusters {
				if c.Low == low {
					s.serve(c)
				}
			}
			for _, c := range s.clusters {
				if c.blocked {
					c.claim = c.taken
				}
			}
		}
	}
	for _, c := range s.clusters {
		if s.out.Grant[c.Compute] < c.Add {
			s.out.Why[c.Compute] = s.full(c)
		}
	}
	return s.out
}

// sharing is a location while its room is given out.
type sharing struct {
	trainyard.Room
	clusters []*cluster
	low      []trainyard.LowNode
	gone     map[trainyard.NodeID]bool // told to go by this sharing
	used     trainyard.Capacity        // now
	later    trainyard.Capacity        // when those that go are gone, with what is promised until then
	out      trainyard.Sharing
}

// cluster is an ask while it is served.
type cluster struct {
	trainyard.Ask
	left    int  // of Add
	next    int  // in Gangs
	taken   int  // of its free nodes, by the gangs before next
	claim   int  // most of its free nodes that its gangs may still need
	blocked bool // the next gang cannot be completed
	short   bool // because the cluster may not have so many
	filled  bool // the minimum was seen to
}

// serve has a cluster's gangs served in order up to the first that cannot be, and fills it up to its minimum.
func (s *sharing) serve(c *cluster) {
	for c.blocked = false; c.next < len(c.Gangs); c.next++ {
		free := len(s.idle(c)) + c.Coming - c.taken
		lacks := max(c.Gangs[c.next]-free, 0)
		if lacks > c.left || (lacks > 0 && !s.give(c, lacks)) {
			c.blocked, c.short = true, lacks-(len(c.Idle)-len(s.idle(c))) > c.left
			break
		}
		c.left -= lacks
		c.taken += c.Gangs[c.next] - lacks
		c.claim = max(c.claim, c.taken)
	}
	if c.filled {
		return
	}
	c.filled = true
	singles := c.left
	if len(c.Gangs) > 0 {
		singles = min(c.left, c.Min-c.Have-(c.Add-c.left))
	}
	for ; singles > 0 && s.give(c, 1); singles-- {
		c.left--
	}
}

// give finds room for n more nodes of a cluster, now or when others are gone. It changes nothing when there is none.
func (s *sharing) give(c *cluster, n int) bool {
	later := s.later.Plus(n, c.Size)
	if s.Capacity.Holds(s.used.Plus(n, c.Size)) && s.Capacity.Holds(later) {
		s.used, s.later = s.used.Plus(n, c.Size), later
		s.out.Grant[c.Compute] += n
		return true
	}
	var way []leaver
	from := s.leavers(c)
	for i := 0; !s.Capacity.Holds(later); i++ {
		if i == len(from) {
			return false
		}
		way, later = append(way, from[i]), less(later, trainyard.Capacity{}.Plus(1, from[i].size))
	}
	for i := len(way) - 1; i >= 0; i-- { // what does not help stays, the most precious first
		if with := later.Plus(1, way[i].size); s.Capacity.Holds(with) {
			way, later = slices.Delete(way, i, i+1), with
		}
	}
	for _, v := range way {
		s.gone[v.id] = true
		if v.of != nil {
			s.out.Release[v.of.Compute] = append(s.out.Release[v.of.Compute], v.id)
		} else {
			s.out.Preempt = append(s.out.Preempt, v.id)
		}
	}
	s.later = later // kept for it
	return true
}

// leaver is a node that can go: an idle one of a cluster, or one of low priority.
type leaver struct {
	id   trainyard.NodeID
	size trainyard.VMSize
	of   *cluster
}

// leavers are the nodes that may go so that a cluster has room, in the order in which they go.
func (s *sharing) leavers(whom *cluster) []leaver {
	var out []leaver
	seen := map[trainyard.NodeID]bool{}
	for _, c := range s.clusters {
		idle := s.idle(c)
		spare := min(len(idle)-c.claim, c.Have-(len(c.Idle)-len(idle))-c.Min)
		if c == whom || spare <= 0 {
			continue
		}
		for _, id := range idle[:spare] {
			seen[id] = true
			out = append(out, leaver{id, c.Size, c})
		}
	}
	for _, n := range s.low {
		if !whom.Low && !s.gone[n.ID] && !seen[n.ID] {
			out = append(out, leaver{n.ID, n.Size, nil})
		}
	}
	return out
}

// idle are a cluster's nodes without work that were not told to go.
func (s *sharing) idle(c *cluster) []trainyard.NodeID {
	var out []trainyard.NodeID
	for _, id := range c.Idle {
		if !s.gone[id] {
			out = append(out, id)
		}
	}
	return out
}

func less(a, b trainyard.Capacity) trainyard.Capacity {
	return trainyard.Capacity{Nodes: a.Nodes - b.Nodes, VCPUs: a.VCPUs - b.VCPUs, GPUs: a.GPUs - b.GPUs}
}

// full says why a cluster does not get all that it asked for.
func (s *sharing) full(c *cluster) trainyard.Reason {
	switch {
	case !s.Capacity.Holds(trainyard.Capacity{}.Plus(1, c.Size)):
		return trainyard.Reason{Code: "LocationFull", Message: fmt.Sprintf("location %s is too small for a node of size %s", s.Name, c.Size.Name)}
	case c.blocked && c.short:
		return trainyard.Reason{Code: "AtMaximumNodes", Message: "the next job needs more nodes at once than the cluster may have beside those at work"}
	}
	var parts []string
	for _, p := range []struct {
		what        string
		used, limit int
	}{{"nodes", s.Used.Nodes, s.Capacity.Nodes}, {"vCPUs", s.Used.VCPUs, s.Capacity.VCPUs}, {"GPUs", s.Used.GPUs, s.Capacity.GPUs}} {
		if p.limit > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d %s", p.used, p.limit, p.what))
		}
	}
	what := "is full"
	if c.blocked && c.Gangs[c.next] > 1 { // how many it needs at once the job's own reason says
		what = "has too little room for the next job"
	}
	text := fmt.Sprintf("location %s %s (%s are taken)", s.Name, what, strings.Join(parts, ", "))
	return trainyard.Reason{Code: "LocationFull", Message: text + s.going(c)}
}

// going says what is on its way out.
func (s *sharing) going(c *cluster) string {
	var names []string
	for _, o := range s.clusters {
		if len(s.out.Release[o.Compute]) > 0 {
			names = append(names, o.Name)
		}
	}
	text := ""
	switch {
	case len(names) > 0:
		text = "; idle nodes of " + strings.Join(names, ", ") + " are going"
	case s.Leaving != trainyard.Capacity{}:
		text = "; idle nodes are going"
	}
	switch {
	case c.Low:
		text += "; low-priority nodes get what dedicated ones leave"
	case len(s.out.Preempt) > 0 || s.Yielding != s.Leaving:
		text += "; low-priority nodes are giving way"
	}
	return text
}

package scale

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// Share gives a location's room to the waiting jobs of the clusters that ask for nodes: those of dedicated clusters first, then by priority,
// by how long they wait, and by the order of the clusters. A job gets all the nodes that it lacks or none, and while it cannot have them
// nothing is given to those behind it in its queue. For what is lacking, nodes of other clusters go that are idle and above their minimum,
// then, if it is for dedicated work, low-priority nodes: idle ones first, then those whose work began last, so that least is lost; never
// more than that takes. Idle nodes that wait for a job which cannot be completed go too. Nodes on their way out count as room to come, so
// that nobody else gives way for the same wish.
//
// Where all that is not enough, jobs of lower priority on other clusters of the same kind are held back, so that nodes come free: see outrank.
func Share(r trainyard.Room) trainyard.Sharing {
	s := &sharing{Room: r, gone: map[trainyard.NodeID]bool{}, low: slices.Clone(r.Low), used: r.Used, later: less(r.Used, r.Yielding)}
	s.out = trainyard.Sharing{Grant: map[trainyard.ComputeKey]int{}, Release: map[trainyard.ComputeKey][]trainyard.NodeID{},
		Hold: map[trainyard.ComputeKey]trainyard.Hold{}, Why: map[trainyard.ComputeKey]trainyard.Reason{}}
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
		c.claim = c.waiting(math.MinInt)
		s.clusters = append(s.clusters, c)
	}
	for _, low := range []bool{false, true} {
		for range 2 { // the second time, idle nodes go that the first found to wait in vain
			s.serve(low)
			for _, c := range s.clusters {
				if c.blocked {
					c.claim = c.taken
				}
			}
		}
		for _, c := range s.clusters {
			if c.Low == low {
				s.fill(c)
			}
		}
	}
	for _, c := range s.clusters {
		if c.hold != nil {
			s.out.Hold[c.Compute] = *c.hold
		}
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
	left    int             // of Add
	next    int             // in Gangs
	taken   int             // of its free nodes, by the gangs before next
	claim   int             // most of its free nodes that its gangs may still need
	blocked bool            // the next gang cannot be completed
	short   bool            // because the cluster may not have so many
	hold    *trainyard.Hold // its jobs below a priority wait for one elsewhere
}

// waiting is how many nodes those of its gangs need that were not served and have at least a priority.
func (c *cluster) waiting(priority int) (nodes int) {
	for _, g := range c.Gangs[c.next:] {
		if g.Priority >= priority {
			nodes += g.Nodes
		}
	}
	return nodes
}

// serve has the waiting jobs of dedicated or of low-priority clusters served, the best first, up to those that cannot be.
func (s *sharing) serve(low bool) {
	for _, c := range s.clusters {
		if c.Low == low {
			c.blocked, c.hold = false, nil
		}
	}
	for c := s.best(low); c != nil; c = s.best(low) {
		s.serveNext(c)
	}
}

// best is the cluster whose next job comes before those of all others; nil if none can be served.
func (s *sharing) best(low bool) *cluster {
	var first *cluster
	for _, c := range s.clusters {
		if c.Low != low || c.blocked || c.next == len(c.Gangs) {
			continue
		}
		g := &c.Gangs[c.next]
		if c.hold != nil && g.Priority < c.hold.Below {
			continue
		}
		if first == nil {
			first = c
			continue
		}
		if f := &first.Gangs[first.next]; g.Priority > f.Priority || g.Priority == f.Priority && g.Since.Before(f.Since) {
			first = c
		}
	}
	return first
}

// serveNext gives a cluster the nodes that its next job lacks, or finds that it cannot have them.
func (s *sharing) serveNext(c *cluster) {
	need := c.Gangs[c.next].Nodes
	lacks := max(need-(len(s.idle(c))+c.Coming-c.taken), 0)
	if lacks > c.left || lacks > 0 && !s.give(c, lacks) && !s.outrank(c, lacks) {
		c.blocked, c.short = true, lacks-(len(c.Idle)-len(s.idle(c))) > c.left
		return
	}
	c.left -= lacks
	c.taken += need - lacks
	c.claim = max(c.claim, c.taken)
	c.next++
}

// fill has a cluster's minimum seen to, or single nodes where no jobs ask for them.
func (s *sharing) fill(c *cluster) {
	singles := c.left
	if len(c.Gangs) > 0 {
		singles = min(c.left, c.Min-c.Have-(c.Add-c.left))
	}
	for ; singles > 0 && s.give(c, 1); singles-- {
		c.left--
	}
}

// outrank looks for room for a job that has none where jobs of lower priority wait on other clusters of its kind. It says whether idle nodes
// that those were about to take are enough. If not, but nodes that are at work will be when they are done, those jobs are held back, all of
// them, since nobody knows whose node is free first. Jobs of the same priority are never held back, and count as if they came first: a
// cluster that goes on with them makes no room, and nobody waits for a job that has none in the end.
func (s *sharing) outrank(c *cluster, lacks int) bool {
	job := &c.Gangs[c.next]
	lesser := map[*cluster]int{} // their claims
	for _, o := range s.clusters {
		if o != c && o.Low == c.Low && o.waiting(math.MinInt) > o.waiting(job.Priority) && s.has(o)+o.left > o.stays() {
			lesser[o] = o.claim
			o.claim = min(o.claim, o.taken+o.waiting(job.Priority))
		}
	}
	if len(lesser) == 0 {
		return false
	}
	given := s.give(c, lacks)
	if given || s.room(c, job.Priority) < job.Nodes {
		for o, claim := range lesser {
			o.claim = claim
		}
		return given
	}
	for o := range lesser {
		if o.hold == nil || o.hold.Below < job.Priority {
			o.hold = &trainyard.Hold{Below: job.Priority, Keep: o.stays(), Why: trainyard.Reason{Code: "HigherPriority",
				Message: fmt.Sprintf("room of location %s goes to job %s of higher priority on %s", s.Name, job.Name, c.Name)}}
		}
	}
	return false
}

// has is how many nodes a cluster has, with those that were given to it and without those that were told to go.
func (s *sharing) has(c *cluster) int {
	return c.Have - (len(c.Idle) - len(s.idle(c))) + c.Add - c.left
}

// stays is how many nodes a cluster has whatever jobs wait elsewhere: its minimum, and those with replicas, which do not end.
func (c *cluster) stays() int { return max(c.Min, c.Serving) }

// room is how many nodes a cluster can have in the end for a job of a priority: what the location holds, less the minimums of others and
// what serves there, and less the nodes with which others go on because they have jobs that come first. Low-priority nodes are no hindrance to dedicated ones.
func (s *sharing) room(c *cluster, priority int) int {
	var kept trainyard.Capacity
	for _, o := range s.clusters {
		if o == c || o.Low && !c.Low {
			continue
		}
		first := o.waiting(priority)
		if c.Low && !o.Low {
			first = o.waiting(math.MinInt)
		}
		kept = kept.Plus(min(s.has(o), max(o.Min, o.Serving+first)), o.Size)
	}
	n, limited := s.Capacity.Room(kept, c.Size)
	if !limited {
		return math.MaxInt
	}
	return n
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
	case c.hold != nil && !c.blocked:
		return c.hold.Why
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
	if c.blocked && c.Gangs[c.next].Nodes > 1 { // how many it needs at once the job's own reason says
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

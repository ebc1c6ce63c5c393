package control

import (
	"github.com/trainyard/trainyard"
)

// limit is what the scheduler is told of a cluster beside what the store knows: what the scaler found when it last looked.
type limit struct {
	bound *trainyard.Bound
	hold  *trainyard.Hold
}

// bounds are how many nodes clusters can ever have: what their locations hold, less what others keep for ever, which is the minimum of
// dedicated clusters as far as it is there. A cluster whose location has no limit is not among them.
func (c *Control) bounds(comps []*trainyard.Compute, nodes map[trainyard.ComputeKey][]*trainyard.Node) map[trainyard.ComputeKey]*trainyard.Bound {
	type share struct {
		of   *trainyard.Location
		size trainyard.VMSize
		kept int
	}
	all, kept := map[trainyard.ComputeKey]share{}, map[string]trainyard.Capacity{}
	for _, comp := range comps {
		l := c.place(comp.Where)
		if !comp.Elastic() || l == nil || l.Capacity == (trainyard.Capacity{}) {
			continue
		}
		size, ok := l.Size(comp.Spec.Properties.VMSize)
		if !ok {
			continue
		}
		s := share{of: l, size: size}
		if set := comp.Spec.Properties.ScaleSettings; set != nil && !comp.LowPriority() && !comp.Stopped && !comp.Deleting {
			s.kept = min(set.MinNodeCount, c.there(nodes[comp.Key()]))
		}
		all[comp.Key()] = s
		kept[l.Name] = kept[l.Name].Plus(s.kept, size)
	}
	out := map[trainyard.ComputeKey]*trainyard.Bound{}
	for key, s := range all {
		others := kept[s.of.Name].Plus(-s.kept, s.size)
		if n, limited := s.of.Capacity.Room(others, s.size); limited {
			out[key] = &trainyard.Bound{Location: s.of.Name, Size: s.size.Name, Nodes: n}
		}
	}
	return out
}

// there counts the nodes that work, are idle or are on their way in.
func (c *Control) there(nodes []*trainyard.Node) (n int) {
	for _, node := range nodes {
		switch c.stateOf(node) {
		case trainyard.NodeLeaving, trainyard.NodePreempted, trainyard.NodeUnusable:
		default:
			n++
		}
	}
	return n
}

// setLimits takes over what the scaler found, and has the scheduler look where that is news.
func (c *Control) setLimits(wishes []wish) {
	now := map[trainyard.ComputeKey]limit{}
	for i := range wishes {
		if l := (limit{wishes[i].demand.Bound, wishes[i].hold}); l != (limit{}) {
			now[wishes[i].comp.Key()] = l
		}
	}
	c.mu.Lock()
	before := c.limits
	c.limits = now
	c.mu.Unlock()
	news := false
	for _, w := range wishes {
		if key := w.comp.Key(); !now[key].same(before[key]) {
			c.Store.MarkDirty(key)
			news = true
		}
	}
	if news {
		c.sched.Set()
	}
}

func (l limit) same(as limit) bool { return equal(l.bound, as.bound) && equal(l.hold, as.hold) }

// equal says whether two pointers are nil, or point at the same.
func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// limited adds to a snapshot what the scaler found.
func (c *Control) limited(s trainyard.Snapshot) trainyard.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range s.Computes {
		l := c.limits[s.Computes[i].Key]
		s.Computes[i].Bound, s.Computes[i].Hold = l.bound, l.hold
	}
	return s
}

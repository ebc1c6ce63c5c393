package store

import (
	"time"

	"github.com/trainyard/trainyard"
)

// layer holds what was written (and read) but is not in the database yet: of one function, or of a whole batch. Records are never changed
// once they are in a layer; a later write puts a new one in its place.
type layer struct {
	jobs      map[trainyard.JobKey]*jobRecord
	computes  map[trainyard.ComputeKey]*computeRecord
	nodes     map[trainyard.NodeID]*nodeRecord
	resources map[resourceKey]*resourceRecord
	settings  map[string]*settingRecord
	events    []trainyard.Event
	onNode    map[trainyard.NodeID][]trainyard.JobKey // jobs in this layer with live tasks there
}

// jobRecord is a job as it will be. A nil job does not exist.
type jobRecord struct {
	job    *trainyard.Job // becomes the image's: not changed after it is here
	stored int64          // seq of its row in the database, 0 if it has none
	phase  phase          // in that row
	write  bool
	whole  bool   // spec or plan differ from the row's
	status string // encoded; with write
	spec   string // encoded; with whole
	plan   string
}

type computeRecord struct {
	compute *trainyard.Compute
	doc     string
}

type nodeRecord struct {
	node  *trainyard.Node
	quiet bool // only Seen differs: for the image, not for the database or anybody's ears
	doc   string
}

type resourceRecord struct {
	resource *trainyard.Resource
	seq      int64 // of the resource; a version that is deleted and made again has a new one
	stored   int64 // seq of its row, 0 if it has none
	write    bool
	doc      string
}

type settingRecord struct {
	value []byte // nil: not set
	write bool
}

// resourceKey is what makes a resource unique.
type resourceKey struct {
	scope   string
	kind    trainyard.Kind
	folded  string
	version string
}

func newLayer() *layer { return &layer{} }

// put puts v into a map that is made when it is first needed.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// merge puts own's records over l's.
func (l *layer) merge(own *layer) {
	for k, v := range own.jobs {
		put(&l.jobs, k, v)
	}
	for k, v := range own.computes {
		put(&l.computes, k, v)
	}
	for k, v := range own.nodes {
		put(&l.nodes, k, v)
	}
	for k, v := range own.resources {
		put(&l.resources, k, v)
	}
	for k, v := range own.settings {
		put(&l.settings, k, v)
	}
	for k, v := range own.onNode {
		put(&l.onNode, k, append(l.onNode[k], v...))
	}
	l.events = append(l.events, own.events...)
}

// change is what subscribers are told.
func (l *layer) change(at time.Time) trainyard.Change {
	c := trainyard.Change{Events: l.events, At: at}
	for k, r := range l.jobs {
		if r.write {
			c.Jobs = append(c.Jobs, k)
		}
	}
	for k := range l.computes {
		c.Computes = append(c.Computes, k)
	}
	for k, r := range l.nodes {
		if !r.quiet {
			c.Nodes = append(c.Nodes, k)
		}
	}
	return c
}

package store

import (
	"maps"
	"slices"
	"sync"

	"github.com/trainyard/trainyard"
)

// news tells subscribers what has become durable, on a goroutine of its own, so that the writer waits for nobody. What happens while
// subscribers are busy is merged into one Change.
type news struct {
	mu      sync.Mutex
	pending *trainyard.Change
	wake    *sync.Cond
	over    bool
	done    chan struct{}

	telling sync.Mutex // held while subscribers are called
	subs    map[int]func(trainyard.Change)
	last    int
}

func newNews() *news {
	n := &news{done: make(chan struct{}), subs: map[int]func(trainyard.Change){}}
	n.wake = sync.NewCond(&n.mu)
	return n
}

// Subscribe calls f after every durable batch, in order, with batches that come too fast merged into one. f is called on a goroutine of
// the store's own: it must not block, and not call Subscribe or stop. After stop returns f is not called again.
func (s *Store) Subscribe(f func(trainyard.Change)) (stop func()) {
	n := s.news
	n.telling.Lock()
	defer n.telling.Unlock()
	n.last++
	id := n.last
	n.subs[id] = f
	return func() {
		n.telling.Lock()
		defer n.telling.Unlock()
		delete(n.subs, id)
	}
}

func (n *news) publish(c trainyard.Change) {
	if len(c.Jobs)+len(c.Nodes)+len(c.Computes)+len(c.Events) == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.pending; p != nil {
		p.Jobs, p.Nodes, p.Computes = append(p.Jobs, c.Jobs...), append(p.Nodes, c.Nodes...), append(p.Computes, c.Computes...)
		p.Events, p.At = append(p.Events, c.Events...), c.At
		return
	}
	n.pending = &c
	n.wake.Signal()
}

// deliver runs until stop, and then until all is told.
func (n *news) deliver() {
	defer close(n.done)
	for {
		c := n.take()
		if c == nil {
			return
		}
		c.Jobs, c.Nodes, c.Computes = unique(c.Jobs), unique(c.Nodes), unique(c.Computes)
		n.tell(*c)
	}
}

func (n *news) take() *trainyard.Change {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.pending == nil && !n.over {
		n.wake.Wait()
	}
	c := n.pending
	n.pending = nil
	return c
}

func (n *news) tell(c trainyard.Change) {
	n.telling.Lock()
	defer n.telling.Unlock()
	for _, id := range slices.Sorted(maps.Keys(n.subs)) {
		n.subs[id](c)
	}
}

func (n *news) stop() {
	n.mu.Lock()
	n.over = true
	n.wake.Signal()
	n.mu.Unlock()
	<-n.done
}

func unique[T ~string](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}

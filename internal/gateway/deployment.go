package gateway

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
)

// What holds where a route says nothing.
const (
	defaultTimeout = 5 * time.Second
	defaultHold    = 5 * time.Minute
)

// deployment is what the gateway knows of one deployment and what goes on there. It lives for as long as Routes name it.
type deployment struct {
	scope    trainyard.Scope
	endpoint string
	name     string
	route    atomic.Pointer[trainyard.DeploymentRoute]
	wake     func()      // called, without a lock, when a request begins to be held
	used     atomic.Bool // there may be something to tidy

	mu       sync.Mutex
	gone     bool
	replicas []*replica
	turn     int
	waiting  []*claim // in the order in which they are served
	inside   int      // claims that count against the bound: at a replica or waiting for one, but for those that were held
	running  int      // claims at a replica
	counts   counts
}

// replica is one place where a deployment answers. All but route is under its deployment's lock.
type replica struct {
	route    trainyard.ReplicaRoute
	busy     int
	gone     bool // no longer in Routes: what is under way ends, nothing new begins
	idle     []*upstream
	failures int           // connections in a row that failed
	away     bool          // the last could not be made
	suspect  time.Duration // not tried before this moment
}

// claim is one request's claim to a replica, from its first wish to the end of its answer.
type claim struct {
	d       *deployment
	start   time.Duration // when the request came
	base    time.Duration // when the clock of its timeout began: later than start for a request that was held
	queued  time.Duration // when it began to wait
	held    bool          // it met no replica that could be tried: it waits for one to come
	counted bool          // in d.inside
	mirror  bool
	fresh   bool // do not reuse a connection
	tries   int
	last    error // why the last try failed
	ch      chan grant
	again   chan struct{} // something changed for those who wait; see look
}

// look has a waiting claim looked at again. The caller holds the deployment's lock.
func (c *claim) look() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// grant is a replica's slot, and one of its idle connections if there is one.
type grant struct {
	r  *replica
	up *upstream
}

func (d *deployment) timeout() time.Duration {
	return orDefault(d.route.Load().Timeout, defaultTimeout)
}

func orDefault(v, def time.Duration) time.Duration {
	if v > 0 {
		return v
	}
	return def
}

// acquire takes a slot at the least busy replica, or enters the queue: then the claim's channel delivers. It refuses what is over the
// bound of 2 × concurrency × instances, as Azure does. An instance whose replica is being replaced counts: losing one of two makes requests
// wait, and a bound that were halved just then would refuse those that the other will take.
func (d *deployment) acquire(c *claim, now time.Duration, maxHeld int) (grant, *refusal) {
	d.mu.Lock()
	if !d.used.Load() {
		d.used.Store(true)
	}
	route := d.route.Load()
	d.counts.advance(now, d.running, len(d.waiting))
	if c.tries == 0 {
		if bad := d.admit(c, route, maxHeld); bad != nil {
			d.mu.Unlock()
			return grant{}, bad
		}
	}
	if g, ok := d.take(c, route, now); ok {
		d.mu.Unlock()
		return g, nil
	}
	d.enqueue(c, route, now)
	first := len(d.replicas) == 0 && len(d.waiting) == 1
	d.mu.Unlock()
	if first {
		d.wake()
	}
	return grant{}, nil
}

// admit counts a new claim in, or refuses it. Those that are held for a replica to come do not count: once it has come they would keep out
// who comes then.
func (d *deployment) admit(c *claim, route *trainyard.DeploymentRoute, maxHeld int) *refusal {
	if !c.mirror {
		d.counts.total++
	} else {
		d.counts.mirrored++
	}
	bound := 2 * slots(route) * max(len(d.replicas), route.Wanted)
	switch {
	case d.gone:
		return notFound("the deployment was deleted")
	case len(d.replicas) == 0 && route.Failed != "":
		return d.cannotCome(route)
	case d.none():
		if len(d.waiting) >= maxHeld {
			return d.tooMany(route, "as many requests as may wait for a replica of the deployment to come do so already")
		}
		return nil
	case d.inside >= bound, len(d.waiting) >= maxHeld+bound:
		return d.tooMany(route, "more requests are under way than the deployment takes: twice max_concurrent_requests_per_instance for each instance")
	}
	c.counted = true
	d.inside++
	return nil
}

func slots(route *trainyard.DeploymentRoute) int { return max(1, route.Concurrency) }

// take finds the least busy replica that has a free slot and is not suspected. Those equally busy take turns.
func (d *deployment) take(c *claim, route *trainyard.DeploymentRoute, now time.Duration) (grant, bool) {
	var best *replica
	n, limit := len(d.replicas), slots(route)
	for i := range n {
		r := d.replicas[(d.turn+i)%n]
		if r.busy < limit && r.suspect <= now && (best == nil || r.busy < best.busy) {
			best = r
		}
	}
	if best == nil {
		return grant{}, false
	}
	d.turn++
	best.busy++
	d.running++
	if c.held && (c.tries == 0 || route.Wakes) { // what it waited for has come, which the clock of its timeout did not wait for
		c.base = now
	}
	return grant{r: best, up: best.pop(c.fresh)}, true
}

func (r *replica) pop(fresh bool) *upstream {
	n := len(r.idle)
	if fresh || n == 0 {
		return nil
	}
	up := r.idle[n-1]
	r.idle[n-1] = nil
	r.idle = r.idle[:n-1]
	return up
}

// enqueue puts a claim behind the others of its kind: those that were sent once and must be sent again stand first, copies for a
// mirror last.
func (d *deployment) enqueue(c *claim, route *trainyard.DeploymentRoute, now time.Duration) {
	if c.ch == nil {
		c.ch, c.again = make(chan grant, 1), make(chan struct{}, 1)
	}
	c.queued = now
	at := len(d.waiting)
	switch {
	case c.tries > 0:
		at = 0
	case !c.mirror:
		for at > 0 && d.waiting[at-1].mirror {
			at--
		}
	}
	d.waiting = slices.Insert(d.waiting, at, c)
	d.markHeld()
}

// markHeld notes that all who wait do so for a replica to come, when there is none that could be tried. They keep that mark: when one
// has come, those who waited for it are not refused because they waited.
func (d *deployment) markHeld() {
	if slices.ContainsFunc(d.replicas, func(r *replica) bool { return r.failures == 0 }) {
		return
	}
	none := d.none()
	for _, c := range d.waiting {
		c.held = true
		if none {
			d.uncount(c)
		}
	}
}

// none says whether there is no replica, or none that could be reached the last time. One that was reached and is slow, or fails, is there.
func (d *deployment) none() bool {
	return !slices.ContainsFunc(d.replicas, func(r *replica) bool { return !r.away })
}

// reached notes that a replica takes connections.
func (d *deployment) reached(r *replica) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.away = false
}

func (d *deployment) uncount(c *claim) {
	if c.counted {
		d.inside--
		c.counted = false
	}
}

// deadline is until when a waiting claim may wait.
func (d *deployment) deadline(c *claim, route *trainyard.DeploymentRoute) time.Duration {
	switch {
	case c.held && route.Wakes:
		return c.start + orDefault(route.Hold, defaultHold)
	case c.held || c.tries > 0:
		return c.base + orDefault(route.Timeout, defaultTimeout)
	}
	return c.queued + route.Queue
}

// still looks again at a claim that waits: it may have been granted, or must be refused, or waits on until the moment returned.
func (d *deployment) still(c *claim, now time.Duration) (g grant, until time.Duration, bad *refusal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	route := d.route.Load()
	i := slices.Index(d.waiting, c)
	if i < 0 {
		return <-c.ch, 0, nil // it was granted: the grant is in the channel before the claim leaves the queue
	}
	d.markHeld()
	switch until = d.deadline(c, route); {
	case d.gone:
		bad = notFound("the deployment was deleted")
	case len(d.replicas) == 0 && route.Failed != "":
		bad = d.cannotCome(route)
	case now >= until:
		bad = d.waitedTooLong(c, route)
	default:
		return grant{}, until, nil
	}
	d.counts.advance(now, d.running, len(d.waiting))
	d.waiting = slices.Delete(d.waiting, i, i+1)
	return grant{}, 0, bad
}

// serve gives free slots to those who wait. The caller holds the lock.
func (d *deployment) serve(now time.Duration) {
	if len(d.waiting) == 0 {
		return
	}
	route := d.route.Load()
	d.counts.advance(now, d.running, len(d.waiting))
	for len(d.waiting) > 0 {
		c := d.waiting[0]
		g, ok := d.take(c, route, now)
		if !ok {
			return
		}
		c.ch <- g // never blocks: its one place is free while the claim is in the queue
		d.waiting = slices.Delete(d.waiting, 0, 1)
	}
}

// outcome is what a try says of the replica it was made at.
type outcome uint8

const (
	served    outcome = iota // it answered
	unsure                   // the client went away, or a kept connection had been closed meanwhile
	failed                   // it was lost
	unreached                // no connection could be made
)

// giveBack frees a slot. up is kept for the next request unless it is nil. A replica that failed is suspected for a moment that grows, and
// its other connections are as good as lost; the caller closes what is returned.
func (d *deployment) giveBack(r *replica, up *upstream, what outcome, now time.Duration) (unused []*upstream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts.advance(now, d.running, len(d.waiting))
	d.running--
	r.busy--
	switch what {
	case failed, unreached:
		r.failures++
		r.away = what == unreached
		r.suspect = now + min(25*time.Millisecond<<min(r.failures-1, 6), time.Second)
		unused, r.idle = r.idle, nil
		d.markHeld()
	case served:
		r.failures, r.suspect, r.away = 0, 0, false
	}
	if up != nil && (r.gone || len(r.idle) >= maxIdle) {
		unused = append(unused, up)
	} else if up != nil {
		up.idleSince = now
		r.idle = append(r.idle, up)
	}
	d.serve(now)
	return unused
}

// maxIdle bounds the connections kept to a replica.
const maxIdle = 512

// leave ends a claim and counts its answer.
func (d *deployment) leave(c *claim, status int, took time.Duration, now time.Duration) {
	d.mu.Lock()
	d.uncount(c)
	d.counts.answer(status, took)
	d.mu.Unlock()
}

// abandon takes a claim out of the queue because its client went away.
func (d *deployment) abandon(c *claim, now time.Duration) {
	d.mu.Lock()
	i := slices.Index(d.waiting, c)
	if i >= 0 {
		d.counts.advance(now, d.running, len(d.waiting))
		d.waiting = slices.Delete(d.waiting, i, i+1)
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	g := <-c.ch
	closeAll(d.giveBack(g.r, g.up, unsure, now))
}

// drop takes all kept connections, for the end.
func (d *deployment) drop() []*upstream {
	d.mu.Lock()
	defer d.mu.Unlock()
	var unused []*upstream
	for _, r := range d.replicas {
		unused = append(unused, r.idle...)
		r.idle = nil
	}
	return unused
}

func (d *deployment) progress() string {
	route := d.route.Load()
	if route.Progress != "" {
		return route.Progress
	}
	return "waiting for a replica"
}

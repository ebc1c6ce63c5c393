package gateway

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// clientGone is the status under which an answer is counted that nobody waited for, as nginx counts it.
const clientGone = 499

// counts is what went on at a deployment. It is under the deployment's lock.
type counts struct {
	total      int64
	codes      map[int]int64
	latency    [len(trainyard.LatencyBounds) + 1]int64
	latencySum time.Duration
	retries    int64
	mirrored   int64
	dropped    int64

	moment            time.Duration // up to which the areas are counted
	runArea, waitArea float64       // requests × seconds
	reported          reported
}

// reported is what the last report said.
type reported struct {
	total             int64
	moment            time.Duration
	runArea, waitArea float64
	quiet             bool // nothing was under way, and that was said
}

// advance adds the time since the last change to the areas under the two curves. Call it before they change.
func (c *counts) advance(now time.Duration, running, waiting int) {
	if passed := (now - c.moment).Seconds(); passed > 0 {
		c.runArea += passed * float64(running)
		c.waitArea += passed * float64(waiting)
		c.moment = now
	}
}

func (c *counts) answer(status int, took time.Duration) {
	if c.codes == nil {
		c.codes = map[int]int64{}
	}
	c.codes[status]++
	if status == http.StatusSwitchingProtocols {
		return // it took as long as the two had to say to each other
	}
	c.latencySum += took
	for i := range trainyard.LatencyBounds {
		if took <= trainyard.LatencyBounds[i] {
			c.latency[i]++
			return
		}
	}
	c.latency[len(trainyard.LatencyBounds)]++
}

func (d *deployment) retried() {
	d.mu.Lock()
	d.counts.retries++
	d.mu.Unlock()
}

func (d *deployment) dropped() {
	d.mu.Lock()
	d.counts.dropped++
	d.mu.Unlock()
}

func (d *deployment) stats() trainyard.ServeStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.statsLocked()
}

func (d *deployment) statsLocked() trainyard.ServeStats {
	return trainyard.ServeStats{
		Scope: d.scope, Endpoint: d.endpoint, Deployment: d.name,
		Replicas: len(d.replicas), InFlight: d.running, Queued: len(d.waiting), Held: d.heldLocked(),
		Requests: d.counts.total, Codes: maps.Clone(d.counts.codes), Latency: slices.Clone(d.counts.latency[:]), LatencySum: d.counts.latencySum,
		Retries: d.counts.retries, Mirrored: d.counts.mirrored, Dropped: d.counts.dropped,
	}
}

func (d *deployment) heldLocked() int {
	if len(d.replicas) > 0 {
		return 0
	}
	return len(d.waiting)
}

// report is what is new since the last one; false: nothing is, and nothing is under way.
func (d *deployment) report(now time.Duration) (trainyard.GatewayCount, trainyard.ServeStats, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &d.counts
	c.advance(now, d.running, len(d.waiting))
	total, was := c.total+c.mirrored, c.reported
	quiet := total == was.total && d.running == 0 && len(d.waiting) == 0 && c.runArea == was.runArea && c.waitArea == was.waitArea
	if quiet && was.quiet {
		c.reported.moment = now
		return trainyard.GatewayCount{}, trainyard.ServeStats{}, false
	}
	count := trainyard.GatewayCount{Scope: d.scope, Endpoint: d.endpoint, Deployment: d.name, Total: total, Held: d.heldLocked()}
	if passed := (now - was.moment).Seconds(); passed > 0 {
		count.InFlight, count.Queued = (c.runArea-was.runArea)/passed, (c.waitArea-was.waitArea)/passed
	}
	c.reported = reported{total: total, moment: now, runArea: c.runArea, waitArea: c.waitArea, quiet: quiet}
	return count, d.statsLocked(), true
}

// Snapshot is every deployment's traffic, ordered by endpoint and deployment.
func (g *Gateway) Snapshot() []trainyard.ServeStats {
	var all []trainyard.ServeStats
	for _, d := range g.deployments() {
		all = append(all, d.stats())
	}
	slices.SortFunc(all, func(a, b trainyard.ServeStats) int {
		if c := strings.Compare(a.Endpoint, b.Endpoint); c != 0 {
			return c
		}
		return strings.Compare(a.Deployment, b.Deployment)
	})
	return all
}

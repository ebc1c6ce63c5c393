package control

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/scale"
)

// How a deployment scales where its file does not say.
const (
	stableWindow = time.Minute
	panicWindow  = 6 * time.Second
	zeroAfter    = 5 * time.Minute
	utilization  = 70 // percent of a target that a replica should have
)

// gatewayGone is how long a gateway that says nothing still counts.
const gatewayGone = 10 * time.Second

// loadWindow is a deployment's recent load.
type loadWindow struct {
	samples []loadSample // oldest first
	total   map[string]int64
	held    map[string]int // requests that wait for the first replica, by gateway
	last    time.Time      // of a request; zero: none since the server started
	panic   time.Time      // scale.Replicas wants nothing taken away until then
	usage   map[trainyard.TaskID]trainyard.TaskLoad
	heard   time.Time // of usage
	peakMB  int64     // the most memory of one replica, gone ones included
	ooms    int       // processes of replicas that are gone that were ended for want of memory
}

// loadSample is what one gateway said at one time.
type loadSample struct {
	at                     time.Time
	gateway                string
	inFlight, queued, rate float64
}

// add takes a gateway's count.
func (w *loadWindow) add(now time.Time, gateway string, n trainyard.GatewayCount, keep time.Duration) {
	if w.total == nil {
		w.total, w.held = map[string]int64{}, map[string]int{}
	}
	s := loadSample{at: now, gateway: gateway, inFlight: n.InFlight, queued: n.Queued + float64(n.Held)}
	if before, known := w.total[gateway]; known && n.Total >= before {
		for i := len(w.samples) - 1; i >= 0; i-- {
			if w.samples[i].gateway == gateway {
				if took := now.Sub(w.samples[i].at).Seconds(); took > 0.05 {
					s.rate = float64(n.Total-before) / took
				}
				break
			}
		}
		if n.Total > before {
			w.last = now
		}
	} else if n.Total > 0 {
		w.last = now
	}
	if n.InFlight > 0 || n.Queued > 0 || n.Held > 0 {
		w.last = now
	}
	w.total[gateway], w.held[gateway] = n.Total, n.Held
	w.samples = append(w.samples, s)
	old := 0
	for old < len(w.samples) && now.Sub(w.samples[old].at) > keep {
		old++
	}
	w.samples = w.samples[old:]
}

// forget drops what a gateway that is gone said.
func (w *loadWindow) forget(gateway string) {
	delete(w.total, gateway)
	delete(w.held, gateway)
}

// mean is the load over the last span: each gateway's mean, added up.
func (w *loadWindow) mean(now time.Time, span time.Duration, of func(loadSample) float64) float64 {
	sum, n := map[string]float64{}, map[string]float64{}
	for i := len(w.samples) - 1; i >= 0 && now.Sub(w.samples[i].at) <= span; i-- {
		s := &w.samples[i]
		sum[s.gateway] += of(*s)
		n[s.gateway]++
	}
	total := 0.0
	for g, v := range sum {
		total += v / n[g]
	}
	return total
}

func (w *loadWindow) waiting() int {
	n := 0
	for _, h := range w.held {
		n += h
	}
	return n
}

// GatewayReport takes what a gateway counted. A request that waits for a first replica is acted on at once.
func (c *Control) GatewayReport(_ context.Context, r trainyard.GatewayReport) error {
	now := c.Now()
	var wake []string
	s := c.served
	s.mu.Lock()
	s.gateways[r.Gateway] = gatewaySeen{now, r.Rev}
	for name, g := range s.gateways {
		if now.Sub(g.at) > gatewayGone {
			delete(s.gateways, name)
			for _, d := range s.deployments {
				d.load.forget(name)
			}
		}
	}
	for _, n := range r.Deployments {
		key := deploymentKey(n.Endpoint, n.Deployment)
		d := s.deployments[key]
		if d == nil {
			continue
		}
		d.load.add(now, r.Gateway, n, scaling(d.d).stable)
		if d.d.Status.Wanted == 0 && n.Held > 0 || d.look(now) {
			wake = append(wake, key)
		}
	}
	for key, d := range s.deployments {
		if len(d.leaving) > 0 {
			wake = append(wake, key)
		}
	}
	s.mu.Unlock()
	for _, key := range wake {
		c.reconcile.Add(key)
	}
	return nil
}

// look says whether it is time for the scaler to look at what gateways say, and notes it: as often as they say something, which is every
// second, or as the deployment's polling_interval asks for. A little early is in time: reports do not come to the millisecond.
func (d *deployment) look(now time.Time) bool {
	set := scaling(d.d)
	if !set.scales || now.Sub(d.looked) < set.poll-min(set.poll/8, 250*time.Millisecond) {
		return false
	}
	d.looked = now
	return true
}

// noteLoads takes what replicas use.
func (c *Control) noteLoads(loads []trainyard.TaskLoad) {
	s := c.served
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range loads {
		if d := s.deployments[s.replicas[l.ID.Job()]]; d != nil {
			if d.load.usage == nil {
				d.load.usage = map[trainyard.TaskID]trainyard.TaskLoad{}
			}
			d.load.usage[l.ID] = l
			d.load.heard, d.load.peakMB = c.Now(), max(d.load.peakMB, l.PeakMB, l.MemoryMB)
		}
	}
}

// leave forgets a replica that has ended, but not what it showed of the memory that replicas need.
func (w *loadWindow) leave(id trainyard.TaskID, r *trainyard.Result) {
	kills := w.usage[id].OOMKills
	if r != nil && r.Class == trainyard.ClassOutOfMemory {
		w.peakMB, kills = max(w.peakMB, r.PeakMB), max(kills, 1)
	}
	w.ooms += kills
	delete(w.usage, id)
}

// memory is the most that one replica of a deployment has used, and how many of their processes were ended because that was too much.
func (s *served) memory(key string) (peakMB int64, kills int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil {
		return 0, 0
	}
	kills = d.load.ooms
	for _, l := range d.load.usage {
		kills += l.OOMKills
	}
	return d.load.peakMB, kills
}

// usage is what a replica uses, and when that was heard.
func (s *served) usage(key string, id trainyard.TaskID) (trainyard.TaskLoad, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deployments[key]
	if d == nil {
		return trainyard.TaskLoad{}, time.Time{}
	}
	l, ok := d.load.usage[id]
	if !ok {
		return l, time.Time{}
	}
	return l, d.load.heard
}

// replicaScaling is a deployment's ReplicaScaling with defaults filled in.
type replicaScaling struct {
	scales        bool
	min, max      int
	metric        string
	target        float64
	stable, panic time.Duration
	zeroAfter     time.Duration
	poll          time.Duration // between two looks; 0: with every report
}

// scaling reads how a deployment scales. What is wrong in it was refused when it was put.
func scaling(d *trainyard.OnlineDeployment) replicaScaling {
	r := replicaScaling{min: max(1, d.Instances), max: max(1, d.Instances), metric: "concurrency", stable: stableWindow, panic: panicWindow, zeroAfter: zeroAfter}
	s := d.Spec.ScaleSettings
	if s == nil || !strings.EqualFold(s.ScaleType, "TargetUtilization") {
		return r
	}
	r.scales, r.min = true, 1
	if s.MinInstances != nil {
		r.min = *s.MinInstances
	}
	r.max = max(r.min, 1)
	if s.MaxInstances != nil {
		r.max = *s.MaxInstances
	}
	r.metric = cmp.Or(strings.ToLower(s.Metric), r.metric)
	r.target = s.Target
	if r.target == 0 {
		switch r.metric {
		case "concurrency":
			r.target = float64(concurrency(d))
		case "cpu", "gpu":
			r.target = 100
		default:
			r.target = 1
		}
	}
	share := s.TargetUtilizationPercentage
	if share == 0 && s.Target == 0 {
		share = utilization
	}
	if share > 0 {
		r.target *= float64(share) / 100
	}
	for _, f := range []struct {
		text string
		into *time.Duration
	}{{s.StableWindow, &r.stable}, {s.PanicWindow, &r.panic}, {s.ScaleToZeroAfter, &r.zeroAfter}, {s.PollingInterval, &r.poll}} {
		if v, err := trainyard.ParseISODuration(f.text); f.text != "" && err == nil {
			*f.into = v
		}
	}
	return r
}

func concurrency(d *trainyard.OnlineDeployment) int {
	if r := d.Spec.RequestSettings; r != nil && r.MaxConcurrentRequestsPerInstance > 0 {
		return r.MaxConcurrentRequestsPerInstance
	}
	return 1
}

// replicasWanted asks the scaler how many replicas a deployment should have now, and when to ask again.
func (c *Control) replicasWanted(key string, ready int) (n int, why trainyard.Reason, again time.Duration) {
	s := c.served
	s.mu.Lock()
	defer s.mu.Unlock()
	dep := s.deployments[key]
	if dep == nil {
		return 0, why, 0
	}
	d, set, now := dep.d, scaling(dep.d), c.Now()
	if !set.scales {
		return set.min, trainyard.Reason{Code: "Fixed", Message: "as many as asked for"}, 0
	}
	low, _ := floor(d.Spec.ScaleSettings.Schedules, set.min, now)
	w := &dep.load
	of := map[string]func(loadSample) float64{
		"rate":  func(s loadSample) float64 { return s.rate },
		"queue": func(s loadSample) float64 { return s.queued },
	}[set.metric]
	if of == nil {
		of = func(s loadSample) float64 { return s.inFlight + s.queued }
	}
	last := w.last
	if last.IsZero() { // nothing was seen since the server started or the deployment was made
		w.last = now
		if d.Status.Live != nil && d.Status.Wanted == 0 { // it was at zero before: a start of the server is no request
			w.last = now.Add(-set.zeroAfter)
		}
		last = w.last
	}
	in := trainyard.ReplicaDemand{Now: now, Min: low, Max: max(set.max, low), Metric: set.metric, Target: set.target, Window: set.stable,
		Stable: w.mean(now, set.stable, of), Panic: w.mean(now, set.panic, of), Ready: ready, Wanted: d.Status.Wanted,
		Waiting: w.waiting(), Idle: now.Sub(last), ZeroAfter: set.zeroAfter, PanicUntil: w.panic}
	if set.metric == "cpu" || set.metric == "gpu" {
		in.Stable = w.used(set.metric)
		in.Panic = in.Stable
	}
	out := scale.Replicas(in)
	w.panic = out.Panic
	if !out.Again.IsZero() {
		again = max(time.Millisecond, out.Again.Sub(now))
	}
	if since := dep.seen(ready, now); (set.metric == "cpu" || set.metric == "gpu") && len(w.usage) == 0 && now.Sub(since) > unmeasured {
		out.Why = trainyard.Reason{Code: "NotMeasured", Message: fmt.Sprintf("its %d replicas do not tell what they use of %s where they run, so metric %s never asks for more of them: "+
			"scale by concurrency, rate or queue", ready, set.metric, set.metric)}
	}
	return out.Wanted, out.Why, again
}

// unmeasured is how long replicas may be ready without anything being heard of what they use, before that is said.
const unmeasured = 45 * time.Second

// seen is since when there have been replicas that are ready, as far as the scaler has looked.
func (d *deployment) seen(ready int, now time.Time) time.Time {
	if ready == 0 || d.readySince.IsZero() {
		d.readySince = now
	}
	return d.readySince
}

// used is the sum of what replicas use, in percent.
func (w *loadWindow) used(metric string) float64 {
	sum := 0.0
	for _, l := range w.usage {
		if metric == "gpu" {
			sum += l.GPU
		} else {
			sum += l.CPU
		}
	}
	return sum
}

package control

import (
	"cmp"
	"context"
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
	lastGPU map[trainyard.TaskID]float64 // percent that they told last
	heard   time.Time                    // of usage
	peakMB  int64                        // the most memory of one replica, gone ones included
	ooms    int                          // processes of replicas that are gone that were ended for want of memory
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
	silent, said := 0, ""
	if isMeasured(set.metric) {
		silent, said = w.measured(&in)
	}
	out := scale.Replicas(in)
	w.panic = out.Panic
	if !out.Again.IsZero() {
		again = max(time.Millisecond, out.Again.Sub(now))
	}
	if out.Wanted > max(low, 1) && (again == 0 || again > set.stable) { // gateways say nothing more of one that nobody asks
		again = max(time.Second, set.stable)
	}
	if dep.silent(silent > 0, now) > unmeasured {
		out.Why = notMeasured(set.metric, silent, ready, out.Wanted, said)
	}
	return out.Wanted, out.Why, again
}

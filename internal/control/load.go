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
		if d.d.Status.Wanted == 0 && n.Held > 0 || scaling(d.d).scales {
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
	}{{s.StableWindow, &r.stable}, {s.PanicWindow, &r.panic}, {s.ScaleToZeroAfter, &r.zeroAfter}} {
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
	return out.Wanted, out.Why, again
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

// floor is the least number of replicas at a time: the minimum, or more where a schedule says so.
func floor(schedules []trainyard.ReplicaFloor, low int, now time.Time) (int, error) {
	for i := range schedules {
		f := &schedules[i]
		zone := time.UTC
		if f.TimeZone != "" {
			z, err := time.LoadLocation(f.TimeZone)
			if err != nil {
				return low, trainyard.Invalid("schedules: time_zone %q is not known: want a name such as Europe/Berlin", f.TimeZone)
			}
			zone = z
		}
		from, err1 := time.Parse("15:04", f.From)
		to, err2 := time.Parse("15:04", f.To)
		if err1 != nil || err2 != nil {
			return low, trainyard.Invalid("schedules: from %q and to %q must be times such as 08:00", f.From, f.To)
		}
		at := now.In(zone)
		minute, begin, end := at.Hour()*60+at.Minute(), from.Hour()*60+from.Minute(), to.Hour()*60+to.Minute()
		day := at.Weekday()
		inside := minute >= begin && minute < end
		if end <= begin { // over midnight
			inside = minute >= begin || minute < end
			if minute < end {
				day = (day + 6) % 7 // it began the day before
			}
		}
		if inside && onDay(f.Days, day) {
			low = max(low, f.MinInstances)
		}
	}
	return low, nil
}

func onDay(days []string, day time.Weekday) bool {
	for _, d := range days {
		if strings.EqualFold(d, day.String()) {
			return true
		}
	}
	return len(days) == 0
}

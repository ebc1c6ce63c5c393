package control

import (
	"cmp"
	"fmt"
	"time"

	"github.com/trainyard/trainyard"
)

// What replicas use is measured where they run, and told with the reports of their nodes.

// noteLoads takes what replicas use. Where that says how many there should be, it is looked at, though nobody may ask for anything.
func (c *Control) noteLoads(loads []trainyard.TaskLoad) {
	s, now := c.served, c.Now()
	var wake []string
	s.mu.Lock()
	for _, l := range loads {
		key := s.replicas[l.ID.Job()]
		d := s.deployments[key]
		if d == nil {
			continue
		}
		if d.load.usage == nil {
			d.load.usage, d.load.lastGPU = map[trainyard.TaskID]trainyard.TaskLoad{}, map[trainyard.TaskID]float64{}
		}
		d.load.usage[l.ID] = l
		if l.GPU != nil {
			d.load.lastGPU[l.ID] = *l.GPU
		}
		d.load.heard, d.load.peakMB = now, max(d.load.peakMB, l.PeakMB, l.MemoryMB)
		if isMeasured(scaling(d.d).metric) && d.look(now) {
			wake = append(wake, key)
		}
	}
	s.mu.Unlock()
	for _, key := range wake {
		c.reconcile.Add(key)
	}
}

// isMeasured says whether a metric is what replicas tell of themselves.
func isMeasured(metric string) bool { return metric == "cpu" || metric == "gpu" }

// leave forgets a replica that has ended, but not what it showed of the memory that replicas need.
func (w *loadWindow) leave(id trainyard.TaskID, r *trainyard.Result) {
	kills := w.usage[id].OOMKills
	if r != nil && r.Class == trainyard.ClassOutOfMemory {
		w.peakMB, kills = max(w.peakMB, r.PeakMB), max(kills, 1)
	}
	w.ooms += kills
	delete(w.usage, id)
	delete(w.lastGPU, id)
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

// measured puts what replicas use into a demand. It returns how many of those that are ready do not tell, and what one of them says.
func (w *loadWindow) measured(d *trainyard.ReplicaDemand) (silent int, why string) {
	sum, tell, quiet, why := w.used(d.Metric, d.Target)
	some := d.Ready
	if tell == 0 { // those that are on their way are needed until somebody tells that they are not
		some = max(d.Wanted, d.Ready)
	}
	if unheard := some - len(w.usage); unheard > 0 {
		quiet += float64(unheard) * d.Target
	}
	d.Stable = sum
	d.Stable = held(*d, quiet)
	d.Panic = d.Stable
	return max(0, d.Ready-tell), why
}

// used is what replicas use, in percent: the sum of those that tell, how many they are, and what those that do not count for (see held):
// what they told last, and no less than the target. why is what one of them says.
func (w *loadWindow) used(metric string, target float64) (sum float64, tell int, silent float64, why string) {
	for id, l := range w.usage {
		switch {
		case metric != "gpu":
			sum, tell = sum+l.CPU, tell+1
		case l.GPU != nil:
			sum, tell = sum+*l.GPU, tell+1
		default:
			silent, why = silent+max(target, w.lastGPU[id]), cmp.Or(l.GPUWhy, olderAgent)
		}
	}
	return sum, tell, silent, why
}

// olderAgent is why nothing is known of a GPU where no reason is told: an agent of today tells one.
const olderAgent = "its node's agent is of an older version, which does not tell of a GPU that is idle"

// held is a load in which replicas of which nothing is known are no reason to take any away, nor to add any: where those that tell would do
// with fewer, what the silent ones count for is added. That nobody asks for anything is still a reason to go to none.
func held(d trainyard.ReplicaDemand, silent float64) float64 {
	enough := float64(d.Wanted) * d.Target
	if silent <= 0 || d.Stable >= enough || d.Min == 0 && d.Idle >= d.ZeroAfter {
		return d.Stable
	}
	return min(enough, d.Stable+silent)
}

// notMeasured says that replicas do not tell what they use.
func notMeasured(metric string, silent, ready, wanted int, why string) trainyard.Reason {
	if why != "" {
		why = " (" + why + ")"
	}
	return trainyard.Reason{Code: "NotMeasured", Message: fmt.Sprintf("of its %s that are ready %d did not tell what they use of %s where they run%s, so metric %s takes none of those away, "+
		"and never asks for more because of them: it stays at %s; scale by concurrency, rate or queue", instances(ready), silent, metric, why, metric, instances(wanted))}
}

// unmeasured is how long replicas may be ready without anything being heard of what they use, before that is said.
const unmeasured = 45 * time.Second

// silent is for how long there have been replicas that are ready and do not tell what they use, as far as the scaler has looked.
func (d *deployment) silent(some bool, now time.Time) time.Duration {
	if !some || d.silentSince.IsZero() {
		d.silentSince = now
	}
	return now.Sub(d.silentSince)
}

package scale

import (
	"fmt"
	"math"
	"time"

	"github.com/trainyard/trainyard"
)

// Replicas decides how many replicas a deployment should have. It follows the mean of the stable window; a burst that in the panic window
// asks for twice what is there is followed at once, and for one stable window after it nothing is taken away. A deployment that may have
// none keeps one until it has had no request for its time, and has one again as soon as a request waits. The method is that of Knative's
// autoscaler (stable and panic windows); this is our own code.
func Replicas(d trainyard.ReplicaDemand) trainyard.ReplicaScale {
	low, high := max(0, d.Min), max(d.Max, d.Min, 1)
	stable, burst := need(d.Stable, d.Target), need(d.Panic, d.Target)
	out := trainyard.ReplicaScale{Panic: d.PanicUntil}
	if burst >= 2*max(d.Ready, 1) {
		out.Panic = d.Now.Add(d.Window)
	}
	want, code := stable, "Load"
	if d.Now.Before(out.Panic) {
		want, code = max(stable, burst, d.Wanted), "Burst"
	}
	if want == 0 && (d.Waiting > 0 || d.Idle < d.ZeroAfter) {
		want = 1
	}
	switch {
	case want > high:
		want, code = high, "AtMaximum"
	case want < low:
		want, code = low, "AtMinimum"
	case want == 0:
		code = "Idle"
	}
	out.Wanted, out.Why = want, trainyard.Reason{Code: code, Message: say(d, want, code, high)}
	if want > 0 && low == 0 && d.Waiting == 0 { // when it may go to none
		out.Again = d.Now.Add(max(d.ZeroAfter-d.Idle, time.Second))
	}
	return out
}

func say(d trainyard.ReplicaDemand, want int, code string, high int) string {
	switch code {
	case "Idle":
		return fmt.Sprintf("no request for %s; the next one wakes it", d.ZeroAfter)
	case "AtMinimum":
		return fmt.Sprintf("its minimum of %s", count(want, "instance"))
	case "AtMaximum":
		return fmt.Sprintf("its maximum of %s; the load asks for more", count(high, "instance"))
	case "Burst":
		return fmt.Sprintf("%s for a burst: %s of %.4g now", count(want, "instance"), d.Metric, d.Panic)
	}
	return fmt.Sprintf("%s for a %s of %.4g at %.4g each", count(want, "instance"), d.Metric, d.Stable, d.Target)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// need is how many replicas a load asks for. A hair over a whole number is measuring noise, not another replica.
func need(load, target float64) int {
	if target <= 0 || load <= 0 || math.IsNaN(load) {
		return 0
	}
	return int(min(math.Ceil(load/target-0.01), 1e6)) // a tiny target would ask for more than an int holds
}

package rightsize

import (
	"fmt"
	"math"

	"github.com/trainyard/trainyard"
)

// most is the highest number of requests at once at which the goal was met: an instance may be given so many before they fail it.
func (t *Trial) most(g Goal) int {
	n := 0
	for _, p := range t.Points {
		if g.Fits(p.Load) {
			n = max(n, p.Concurrency)
		}
	}
	return n
}

// Recommendation is a size and a number of instances.
type Recommendation struct {
	Size         string  `json:"size"`
	Instances    int     `json:"instances"`
	Concurrency  int     `json:"concurrency"`    // max_concurrent_requests_per_instance
	PerInstance  float64 `json:"per_instance"`   // requests a second that one is counted on for
	P99MS        float64 `json:"p99_ms"`         // as measured
	PricePerHour float64 `json:"price_per_hour"` // of all instances
	Why          string  `json:"reason"`
	Cheaper      string  `json:"cheaper,omitempty"` // a larger size of which fewer cost less in all, in words
}

// Recommend chooses the cheapest size that meets the goal, and then as many instances of it as the rate needs: first up, then out. Without
// one that does, the error says how near the nearest came.
func Recommend(trials []Trial, g Goal, needMB int64) (Recommendation, error) {
	needMB = Need(needMB, trials)
	var best *Trial
	for i := range trials {
		t := &trials[i]
		if _, ok := t.Best(g); t.Outcome == Measured && ok && Roomy(t.Size, needMB) && (best == nil || smaller(t.Size, best.Size) < 0) {
			best = t
		}
	}
	if best == nil {
		return Recommendation{}, nothing(trials, g, needMB)
	}
	p, _ := best.Best(g)
	r := Recommendation{Size: best.Name, Concurrency: best.most(g), PerInstance: Share * p.PerSecond, P99MS: p.P99MS}
	r.Why = fmt.Sprintf("the smallest size that has 150 %% of the %d MB which the model needs", needMB)
	if g.P99MS > 0 {
		r.Why += fmt.Sprintf(" and answers 99 %% of the requests within %s", Millis(g.P99MS))
	}
	r.Why += fmt.Sprintf("; it did %.1f requests/s with %d at once, and is counted on for %.0f %% of that", p.PerSecond, p.Concurrency, 100*Share)
	r = r.Out(best.Size, instances(p, g))
	r.Cheaper = cheaper(r, trials, g, needMB)
	return r, nil
}

// instances is how many a rate needs that each do a share of what was measured.
func instances(p Point, g Goal) int {
	return max(1, int(math.Ceil(g.Rate/(Share*p.PerSecond)-1e-9)))
}

// cheaper names a size of which the rate needs so few that they cost less than what is recommended.
func cheaper(r Recommendation, trials []Trial, g Goal, needMB int64) string {
	least, words := r.PricePerHour, ""
	for i := range trials {
		t := &trials[i]
		p, ok := t.Best(g)
		if !ok || t.Outcome != Measured || !Roomy(t.Size, needMB) {
			continue
		}
		if n := instances(p, g); float64(n)*t.PricePerHour < least {
			least = float64(n) * t.PricePerHour
			words = fmt.Sprintf("%d × %s would do for $%.3f an hour", n, t.Name, least)
		}
	}
	return words
}

// Out is the recommendation with another number of instances.
func (r Recommendation) Out(s Size, instances int) Recommendation {
	r.Instances, r.PricePerHour = instances, float64(instances)*s.PricePerHour
	return r
}

// More is how many instances to try next where so many did not hold: a quarter more, and at least one.
func (r Recommendation) More() int {
	return max(r.Instances+1, int(math.Ceil(1.25*float64(r.Instances))))
}

// nothing says why there is nothing to recommend.
func nothing(trials []Trial, g Goal, needMB int64) error {
	var near *Trial
	least := math.Inf(1)
	for i := range trials {
		for _, p := range trials[i].Points {
			if p.Failed == 0 && p.Requests > 0 && p.P99MS < least && Roomy(trials[i].Size, needMB) {
				near, least = &trials[i], p.P99MS
			}
		}
	}
	if near == nil {
		return trainyard.Errorf(trainyard.CodeConflict, "no size that was tried serves the model without an error and with 150 %% of the %d MB that it needs", needMB)
	}
	return trainyard.Errorf(trainyard.CodeConflict, "no size that was tried answers 99 %% of the requests within %s; the nearest is %s with %s", Millis(g.P99MS), near.Name, Millis(least))
}

// Holds says whether a rate that was applied was answered as the goal wants, and if not, why.
func (g Goal) Holds(l Load, rate float64) (bool, string) {
	switch {
	case l.Requests == 0:
		return false, "no request was sent"
	case l.Failed > 0:
		return false, fmt.Sprintf("%d of %d requests failed: %s", l.Failed, l.Requests, l.Why)
	case l.PerSecond < keepsUp*rate:
		return false, fmt.Sprintf("%.1f requests/s were answered of the %.1f that came", l.PerSecond, rate)
	case g.P99MS > 0 && l.P99MS > g.P99MS:
		return false, fmt.Sprintf("p99 was %s, and %s were wanted", Millis(l.P99MS), Millis(g.P99MS))
	}
	return true, ""
}

// Millis is a number of milliseconds for people.
func Millis(ms float64) string {
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

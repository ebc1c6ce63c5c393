// Package rightsize finds the machine that a model should be served on: which sizes to try, which of those that were tried is the smallest
// that is fast enough, and how many of it a rate of requests needs. It also makes the load by which that is found out. It deploys nothing
// and knows nothing of HTTP.
package rightsize

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

const (
	// Margin is how much memory a size must have for each unit that the model needs. Azure's advice is to start with 150 %.
	Margin = 1.5
	// Share is how much of its measured throughput an instance is counted on for: what comes at its own pace needs room, or it queues.
	Share = 0.8

	steady   = 0.95 // of the highest throughput: more requests at once do not pay any more
	keepsUp  = 0.95 // of a rate that is applied must be answered in the time it is applied
	rungs    = 6    // sizes tried where none are named
	mebi     = 1024
	nameless = ""
)

// Size is a machine that can be had.
type Size struct {
	Name          string  `json:"size"`
	VCPUs         int     `json:"vcpus"`
	MemoryGB      float64 `json:"memory_gb"`
	GPUs          int     `json:"gpus,omitempty"`
	PricePerHour  float64 `json:"price_per_hour"` // US dollars
	NeedsApproval bool    `json:"-"`
}

// MemoryMB is the size's memory in MiB.
func (s Size) MemoryMB() int64 { return int64(s.MemoryGB * mebi) }

// Machine is the one machine that all instances of a location share. Zero: each instance is a machine of its own.
type Machine struct {
	VCPUs    float64
	MemoryGB float64
	GPUs     int
}

// Instances is how many instances of a size the machine holds without promising more than it has; -1: no limit.
func (m Machine) Instances(s Size) int {
	if m == (Machine{}) {
		return -1
	}
	n := math.Floor(m.VCPUs / float64(max(1, s.VCPUs)))
	if s.MemoryGB > 0 {
		n = min(n, math.Floor(m.MemoryGB/s.MemoryGB))
	}
	if s.GPUs > 0 {
		n = min(n, float64(m.GPUs/s.GPUs))
	}
	return int(n)
}

// lacks says in words what the machine has too little of for one instance; "" for nothing.
func (m Machine) lacks(s Size) string {
	switch {
	case m.Instances(s) != 0:
		return ""
	case float64(s.VCPUs) > m.VCPUs:
		return fmt.Sprintf("it has %d vCPUs and this machine %g", s.VCPUs, m.VCPUs)
	case s.MemoryGB > m.MemoryGB:
		return fmt.Sprintf("it has %g GiB of memory and this machine %.1f", s.MemoryGB, m.MemoryGB)
	}
	return fmt.Sprintf("it has %d GPUs and this machine %d", s.GPUs, m.GPUs)
}

// Outcome is what came of trying a size.
type Outcome string

// The outcomes. A trial without one is still to be made.
const (
	Measured    Outcome = "measured"
	OutOfMemory Outcome = "out_of_memory" // the model did not fit in it
	TooSmall    Outcome = "too_small"     // has less than Margin times the memory that the model needs: not tried
	NotHere     Outcome = "not_here"      // more than this machine has: not tried
	NotNeeded   Outcome = "not_needed"    // a smaller one is fast enough: not tried
	Failed      Outcome = "failed"        // the model did not serve on it, for another reason
)

// Point is what a size did under one load.
type Point struct {
	Concurrency int `json:"concurrency"` // requests at once
	Load
}

// Trial is one size and what came of it.
type Trial struct {
	Size
	Outcome    Outcome `json:"outcome"`
	Why        string  `json:"reason,omitempty"`
	PeakMB     int64   `json:"peak_memory_mb,omitempty"`
	CPUPercent float64 `json:"cpu_percent,omitempty"` // the highest, of the vCPUs that it has
	Points     []Point `json:"points,omitempty"`
}

// Goal is what is asked of a model. Zero fields ask nothing.
type Goal struct {
	Rate  float64 `json:"rate,omitempty"`   // requests a second
	P99MS float64 `json:"p99_ms,omitempty"` // 99 of 100 requests are answered in so many milliseconds
}

// Fits says whether a load was answered as the goal wants: all of it, and in time.
func (g Goal) Fits(l Load) bool {
	return l.Requests > 0 && l.Failed == 0 && (g.P99MS == 0 || l.P99MS <= g.P99MS)
}

// Best is the point at which a size should be run: the fewest requests at once that bring nearly the highest throughput within the goal.
func (t *Trial) Best(g Goal) (Point, bool) {
	most := 0.0
	for _, p := range t.Points {
		if g.Fits(p.Load) {
			most = max(most, p.PerSecond)
		}
	}
	for _, p := range t.Points {
		if g.Fits(p.Load) && p.PerSecond >= steady*most {
			return p, true
		}
	}
	return Point{}, false
}

// Need is the most memory that one instance is known to need: what was measured before, and what was seen since.
func Need(before int64, trials []Trial) int64 {
	for i := range trials {
		before = max(before, trials[i].PeakMB)
	}
	return before
}

// Roomy says whether a size has Margin times the memory that is needed.
func Roomy(s Size, needMB int64) bool { return float64(s.MemoryMB()) >= Margin*float64(needMB) }

// smaller puts sizes into the order in which they are tried and preferred: the cheapest first.
func smaller(a, b Size) int {
	return cmp.Or(cmp.Compare(a.PricePerHour, b.PricePerHour), cmp.Compare(a.VCPUs, b.VCPUs), cmp.Compare(a.MemoryGB, b.MemoryGB), cmp.Compare(a.Name, b.Name))
}

// Pick finds sizes by name, without regard to case.
func Pick(sizes []Size, names []string) ([]Size, error) {
	var out []Size
	for _, name := range names {
		i := slices.IndexFunc(sizes, func(s Size) bool { return strings.EqualFold(s.Name, name) })
		if i < 0 {
			return nil, trainyard.Invalid("there is no size %q in this location; see: trainyard compute list-sizes", name)
		}
		if !slices.Contains(out, sizes[i]) {
			out = append(out, sizes[i])
		}
	}
	return out, nil
}

// Roomiest is the size on which a model's memory is measured: of those that the machine can hold the one with the most memory, at least vCPUs.
func Roomiest(sizes []Size, m Machine, gpus int) (Size, error) {
	best := Size{}
	for _, s := range sizes {
		if m.Instances(s) == 0 || s.NeedsApproval || s.GPUs != gpus {
			continue
		}
		if best.Name == nameless || s.MemoryGB > best.MemoryGB || s.MemoryGB == best.MemoryGB && smaller(s, best) < 0 {
			best = s
		}
	}
	if best.Name == nameless {
		return best, trainyard.Invalid("this machine holds none of the sizes that may be used: the smallest has more than its %g vCPUs, %.1f GiB and %d GPUs",
			m.VCPUs, m.MemoryGB, m.GPUs)
	}
	return best, nil
}

// Trials are the sizes to try, growing. Named ones are all in it, each with why it is not tried where it will not be. Without names it is the
// cheapest size of each number of vCPUs that has room for the model, and the first one that is more than this machine.
func Trials(sizes []Size, named bool, m Machine, gpus int, needMB int64) []Trial {
	if !named {
		sizes = ladder(sizes, m, gpus, needMB)
	}
	sizes = slices.SortedFunc(slices.Values(sizes), smaller)
	out := make([]Trial, len(sizes))
	for i, s := range sizes {
		out[i].Size = s
		if why := m.lacks(s); why != "" {
			out[i].Outcome, out[i].Why = NotHere, why
		}
		out[i].Shrink(needMB)
	}
	return out
}

// Shrink marks a trial that is still to be made if its size turns out to be too small.
func (t *Trial) Shrink(needMB int64) {
	if t.Outcome == "" && !Roomy(t.Size, needMB) {
		t.Outcome, t.Why = TooSmall, fmt.Sprintf("it has %d MB of memory, and 150 %% of the %d MB that the model needs is %.0f MB", t.MemoryMB(), needMB, math.Ceil(Margin*float64(needMB)))
	}
}

func ladder(sizes []Size, m Machine, gpus int, needMB int64) []Size {
	cheapest := map[int]Size{}
	for _, s := range sizes {
		if s.NeedsApproval || s.GPUs != gpus || !Roomy(s, needMB) {
			continue
		}
		if have, ok := cheapest[s.VCPUs]; !ok || betterRung(s, have, m) {
			cheapest[s.VCPUs] = s
		}
	}
	var out []Size
	beyond := false
	for _, s := range slices.SortedFunc(values(cheapest), func(a, b Size) int { return cmp.Compare(a.VCPUs, b.VCPUs) }) {
		if len(out) == rungs || beyond {
			break
		}
		beyond = m.Instances(s) == 0
		out = append(out, s)
	}
	return out
}

// betterRung says whether a size is the one to try rather than another of as many vCPUs: one that this machine holds, and the cheaper one.
func betterRung(a, b Size, m Machine) bool {
	if here := m.Instances(a) != 0; here != (m.Instances(b) != 0) {
		return here
	}
	return smaller(a, b) < 0
}

func values(m map[int]Size) func(func(Size) bool) {
	return func(yield func(Size) bool) {
		for _, s := range m {
			if !yield(s) {
				return
			}
		}
	}
}

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

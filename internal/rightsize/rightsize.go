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

	steady  = 0.95 // of the highest throughput: more requests at once do not pay any more
	keepsUp = 0.95 // of a rate that is applied must be answered in the time it is applied
	rungs   = 6    // sizes tried where none are named
	mebi    = 1024
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

// Roomiest is the size on which a model's memory is measured: of those that the machine can hold the one with the most memory.
func Roomiest(sizes []Size, m Machine, gpus int) (Size, error) {
	best := Size{}
	for _, s := range sizes {
		if m.Instances(s) == 0 || s.NeedsApproval || s.GPUs != gpus {
			continue
		}
		if best.Name == "" || s.MemoryGB > best.MemoryGB || s.MemoryGB == best.MemoryGB && smaller(s, best) < 0 {
			best = s
		}
	}
	if best.Name == "" {
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

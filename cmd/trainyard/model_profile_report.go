package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/trainyard/trainyard/internal/rightsize"
)

// profileReport is what model profile found out.
type profileReport struct {
	Location       string                    `json:"location"`
	Goal           rightsize.Goal            `json:"goal"`
	MeasuredOn     string                    `json:"measured_on"`      // the size on which NeedMB was seen first
	NeedMB         int64                     `json:"memory_needed_mb"` // the most that one instance has used
	WantMB         int64                     `json:"memory_wanted_mb"` // 150 % of it
	Sizes          []rightsize.Trial         `json:"sizes"`
	Recommendation *rightsize.Recommendation `json:"recommendation"` // null: none
	Verification   *verification             `json:"verification"`   // null: none was made
}

// verification is what came of applying the rate to what is recommended.
type verification struct {
	Held      bool    `json:"held"`
	Why       string  `json:"reason,omitempty"`
	Size      string  `json:"size"`
	Instances int     `json:"instances"` // that were deployed
	Rate      float64 `json:"rate"`      // that they were given
	Share     bool    `json:"share"`     // they are fewer than are recommended, and were given their share of the rate
	rightsize.Load
}

// words is "10 requests/s for 5 s on 1 instance: p99 12 ms, none failed".
func (v *verification) words() string {
	text := fmt.Sprintf("%.1f requests/s for %.0f s on %s of %s", v.Rate, v.Seconds, plural(v.Instances, "instance"), v.Size)
	if v.Share {
		text += " (the share of the rate for as many as fit here)"
	}
	return text + fmt.Sprintf(": %d requests, %d failed, p50 %s, p99 %s", v.Requests, v.Failed, rightsize.Millis(v.P50MS), rightsize.Millis(v.P99MS))
}

// object is the report as -o prints it.
func (r *profileReport) object() map[string]any {
	var m map[string]any
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil { // numbers that JSON cannot hold; there are none
		return map[string]any{"error": err.Error()}
	}
	return m
}

// pick is the size that is recommended; "" for none.
func (r *profileReport) pick() string {
	if r.Recommendation == nil {
		return ""
	}
	return r.Recommendation.Size
}

var outcomeWords = map[rightsize.Outcome]string{
	rightsize.Measured: "", rightsize.OutOfMemory: "out of memory", rightsize.TooSmall: "too small", rightsize.NotHere: "not here",
	rightsize.NotNeeded: "not needed", rightsize.Failed: "failed", "": "not tried",
}

// table is a row for each size: what it did at its best, and what the goal would cost on it.
func (r *profileReport) table() *table {
	t := &table{heads: []string{"", "Size", "vCPUs", "Memory GiB", "$/h", "Peak MB", "CPU %", "At once", "Requests/s", "p50", "p95", "p99", "Failed", "Instances", "$/h in all", "Notes"},
		right: []bool{2: true, 3: true, 4: true, 5: true, 6: true, 7: true, 8: true, 9: true, 10: true, 11: true, 12: true, 13: true, 14: true}, spare: []int{6, 9, 10, 12, 4, 2}}
	for i := range r.Sizes {
		t.rows = append(t.rows, r.row(&r.Sizes[i]))
	}
	return t
}

func (r *profileReport) row(s *rightsize.Trial) []string {
	mark := ""
	if s.Name == r.pick() {
		mark = "→"
	}
	row := []string{mark, s.Name, strconv.Itoa(s.VCPUs), fmt.Sprint(s.MemoryGB), fmt.Sprintf("%.3f", s.PricePerHour), "", "", "", "", "", "", "", "", "", "", clean(notesOf(s))}
	if s.PeakMB > 0 {
		row[5] = strconv.FormatInt(s.PeakMB, 10)
	}
	if s.CPUPercent > 0 {
		row[6] = fmt.Sprintf("%.0f", s.CPUPercent)
	}
	p, ok := s.Best(r.Goal)
	if !ok && len(s.Points) > 0 {
		p = s.Points[0]
	}
	if len(s.Points) > 0 {
		copy(row[7:], []string{strconv.Itoa(p.Concurrency), fmt.Sprintf("%.1f", p.PerSecond), rightsize.Millis(p.P50MS), rightsize.Millis(p.P95MS), rightsize.Millis(p.P99MS), strconv.Itoa(p.Failed)})
	}
	if one, err := rightsize.Recommend([]rightsize.Trial{*s}, r.Goal, r.NeedMB); err == nil && ok {
		if rec := r.Recommendation; rec != nil && rec.Size == s.Name {
			one = *rec
		}
		row[13], row[14] = strconv.Itoa(one.Instances), fmt.Sprintf("%.3f", one.PricePerHour)
	} else if s.Outcome == rightsize.Measured && row[15] == "" {
		row[15] = "misses the goal"
	}
	return row
}

func notesOf(s *rightsize.Trial) string {
	word := outcomeWords[s.Outcome]
	switch {
	case word == "":
		return s.Why
	case s.Why == "":
		return word
	}
	return word + ": " + s.Why
}

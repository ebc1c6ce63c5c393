package rightsize

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

var (
	one   = Size{Name: "One", VCPUs: 1, MemoryGB: 3.5, PricePerHour: 0.07}
	two   = Size{Name: "Two", VCPUs: 2, MemoryGB: 7, PricePerHour: 0.15}
	roomy = Size{Name: "TwoRoomy", VCPUs: 2, MemoryGB: 16, PricePerHour: 0.13}
	four  = Size{Name: "Four", VCPUs: 4, MemoryGB: 14, PricePerHour: 0.30}
	gpu   = Size{Name: "GPU", VCPUs: 6, MemoryGB: 56, GPUs: 1, PricePerHour: 0.9}
	rare  = Size{Name: "Rare", VCPUs: 1, MemoryGB: 64, PricePerHour: 0.01, NeedsApproval: true}
	all   = []Size{four, gpu, one, rare, two, roomy}
)

func at(concurrency int, rate, p99 float64) Point {
	return Point{Concurrency: concurrency, Load: Load{Requests: 100, PerSecond: rate, P99MS: p99}}
}

func measured(s Size, points ...Point) Trial {
	return Trial{Size: s, Outcome: Measured, PeakMB: 1000, Points: points}
}

func names(trials []Trial) string {
	var out []string
	for _, t := range trials {
		out = append(out, strings.TrimSpace(t.Name+" "+string(t.Outcome)))
	}
	return strings.Join(out, ", ")
}

func TestTheSizesToTry(t *testing.T) {
	small, none := Machine{VCPUs: 2, MemoryGB: 24}, Machine{}
	for _, c := range []struct {
		name  string
		sizes []Size
		named bool
		m     Machine
		gpus  int
		need  int64
		want  string
	}{
		{"are the cheapest of each number of vCPUs, and the first that this machine has not got", all, false, small, 0, 500, "One, TwoRoomy, Four not_here"},
		{"have room for the model", all, false, small, 0, 3000, "TwoRoomy, Four not_here"},
		{"are all there is where each node is a machine of its own", all, false, none, 0, 500, "One, TwoRoomy, Four"},
		{"are those with a GPU for a model that wants one", all, false, none, 1, 500, "GPU"},
		{"are all that were named, with why they are not tried", []Size{gpu, four, two, one}, true, small, 0, 3000, "One too_small, Two, Four not_here, GPU not_here"},
		{"leave out what this machine holds only in memory that it has not got", []Size{roomy}, true, Machine{VCPUs: 2, MemoryGB: 8}, 0, 10, "TwoRoomy not_here"},
		{"are none where nothing is large enough", all, false, none, 0, 1 << 20, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := names(Trials(c.sizes, c.named, c.m, c.gpus, c.need)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestWhereMemoryIsMeasured(t *testing.T) {
	if s, err := Roomiest(all, Machine{VCPUs: 2, MemoryGB: 24}, 0); err != nil || s.Name != "TwoRoomy" {
		t.Errorf("%v, %v", s, err)
	}
	if s, err := Roomiest(all, Machine{}, 1); err != nil || s.Name != "GPU" {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := Roomiest(all, Machine{VCPUs: 0.5, MemoryGB: 1}, 0); err == nil || !strings.Contains(err.Error(), "0.5 vCPUs") {
		t.Errorf("%v", err)
	}
}

func TestPick(t *testing.T) {
	got, err := Pick(all, []string{"two", "ONE", "Two"})
	if err != nil || len(got) != 2 || got[0] != two || got[1] != one {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Pick(all, []string{"three"}); err == nil || !strings.Contains(err.Error(), `"three"`) {
		t.Errorf("%v", err)
	}
}

func TestRecommend(t *testing.T) {
	goal := Goal{Rate: 100, P99MS: 50}
	slow := measured(one, at(1, 20, 60), at(2, 21, 120))
	quick := measured(two, at(1, 40, 20), at(2, 60, 40), at(4, 61, 45), at(8, 62, 90))
	for _, c := range []struct {
		name   string
		trials []Trial
		goal   Goal
		need   int64
		want   string // size × instances @ concurrency, or a part of the error
	}{
		{"takes the size up that is too slow, and then as many as the rate needs at 80 percent", []Trial{slow, quick}, goal, 1000, "Two × 3 @ 4"},
		{"takes the smallest where nothing is asked of it", []Trial{slow, quick}, Goal{}, 1000, "One × 1 @ 2"},
		{"takes the cheapest, in whatever order they were tried", []Trial{quick, measured(roomy, at(1, 30, 10))}, goal, 1000, "TwoRoomy × 5 @ 1"},
		{"leaves out a size that turned out to have too little room", []Trial{measured(one, at(1, 90, 10)), quick}, goal, 3000, "Two × 3 @ 4"},
		{"leaves out points at which requests failed", []Trial{measured(two, at(1, 40, 20), Point{2, Load{Requests: 10, Failed: 1, PerSecond: 99, P99MS: 1}})}, goal, 10, "Two × 4 @ 1"},
		{"leaves out what ran out of memory, and takes its memory for needed", []Trial{{Size: one, Outcome: OutOfMemory, PeakMB: 3584, Points: nil}, measured(two, at(1, 100, 20))}, goal, 10, "Two × 2 @ 1"},
		{"needs no instance more for a rate that is just met", []Trial{measured(two, at(1, 125, 20))}, goal, 10, "Two × 1 @ 1"},
		{"says how near the nearest came", []Trial{slow}, goal, 10, "the nearest is One with 60 ms"},
		{"says that there is none", []Trial{{Size: one, Outcome: OutOfMemory, PeakMB: 3584}}, goal, 10, "no size that was tried serves the model"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Recommend(c.trials, c.goal, c.need)
			got := fmt.Sprintf("%s × %d @ %d", r.Size, r.Instances, r.Concurrency)
			if err != nil {
				got = err.Error()
			}
			if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestARecommendationKeepsItsWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trials := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Trial {
			tr := Trial{Size: Size{Name: rapid.StringMatching("[A-Z]{1,3}").Draw(t, "name"), VCPUs: rapid.IntRange(1, 8).Draw(t, "vcpus"),
				MemoryGB: float64(rapid.IntRange(1, 16).Draw(t, "memory")), PricePerHour: rapid.Float64Range(0, 2).Draw(t, "price")},
				Outcome: rapid.SampledFrom([]Outcome{Measured, OutOfMemory, Failed}).Draw(t, "outcome"), PeakMB: int64(rapid.IntRange(0, 4000).Draw(t, "peak"))}
			for n := 1; n <= rapid.IntRange(0, 16).Draw(t, "most"); n *= 2 {
				tr.Points = append(tr.Points, Point{n, Load{Requests: 100, Failed: rapid.IntRange(0, 1).Draw(t, "failed"), PerSecond: rapid.Float64Range(0.1, 500).Draw(t, "rate"),
					P99MS: rapid.Float64Range(1, 1000).Draw(t, "p99")}})
			}
			return tr
		})).Draw(t, "trials")
		goal := Goal{Rate: rapid.Float64Range(0, 1000).Draw(t, "rate"), P99MS: rapid.Float64Range(0, 1000).Draw(t, "p99")}
		need := int64(rapid.IntRange(1, 8000).Draw(t, "need"))
		r, err := Recommend(trials, goal, need)
		good := func(tr Trial) bool {
			_, ok := tr.Best(goal)
			return ok && tr.Outcome == Measured && float64(tr.MemoryMB()) >= 1.5*float64(Need(need, trials))
		}
		cheapest := math.Inf(1)
		for _, tr := range trials {
			if good(tr) {
				cheapest = min(cheapest, tr.PricePerHour)
			}
		}
		if err != nil {
			if !math.IsInf(cheapest, 1) {
				t.Fatalf("nothing is recommended although there is something: %v", err)
			}
			return
		}
		switch {
		case r.PricePerHour != cheapest*float64(r.Instances):
			t.Fatalf("%+v costs more than the cheapest, %g", r, cheapest)
		case r.Instances < 1 || float64(r.Instances)*r.PerInstance < goal.Rate*(1-1e-6):
			t.Fatalf("%+v cannot do %g a second", r, goal.Rate)
		case r.Instances > 1 && float64(r.Instances-1)*r.PerInstance >= goal.Rate:
			t.Fatalf("%+v is an instance more than %g a second need", r, goal.Rate)
		case goal.P99MS > 0 && r.P99MS > goal.P99MS:
			t.Fatalf("%+v is slower than %g ms", r, goal.P99MS)
		}
	})
}

func TestHolds(t *testing.T) {
	g := Goal{Rate: 10, P99MS: 100}
	for want, l := range map[string]Load{
		"":                             {Requests: 50, PerSecond: 10, P99MS: 100},
		"no request was sent":          {},
		"1 of 50 requests failed: 500": {Requests: 50, Failed: 1, Why: "500", PerSecond: 10, P99MS: 1},
		"8.0 requests/s were answered of the 10.0 that came": {Requests: 50, PerSecond: 8, P99MS: 1},
		"p99 was 101 ms, and 100 ms were wanted":             {Requests: 50, PerSecond: 10, P99MS: 101},
	} {
		if ok, why := g.Holds(l, g.Rate); ok != (want == "") || why != want {
			t.Errorf("%+v: %v %q, want %q", l, ok, why, want)
		}
	}
}

// server answers one request at a time, each after 10 ms.
func server() Send {
	turn := make(chan struct{}, 1)
	return func(ctx context.Context) error {
		turn <- struct{}{}
		defer func() { <-turn }()
		<-time.After(10 * time.Millisecond)
		return ctx.Err()
	}
}

func TestAClosedLoadWaitsForEachAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Closed(t.Context(), server(), 1, time.Second)
		if l.Requests != 100 || l.Failed != 0 || l.PerSecond != 100 || l.P99MS != 10 {
			t.Errorf("one at a time: %+v", l)
		}
		l = Closed(t.Context(), server(), 4, time.Second)
		if l.PerSecond < 99 || l.PerSecond > 101 || l.P99MS != 40 {
			t.Errorf("four at once: %+v", l)
		}
	})
}

func TestAnOpenLoadDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Open(t.Context(), server(), 50, time.Second)
		if l.Requests != 50 || l.Failed != 0 || l.P99MS != 10 || l.PerSecond != 50 {
			t.Errorf("half of what it can: %+v", l)
		}
		l = Open(t.Context(), server(), 200, time.Second)
		if l.Requests != 200 || l.P99MS < 950 || l.PerSecond > 160 {
			t.Errorf("twice of what it can: %+v", l)
		}
		if ok, _ := (Goal{}).Holds(l, 200); ok {
			t.Error("a server that falls behind counts as one that keeps up")
		}
	})
}

func TestALoadCountsFailuresAndEndsWhenItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		l := Closed(t.Context(), func(context.Context) error {
			<-time.After(time.Millisecond)
			if n.Add(1)%2 == 0 {
				return errors.New("503 not now")
			}
			return nil
		}, 2, 100*time.Millisecond)
		if l.Failed != l.Requests/2 || l.Why != "503 not now" {
			t.Errorf("%+v", l)
		}
		for name, load := range map[string]func(context.Context, Send) Load{
			"closed": func(ctx context.Context, s Send) Load { return Closed(ctx, s, 2, time.Hour) },
			"open":   func(ctx context.Context, s Send) Load { return Open(ctx, s, 10, time.Hour) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			begin := time.Now()
			if l := load(ctx, server()); time.Since(begin) > 2*time.Second || l.Failed > 0 {
				t.Errorf("%s: %s, %+v", name, time.Since(begin), l)
			}
			cancel()
		}
	})
}

func TestWhatCostsLessInAllIsSaid(t *testing.T) {
	r, err := Recommend([]Trial{measured(one, at(1, 20, 10)), measured(two, at(1, 100, 10))}, Goal{Rate: 80, P99MS: 50}, 10)
	if err != nil || r.Size != "One" || r.Instances != 5 || r.Cheaper != "1 × Two would do for $0.150 an hour" {
		t.Errorf("%+v, %v", r, err)
	}
	if r.More() != 7 || r.Out(one, 1).More() != 2 {
		t.Errorf("more than 5 is %d, more than 1 is %d", r.More(), r.Out(one, 1).More())
	}
}

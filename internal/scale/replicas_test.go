package scale

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trainyard/trainyard"
)

func TestReplicas(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	base := trainyard.ReplicaDemand{Now: now, Min: 0, Max: 10, Metric: "concurrency", Target: 2, Window: time.Minute, ZeroAfter: 5 * time.Minute}
	tests := []struct {
		name string
		with func(*trainyard.ReplicaDemand)
		want int
		code string
	}{
		{"load follows the stable window", func(d *trainyard.ReplicaDemand) { d.Stable, d.Panic, d.Ready = 7, 7, 3 }, 4, "Load"},
		{"a hair over the target is no other replica", func(d *trainyard.ReplicaDemand) { d.Stable, d.Panic, d.Ready = 4.01, 4, 2 }, 2, "Load"},
		{"a burst is followed at once", func(d *trainyard.ReplicaDemand) { d.Stable, d.Panic, d.Ready = 2, 12, 1 }, 6, "Burst"},
		{"nothing is taken away in a panic", func(d *trainyard.ReplicaDemand) {
			d.Stable, d.Panic, d.Ready, d.Wanted, d.PanicUntil = 2, 1, 6, 6, now.Add(time.Second)
		}, 6, "Burst"},
		{"without a request it keeps one for its time", func(d *trainyard.ReplicaDemand) { d.Ready, d.Idle = 1, time.Minute }, 1, "Load"},
		{"and then none", func(d *trainyard.ReplicaDemand) { d.Ready, d.Idle = 1, 5*time.Minute }, 0, "Idle"},
		{"a request that waits brings one", func(d *trainyard.ReplicaDemand) { d.Idle, d.Waiting = time.Hour, 1 }, 1, "Load"},
		{"the maximum holds", func(d *trainyard.ReplicaDemand) { d.Stable, d.Panic, d.Ready = 100, 100, 10 }, 10, "AtMaximum"},
		{"the minimum holds", func(d *trainyard.ReplicaDemand) { d.Min, d.Idle = 2, time.Hour }, 2, "AtMinimum"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := base
			tt.with(&d)
			got := Replicas(d)
			if got.Wanted != tt.want || got.Why.Code != tt.code || got.Why.Message == "" {
				t.Errorf("wanted %d because %s (%s), want %d because %s", got.Wanted, got.Why.Code, got.Why.Message, tt.want, tt.code)
			}
		})
	}
}

// Whatever the load, the answer is within the bounds, and a request that waits is never left without a replica.
func TestReplicasStayInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.IntRange(0, 5).Draw(t, "min")
		d := trainyard.ReplicaDemand{Now: time.Unix(1e9, 0), Min: low, Max: rapid.IntRange(1, 20).Draw(t, "max"), Metric: "rate",
			Target: rapid.Float64Range(0, 10).Draw(t, "target"), Stable: rapid.Float64Range(0, 1e6).Draw(t, "stable"),
			Panic: rapid.Float64Range(0, 1e6).Draw(t, "panic"), Window: time.Minute, Ready: rapid.IntRange(0, 20).Draw(t, "ready"),
			Wanted: rapid.IntRange(0, 20).Draw(t, "wanted"), Waiting: rapid.IntRange(0, 3).Draw(t, "waiting"), Idle: time.Hour, ZeroAfter: time.Minute}
		got := Replicas(d)
		if got.Wanted < low || got.Wanted > max(d.Max, low, 1) || d.Waiting > 0 && got.Wanted == 0 {
			t.Fatalf("%+v: %+v", d, got)
		}
	})
}

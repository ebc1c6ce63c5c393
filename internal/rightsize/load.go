package rightsize

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// Load is how a load was answered. A request that failed counts in no latency.
type Load struct {
	Requests  int     `json:"requests"`
	Failed    int     `json:"failed"`
	Why       string  `json:"failure,omitempty"` // of the first that failed
	Seconds   float64 `json:"seconds"`           // from the first request to the last answer
	PerSecond float64 `json:"per_second"`        // good answers
	P50MS     float64 `json:"p50_ms"`
	P95MS     float64 `json:"p95_ms"`
	P99MS     float64 `json:"p99_ms"`
}

// Send asks once and waits for the answer. It is called from several goroutines.
type Send func(ctx context.Context) error

// mostAtOnce bounds what an open load has under way: a server that answers nothing should not take the client's memory.
const mostAtOnce = 4096

// Closed sends so many requests at once for a while, the next as soon as one is answered. It returns when the last answer is there, or soon
// after ctx is done.
func Closed(ctx context.Context, send Send, atOnce int, d time.Duration) Load {
	var t tally
	var wg sync.WaitGroup
	begin := time.Now()
	for range atOnce {
		wg.Go(func() {
			for time.Since(begin) < d && ctx.Err() == nil {
				from := time.Now()
				err := send(ctx)
				if ctx.Err() != nil {
					return
				}
				t.add(time.Since(from), err)
			}
		})
	}
	wg.Wait()
	return t.load(time.Since(begin))
}

// Open sends requests at a steady rate, answered or not, as people who do not know of each other do. A request's time counts from when it
// was due, so that a server which falls behind cannot hide it.
func Open(ctx context.Context, send Send, rate float64, d time.Duration) Load {
	var t tally
	var wg sync.WaitGroup
	room := make(chan struct{}, mostAtOnce)
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	n := max(1, int(math.Round(rate*d.Seconds())))
	for i := range n {
		due := begin.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		if ctx.Err() != nil {
			break
		}
		select {
		case room <- struct{}{}:
		default:
			t.add(0, errCrowded)
			continue
		}
		wg.Go(func() {
			err := send(ctx)
			<-room
			if ctx.Err() == nil {
				t.add(time.Since(due), err)
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	l := t.load(took)
	if keep := max(d, took-time.Duration(l.P50MS*float64(time.Millisecond))); keep > 0 { // the last answers come after the last request
		l.PerSecond = float64(l.Requests-l.Failed) / keep.Seconds()
	}
	return l
}

type crowded struct{}

func (crowded) Error() string { return "too many requests were waiting for an answer already" }

var errCrowded = crowded{}

// tally counts answers. Its zero value is ready.
type tally struct {
	mu     sync.Mutex
	good   []time.Duration
	failed int
	why    string
}

func (t *tally) add(took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.good = append(t.good, took)
		return
	}
	if t.failed++; t.failed == 1 {
		t.why = err.Error()
	}
}

func (t *tally) load(took time.Duration) Load {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Sort(t.good)
	l := Load{Requests: len(t.good) + t.failed, Failed: t.failed, Why: t.why, Seconds: took.Seconds(),
		P50MS: quantile(t.good, 0.5), P95MS: quantile(t.good, 0.95), P99MS: quantile(t.good, 0.99)}
	if took > 0 {
		l.PerSecond = float64(len(t.good)) / took.Seconds()
	}
	return l
}

// quantile is the least of the sorted times that the share q of them does not exceed, in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return float64(sorted[max(0, i)].Microseconds()) / 1000
}

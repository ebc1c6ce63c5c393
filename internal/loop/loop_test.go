package loop

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// pass lets d of the bubble's time go by.
func pass(d time.Duration) { <-time.After(d) }

func TestGroupRunsAgainAfterErrorsWithGrowingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(quiet())
		var at []time.Duration
		began := time.Now()
		g.Go("flaky", func(context.Context) error {
			at = append(at, time.Since(began))
			if len(at) < 5 {
				return errors.New("not yet")
			}
			return nil
		})
		g.members.Wait()
		if len(at) != 5 {
			t.Fatalf("ran %d times, want 5", len(at))
		}
		for i := 1; i < len(at); i++ {
			wait, nominal := at[i]-at[i-1], 100*time.Millisecond<<(i-1)
			if wait < nominal/2 || wait > nominal {
				t.Errorf("wait %d was %s, want %s to %s", i, wait, nominal/2, nominal)
			}
		}
		g.Stop()
	})
}

func TestGroupSurvivesAPanicAndLogsItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		g := New(slog.New(slog.NewTextHandler(&text, nil)))
		runs := 0
		g.Go("bomb", func(context.Context) error {
			if runs++; runs == 1 {
				explode()
			}
			return nil
		})
		g.members.Wait()
		g.Stop()
		if runs != 2 {
			t.Errorf("ran %d times, want 2", runs)
		}
		for _, want := range []string{"bomb", "boom", "explode"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, text.String())
			}
		}
	})
}

func explode() { panic("boom") }

func TestStopCancelsWaitsAndMayBeCalledTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(quiet())
		var ended atomic.Bool
		g.Go("slow to end", func(ctx context.Context) error {
			<-ctx.Done()
			pass(time.Second)
			ended.Store(true)
			return ctx.Err()
		})
		synctest.Wait()
		g.Stop()
		if !ended.Load() {
			t.Error("Stop returned before the member did")
		}
		g.Stop()
		g.Go("too late", func(context.Context) error { t.Error("ran after Stop"); return nil })
		g.Stop()
	})
}

func TestStopBeforeAnythingStarted(t *testing.T) {
	g := New(nil)
	g.Stop()
	g.Stop()
}

func TestStopEndsABackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(quiet())
		g.backoff = Backoff{Min: time.Hour, Max: time.Hour}
		g.Go("broken", func(context.Context) error { return errors.New("no") })
		synctest.Wait()
		began := time.Now()
		g.Stop()
		if d := time.Since(began); d != 0 {
			t.Errorf("Stop took %s", d)
		}
	})
}

func TestWakeMergesAndNeverBlocks(t *testing.T) {
	w := NewWake()
	w.Set()
	w.Set()
	<-w.C()
	select {
	case <-w.C():
		t.Fatal("two Sets were seen twice")
	default:
	}
	w.Set()
	<-w.C()
}

// keyedRun starts q in the synctest bubble and ends it with the test.
func keyedRun[K comparable](t *testing.T, q *Keyed[K]) (stop func()) {
	t.Helper()
	q.Log = quiet()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := q.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return func() { cancel(); wg.Wait() }
}

func TestKeyedNeverRunsAKeyTwiceAtOnceAndRunsOnceMoreWhenReadded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, runs, most atomic.Int32
		q := NewKeyed(4, Backoff{}, func(context.Context, string) (time.Duration, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			runs.Add(1)
			pass(time.Second)
			return 0, nil
		})
		stop := keyedRun(t, q)
		q.Add("a")
		synctest.Wait()
		for range 10 {
			q.Add("a") // all while the first runs
		}
		pass(10 * time.Second)
		stop()
		if runs.Load() != 2 || most.Load() != 1 {
			t.Errorf("%d runs, %d at once; want 2 runs, 1 at once", runs.Load(), most.Load())
		}
		if n := len(q.keys); n != 0 {
			t.Errorf("%d keys are remembered for nothing", n)
		}
	})
}

func TestKeyedRunsDifferentKeysAtOnceUpToItsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		q := NewKeyed(3, Backoff{}, func(context.Context, int) (time.Duration, error) {
			most.Store(max(most.Load(), running.Add(1)))
			pass(time.Second)
			running.Add(-1)
			return 0, nil
		})
		for i := range 9 {
			q.Add(i) // before Run
		}
		began := time.Now()
		stop := keyedRun(t, q)
		defer stop()
		pass(3 * time.Second)
		synctest.Wait()
		if most.Load() != 3 || running.Load() != 0 || time.Since(began) != 3*time.Second {
			t.Errorf("%d at once, %d still running; want 3, and all 9 done in 3 s", most.Load(), running.Load())
		}
	})
}

func TestKeyedBacksOffPerKeyAndForgetsAfterSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		at := map[string][]time.Duration{}
		q := NewKeyed(1, Backoff{Min: time.Second, Max: 4 * time.Second}, func(_ context.Context, k string) (time.Duration, error) {
			at[k] = append(at[k], time.Since(began))
			if k == "bad" && len(at[k]) <= 4 {
				if len(at[k]) == 2 {
					panic("worse")
				}
				return 0, errors.New("no")
			}
			return 0, nil
		})
		stop := keyedRun(t, q)
		q.Add("bad")
		q.Add("good")
		pass(time.Minute)
		stop()
		if len(at["good"]) != 1 || at["good"][0] != 0 {
			t.Errorf("good ran at %v, want once, at once", at["good"])
		}
		if len(at["bad"]) != 5 {
			t.Fatalf("bad ran at %v, want 5 times", at["bad"])
		}
		for i, nominal := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
			if wait := at["bad"][i+1] - at["bad"][i]; wait < nominal/2 || wait > nominal {
				t.Errorf("wait %d was %s, want %s to %s", i, wait, nominal/2, nominal)
			}
		}
		if len(q.keys) != 0 {
			t.Errorf("%d keys are remembered for nothing", len(q.keys))
		}
	})
}

func TestKeyedAgainAndAddAfterTakeTheEarliest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		q := NewKeyed(1, Backoff{}, func(context.Context, string) (time.Duration, error) {
			at = append(at, time.Since(began))
			if len(at) == 1 {
				return 10 * time.Second, nil
			}
			return 0, nil
		})
		stop := keyedRun(t, q)
		q.AddAfter("k", 5*time.Second)
		q.AddAfter("k", 2*time.Second)
		q.AddAfter("k", 3*time.Second)
		pass(time.Minute)
		stop()
		if len(at) != 2 || at[0] != 2*time.Second || at[1] != 12*time.Second {
			t.Errorf("ran at %v, want 2 s and 12 s", at)
		}
		q.Add("k")
		q.AddAfter("k", time.Second)
		if len(q.keys) != 0 {
			t.Error("keys are taken after Run is over")
		}
	})
}

func TestKeyedRunWaitsForItsCallsAndRefusesASecondRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		q := NewKeyed(2, Backoff{}, func(ctx context.Context, _ string) (time.Duration, error) {
			<-ctx.Done()
			pass(time.Second)
			ended = true
			return 0, ctx.Err()
		})
		stop := keyedRun(t, q)
		q.Add("a")
		synctest.Wait()
		stop()
		if !ended {
			t.Error("Run returned before its call did")
		}
		if err := q.Run(t.Context()); err == nil {
			t.Error("a second Run was not refused")
		}
	})
}

func TestBackoffDelayIsBounded(t *testing.T) {
	for n := range 200 {
		if d := (Backoff{}).Delay(n); d < 50*time.Millisecond || d > time.Minute {
			t.Fatalf("Delay(%d) = %s", n, d)
		}
	}
}

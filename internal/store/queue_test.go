package store

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trainyard/trainyard"
)

// After any adds and removes the queue is what sorting would make of it, and what was handed out earlier is as it was.
func TestQueueIsSortedAndItsViewsNeverChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var model []trainyard.QueuedJob
		var seq int64
		type shown struct{ view, copy []trainyard.QueuedJob }
		var views []shown
		look := func() {
			v := q.view()
			views = append(views, shown{v, slices.Clone(v)})
			if !slices.Equal(v, model) {
				t.Fatalf("queue is\n%v, want\n%v", v, model)
			}
			for i := range model {
				if at := q.place(&model[i]); at != i {
					t.Fatalf("place of %s is %d, want %d", model[i].Key, at, i)
				}
			}
		}
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op < 4 || len(model) == 0:
				seq++
				j := trainyard.QueuedJob{Key: trainyard.JobKey(fmt.Sprintf("j%d", seq)), Seq: seq, Priority: rapid.IntRange(1, 3).Draw(t, "priority")}
				q.add(j)
				model = append(model, j)
			case op < 8: // often the front, now and then the end
				i := 0
				if op == 6 {
					i = len(model) - 1
				}
				if op == 7 {
					i = rapid.IntRange(0, len(model)-1).Draw(t, "which")
				}
				q.remove(model[i].Key)
				model = slices.Delete(slices.Clone(model), i, i+1)
			case op == 8: // out and in again, as a job that is tried again
				i := rapid.IntRange(0, len(model)-1).Draw(t, "again")
				q.remove(model[i].Key)
				q.add(model[i])
			default:
				look()
			}
			slices.SortStableFunc(model, func(a, b trainyard.QueuedJob) int { return before(&a, &b) })
			if q.len() != len(model) {
				t.Fatalf("length is %d, want %d", q.len(), len(model))
			}
		}
		look()
		for _, v := range views {
			if !slices.Equal(v.view, v.copy) {
				t.Fatalf("a view changed from\n%v to\n%v", v.copy, v.view)
			}
		}
	})
}

// The image of many waiting jobs is small: their documents are not in it.
func TestAHundredThousandWaitingJobsAreSmall(t *testing.T) {
	const jobs, most = 100_000, 60 << 20
	im := newImage()
	im.setCompute(computeKey("c"), cluster("c", 10))
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for i := range jobs {
		j := aJob(fmt.Sprintf("calm_river_%010d", i), "c", 1+i%3, 1)
		j.Seq = int64(i + 1)
		im.setJob(j.Key(), j)
	}
	im.snapshot(true)
	used := heap() - before
	t.Logf("%d waiting jobs: %.1f MB", jobs, float64(used)/1e6)
	if used > most {
		t.Errorf("%d waiting jobs take %d MB, at most %d wanted", jobs, used>>20, most>>20)
	}
	if n := im.computes[computeKey("c")].queue.len(); n != jobs {
		t.Errorf("%d in the queue", n)
	}
}

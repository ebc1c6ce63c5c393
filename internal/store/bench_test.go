package store

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// BenchmarkUpdate is the status of a placed job written by so many callers at once, durably.
func BenchmarkUpdate(b *testing.B) {
	for _, engine := range []string{"sqlite", "postgres"} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%dcallers", engine, callers), func(b *testing.B) {
				dsn := ""
				if engine == "sqlite" {
					dsn = sqliteDSN(b)
				} else {
					dsn = thePostgres.database(b)
				}
				benchUpdate(b, opened(b, dsn), callers)
			})
		}
	}
}

func benchUpdate(b *testing.B, s *Store, callers int) {
	add(b, s, cluster("c", callers))
	var p trainyard.Plan
	for i := range callers {
		add(b, s, aNode(fmt.Sprintf("n%d", i), "c", 1), aJob(fmt.Sprintf("j%d", i), "c", 1, 1))
		p.Placed = append(p.Placed, placement(fmt.Sprintf("j%d", i), fmt.Sprintf("n%d", i)))
	}
	if _, err := s.Commit(bg, p, t0); err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for c := range callers {
		wg.Go(func() {
			k := key(fmt.Sprintf("j%d", c))
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				err := s.Update(bg, func(tx *Tx) error {
					j, err := tx.Job(k)
					if err != nil {
						return err
					}
					j.Status.Attempts[0].Tasks[0].Progress = fmt.Sprint("step ", i)
					return tx.PutJob(j)
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
}

// BenchmarkLife is a job from submission to its end, as the server writes it: inserted, placed, preparing, running, uploading, completed.
func BenchmarkLife(b *testing.B) {
	const callers = 8
	s := opened(b, sqliteDSN(b))
	add(b, s, localCompute(), aNode("l", "local", callers))
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				if err := aLife(s, fmt.Sprintf("job%d", i)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

func aLife(s *Store, name string) error {
	j := aJob(name, "local", 1, 1)
	err := s.Update(bg, func(tx *Tx) error {
		tx.Event(trainyard.Event{Time: t0, Scope: scope, Kind: "job", Subject: name, What: "queued"})
		return tx.InsertJob(j)
	})
	if err != nil {
		return err
	}
	if _, err := s.Commit(bg, plan(placement(name, "l")), t0); err != nil {
		return err
	}
	for _, step := range []struct {
		task trainyard.TaskState
		job  trainyard.JobState
	}{{trainyard.TaskStaging, trainyard.JobPreparing}, {trainyard.TaskRunning, trainyard.JobRunning}, {trainyard.TaskUploading, trainyard.JobFinalizing}, {trainyard.TaskEnded, trainyard.JobCompleted}} {
		err := s.Update(bg, func(tx *Tx) error {
			j, err := tx.Job(key(name))
			if err != nil {
				return err
			}
			j.Status.Attempts[0].Tasks[0].State = step.task
			if err := j.MoveTo(step.job, trainyard.Reason{Code: string(step.job)}, t0); err != nil {
				return err
			}
			tx.Event(trainyard.Event{Time: t0, Scope: scope, Kind: "job", Subject: name, What: string(step.job)})
			return tx.PutJob(j)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkSnapshot is one scheduling round's share of the store with nodes nodes and jobs waiting jobs in one compute: a job ends, a
// Snapshot is taken, and the reasons of all that wait are kept.
func BenchmarkSnapshot(b *testing.B) {
	for _, size := range []struct{ nodes, jobs int }{{100, 1000}, {1000, 10000}, {10000, 100000}} {
		im, why := crowd(size.nodes, size.jobs), &trainyard.Reason{Code: "AtMaximumNodes"}
		s := &Store{image: im}
		b.Run(fmt.Sprintf("%dnodes/%djobs", size.nodes, size.jobs), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				im.mark(computeKey("c"))
				im.touchNode(trainyard.NodeID(fmt.Sprintf("n%05d", i%size.nodes)))
				if v := s.Snapshot(t0, false).Computes[0]; len(v.Nodes) != size.nodes || len(v.Queue) == 0 {
					b.Fatalf("%d nodes, %d jobs", len(v.Nodes), len(v.Queue))
				}
			}
		})
		b.Run(fmt.Sprintf("reasons/%dnodes/%djobs", size.nodes, size.jobs), func(b *testing.B) {
			list := make([]trainyard.Waiting, 0, size.jobs)
			for _, q := range s.QueueOf(computeKey("c")) {
				list = append(list, trainyard.Waiting{Job: q.Key, Reason: why})
			}
			for b.Loop() {
				im.explainWaiting(list)
			}
		})
		b.Run(fmt.Sprintf("place+add/%dnodes/%djobs", size.nodes, size.jobs), func(b *testing.B) {
			seq := int64(size.jobs)
			for b.Loop() {
				v := s.Snapshot(t0, true).Computes[0]
				im.setJob(v.Queue[0].Key, nil)
				seq++
				j := aJob(fmt.Sprintf("calm_river_%010d", seq), "c", 1, 1)
				j.Seq = seq
				im.setJob(j.Key(), j)
			}
		})
	}
}

func crowd(nodes, jobs int) *image {
	im := newImage()
	im.setCompute(computeKey("c"), cluster("c", nodes))
	for i := range nodes {
		n := aNode(fmt.Sprintf("n%05d", i), "c", 1)
		im.setNode(n.ID, n)
	}
	for i := range jobs {
		j := aJob(fmt.Sprintf("calm_river_%010d", i), "c", 1, 1)
		j.Seq = int64(i + 1)
		im.setJob(j.Key(), j)
	}
	return im
}

// BenchmarkOpen opens a database with 100,000 waiting jobs.
func BenchmarkOpen(b *testing.B) {
	dsn := sqliteDSN(b)
	s := open(b, dsn)
	for i := range 100 {
		must(b, s, func(tx *Tx) error {
			for k := range 1000 {
				if err := tx.InsertJob(aJob(fmt.Sprintf("job_%d_%d", i, k), "c", 1+k%3, 1)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	s.Close()
	for b.Loop() {
		began := time.Now()
		s := open(b, dsn)
		b.ReportMetric(time.Since(began).Seconds()*1000, "ms")
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapAlloc)/1e6, "heapMB")
		s.Close()
	}
}

// BenchmarkCommit places so many waiting jobs on so many free nodes in one plan.
func BenchmarkCommit(b *testing.B) {
	for _, jobs := range []int{1, 100, 10000} {
		b.Run(fmt.Sprintf("%djobs", jobs), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				s := open(b, sqliteDSN(b))
				var p trainyard.Plan
				must(b, s, func(tx *Tx) error {
					for i := range jobs {
						name, node := fmt.Sprintf("j%d", i), fmt.Sprintf("n%d", i)
						if err := errors.Join(tx.PutNode(aNode(node, "c", 1)), tx.InsertJob(aJob(name, "c", 1, 1))); err != nil {
							return err
						}
						p.Placed = append(p.Placed, placement(name, node))
					}
					return tx.PutCompute(cluster("c", jobs))
				})
				b.StartTimer()
				if _, err := s.Commit(bg, p, t0); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				s.Close()
				b.StartTimer()
			}
		})
	}
}

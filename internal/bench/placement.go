package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/sched"
	"github.com/trainyard/trainyard/internal/store"
)

// placement fills a real store with simulated nodes and queued jobs and times one round: the snapshot and the decision. Half of the nodes
// are free, so that half as many jobs as there are nodes are placed and the rest gets its reason.
func placement(ctx context.Context, _ string, nodes, jobs int) (row, error) {
	r := row{what: fmt.Sprintf("one placement round, %d nodes, %d queued jobs", nodes, jobs), budget: "10,000 × 100,000: ≤ 50 ms, ≤ 1 GiB", limits: "memory traffic: one pass over nodes and queue"}
	dir, err := os.MkdirTemp("", "trainyard-bench")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	before := heap()
	db, err := store.Open(ctx, store.Config{DSN: "sqlite:" + filepath.Join(dir, "t.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return r, err
	}
	defer db.Close()
	if err := fill(ctx, db, nodes, jobs); err != nil {
		return r, err
	}
	var took []time.Duration
	placed, waiting := 0, 0
	for range 15 {
		at := time.Now()
		plan := sched.Decide(db.Snapshot(time.Now(), true))
		took = append(took, time.Since(at))
		placed, waiting = len(plan.Placed), len(plan.Waiting)
	}
	r.measured = fmt.Sprintf("p50 %s, p99 %s (%d placed, %d told why not); store's memory %.0f MiB", ms(quantile(took, 0.5)), ms(quantile(took, 0.99)), placed, waiting, float64(heap()-before)/(1<<20))
	return r, nil
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// fill writes a cluster, its nodes and its queue, in transactions of a thousand.
func fill(ctx context.Context, db *store.Store, nodes, jobs int) error {
	now, scope := time.Now(), trainyard.DefaultScope()
	comp := &trainyard.Compute{Scope: scope, Name: "sim", Where: "local", Created: now, Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeCluster,
		Properties: trainyard.ClusterProperties{VMSize: "STANDARD_DS3_V2", ScaleSettings: &trainyard.ScaleSettings{MaxNodeCount: nodes}}}}
	if err := db.Update(ctx, func(tx *store.Tx) error { return tx.PutCompute(comp) }); err != nil {
		return err
	}
	err := inBatches(nodes, func(lo, hi int) error {
		return db.Update(ctx, func(tx *store.Tx) error {
			for i := lo; i < hi; i++ {
				state := trainyard.NodeIdle
				if i%2 == 1 {
					state = trainyard.NodeCreating
				}
				n := &trainyard.Node{ID: trainyard.NodeID(fmt.Sprintf("sim-%06d", i)), Compute: comp.Key(), State: state, Epoch: 1, Size: "STANDARD_DS3_V2",
					Capacity: trainyard.Resources{CPUs: 4, MemoryMB: 14336, Slots: 1}, Created: now}
				if err := tx.PutNode(n); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return inBatches(jobs, func(lo, hi int) error {
		return db.Update(ctx, func(tx *store.Tx) error {
			for i := lo; i < hi; i++ {
				j := &trainyard.Job{Scope: scope, Name: fmt.Sprintf("sim-%06d", i), Created: now, Spec: trainyard.JobSpec{JobType: "Command", Command: "python train.py", ComputeID: comp.ID()},
					Plan:   trainyard.JobPlan{Compute: "sim", Nodes: 1, Processes: 1, MaxAttempts: 3},
					Status: trainyard.JobStatus{State: trainyard.JobQueued, Reason: trainyard.Reason{Code: "Submitted", Message: "waiting", Since: now}}}
				if err := tx.InsertJob(j); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func inBatches(n int, f func(lo, hi int) error) error {
	for lo := 0; lo < n; lo += 1000 {
		if err := f(lo, min(n, lo+1000)); err != nil {
			return err
		}
	}
	return nil
}

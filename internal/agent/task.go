package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// task is one task on this node, from the moment it is wanted until no trace of it is left. One goroutine, run, leads it through its
// life; the others leave word.
type task struct {
	a       *Agent
	id      trainyard.TaskID
	base    string        // path of what is kept of it
	adopted bool          // found on disk: it may have begun under an earlier agent
	stopped chan struct{} // closed when it is asked to end
	seen    chan struct{} // of one: there is a newer sight
	pump    *pump

	logMu  sync.Mutex // held while a log of ours is added to
	saveMu sync.Mutex // held while what is kept is written

	mu       sync.Mutex
	kept     stored
	report   trainyard.TaskReport
	sights   []sight // the newest of each eye, by its place
	blind    bool    // looks at its engine fail: what was seen before is no news
	after    int64   // looks up to this one say nothing of a task that was not there
	unwants  bool
	hold     io.Closer          // keeps the replica's port from others
	collects net.Listener       // for the rows that the replica's script collects, until they are taken
	cancel   context.CancelFunc // ends the work on it, once run has begun
}

func newTask(a *Agent, t trainyard.Task) *task {
	k := &task{a: a, id: t.ID, base: a.base(t.ID), stopped: make(chan struct{}), seen: make(chan struct{}, 1)}
	k.kept.Task = t
	k.report = trainyard.TaskReport{ID: t.ID, State: trainyard.TaskStaging}
	k.pump = newPump(k)
	if t.Stop != "" {
		k.stop(t.Stop)
	}
	return k
}

// restore takes over what an earlier agent wrote down.
func (k *task) restore(s stored) {
	told := k.kept.Stop != ""
	k.adopted, k.kept = true, s
	k.report.Spans, k.report.Serving = s.Spans, s.Serving
	if s.Port != 0 {
		k.hold, _ = target.HoldPort(s.Port) // if another holds it, the replica listens there all the same
	}
	if s.Stop != "" && !told {
		close(k.stopped)
	}
}

// stop asks the task to end, for the first reason given.
func (k *task) stop(why trainyard.Class) { k.stopBecause(why, "") }

// stopBecause is stop with words of its own.
func (k *task) stopBecause(why trainyard.Class, words string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept.Stop == "" {
		k.kept.Stop, k.kept.Since, k.kept.Why = why, time.Now(), words
		close(k.stopped)
	}
}

// drop says that the task is wanted no more.
func (k *task) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unwants = true
	if k.cancel != nil {
		k.cancel()
	}
}

func differ(a, b *trainyard.Observation) bool {
	if a == nil || b == nil {
		return a != b
	}
	return a.State != b.State || a.Address != b.Address || !slices.Equal(a.Notes, b.Notes) || a.Progress != b.Progress || !a.Started.Equal(b.Started)
}

func (k *task) state() trainyard.TaskState {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.report.State
}

// run leads the task through its life, then waits until it is wanted no more and removes it. When ctx is done it returns at once: the
// task's process goes on, and another agent takes over.
func (k *task) run(ctx context.Context) {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	k.mu.Lock()
	k.cancel = cancel
	if k.unwants {
		cancel()
	}
	k.mu.Unlock()
	pumping := make(chan struct{})
	go func() { defer close(pumping); k.pump.run(work) }()
	defer k.letGo()
	k.live(work)
	<-work.Done()
	<-pumping
	if ctx.Err() == nil {
		k.remove(ctx)
	}
}

// live is the life of a task: staged, begun, watched, finished, told. It returns early when ctx is done.
func (k *task) live(ctx context.Context) {
	res, began := k.toEnd(ctx)
	if ctx.Err() != nil {
		return
	}
	if began {
		k.finish(ctx, &res)
	}
	if k.pump.drain(ctx) != nil {
		return
	}
	k.change(atOnce, func(r *trainyard.TaskReport) {
		now := time.Now()
		for i := range r.Spans {
			if r.Spans[i].End.IsZero() {
				r.Spans[i].End = now
			}
		}
		r.State, r.Result, r.Progress, r.Away = trainyard.TaskEnded, &res, "", ""
	})
	k.a.log.Info("task ended", "task", k.id, "class", res.Class, "exit", res.ExitCode, "message", res.Message)
}

// toEnd leads the task to the end of its process. began is false if it never had one.
func (k *task) toEnd(ctx context.Context) (res trainyard.Result, began bool) {
	k.resumeLogs()
	if !k.kept.Staged {
		if res := k.stage(ctx); res != nil {
			return k.neverBegan(ctx, *res)
		}
	}
	defer k.collecting(ctx)()
	if res := k.begin(ctx); res != nil {
		return k.neverBegan(ctx, *res)
	}
	stop := k.watchOver(ctx)
	defer stop()
	return k.follow(ctx), true
}

// neverBegan makes sure of it.
func (k *task) neverBegan(ctx context.Context, res trainyard.Result) (trainyard.Result, bool) {
	k.insist(ctx, "make sure that it does not run", func() error { return k.a.cfg.Driver.Remove(ctx, k.id) })
	return res, false
}

// remove takes away every trace.
func (k *task) remove(ctx context.Context) {
	k.insist(ctx, "remove it from the driver", func() error { return k.a.cfg.Driver.Remove(ctx, k.id) })
	k.insist(ctx, "remove what was staged", func() error { return k.a.cfg.Stage.Remove(ctx, k.id) })
	k.insist(ctx, "forget it", func() error { return erase(k.base) })
	if ctx.Err() == nil {
		k.a.forget(k.id)
	}
}

// insist does something until it is done or ctx is.
func (k *task) insist(ctx context.Context, what string, do func() error) {
	var tries backoff
	for ctx.Err() == nil {
		err := do()
		if err == nil {
			return
		}
		k.a.log.Warn("task: "+what, "task", k.id, "err", err)
		pause(ctx, tries.next())
	}
}

// save writes down what must not be forgotten.
func (k *task) save() error {
	if k.a.cfg.Alone {
		return nil
	}
	k.saveMu.Lock()
	defer k.saveMu.Unlock()
	k.mu.Lock()
	s := k.kept
	k.mu.Unlock()
	return save(k.base, s)
}

// change alters the report and has it sent within the time given.
func (k *task) change(within time.Duration, alter func(*trainyard.TaskReport)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.report
	r.Spans = append([]trainyard.Span(nil), r.Spans...)
	alter(&r)
	k.report = r
	k.a.reports.put(r, within)
}

// warn adds a sentence for the user.
func (k *task) warn(sentence string) {
	k.change(soon, func(r *trainyard.TaskReport) {
		r.Warnings = trainyard.Warn(append([]string(nil), r.Warnings...), sentence)
	})
}

// resumeLogs takes up the logs that an earlier agent had begun.
func (k *task) resumeLogs() {
	for _, name := range logNames(k.base) {
		k.pump.add(k.fileTail(k.base+logsFolder, filepath.FromSlash(name), name))
	}
}

// fileTail is a log that lies in a file.
func (k *task) fileTail(dir, file, name string) *tail {
	return &tail{name: name, asked: !k.adopted, open: func(_ context.Context, from int64) (io.ReadCloser, error) {
		return openFile(dir, file, from)
	}}
}

// classed is the end that an error makes of a task.
func classed(err error, otherwise trainyard.Class) trainyard.Class {
	if c := trainyard.ClassOf(err); c != "" {
		return c
	}
	if errors.Is(err, syscall.ENOSPC) {
		return trainyard.ClassDisk
	}
	return otherwise
}

// passing says whether an error of staging may be gone next time.
func passing(err error) bool {
	switch trainyard.CodeOf(err) {
	case trainyard.CodeBusy:
		return true
	case trainyard.CodeInvalid, trainyard.CodeNotFound, trainyard.CodeForbidden, trainyard.CodeUnsupported:
		return false
	}
	return classed(err, "") == ""
}

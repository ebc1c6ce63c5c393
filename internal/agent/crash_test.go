package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agent"
)

// life is one incarnation of the agent. It sees the world through life's methods, each of which is a point at which it can be killed:
// before the call, or after it and before the agent learns of it. At that moment the folder is copied; the copy is what the next
// incarnation finds, whatever the dying one still writes.
type life struct {
	*server
	*machine
	*stage
	dir, next string
	kill      context.CancelFunc

	mu    sync.Mutex
	steps int
	last  int // the step at which it dies
	dead  bool
	flaky func(step int) (before, after bool) // replies and requests that get lost
	err   error
}

var errLost = trainyard.Errorf(trainyard.CodeBusy, "the connection was lost")

// point is passed on the way into and out of every call.
func (l *life) point(ctx context.Context) error {
	l.mu.Lock()
	if l.steps++; l.steps == l.last && !l.dead {
		l.dead = true
		l.err = snapshot(l.next, l.dir)
		l.kill()
	}
	dead := l.dead
	l.mu.Unlock()
	if dead {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// snapshot copies a folder in which others still write: what vanishes meanwhile was not there.
func snapshot(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), data, 0o600)
	})
}

// pass makes a call between two points.
func (l *life) pass(ctx context.Context, wire bool, call func() error) error {
	if err := l.point(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	before, after := l.flaky(l.steps)
	l.mu.Unlock()
	if wire && before {
		return errLost
	}
	err := call()
	if p := l.point(ctx); p != nil {
		return p
	}
	if wire && after {
		return errLost
	}
	return err
}

func (l *life) Join(ctx context.Context, info trainyard.NodeInfo) (lease trainyard.NodeLease, err error) {
	err = l.pass(ctx, true, func() (err error) { lease, err = l.server.Join(ctx, info); return err })
	return lease, err
}

func (l *life) Wanted(ctx context.Context, node trainyard.NodeID, epoch, after int64) (w trainyard.Wanted, err error) {
	err = l.pass(ctx, true, func() (err error) { w, err = l.server.Wanted(ctx, node, epoch, after); return err })
	return w, err
}

func (l *life) Report(ctx context.Context, r trainyard.Report) error {
	return l.pass(ctx, true, func() error { return l.server.Report(ctx, r) })
}

func (l *life) Append(ctx context.Context, node trainyard.NodeID, epoch int64, id trainyard.TaskID, name string, offset int64, data []byte) (size int64, err error) {
	err = l.pass(ctx, true, func() (err error) {
		size, err = l.server.Append(ctx, node, epoch, id, name, offset, data)
		return err
	})
	return size, err
}

func (l *life) Start(ctx context.Context, t trainyard.Task) error {
	return l.pass(ctx, false, func() error { return l.machine.Start(ctx, t) })
}

func (l *life) Observe(ctx context.Context) (list []trainyard.Observation, err error) {
	err = l.pass(ctx, false, func() (err error) { list, err = l.machine.Observe(ctx); return err })
	return list, err
}

func (l *life) Stop(ctx context.Context, id trainyard.TaskID, grace time.Duration) error {
	return l.pass(ctx, false, func() error { return l.machine.Stop(ctx, id, grace) })
}

func (l *life) Logs(ctx context.Context, id trainyard.TaskID, from int64) (r io.ReadCloser, err error) {
	err = l.pass(ctx, false, func() (err error) { r, err = l.machine.Logs(ctx, id, from); return err })
	return r, err
}

func (l *life) Prepare(ctx context.Context, t trainyard.Task, p trainyard.Progress) (out trainyard.Task, err error) {
	err = l.pass(ctx, true, func() (err error) { out, err = l.stage.Prepare(ctx, t, p); return err })
	return out, err
}

func (l *life) Finish(ctx context.Context, t trainyard.Task, r trainyard.Result, p trainyard.Progress) error {
	return l.pass(ctx, true, func() error { return l.stage.Finish(ctx, t, r, p) })
}

// removals are points too: driver and stage have a method of one name, so each side gets its own view of the life.
type lifeDriver struct{ *life }

func (d lifeDriver) Remove(ctx context.Context, id trainyard.TaskID) error {
	return d.pass(ctx, false, func() error { return d.machine.Remove(ctx, id) })
}

type lifeStage struct{ *life }

func (s lifeStage) Remove(ctx context.Context, id trainyard.TaskID) error {
	return s.pass(ctx, false, func() error { return s.stage.Remove(ctx, id) })
}

// story is what a run of the property test does.
type story struct {
	Programs []string        // one task each
	Stops    []time.Duration // of the task of that number; 0: never
	Unwants  []time.Duration
	Deaths   []int // after so many steps the agent of that number dies
	Pauses   []time.Duration
	Lost     []int // one step in so many loses its request, or its reply; 0: none
}

func stories(t *rapid.T) story {
	n := rapid.IntRange(1, 3).Draw(t, "tasks")
	moments := rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.IntRange(1, 9000).Draw(t, "ms")) * time.Millisecond
	}))
	return story{
		Programs: rapid.SliceOfN(rapid.SampledFrom([]string{"true", "hello", "count", "false", "ignore"}), n, n).Draw(t, "programs"),
		Stops:    rapid.SliceOfN(moments, n, n).Draw(t, "stops"),
		Unwants:  rapid.SliceOfN(rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Just(time.Duration(0)), moments), n, n).Draw(t, "unwants"),
		Deaths:   rapid.SliceOfN(rapid.IntRange(1, 60), 0, 6).Draw(t, "deaths"),
		Pauses:   rapid.SliceOfN(rapid.SampledFrom([]time.Duration{0, time.Millisecond, 3 * time.Second, time.Minute}), 6, 6).Draw(t, "pauses"),
		Lost:     rapid.SliceOfN(rapid.SampledFrom([]int{0, 2, 5}), 2, 2).Draw(t, "lost"),
	}
}

// tell plays the story and returns what went wrong.
func (s story) tell(t *testing.T) (wrong []string) {
	y := newYard(t)
	defer y.mac.off()
	y.srv.lease.Expires = 10 * time.Minute
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var jobs []trainyard.Task
	for i, program := range s.Programs {
		job := task(fmt.Sprint("job", i), program)
		jobs = append(jobs, job)
		if s.Stops[i] > 0 {
			time.AfterFunc(s.Stops[i], func() { y.srv.stop(job.ID, trainyard.ClassCanceled) })
		} else if program == "ignore" {
			time.AfterFunc(20*time.Second, func() { y.srv.stop(job.ID, trainyard.ClassCanceled) })
		}
		if s.Unwants[i] > 0 {
			time.AfterFunc(s.Unwants[i], func() { y.srv.unwant(job.ID) })
		}
	}
	y.srv.want(jobs...)
	dirs := t.TempDir()
	y.cfg.Dir = filepath.Join(dirs, "0")
	for i := range len(s.Deaths) + 1 {
		l := &life{server: y.srv, machine: y.mac, stage: y.stg, dir: y.cfg.Dir, next: filepath.Join(dirs, fmt.Sprint(i+1))}
		l.flaky = func(step int) (before, after bool) {
			return i < len(s.Deaths) && s.Lost[0] > 0 && step%s.Lost[0] == 0, i < len(s.Deaths) && s.Lost[1] > 0 && step%s.Lost[1] == 1
		}
		ctx, cancel := context.WithCancel(context.Background())
		l.kill = cancel
		if i < len(s.Deaths) {
			l.last = s.Deaths[i]
		}
		cfg := y.cfg
		cfg.Link, cfg.Driver, cfg.Stage = l, lifeDriver{l}, lifeStage{l}
		cfg.Log = slog.New(slog.DiscardHandler)
		done := make(chan error, 1)
		go func() { done <- agent.New(cfg).Run(ctx) }()
		if i < len(s.Deaths) {
			select {
			case <-ctx.Done():
				y.cfg.Dir = l.next
			case <-time.After(5 * time.Minute): // it had fewer steps to take
			}
		} else {
			s.settle(y, jobs, complain)
		}
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			complain("Run: %v", err)
		}
		if l.err != nil {
			complain("copy the folder: %v", l.err)
		}
		if i < len(s.Deaths) {
			<-time.After(s.Pauses[i%len(s.Pauses)])
		}
	}
	return append(wrong, y.srv.wrong...)
}

// settle lets the last agent bring everything to its end, and looks at what came of it.
func (s story) settle(y *yard, jobs []trainyard.Task, complain func(string, ...any)) {
	for range 600 {
		<-time.After(time.Second)
		y.srv.mu.Lock()
		quiet := len(y.srv.wanted) == 0
		y.srv.mu.Unlock()
		entries, err := os.ReadDir(y.cfg.Dir)
		if quiet && err == nil && len(entries) == 1 && y.mac.count() == 0 && y.stg.count() == 0 {
			break
		}
	}
	if y.mac.count() != 0 || y.stg.count() != 0 {
		complain("left behind: %d processes, %d staged", y.mac.count(), y.stg.count())
	}
	for i, job := range jobs {
		if n := y.mac.started(job.ID); n > 1 {
			complain("%s was started %d times", job.JobName, n)
		}
		res := y.srv.result(job.ID)
		if res == nil {
			if s.Unwants[i] == 0 {
				complain("the end of %s was not reported", job.JobName)
			}
			continue
		}
		want := map[string]int{"true": 0, "hello": 0, "count": 7, "false": 1}
		if code, ok := want[job.Command]; ok && s.Stops[i] == 0 && res.ExitCode != code {
			complain("%s ended %+v, its process with %d", job.JobName, res, code)
		}
		if res.ExitCode >= 0 && y.mac.started(job.ID) != 1 {
			complain("%s ended %+v without a process", job.JobName, res)
		}
		log := y.srv.log(job.ID, "user_logs/std_log.txt")
		if job.Command == "hello" && res.ExitCode == 0 && log != "hello\n" {
			complain("log of %s: %q", job.JobName, log)
		}
		for n, line := range strings.Split(strings.TrimSuffix(log, "\n"), "\n") {
			if job.Command == "count" && log != "" && line != fmt.Sprintf("line %d", n) && line != "got SIGTERM" {
				complain("line %d of the log of %s: %q", n, job.JobName, line)
				break
			}
		}
	}
}

func TestKilledAtAnyPointNothingIsLostOrDoubled(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := stories(rt)
		var wrong []string
		synctest.Test(t, func(t *testing.T) { wrong = s.tell(t) })
		if len(wrong) > 0 {
			rt.Fatalf("%+v\n%s", s, strings.Join(wrong, "\n"))
		}
	})
}

// Every step of a plain task's life, one after the other.
func TestKilledAtEachStepOfALife(t *testing.T) {
	for _, program := range []string{"hello", "count"} {
		for step := 1; step <= 60; step++ {
			s := story{Programs: []string{program}, Stops: []time.Duration{0}, Unwants: []time.Duration{0}, Deaths: []int{step}, Pauses: []time.Duration{0}, Lost: []int{0, 0}}
			var wrong []string
			synctest.Test(t, func(t *testing.T) { wrong = s.tell(t) })
			if len(wrong) > 0 {
				t.Fatalf("%s killed at step %d:\n%s", program, step, strings.Join(wrong, "\n"))
			}
		}
	}
}

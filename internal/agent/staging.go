package agent

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// stage has everything that the task needs brought on to the node, and writes down that it is there. A result means that the task ends
// here.
func (k *task) stage(ctx context.Context) *trainyard.Result {
	if k.asked() != "" {
		return k.ended("before it began")
	}
	if k.adopted { // it may have been put elsewhere meanwhile
		if k.a.mayStart(ctx) != nil {
			return &trainyard.Result{}
		}
	} else if !k.a.cfg.SelfStaged { // whoever comes after a crash must know what to clear away
		if err := k.save(); err != nil {
			return failed(err, trainyard.ClassStart)
		}
	}
	k.change(soon, func(r *trainyard.TaskReport) { r.State = trainyard.TaskStaging })
	t, err := k.prepare(ctx)
	switch {
	case ctx.Err() != nil:
		return &trainyard.Result{}
	case k.asked() != "":
		return k.ended("before it began")
	case err != nil:
		return failed(err, trainyard.ClassData)
	}
	if err := k.house(&t); err != nil {
		return failed(err, trainyard.ClassStart)
	}
	if !k.a.cfg.SelfStaged {
		t.Run.Hide = append(t.Run.Hide, k.a.cfg.Hide...)
		if err := launch(&t, runtime.GOOS); err != nil {
			return failed(err, trainyard.ClassUser)
		}
	}
	k.mu.Lock()
	k.kept.Task, k.kept.Staged, k.kept.Spans = t, true, k.report.Spans
	k.mu.Unlock()
	if err := k.save(); err != nil {
		return failed(err, trainyard.ClassStart)
	}
	return nil
}

// prepare has the task staged, and its environment brought by the driver if that does it, until it is done or fails for good, ctx is done,
// or the task is asked to end.
func (k *task) prepare(ctx context.Context) (trainyard.Task, error) {
	ctx, cancel := k.untilStopped(ctx)
	defer cancel()
	var tries backoff
	plain := k.a.addressed(k.kept.Task)
	brings, _ := k.a.cfg.Driver.(target.Preparer)
	plain.Contained = brings != nil && brings.Contains(plain)
	for {
		t, err := k.a.cfg.Stage.Prepare(ctx, plain, progress{k})
		if err == nil && t.Contained {
			err = k.bring(ctx, brings, t)
		}
		if err == nil || ctx.Err() != nil || k.asked() != "" || !passing(err) {
			return t, err
		}
		k.a.log.Warn("prepare task", "task", k.id, "err", err)
		k.change(soon, func(r *trainyard.TaskReport) { r.Spans, r.Progress = nil, "trying again: "+err.Error() })
		pause(ctx, tries.next())
	}
}

// bring has the driver bring the environment.
func (k *task) bring(ctx context.Context, brings target.Preparer, t trainyard.Task) error {
	p, start := progress{k}, time.Now()
	p.Span(trainyard.SpanEnvironment, start, time.Time{}, "")
	err := brings.Prepare(ctx, t, p)
	note := ""
	if err != nil {
		note = "failed"
	}
	p.Span(trainyard.SpanEnvironment, start, time.Now(), note)
	return err
}

// addressed is the task with the server where tasks of this node reach it.
func (a *Agent) addressed(t trainyard.Task) trainyard.Task {
	if a.cfg.Server == "" || t.Server == "" {
		return t
	}
	env := make(map[string]string, len(t.Env))
	for name, value := range t.Env {
		env[name] = strings.ReplaceAll(value, t.Server, a.cfg.Server)
	}
	t.Env, t.Server, t.CA = env, a.cfg.Server, a.cfg.CA
	return t
}

// elsewhere is the stager of tasks that stage themselves where they run.
type elsewhere struct{}

func (elsewhere) Prepare(_ context.Context, t trainyard.Task, _ trainyard.Progress) (trainyard.Task, error) {
	return t, nil
}

func (elsewhere) Finish(context.Context, trainyard.Task, trainyard.Result, trainyard.Progress) error {
	return nil
}

func (elsewhere) Remove(context.Context, trainyard.TaskID) error { return nil }

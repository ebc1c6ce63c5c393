package agent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
)

// begin sees to it that the task's process has begun, exactly once. A result means that it has not and will not.
func (k *task) begin(ctx context.Context) *trainyard.Result {
	if !k.adopted || !k.hasBegun(ctx) {
		if k.a.mayStart(ctx) != nil {
			return &trainyard.Result{}
		}
		if k.asked() != "" {
			return k.ended("before it began")
		}
		if err := k.start(ctx); err != nil {
			if k.asked() != "" && trainyard.CodeOf(err) == trainyard.CodeBusy {
				return k.ended("before it began")
			}
			return failed(err, trainyard.ClassStart)
		}
	}
	if ctx.Err() != nil {
		return &trainyard.Result{}
	}
	if !k.a.cfg.SelfStaged { // an engine may make it wait: a look will say when it runs
		k.runs(k.looked().seen)
	}
	t := &k.kept.Task
	k.pump.add(&tail{name: stdLog(t), asked: !k.adopted, open: func(ctx context.Context, from int64) (io.ReadCloser, error) {
		return k.a.cfg.Driver.Logs(ctx, k.id, from)
	}})
	if k.a.cfg.SelfStaged { // the other processes' logs are brought home from where they run
		return nil
	}
	for _, file := range processLogs(t) {
		k.pump.add(k.fileTail(t.Run.LogDir, file, "user_logs/"+file))
	}
	return nil
}

// runs reports that the process has begun.
func (k *task) runs(seen *trainyard.Observation) {
	if seen != nil && seen.State == trainyard.TaskEnded {
		k.unready("")
	}
	serving := k.unasked()
	k.change(atOnce, func(r *trainyard.TaskReport) {
		r.State, r.Progress = trainyard.TaskRunning, ""
		if r.Serving == nil {
			r.Serving = serving
		}
		start := time.Now() // a look will say it more exactly
		if seen != nil && !seen.Started.IsZero() {
			start = seen.Started
		}
		r.Spans = setSpan(r.Spans, trainyard.Span{Name: trainyard.SpanUser, Start: start})
	})
}

// hasBegun asks the driver, with a look that begins now.
func (k *task) hasBegun(ctx context.Context) bool {
	after := k.expect()
	for {
		if s := k.looked(); s.look > after {
			return s.seen != nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-k.seen:
		}
	}
}

// follow watches the process to its end, ending it when it is asked to or when the time is up.
func (k *task) follow(ctx context.Context) trainyard.Result {
	after := k.expect() // a look that began before may not show it
	t, stopped := &k.kept.Task, k.stopped
	limit, retry := stoppedTimer(), stoppedTimer()
	defer limit.Stop()
	defer retry.Stop()
	timed := t.Timeout == 0 || k.a.cfg.SelfStaged // what stages itself keeps its own time: only it knows when the process began
	for {
		if s := k.looked(); s.look > after {
			if s.seen == nil {
				return k.lost(ctx)
			}
			if s.seen.State == trainyard.TaskStaging {
				k.waits(s.seen.Progress)
			} else {
				k.note(s.seen)
			}
			if s.seen.State == trainyard.TaskEnded {
				return k.result(s.seen)
			}
			if !timed && s.seen.State == trainyard.TaskRunning {
				timed = true
				began := s.seen.Started
				if began.IsZero() {
					began = time.Now()
				}
				limit.Reset(time.Until(began.Add(t.Timeout)))
			}
		}
		select {
		case <-ctx.Done():
			return trainyard.Result{}
		case <-k.seen:
		case <-limit.C:
			k.stop(trainyard.ClassTimeout)
		case <-stopped:
			stopped = nil
			if err := k.save(); err != nil { // end it all the same
				k.a.log.Warn("write down why the task is ended", "task", k.id, "err", err)
			}
			k.retire(ctx)
			retry.Reset(0)
		case <-retry.C:
			retry.Reset(k.end(ctx))
		}
	}
}

// afterDrain is what a model server needs to end once the requests under way are answered.
const afterDrain = 2 * time.Second

// end has the driver end the process, and returns when to insist.
func (k *task) end(ctx context.Context) (again time.Duration) {
	grace := k.grace()
	k.a.log.Info("end task", "task", k.id, "why", k.asked(), "grace", grace)
	if err := k.a.cfg.Driver.Stop(ctx, k.id, grace); err != nil {
		k.a.log.Warn("end task", "task", k.id, "err", err)
		return 500 * time.Millisecond
	}
	return grace + 10*time.Second
}

// grace is how long the process may take to end.
func (k *task) grace() time.Duration {
	grace, serve, why := k.kept.Task.Grace, k.kept.Task.Serve, k.asked()
	if n := k.a.yields(); n != nil {
		return min(grace, n.grace())
	}
	switch {
	case why == trainyard.ClassNodeLost:
		return 0
	case serve != nil && serve.Drain > 0 && why != trainyard.ClassUnwell:
		return serve.Drain + afterDrain
	}
	return grace
}

// waits reports why an engine has not started the process yet.
func (k *task) waits(why string) {
	k.mu.Lock()
	known := k.report.Progress == why
	k.mu.Unlock()
	if !known {
		k.change(soon, func(r *trainyard.TaskReport) { r.Progress = why })
	}
}

// note puts what a look saw of the running task into the report.
func (k *task) note(seen *trainyard.Observation) {
	if k.state().Rank() < trainyard.TaskRunning.Rank() && seen.State == trainyard.TaskRunning {
		k.runs(seen)
	}
	if seen.State == trainyard.TaskRunning && seen.Progress != "" {
		k.away(seen.Progress, false)
	} else {
		k.back(false)
	}
	k.mu.Lock()
	known := !slices.ContainsFunc(seen.Notes, func(n string) bool { return !slices.Contains(k.report.Warnings, n) })
	spans := k.report.Spans
	known = known && (seen.Started.IsZero() || len(spans) > 0 && spans[len(spans)-1].Start.Equal(seen.Started))
	k.mu.Unlock()
	if known {
		return
	}
	k.change(soon, func(r *trainyard.TaskReport) {
		r.Warnings = slices.Clone(r.Warnings)
		for _, n := range seen.Notes {
			r.Warnings = trainyard.Warn(r.Warnings, n)
		}
		if !seen.Started.IsZero() {
			r.Spans = setSpan(r.Spans, trainyard.Span{Name: trainyard.SpanUser, Start: seen.Started})
		}
	})
}

// lost is the end of a task that the driver does not know any more.
func (k *task) lost(ctx context.Context) trainyard.Result {
	k.a.log.Warn("the driver does not know the task any more", "task", k.id)
	k.insist(ctx, "make sure that it does not run", func() error { return k.a.cfg.Driver.Remove(ctx, k.id) })
	return trainyard.Result{Class: trainyard.ClassNodeLost, ExitCode: -1,
		Message: fmt.Sprintf("node %s lost sight of the process: it may have been restarted", k.a.cfg.Node)}
}

// result is how the process ended: by itself, or because we ended it.
func (k *task) result(seen *trainyard.Observation) trainyard.Result {
	var res trainyard.Result
	if seen.Result != nil {
		res = *seen.Result
	}
	res.PeakMB = max(res.PeakMB, seen.PeakMB)
	end := seen.Ended
	if end.IsZero() {
		end = time.Now()
	}
	k.mu.Lock()
	why, since := k.kept.Stop, k.kept.Since
	k.mu.Unlock()
	// A driver says Canceled only of what it was asked to stop; its clock may be a tick behind ours.
	if why != "" && (res.Class == trainyard.ClassCanceled || !seen.Ended.Before(since)) {
		if seen.Killed > 0 {
			k.warn(fmt.Sprintf("the process was killed: it had not ended %s after it was asked to (SIGTERM)", rough(seen.Killed)))
		}
		r := k.ended("")
		res.Class, res.Message = r.Class, r.Message
	}
	k.change(soon, func(r *trainyard.TaskReport) {
		r.State = trainyard.TaskUploading
		if s := r.Serving; s != nil && s.Ready {
			r.Serving = &trainyard.Serving{Was: s.Was, Address: s.Address, Direct: s.Direct}
		}
		if len(seen.Spans) > 0 {
			r.Spans = slices.Clone(seen.Spans)
			return
		}
		if i := len(r.Spans) - 1; i >= 0 && r.Spans[i].Name == trainyard.SpanUser {
			r.Spans[i].End = end
		}
		r.Spans = setSpan(r.Spans, trainyard.Span{Name: trainyard.SpanUpload, Start: end})
	})
	return res
}

// rough is a time for people: in whole seconds, unless it is less than one.
func rough(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// finish has outputs and artifacts stored. If that fails, so has the task.
func (k *task) finish(ctx context.Context, res *trainyard.Result) {
	if res.Class == trainyard.ClassNodeLost && res.ExitCode < 0 {
		return // nothing is left that could be trusted
	}
	nudge(k.pump.wake)
	end := *res
	if k.a.cfg.Alone && end.Class == trainyard.ClassCanceled {
		end.Class = trainyard.ClassPreempted // whoever ended the pod or the allocation may try again; why it was ended is seen from outside
	}
	work, cancel := context.WithCancel(ctx)
	if k.asked() == "" {
		cancel()
		work, cancel = k.untilStopped(ctx)
	}
	defer cancel()
	var tries backoff
	for {
		err := k.a.cfg.Stage.Finish(work, k.kept.Task, end, progress{k})
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case work.Err() != nil:
			r := k.ended("while its outputs were being stored")
			res.Class, res.Message = r.Class, r.Message
			return
		case passing(err):
			k.a.log.Warn("finish task", "task", k.id, "err", err)
			pause(work, tries.next())
		case res.Class == trainyard.ClassOK:
			f := failed(err, trainyard.ClassData)
			res.Class, res.Message = f.Class, f.Message
			return
		default:
			k.warn("not all results could be stored: " + err.Error())
			return
		}
	}
}

// asked is why the task was asked to end; "" if it was not.
func (k *task) asked() trainyard.Class {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept.Stop
}

// ended is the result of a task that was asked to end.
func (k *task) ended(when string) *trainyard.Result {
	var text string
	switch why := k.asked(); why {
	case trainyard.ClassTimeout:
		text = fmt.Sprintf("it ran longer than its limit of %s (limits.timeout)", k.kept.Task.Timeout)
	case trainyard.ClassCanceled:
		text = "canceled"
	case trainyard.ClassPreempted:
		text = "its node gave way to dedicated work"
	case trainyard.ClassSibling:
		text = "ended because another node of the job failed"
	case trainyard.ClassNodeLost:
		text = fmt.Sprintf("ended because node %s had no word from the server for %s", k.a.cfg.Node, k.a.cfg.KillAfter)
	default:
		text = "ended: " + string(why)
	}
	k.mu.Lock()
	text = cmp.Or(k.kept.Why, text)
	k.mu.Unlock()
	if when != "" {
		text += " " + when
	}
	return &trainyard.Result{Class: k.asked(), ExitCode: -1, Message: text}
}

// failed is the result of a task that an error ended.
func failed(err error, otherwise trainyard.Class) *trainyard.Result {
	return &trainyard.Result{Class: classed(err, otherwise), ExitCode: -1, Message: err.Error()}
}

// untilStopped is ctx until the task is asked to end. Giving way does not count: what was made is stored first, for it is finished, or the
// checkpoint from which the work goes on.
func (k *task) untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-k.stopped:
			if k.asked() != trainyard.ClassPreempted && k.a.yields() == nil {
				cancel()
			}
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// setSpan replaces the span of the same name that is last, or adds one.
func setSpan(spans []trainyard.Span, s trainyard.Span) []trainyard.Span {
	if n := len(spans); n > 0 && spans[n-1].Name == s.Name {
		spans[n-1] = s
		return spans
	}
	return append(spans, s)
}

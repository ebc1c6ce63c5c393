package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// trust is how long the engine's events are relied on without a list of what there is: the engine may drop some for a slow reader.
const trust = time.Second

// Observe asks the engine what runs, and reads the rest from the tasks' folders. While the engine tells what ends, a list now and then will
// do. While it is away it is not known what runs, and Observe says so.
func (d *Driver) Observe(ctx context.Context) ([]trainyard.Observation, error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, errClosed
	}
	tasks := make([]*task, 0, len(d.tasks)) // before the engine is asked: what is known now is in its list, or gone
	begun := make(map[*task]bool, len(d.tasks))
	turn, ask := d.turn, !d.listening || time.Since(d.listed) > trust
	for _, t := range d.tasks {
		tasks = append(tasks, t)
		begun[t] = t.began
		ask = ask || !t.began && !t.starting || t.unpublished()
	}
	d.mu.Unlock()
	var seen map[string]container.Summary
	if ask {
		var err error
		if seen, err = d.list(ctx, turn); err != nil {
			return nil, err
		}
		d.publish(tasks, seen)
	}
	out := make([]trainyard.Observation, 0, len(tasks))
	for _, t := range tasks {
		c, exists := seen[string(t.id)]
		if !begun[t] && (!exists || c.State == stateCreated) {
			continue
		}
		o, held, err := d.observe(ctx, t, !ask || exists && lives(c.State))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.id.Words(), err)
		}
		if held {
			out = append(out, o)
		}
	}
	return out, nil
}

// list asks the engine for the tasks' containers, by task ID. turn is what Driver.turn was before.
func (d *Driver) list(ctx context.Context, turn int) (map[string]container.Summary, error) {
	asked := time.Now()
	all, err := d.engine.list(ctx, d.env.Group, labelTask)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]container.Summary, len(all))
	for _, c := range all {
		seen[c.Labels[labelTask]] = c
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.turn == turn { // else there was a time when nobody listened, which this list may not have seen the end of
		d.listed = asked
	}
	return seen, nil
}

// lives says whether a container in that state may still run something.
func lives(state container.ContainerState) bool {
	return state == stateRunning || state == statePaused || state == stateRestarts
}

// observe says how one task is. held is false if it was removed meanwhile, or did not begin.
func (d *Driver) observe(ctx context.Context, t *task, alive bool) (o trainyard.Observation, held bool, err error) {
	d.mu.Lock()
	known := t.began && (alive && !t.died || t.end != nil)
	o = t.observe()
	d.mu.Unlock()
	if known {
		return o, true, nil
	}
	t.op.Lock()
	defer t.op.Unlock()
	d.mu.Lock()
	gone, settled := t.gone, t.end != nil
	d.mu.Unlock()
	if gone {
		return o, false, nil
	}
	if !settled {
		if began, err := d.settle(ctx, t); err != nil || !began {
			return o, false, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.observe(), true, nil
}

// observe is called with Driver.mu held.
func (t *task) observe() trainyard.Observation {
	o := trainyard.Observation{ID: t.id, State: trainyard.TaskRunning, Started: t.started}
	if t.rec.Note != "" {
		o.Notes = []string{t.rec.Note}
	}
	if t.end != nil {
		result := t.end.Result
		o.State, o.Ended, o.Result, o.PeakMB, o.Killed = trainyard.TaskEnded, t.end.At, &result, result.PeakMB, t.end.Killed
	} else {
		o.Address = t.address()
	}
	return o
}

// settle finds out how a task is that is not known to run: it begins just now, or it is over. Its op lock is held. began is false for one
// that never did.
func (d *Driver) settle(ctx context.Context, t *task) (began bool, err error) {
	if d.toldAll(t) {
		return true, d.conclude(t, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	r, err := d.engine.ContainerInspect(ctx, d.container(t), client.ContainerInspectOptions{})
	s := r.Container.State
	switch {
	case errdefs.IsNotFound(err):
		s = nil
	case err != nil:
		return false, engineError(err)
	case s == nil:
		return false, errors.New("the engine does not say how its container is")
	case s.Status == stateCreated:
		return d.isBegun(t), nil
	}
	at, ok := d.beganAt(t)
	if !ok && d.isBegun(t) { // the task has deleted the mark
		d.mu.Lock()
		at, ok = t.started, true
		d.mu.Unlock()
	}
	if !ok && s == nil {
		return false, nil
	}
	if !ok { // run.sh did not get to it, or does just now
		at, _ = time.Parse(time.RFC3339Nano, s.StartedAt)
	}
	d.markBegun(t, at)
	if s != nil && lives(s.Status) {
		d.setDied(t.dir, false)
		return true, nil
	}
	return true, d.conclude(t, s)
}

// toldAll says whether the task is over and has said itself how that came: then the engine, which has said that its container ended, knows
// no more.
func (d *Driver) toldAll(t *task) bool {
	d.mu.Lock()
	over := t.began && t.died
	d.mu.Unlock()
	if !over {
		return false
	}
	st := d.readStatus(t.id)
	return st.ended && st.counts
}

// conclude writes down how a task ended. s is what the engine says of its container; nil: it is gone.
func (d *Driver) conclude(t *task, s *container.State) error {
	st := d.readStatus(t.id)
	d.mu.Lock()
	end := judge(t, st, s)
	d.mu.Unlock()
	if err := target.WriteJSON(d.path(t, endFile), end); err != nil {
		return fmt.Errorf("write down how it ended: %w", err)
	}
	d.mu.Lock()
	t.end = &end
	d.mu.Unlock()
	t.poke()
	return nil
}

// judge says how a task ended. It is called with Driver.mu held.
func judge(t *task, st status, s *container.State) ending {
	r := trainyard.Result{ExitCode: st.code, PeakMB: st.peakMB, LimitMB: t.rec.LimitMB}
	at, oom := st.at, st.ooms > 0
	if s != nil {
		oom = oom || s.OOMKilled
		if !st.ended {
			r.ExitCode = s.ExitCode
			at, _ = time.Parse(time.RFC3339Nano, s.FinishedAt)
		}
	} else if !st.ended {
		r.ExitCode = 128 + 9
	}
	if at.IsZero() || at.Year() < 2000 {
		at = time.Now()
	}
	if at.Before(t.started) {
		at = t.started // the file's clock is coarser
	}
	if oom && r.PeakMB == 0 {
		r.PeakMB = r.LimitMB
	}
	switch {
	case t.stop != nil: // an end is seen before it can be asked for, or it is because of that
		r.Class, r.Message = trainyard.ClassCanceled, "stopped"
	case st.term:
		r.Class = trainyard.ClassNodeLost
		r.Message = fmt.Sprintf("its container was told to stop from outside (the Docker engine was shut down or restarted, or somebody ran \"docker stop\"); then: %s", exitMessage(st.code))
	case st.ended && st.code == 0:
		r.Class = trainyard.ClassOK
	case oom:
		r.Class, r.Message = trainyard.ClassOutOfMemory, target.OutOfMemory(r)
	case st.ended:
		r.Class, r.Message = trainyard.ClassUser, exitMessage(st.code)
	case s == nil:
		r.Class, r.Message = trainyard.ClassNodeLost, "its container was removed from outside while it ran, and left no exit status"
	default:
		r.Class = trainyard.ClassNodeLost
		r.Message = fmt.Sprintf("its container was ended from outside while it ran (the Docker engine or this computer was restarted, or somebody ran \"docker kill\"): %s",
			strings.TrimSuffix(exitMessage(r.ExitCode)+"; "+s.Error, "; "))
	}
	end := ending{Started: t.started, At: at, Result: r}
	if t.stop != nil && !st.counts && (s == nil || s.ExitCode == 128+9) { // else run.sh came to its end before SIGKILL did
		end.Killed = t.stop.Killed
	}
	return end
}

// exitMessage puts an exit code into words; codes above 128 are how shells tell of signals.
func exitMessage(code int) string {
	if code > 128 && code < 128+65 {
		return fmt.Sprintf("exit code %d: ended by signal %d (%s)", code, code-128, signalName(code-128))
	}
	return fmt.Sprintf("exit code %d", code)
}

// output is the end of what a container itself has said, where the engine has it.
func (d *Driver) output(ctx context.Context, name string) string {
	r, err := d.engine.ContainerLogs(ctx, name, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20"})
	if err != nil {
		return ""
	}
	defer r.Close()
	var text bytes.Buffer
	_, _ = stdcopy.StdCopy(&text, &text, io.LimitReader(r, 64<<10))
	return text.String()
}

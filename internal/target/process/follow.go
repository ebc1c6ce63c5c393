package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// decideWithin bounds how long a process whose agent died may take to find its gate closed.
const decideWithin = 2 * time.Second

// stopOnItsWay is how long a task that has died of SIGTERM waits for word that it was to end.
const stopOnItsWay = time.Second

// settlePause is between looks at what a stopped task's main process left behind. It is on no job's normal path.
const settlePause = 10 * time.Millisecond

// exit is what waiting for a process told.
type exit struct {
	abandoned bool // nothing: the driver is closing
	known     bool // the process was ours to wait for, and ended with code
	code      int  // 128+n for signal n
	peakMB    int64
}

// adopt reads every folder in Env.Dir. A task that never began leaves no trace; the others are shown and followed.
func (d *Driver) adopt() error {
	entries, err := os.ReadDir(d.env.Dir)
	if err != nil {
		return fmt.Errorf("list tasks: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := d.adoptOne(e.Name()); err != nil {
				return fmt.Errorf("adopt task in %s: %w", e.Name(), err)
			}
		}
	}
	return nil
}

func (d *Driver) adoptOne(name string) error {
	folder := d.path(name, "")
	_, rec, ok, err := readTask(folder)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if !ok || rec.ID.Dir() != name {
		d.host.sweep(name)
		return target.RemoveAll(folder)
	}
	p := d.host.adopt(rec, folder)
	began, err := d.decide(p, folder)
	if err != nil {
		return err
	}
	if !began {
		d.env.Log.Info("task had not begun when its agent ended; it may be started again", "task", rec.ID)
		return errors.Join(p.kill(), p.remove(), target.RemoveAll(folder))
	}
	t := newTask(rec.ID, name)
	t.rec, t.proc, t.began = rec, p, true
	t.lost = rec.Place != "" && rec.Place != d.env.Place
	var stop stopRecord
	if ok, err := target.ReadJSON(filepath.Join(folder, stopFile), &stop); err != nil {
		return err
	} else if ok {
		t.stop = &stop
	}
	var end ending
	if ok, err := target.ReadJSON(filepath.Join(folder, endFile), &end); err != nil {
		return err
	} else if ok {
		t.end = &end
		close(t.done)
	}
	d.tasks[name] = t
	d.resume(t)
	return nil
}

// resume goes on with an adopted task where the agent before us was ended.
func (d *Driver) resume(t *task) {
	switch {
	case t.end != nil:
	case t.lost:
		if err := t.proc.kill(); err != nil { // what the place did not take with it
			d.env.Log.Warn("processes of a task whose place is gone do not die", "task", t.id, "err", err)
		}
		d.settle(t, exit{})
	case !t.proc.alive() && (t.stop == nil || time.Now().After(t.stop.Deadline)):
		d.settle(t, exit{})
	default:
		if t.stop != nil {
			t.proc.terminate() // the agent before us may have died before it did
		}
		d.follows.Add(1)
		go d.follow(t)
	}
}

// decide says whether the process got through its gate. One that is still at it finds the gate closed in a moment, and if it does not,
// it is killed: whether "b" was written by then is certain.
func (d *Driver) decide(p *process, folder string) (began bool, err error) {
	deadline := time.Now().Add(decideWithin)
	for {
		alive := p.alive() // before the file is read: a process that is gone has written all it will
		s, _, _, err := readTask(folder)
		if err != nil || s.began || !alive {
			return s.began, err
		}
		if time.Now().After(deadline) {
			if err := p.kill(); err != nil {
				return false, err
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// follow waits for the task to end, kills it when a stop has run out of grace, and sets its end.
func (d *Driver) follow(t *task) {
	defer d.follows.Done()
	exited := make(chan exit, 1)
	go func() { exited <- t.proc.wait() }()
	for {
		var grace <-chan time.Time
		if deadline, stopping := d.deadline(t); stopping {
			grace = time.After(time.Until(deadline))
		}
		select {
		case x := <-exited:
			if !x.abandoned {
				d.settle(t, x)
			}
			return
		case <-t.nudge:
		case <-grace:
			d.late(t, t.proc.alive())
			if err := t.proc.kill(); err != nil {
				d.env.Log.Warn("task does not die", "task", t.id, "err", err)
			}
			x := <-exited
			if !x.abandoned {
				d.settle(t, x)
			}
			return
		}
	}
}

// deadline is until when a task that is being stopped may run.
func (d *Driver) deadline(t *task) (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.stop == nil {
		return time.Time{}, false
	}
	return t.stop.Deadline, true
}

// settle ends what the task's main process left behind, and says how the task ended. Children of a task that is being stopped keep their
// grace: a shell dies of SIGTERM at once, the training that it waits for may be writing a checkpoint. SIGTERM that did not come from here may
// be that of an engine which ends all processes at once, ours with the task's: then a stop is on its way.
func (d *Driver) settle(t *task, x exit) {
	told := time.Now()
	if x.code == 128+15 {
		told = told.Add(stopOnItsWay)
	}
	for {
		deadline, stopping := d.deadline(t)
		empty := t.proc.empty()
		if now := time.Now(); !stopping && !now.Before(told) || stopping && (now.After(deadline) || empty) {
			d.late(t, stopping && !empty)
			break
		}
		select {
		case <-d.closing:
			return
		case <-time.After(settlePause):
		}
	}
	if err := t.proc.killRest(); err != nil {
		d.env.Log.Warn("task has ended, processes of it do not die", "task", t.id, "err", err)
	}
	folder := d.path(t.dir, "")
	d.mu.Lock()
	end, plain := judge(t, folder, x, d.env.Lost)
	d.mu.Unlock()
	if !plain {
		if err := target.WriteJSON(filepath.Join(folder, endFile), end); err != nil {
			d.env.Log.Warn("how the task ended could not be written down", "task", t.id, "err", err)
		}
	}
	d.mu.Lock()
	t.end = &end
	close(t.done)
	d.mu.Unlock()
	d.signal()
}

// late notes that a stopped task's grace is over, and something of it still runs.
func (d *Driver) late(t *task, runs bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if runs && t.stop != nil {
		t.killed = t.stop.Deadline.Sub(t.stop.At)
	}
}

// judge says how a task ended; lost is for one whose place is gone. plain: the exit file alone will say the same again.
func judge(t *task, folder string, x exit, lost trainyard.Result) (end ending, plain bool) {
	s, err := t.said(folder)
	at := s.at
	if !s.ended {
		at = time.Now()
	}
	if at.Before(t.rec.Started) {
		at = t.rec.Started // the file's clock is coarser than ours
	}
	peak, ooms := t.proc.usage()
	if peak == 0 {
		peak = x.peakMB // of its largest process alone
	}
	r := trainyard.Result{ExitCode: s.code, PeakMB: peak, LimitMB: t.rec.LimitMB}
	if !s.ended {
		r.ExitCode = 128 + 9
		if x.known {
			r.ExitCode = x.code
		}
	}
	switch {
	case t.stop != nil: // an end is seen before it can be asked for, or it is because of that
		r.Class, r.Message = trainyard.ClassCanceled, "stopped"
	case s.ended && s.code == 0:
		r.Class = trainyard.ClassOK
	case ooms > 0:
		r.Class, r.Message = trainyard.ClassOutOfMemory, target.OutOfMemory(r)
	case t.lost && (!s.ended || s.code == 128+9 || s.code == 128+15): // its processes were killed one after the other
		r.Class, r.Message = cmp.Or(lost.Class, trainyard.ClassNodeLost), cmp.Or(lost.Message, "what it ran in is gone")
	case s.ended:
		r.Class, r.Message = trainyard.ClassUser, exitMessage(s.code)
		if s.code == 128+9 && t.rec.Groups.Memory == "" {
			r.Message += "; if nobody sent it, the computer was out of memory"
		}
	case t.proc.otherBoot():
		r.Class, r.Message = trainyard.ClassNodeLost, "the computer was restarted while it ran"
	case !s.began && err == nil:
		r.Class, r.Message = trainyard.ClassStart, "its shell was ended before the command began: "+exitMessage(r.ExitCode)
	default:
		r.Class, r.Message = lostClass, lostMessage(r.ExitCode, x.known)
	}
	return ending{At: at, Result: r, Killed: t.killed}, s.ended && (r.Class == trainyard.ClassOK || r.Class == trainyard.ClassUser)
}

// exitMessage puts an exit code into words; codes above 128 are how shells tell of signals.
func exitMessage(code int) string {
	if code > 128 && code < 128+65 {
		return fmt.Sprintf("exit code %d: ended by signal %d (%s)", code, code-128, signalName(code-128))
	}
	return fmt.Sprintf("exit code %d", code)
}

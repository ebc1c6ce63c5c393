package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
)

// stuck is how long Slurm may take to say that a job has ended of which every rank has told its end.
const stuck = time.Minute

// placed lists the tasks that have not ended and of which Slurm has a job.
func (d *Driver) placed() (tasks []*task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tasks {
		if t.began && t.ending == nil && t.job != "" {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// judge ends a task if its signs alone say how it ended, or if Slurm has had long enough to say more and is not just saying it.
// Driver.looking is held.
func (d *Driver) judge(t *task) {
	d.mu.Lock()
	f := t.facts()
	waited := !t.over.IsZero() && time.Since(t.over) > stuck && d.view.asking == nil && !d.settled(t)
	over := t.ending != nil || t.gone
	d.mu.Unlock()
	e, said := f.certain()
	switch {
	case over:
	case e != nil && said:
		d.show(t, e) // whoever comes after us reads the same
	case e != nil:
		d.conclude(t, e)
	case f.failing():
		d.stop(t, f.rec.Grace, true)
	case waited:
		d.conclude(t, f.untold())
	}
}

// judgeAll ends the tasks whose jobs are over, as Slurm has just said. It fails if Slurm had to be asked for details and could not be.
func (d *Driver) judgeAll(ctx context.Context) error {
	for _, t := range d.placed() {
		if err := d.examine(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// settled says whether Slurm, asked after the task's own last word, has said that its job is over, or twice that it knows of none. Driver.mu is held.
func (d *Driver) settled(t *task) bool {
	fresh := t.over.IsZero() || d.view.asked.After(t.over)
	return fresh && (t.missed > 1 || t.missed == 0 && t.seen.Ended())
}

// putBack says whether Slurm, asked after the task's script was seen to have begun, has said that its job waits: it took it off its nodes. Driver.mu
// is held.
func (d *Driver) putBack(t *task) bool {
	return !t.running.IsZero() && d.view.asked.After(t.noticed) && t.missed == 0 && t.seen.Waits()
}

// examine ends a task if its job is over, or waits after it has begun.
func (d *Driver) examine(ctx context.Context, t *task) error {
	d.mu.Lock()
	settled, back := d.settled(t), d.putBack(t)
	j, missed, job, mark, ours := t.seen, t.missed, t.job, t.rec.Mark, t.stop != nil
	d.mu.Unlock()
	if !settled && !back {
		return nil
	}
	claimed, restarts := d.claimed(t)
	if claimed != "" && claimed != job { // two jobs were made, and this one ran nothing
		d.env.Log.Info("another job runs the task", "task", t.id, "job", claimed)
		_ = d.number(t, claimed)
		d.mu.Lock()
		t.seen = slurm.Job{}
		d.mu.Unlock()
		return nil
	}
	detail, err := d.client.Job(ctx, job, mark)
	switch {
	case err == nil && (detail.Ended() || back && claimed != "" && detail.Waits()):
		j = detail
	case errors.Is(err, slurm.ErrUnknown) && missed > 1:
		j = slurm.Job{ID: job}
	case err == nil || errors.Is(err, slurm.ErrUnknown):
		return nil // it moves; the next look will see
	default:
		return err
	}
	if j.State == slurm.Cancelled && j.By == "" && !ours {
		if a, ok := d.client.Accounted(ctx, job, mark); ok {
			j.By = a.By
		}
	}
	d.sentence(t, j, restarts)
	if j.Waits() { // it would begin again, and find that it has run
		if err := d.client.CancelPending(ctx, slurm.Ref{ID: job, Name: mark}); err != nil {
			d.env.Log.Warn("take a job out of the queue that Slurm put back there", "task", t.id, "job", job, "err", err)
		}
	}
	return nil
}

// sentence ends a task whose job has ended, or waits again, as j says, unless its signs, or somebody who removed it, were quicker than Slurm's
// answers. restarts is how often the job had been put back in the queue when its script began.
func (d *Driver) sentence(t *task, j slurm.Job, restarts int) {
	tail, oom := slurm.Tail(d.client, d.path(t.name, slurmFile)), d.killedForMemory(t)
	d.looking.Lock()
	defer d.looking.Unlock()
	d.judge(t)
	d.mu.Lock()
	f, over := t.facts(), t.ending != nil || t.gone
	d.mu.Unlock()
	if f.tail, f.oom, f.restarts = tail, oom, restarts; !over {
		d.conclude(t, f.verdict(j))
	}
}

// facts are what is known of a task whose end is to be judged.
type facts struct {
	rec     record
	stop    *stopRecord
	running time.Time
	ends    map[int]trainyard.TaskEnd
	tail    string // the last that Slurm said into the job's own file
	oom     bool   // it said there that memory ran out

	restarts int // how often Slurm had put the job back in its queue when the script began
}

// killedForMemory looks for what slurmstepd says of a step that used too much: the state of a whole gang tells nothing of that.
func (d *Driver) killedForMemory(t *task) bool {
	data, err := slurm.Read(d.client, d.path(t.name, slurmFile))
	return err == nil && (bytes.Contains(data, []byte("oom-kill event")) || bytes.Contains(data, []byte("oom_kill event")))
}

// putBack says whether Slurm has put a job back in its queue since its script began.
func (f *facts) putBack(j slurm.Job) bool {
	return !f.running.IsZero() && (j.Waits() || j.Restarts > f.restarts)
}

func (t *task) facts() facts {
	f := facts{rec: t.rec, running: t.running, ends: make(map[int]trainyard.TaskEnd, len(t.ends))}
	if t.stop != nil {
		s := *t.stop
		f.stop = &s
	}
	for rank, e := range t.ends {
		f.ends[rank] = e
	}
	return f
}

func (f *facts) ranks() int { return f.rec.ranks() }
func (f *facts) all() bool  { return len(f.ends) >= f.ranks() }

// asked says whether somebody asked the task to stop.
func (f *facts) asked() bool { return f.stop != nil && !f.stop.Sibling }

// told puts the ends of the ranks, as far as they are there, into one: the first that failed by itself is that of all.
func (f *facts) told() *ending {
	e := &ending{Started: f.running, Result: trainyard.Result{Class: trainyard.ClassOK}}
	var bad *trainyard.TaskEnd
	for rank := range f.ranks() {
		end, ok := f.ends[rank]
		if !ok {
			continue
		}
		r := &end.Result
		e.Result.PeakMB = max(e.Result.PeakMB, r.PeakMB)
		if rank == 0 || e.Spans == nil {
			e.Spans = end.Spans
		}
		if !end.Started.IsZero() && (e.Started.Equal(f.running) || end.Started.Before(e.Started)) {
			e.Started = end.Started
		}
		if end.Ended.After(e.Ended) {
			e.Ended = end.Ended
		}
		for _, w := range end.Warnings {
			e.Notes = trainyard.Warn(e.Notes, w)
		}
		if r.Class != trainyard.ClassOK {
			if f.ranks() > 1 && r.Message != "" {
				r.Message = fmt.Sprintf("rank %d: %s", f.rec.Lo+rank, r.Message)
			}
			if bad == nil || worse(end, *bad) {
				bad = &end
			}
		}
	}
	if e.Ended.IsZero() {
		e.Ended = time.Now()
	}
	if bad != nil {
		peak := e.Result.PeakMB
		e.Result = bad.Result
		e.Result.PeakMB = peak
	}
	if f.asked() {
		e.Result.Class, e.Result.Message = trainyard.ClassCanceled, "stopped"
	}
	return e
}

// untold is told for a task of which Slurm does not say that it is over. That a program was asked to end is no word of its own: it was canceled
// only if somebody here asked.
func (f *facts) untold() *ending {
	e := f.told()
	if r := &e.Result; r.Class == trainyard.ClassCanceled && !f.asked() {
		r.Class, r.Message = trainyard.ClassNodeLost, fmt.Sprintf("it was asked to end (SIGTERM), and not from here; Slurm did not say why within %s", stuck)
	}
	return e
}

// worse says whether a is more to blame for the end of all than b: it was not ended by others, or it ended first.
func worse(a, b trainyard.TaskEnd) bool {
	ours, theirs := a.Result.Class == trainyard.ClassCanceled, b.Result.Class == trainyard.ClassCanceled
	if ours != theirs {
		return theirs
	}
	return a.Ended.Before(b.Ended)
}

// failing says whether a rank has failed that others may still wait for.
func (f *facts) failing() bool {
	return f.stop == nil && len(f.ends) > 0 && !f.all() && f.told().Result.Class != trainyard.ClassOK
}

// certain is the end of a task of which the ranks alone say enough: not if one was killed, or was asked to stop and not by us, since then
// Slurm knows why. said means that nothing of it was made up.
func (f *facts) certain() (e *ending, said bool) {
	if !f.all() {
		return nil, false
	}
	e = f.told()
	r := e.Result
	switch {
	case f.asked():
	case r.Class == trainyard.ClassCanceled:
		return nil, false
	case r.Class == trainyard.ClassUser && (f.rec.Resources.MemoryMB > 0 || r.ExitCode == 128+9):
		return nil, false
	}
	for _, end := range f.ends {
		said = said || !end.Ended.IsZero()
	}
	return e, said
}

// verdict is the end of a task whose job has ended as j says; a j without a state is one that nobody knows any more.
func (f *facts) verdict(j slurm.Job) *ending {
	e := f.told()
	if len(f.ends) == 0 {
		e.Result.ExitCode = -1
		if !j.End.IsZero() {
			e.Ended = j.End
		}
		if e.Ended.Before(e.Started) {
			e.Ended = e.Started
		}
	}
	r := &e.Result
	code := r.ExitCode
	if len(f.ends) == 0 && !f.running.IsZero() {
		code = 128 + 9
	}
	set := func(class trainyard.Class, code int, format string, args ...any) {
		r.Class, r.ExitCode, r.Message = class, code, fmt.Sprintf(format, args...)
	}
	switch {
	case f.asked():
		if !f.all() { // else its programs have said how it ended
			e.Killed = f.stop.Killed
		}
		set(trainyard.ClassCanceled, code, "stopped")
		if code < 0 {
			r.Message = "stopped before Slurm began it"
		}
	case j.State != slurm.Cancelled && f.putBack(j):
		set(trainyard.ClassPreempted, -1, "Slurm took job %s off its nodes and put it back in its queue (requeue)", j.ID)
	case j.State == slurm.OutOfMemory, j.State == slurm.Failed && f.oom:
		r.LimitMB = f.rec.Resources.MemoryMB
		r.PeakMB = max(r.PeakMB, r.LimitMB) // all together; programs know only their largest
		if code <= 0 {
			code = 128 + 9
		}
		set(trainyard.ClassOutOfMemory, code, "%s", f.outOfMemory(*r, j))
	case j.State == slurm.Timeout, j.State == slurm.Deadline:
		set(trainyard.ClassTimeout, code, "Slurm ended it at its time limit of %s; ask for more (limits.timeout, or timeLimit of the compute)", j.TimeLimit)
	case j.State == slurm.Preempted:
		set(trainyard.ClassPreempted, -1, "Slurm took its nodes (%s) for a job that goes before it (preempted)", j.NodeList)
	case slices.Contains([]string{slurm.NodeFail, slurm.BootFail, slurm.Revoked}, j.State):
		set(trainyard.ClassNodeLost, -1, "Slurm says that a node of the job failed (%s, %s)", j.State, j.NodeList)
	case j.State == slurm.Cancelled:
		by := ""
		if j.By != "" {
			by = " by " + j.By
		}
		set(trainyard.ClassCanceled, code, "job %s was canceled in Slurm (scancel%s)", j.ID, by)
	case f.all() && r.Class == trainyard.ClassCanceled:
		set(trainyard.ClassNodeLost, code, "it was asked to end (SIGTERM), and not from here: by a signal in Slurm (scancel --signal, or --signal of its job), "+
			"or on its node; Slurm says %s of job %s", cmp.Or(j.State, "nothing"), j.ID)
	case f.all() || r.Class != trainyard.ClassOK && r.Class != trainyard.ClassCanceled: // the program has said it
	case j.State == "":
		set(trainyard.ClassNodeLost, -1, "Slurm does not know job %s any more, and it left no word of its end", j.ID)
	default:
		f.unsaid(r, j)
	}
	return e
}

// unsaid is the result of a job of which not all ranks left word.
func (f *facts) unsaid(r *trainyard.Result, j slurm.Job) {
	tail := ""
	if f.tail != "" {
		tail = ": " + f.tail
	}
	exit := fmt.Sprintf("exit code %d", j.ExitCode)
	if j.Signal > 0 {
		exit = fmt.Sprintf("signal %d", j.Signal)
	}
	switch {
	case f.running.IsZero():
		*r = trainyard.Result{Class: trainyard.ClassStart, ExitCode: -1, Message: fmt.Sprintf("Slurm could not start job %s on %s (%s, %s); "+
			"see whether the nodes see folder and program under the same path%s", j.ID, j.NodeList, j.State, exit, tail)}
	case len(f.ends) > 0:
		*r = trainyard.Result{Class: trainyard.ClassNodeLost, ExitCode: -1, PeakMB: r.PeakMB,
			Message: fmt.Sprintf("job %s ended (%s, %s), and %d of its %d ranks left no word%s", j.ID, j.State, exit, f.ranks()-len(f.ends), f.ranks(), tail)}
	case j.ExitCode == 126 || j.ExitCode == 127:
		*r = trainyard.Result{Class: trainyard.ClassStart, ExitCode: -1,
			Message: fmt.Sprintf("node %s could not run this program; see whether it sees it under the same path (setting folder)%s", j.NodeList, tail)}
	case j.Signal > 0:
		*r = trainyard.Result{Class: trainyard.ClassUser, ExitCode: 128 + j.Signal,
			Message: fmt.Sprintf("job %s was ended by signal %d; if nobody sent it, node %s was out of memory%s", j.ID, j.Signal, j.NodeList, tail)}
	case j.ExitCode > 0:
		*r = trainyard.Result{Class: trainyard.ClassUser, ExitCode: j.ExitCode,
			Message: fmt.Sprintf("job %s ended with %s and left no word of its end%s", j.ID, exit, tail)}
	default:
		*r = trainyard.Result{Class: trainyard.ClassNodeLost, ExitCode: -1, Message: fmt.Sprintf("job %s ended (%s) and left no word of its end%s", j.ID, j.State, tail)}
	}
}

func (f *facts) outOfMemory(r trainyard.Result, j slurm.Job) string {
	limit := "the memory that Slurm gave it"
	if r.LimitMB > 0 {
		limit = fmt.Sprintf("its limit of %d MB of memory", r.LimitMB)
	}
	return fmt.Sprintf("used all of %s (peak %d MB) on %s and was ended by Slurm; ask for more, or use less memory at once", limit, r.PeakMB, j.NodeList)
}

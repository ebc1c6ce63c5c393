package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
)

const (
	soon   = time.Second           // how old what Slurm said may be while tasks wait or are being ended
	later  = 5 * time.Second       // and while all of them run
	share  = 20                    // and at least so many times as long as Slurm takes to answer, but not so old that tasks' own word would do
	rest   = 3                     // the same while it does not answer
	orphan = 30 * time.Second      // how long a job whose task is gone may take to end
	peek   = 50 * time.Millisecond // how often the signs are looked at
)

// view is what Slurm last said, and when. Guarded by Driver.mu, but for strange, which is of the one who asks.
type view struct {
	asked   time.Time            // when the question was put that was over last, answered or not; zero if none was
	took    time.Duration        // until then
	err     error                // why what is known of the tasks is not whole
	asking  chan struct{}        // closed when the question under way is answered; nil if none is
	strange map[string]time.Time // jobs of ours without a task, and when each was first seen
}

// look brings what is known of all tasks up to date with the signs that they left. It has Slurm asked for the rest, and does not wait for the
// answer: a controller with much to do takes seconds, in which other tasks begin and end. What it said before stands until then; only if it
// has never been asked nothing does.
func (d *Driver) look(ctx context.Context) error {
	if err := d.heed(); err != nil {
		return err
	}
	answered, err := d.inquire()
	if answered == nil || err != nil {
		return err
	}
	select {
	case <-answered:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.view.err
}

// heed reads the signs, and ends the tasks of which they alone say how they ended.
func (d *Driver) heed() error {
	d.looking.Lock()
	defer d.looking.Unlock()
	if _, err := d.signs(); err != nil {
		return err
	}
	for _, t := range d.placed() {
		d.judge(t)
	}
	return nil
}

// inquire has Slurm asked if it need be, and what it said is too old. err is what came of the last question; answered is to be waited for,
// where there was none.
func (d *Driver) inquire() (answered <-chan struct{}, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := &d.view
	most, need := d.patience()
	if !need {
		v.err = nil // of tasks that there are no more
		return nil, nil
	}
	if v.asking == nil && time.Since(v.asked) >= v.pace(most) {
		if d.closed {
			return nil, errClosed
		}
		v.asking = make(chan struct{})
		d.work.Go(d.ask)
	}
	if v.asked.IsZero() {
		return v.asking, nil
	}
	return nil, v.err
}

// pace is how long after one question the next may be put, where the answer is to be no older than most.
func (v *view) pace(most time.Duration) time.Duration {
	if v.err != nil {
		return max(most, soon, rest*v.took)
	}
	return max(most, min(share*v.took, stuck/2))
}

// patience is how old what Slurm said may be; need is false if it need not be asked at all. Driver.mu is held.
func (d *Driver) patience() (most time.Duration, need bool) {
	most = later
	for _, t := range d.tasks {
		switch {
		case t.ending != nil || t.began && t.job == "":
		case !t.began: // of an agent that died, perhaps
			if t.rec.Mark != "" && (d.view.asked.IsZero() || d.view.err != nil) {
				need, most = true, 0
			}
		case t.running.IsZero() || !t.over.IsZero() || t.stop != nil || t.missed > 0 || t.seen.Ended():
			need, most = true, min(most, soon)
		default:
			need = true
		}
	}
	return most, need
}

// ask asks Slurm for all our jobs, takes note of what it says, and ends the tasks whose jobs are over.
func (d *Driver) ask() {
	asked := time.Now()
	jobs, err := d.client.Queue(d.life)
	took := time.Since(asked)
	if err == nil {
		d.answered(jobs, asked)
	}
	d.mu.Lock()
	d.view.asked, d.view.took = asked, took
	if err != nil {
		d.view.err = err
	}
	d.mu.Unlock()
	if err == nil {
		err = d.heed() // an end that Slurm knows of has left its signs by now
	}
	if err == nil {
		err = d.judgeAll(d.life)
	}
	d.mu.Lock()
	d.view.err = err
	close(d.view.asking)
	d.view.asking = nil
	d.mu.Unlock()
	d.signal()
}

// answered takes note of what Slurm said when it was asked for all our jobs.
func (d *Driver) answered(jobs []slurm.Job, asked time.Time) {
	byName := make(map[string]slurm.Job, len(jobs))
	for _, j := range jobs {
		if have, twice := byName[j.Name]; strings.HasSuffix(j.Name, d.suffix) && (!twice || have.Ended()) {
			byName[j.Name] = j
		}
	}
	d.mu.Lock()
	tasks := make([]*task, 0, len(d.tasks))
	for _, t := range d.tasks {
		tasks = append(tasks, t)
	}
	d.mu.Unlock()
	for _, t := range tasks {
		d.apply(t, byName, asked)
	}
	d.clear(byName, asked)
}

// apply takes note of what Slurm says of one task, and takes it out of byName.
func (d *Driver) apply(t *task, byName map[string]slurm.Job, asked time.Time) {
	d.mu.Lock()
	j, found := byName[t.rec.Mark]
	delete(byName, t.rec.Mark)
	lost := !t.began && t.ending == nil
	switch {
	case t.job == "":
	case found:
		t.seen, t.missed = j, 0
		if j.ID != t.job && !j.Ended() {
			t.job = j.ID // two were made; the one that has ended ran nothing
		}
	case asked.After(t.since):
		t.missed++
	}
	d.mu.Unlock()
	if !lost || !found && d.claim(t) == "" || !t.op.TryLock() { // who holds it starts or removes it, and looks for itself
		return
	}
	defer t.op.Unlock()
	d.mu.Lock()
	lost = !t.began && t.rec.Mark != "" && !t.gone
	d.mu.Unlock()
	if !lost {
		return
	}
	job := j.ID
	if !found {
		job = d.claim(t)
	}
	d.env.Log.Info("found the job of an agent that died", "task", t.id, "job", job)
	if err := d.number(t, job); err != nil {
		d.env.Log.Warn("the number of a job could not be written down", "task", t.id, "job", job, "err", err)
	}
	d.mu.Lock()
	t.seen = j
	stopped := t.stop != nil
	d.mu.Unlock()
	if stopped {
		d.tend(t)
	}
}

// clear ends jobs of ours whose tasks are gone. They had time to end by themselves.
func (d *Driver) clear(left map[string]slurm.Job, now time.Time) {
	strange := map[string]time.Time{}
	for _, j := range left {
		if j.Ended() || j.State == slurm.Completing {
			continue
		}
		since, known := d.view.strange[j.ID]
		if !known {
			since = now
		}
		strange[j.ID] = since
		if now.Sub(since) > orphan {
			d.env.Log.Warn("cancel a job whose task is gone", "job", j.ID, "name", j.Name)
			if err := d.client.Cancel(d.life, slurm.Ref{ID: j.ID, Name: j.Name}); err != nil {
				d.env.Log.Warn("cancel a job whose task is gone", "job", j.ID, "err", err)
			}
		}
	}
	d.view.strange = strange
}

// signs reads what tasks have left since the last look, and says whether there was any.
func (d *Driver) signs() (news bool, err error) {
	dir := filepath.Join(d.base, signsFolder)
	entries, err := d.client.List(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		dot := strings.LastIndexByte(e.Name(), '.')
		if dot < 0 {
			continue
		}
		name, part := e.Name()[:dot], e.Name()[dot+1:]
		rank, err := strconv.Atoi(part)
		if err != nil && part != beginSign {
			continue // on its way to its name
		}
		d.mu.Lock()
		t := d.tasks[name]
		known := t != nil && (t.ending != nil || part == beginSign && !t.running.IsZero() || part != beginSign && t.has(rank))
		d.mu.Unlock()
		switch {
		case known:
		case t == nil:
			_ = d.client.Remove(filepath.Join(dir, e.Name())) // of a task that was removed while its program wrote
		default:
			read, err := d.sighted(t, filepath.Join(dir, e.Name()), part, rank)
			if err != nil {
				return news, err
			}
			news = news || read
		}
	}
	return news, nil
}

func (t *task) has(rank int) bool {
	_, ok := t.ends[rank]
	return ok
}

// sighted takes note of one sign. It says false if it is not whole yet.
func (d *Driver) sighted(t *task, path, part string, rank int) (bool, error) {
	if part == beginSign {
		info, err := d.client.Stat(path)
		if err != nil {
			return false, missing(err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		t.running, t.noticed = info.ModTime(), time.Now()
		if t.job == "" {
			poke(t.nudge) // the sign has its job's number
		}
		return true, nil
	}
	data, err := slurm.Read(d.client, path)
	if err != nil {
		return false, missing(err)
	}
	var end trainyard.TaskEnd
	if json.Unmarshal(data, &end) != nil {
		return false, nil
	}
	if end.Result.Class == "" {
		return false, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.ends[rank] = end; len(t.ends) >= t.rec.ranks() && t.over.IsZero() {
		t.over = time.Now()
	}
	return true, nil
}

// missing is nil for a file that went while we looked.
func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// watch looks for signs while there are tasks, and tells the agent of news. A folder on a network file system tells nobody when it
// changes, so it is looked at; that is one small call however many tasks there are.
func (d *Driver) watch() {
	var last, changed time.Time // by the folder's clock, and when that was seen
	pace := peek
	var took looks
	for {
		tick := time.NewTimer(pace)
		if !d.live() {
			tick.Reset(time.Hour)
		}
		select {
		case <-d.life.Done():
			tick.Stop()
			return
		case <-d.kick:
		case <-tick.C:
		}
		tick.Stop()
		began := time.Now()
		info, err := d.client.Stat(filepath.Join(d.base, signsFolder))
		length := time.Since(began)
		if err == nil {
			took.add(length)
			length = took.shortest()
		}
		pace = max(peek, share*length)
		if err != nil || info.ModTime().Equal(last) && time.Since(changed) > 2*time.Second { // a clock may be coarse
			continue
		}
		if !info.ModTime().Equal(last) {
			last, changed = info.ModTime(), time.Now()
		}
		if news, err := d.signs(); err != nil {
			d.env.Log.Warn("look for what tasks left", "err", err)
		} else if news {
			d.signal()
		}
	}
}

// looks is how long the last few looks took that found the folder.
type looks struct {
	last [4]time.Duration // in a ring; 0: none yet
	next int
}

func (l *looks) add(d time.Duration) {
	l.last[l.next] = max(d, 1)
	l.next = (l.next + 1) % len(l.last)
}

// shortest is the least of them: of a folder that is far away all are long; one that had to wait for a processor has quick ones beside it.
func (l *looks) shortest() (least time.Duration) {
	for _, d := range l.last {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// live says whether any task has not ended.
func (d *Driver) live() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tasks {
		if t.ending == nil {
			return true
		}
	}
	return false
}

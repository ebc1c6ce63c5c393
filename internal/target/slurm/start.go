package slurm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
)

// maxSubmits is how many sbatch may run at once: enough to keep a controller busy, few enough not to flood it.
const maxSubmits = 8

// maxSearches is how many may be looked for at once, so that a queue that is read slowly keeps no one from being submitted.
const maxSearches = 2

// timeSlack is added to a task's own time limit for Slurm's: bringing code and data and storing results happen in the job, too.
const timeSlack = 30 * time.Minute

// Start hands the task to Slurm. If Slurm or its login node cannot be reached the task is accepted all the same, and handed over when it can.
func (d *Driver) Start(ctx context.Context, task trainyard.Task) error {
	t, err := d.acquire(task.ID, true)
	if err != nil {
		return err
	}
	drop := false
	defer func() { d.release(t, drop) }()
	d.mu.Lock()
	began, found := t.began, t.rec.Mark != ""
	d.mu.Unlock()
	if began {
		return nil
	}
	d.at("begin")
	if !found {
		err = d.lay(t, task)
	}
	if err == nil {
		d.at("written")
		err = d.submit(ctx, t, found)
	}
	switch {
	case err == nil:
	case undecided(err) && d.life.Err() == nil && ctx.Err() == nil:
		d.env.Log.Warn("Slurm has not said that it has a task", "task", t.id, "err", err)
		d.mu.Lock()
		t.began, t.waits = true, err.Error()
		d.mu.Unlock()
		d.spawn(func() { d.submitLater(t) })
	case errors.Is(err, context.Canceled), d.life.Err() != nil, ctx.Err() != nil:
		return err // whoever comes next finds the folder
	default:
		drop = true
		if err := d.discard(t); err != nil {
			d.env.Log.Warn("clear away a task that Slurm refused", "task", t.id, "err", err)
		}
		return refused(err)
	}
	poke(d.kick)
	return nil
}

func (d *Driver) at(step string) {
	if d.step != nil {
		d.step(step)
	}
}

// lay makes a new task's folder.
func (d *Driver) lay(t *task, task trainyard.Task) error {
	if task.Run.Dir != "" { // it was staged all the same
		if _, err := d.client.Stat(task.Run.Dir); err != nil && !slurm.Away(err) {
			return fmt.Errorf("its folder is not there: %w", err)
		}
	}
	rec := record{Task: task, Mark: t.name + "." + slurm.Random(3) + d.suffix}
	rec.Hi = max(rec.Hi, rec.Lo+1)
	if limit := task.Resources.MemoryMB; limit > 0 && !d.holdsMemory() {
		rec.Note = fmt.Sprintf("memory limit of %d MB is not held: Slurm is set up not to (ConstrainRAMSpace)", limit)
	}
	d.mu.Lock()
	t.rec = rec
	d.mu.Unlock()
	return d.create(t)
}

// holdsMemory says whether Slurm ends what uses more memory than it asked for. If Slurm cannot be asked it says yes, and asks again.
func (d *Driver) holdsMemory() bool {
	d.limits.Lock()
	defer d.limits.Unlock()
	if d.holds == nil {
		holds, err := d.client.HoldsMemory(d.life)
		if err != nil {
			return true
		}
		d.holds = &holds
	}
	return *d.holds
}

// submit gives the task to Slurm and writes down the number of its job. search is for a task that may have been given before.
func (d *Driver) submit(ctx context.Context, t *task, search bool) error {
	job := ""
	if search {
		var err error
		if job, err = d.search(ctx, t); err != nil {
			return err
		}
	}
	if job == "" {
		done, err := d.turn(ctx, d.submits)
		if err != nil {
			return err
		}
		job, err = d.hand(t, search)
		done()
		if err != nil {
			return err
		}
	}
	d.at("submitted")
	if err := d.number(t, job); err != nil {
		d.env.Log.Warn("the number of a job could not be written down; it is found by its name", "task", t.id, "job", job, "err", err)
	}
	d.at("recorded")
	d.mu.Lock()
	stopped := t.stop != nil
	d.mu.Unlock()
	if stopped {
		d.tend(t)
	}
	return nil
}

// hand runs sbatch. A task that was searched for may have begun, or been stopped, while that waited for its turn.
func (d *Driver) hand(t *task, searched bool) (job string, err error) {
	if searched {
		if job = d.claim(t); job != "" {
			return job, nil
		}
		d.mu.Lock()
		stopped := t.stop != nil
		d.mu.Unlock()
		if stopped {
			return "", errStopped
		}
	}
	return d.client.Submit(d.life, d.batch(t)) // not Start's context: half a submission helps nobody
}

// search finds the number of a task's job: the one that has begun has said so itself, one that waits is in Slurm's queue. "" is for none.
func (d *Driver) search(ctx context.Context, t *task) (job string, err error) {
	if job = d.claim(t); job != "" {
		return job, nil
	}
	done, err := d.turn(ctx, d.searches)
	if err != nil {
		return "", err
	}
	defer done()
	jobs, err := d.client.Queue(d.life, t.rec.Mark)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNotLookedFor, err)
	}
	for _, j := range jobs {
		if j.Name == t.rec.Mark {
			job = j.ID
		}
	}
	return job, nil
}

// turn waits for room among what slots counts. done gives it back.
func (d *Driver) turn(ctx context.Context, slots chan struct{}) (done func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.life.Done():
		return nil, errClosed
	}
}

var (
	errStopped      = errors.New("stopped before Slurm took it")
	errNotLookedFor = errors.New("its queue cannot be read")
)

// undecided says whether err leaves open if Slurm takes the task, or has taken it: only a refusal of sbatch's is an end of it.
func undecided(err error) bool { return slurm.Away(err) || errors.Is(err, errNotLookedFor) }

// refused puts in words that Slurm does not take a task. That of options which are wrong is their owner's to mend, and not tried again.
func refused(err error) error {
	if !slurm.Misfit(err) {
		return fmt.Errorf("hand the task to Slurm: %w", err)
	}
	return &trainyard.ClassError{Class: trainyard.ClassUser, Err: fmt.Errorf("the settings of its compute are not what Slurm takes: %w", err)}
}

// claim is the number of the job whose script has begun; "" if none has.
func (d *Driver) claim(t *task) string {
	job, _ := d.claimed(t)
	return job
}

// claimed is claim, and how often Slurm had put that job back in its queue by then.
func (d *Driver) claimed(t *task) (job string, restarts int) {
	text, err := slurm.Read(d.client, d.sign(t.name)+"."+beginSign)
	if err != nil {
		return "", 0
	}
	job, count, _ := strings.Cut(strings.TrimSpace(string(text)), ".")
	restarts, _ = strconv.Atoi(count)
	return job, restarts
}

// submitLater tries until Slurm takes the task or refuses it, or nobody wants it any more.
func (d *Driver) submitLater(t *task) {
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		select {
		case <-d.life.Done():
			return
		case <-t.done:
			return
		case <-t.nudge: // it is to stop, or has begun; that is seen below
		case <-time.After(pause):
		}
		t.op.Lock()
		d.mu.Lock()
		over := t.gone || t.ending != nil || t.job != ""
		d.mu.Unlock()
		if over {
			t.op.Unlock()
			return
		}
		err := d.create(t)
		if err == nil {
			err = d.submit(d.life, t, true)
		}
		switch {
		case err == nil:
			poke(d.kick)
			d.signal()
		case errors.Is(err, errStopped):
			d.conclude(t, &ending{Ended: time.Now(), Result: trainyard.Result{Class: trainyard.ClassCanceled, ExitCode: -1, Message: err.Error()}})
		case undecided(err) || d.life.Err() != nil:
			why := err.Error()
			d.mu.Lock()
			news := t.waits != why
			t.waits = why
			d.mu.Unlock()
			if news && d.life.Err() == nil {
				d.env.Log.Warn("Slurm has not said that it has a task", "task", t.id, "err", err)
			}
		default:
			err = refused(err)
			r := trainyard.Result{Class: trainyard.ClassStart, ExitCode: -1, Message: err.Error()}
			if class := trainyard.ClassOf(err); class != "" {
				r.Class = class
			}
			d.conclude(t, &ending{Ended: time.Now(), Result: r})
		}
		t.op.Unlock()
	}
}

// batch is what a task asks of Slurm. What it may use it may use on each of its nodes.
func (d *Driver) batch(t *task) slurm.Batch {
	task := &t.rec.Task
	b := slurm.Batch{
		Script: d.script(t), Name: t.rec.Mark, Dir: d.path(t.name, ""), Output: d.path(t.name, slurmFile),
		Nodes: t.rec.ranks(), CPUs: cpus(task), MemoryMB: task.Resources.MemoryMB, GPUs: task.Resources.GPUs,
		Args: d.settings.Args(), Hold: d.lock,
	}
	if task.Timeout > 0 && d.settings.TimeLimit == "" {
		b.Time = task.Timeout + task.Grace + timeSlack
	}
	return b
}

func cpus(task *trainyard.Task) int { return int(math.Ceil(task.Resources.CPUs)) }

// script is the task's batch script. A single node's program takes the script's place, so that it gets Slurm's signals itself; on more
// nodes srun starts one on each, whose standard output is a file there, not a stream through the first. What programs
// say of themselves goes to the job's own file.
func (d *Driver) script(t *task) string {
	task := &t.rec.Task
	sign, file, log := slurm.Quote(d.sign(t.name)), slurm.Quote(d.path(t.name, taskFile)), slurm.Quote(d.path(t.name, logFile))
	var b strings.Builder
	b.WriteString(d.settings.Head())
	fmt.Fprintf(&b, "# Task %q. Whoever makes the file first runs it; no other job ever does.\n", t.id)
	fmt.Fprintf(&b, "task=%s claim=%s.%s me=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0} have=\n", file, sign, beginSign)
	b.WriteString("set -C\n" + `if [ ! -e "$task" ] || ! { echo "$me" >"$claim"; } 2>/dev/null && ! { read -r have <"$claim" && [ "$have" = "$me" ]; } 2>/dev/null; then` + "\n" +
		`	echo "job $SLURM_JOB_ID leaves: job ${have:-none} has run the task, or it is gone" >&2; exit 0` + "\nfi\nset +C\n")
	fmt.Fprintf(&b, "export TRAINYARD_GRACE_FILE=%s\n", slurm.Quote(d.path(t.name, graceFile)))
	given, hide := strings.Join(task.Hosts, ","), d.hidden()
	if t.rec.ranks() == 1 {
		place := ""
		if t.rec.Nodes > 1 {
			place = fmt.Sprintf(" --rank %d --hosts %s", t.rec.Lo, slurm.Quote(given))
		}
		fmt.Fprintf(&b, "exec %s task --file %s --result %s.0%s%s </dev/null >>%s\n", slurm.Quote(d.program), file, sign, place, hide, log)
		return b.String()
	}
	if t.rec.ranks() == t.rec.Nodes || given == "" { // Slurm has just chosen them; their addresses, or their names
		b.WriteString(`hosts=$(scontrol --oneliner show node "$SLURM_JOB_NODELIST" | sed -n 's/.* NodeAddr=\([^ ]*\) .*/\1/p' | paste -sd, -)` + "\n" +
			`[ -n "$hosts" ] || hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd, -)` + "\n")
	} else {
		fmt.Fprintf(&b, "hosts=%s\n", slurm.Quote(given))
	}
	b.WriteString("exec srun --kill-on-bad-exit=0 --wait=0 --input=none --mpi=none --cpu-bind=none")
	if n := cpus(task); n > 0 {
		fmt.Fprintf(&b, " --cpus-per-task=%d", n) // srun does not take it from sbatch
	}
	b.WriteString(` bash -c 'exec "$0" task --file "$1" --result "$2.$SLURM_PROCID" --rank $(($3 + SLURM_PROCID)) --hosts "$4" "${@:6}" ` +
		`</dev/null >>"$5.$SLURM_PROCID"' `)
	fmt.Fprintf(&b, "%s %s %s %d \"$hosts\" %s%s\n", slurm.Quote(d.program), file, sign, t.rec.Lo, log, hide)
	return b.String()
}

// hidden are the program's flags for what the user's command must not reach: the server's own, and all tasks' folders with their tokens, ends
// and the program itself. Where a folder is shared those of other computes and servers lie beside ours.
func (d *Driver) hidden() string {
	hide := d.base
	if d.settings.Folder != "" {
		hide = slurm.Beside(d.settings.Folder, "*")
	}
	var b strings.Builder
	for _, path := range append([]string{hide}, d.env.Hide...) {
		b.WriteString(" --hide " + slurm.Quote(path))
	}
	return b.String()
}

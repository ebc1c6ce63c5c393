package kube

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// hasDisk says whether its pods have a volume for what they write.
func (p *plan) hasDisk() bool { return p.serves() || p.cfg.WorkSize != "" || p.disk || !p.sent() }

// nowhere is how a task ends whose pods can write nothing, nil if it may be that they can with a volume: none has one, and nothing has run.
func (d *tender) nowhere(why error) *ending {
	d.mu.Lock()
	r := &d.task.rec
	again := !r.Disk && r.Main == "" && len(r.Begun) == 0
	d.mu.Unlock()
	if again {
		return nil
	}
	e := &ending{Ended: time.Now(), Result: trainyard.Result{Class: trainyard.ClassEnvironment, ExitCode: -1}}
	advice := "see whether its image has mkdir, and what of its disk its user may write to"
	if strings.Contains(why.Error(), "No space left") {
		e.Result.Class, advice = trainyard.ClassDisk, "make room on its node"
	}
	e.Result.Message = why.Error() + "; " + advice
	return e
}

// remake makes a task's Job again, with a volume, since its pods can write nothing else, as where a policy of the cluster has the
// containers' own disks read-only. Nothing of the task has run. A server that dies meanwhile finds the Job deleted.
func (d *tender) remake(ctx context.Context, s *sight) error {
	var t trainyard.Task
	if err := readJSON(filepath.Join(d.task.dir, orderFile), &t); errors.Is(err, fs.ErrNotExist) {
		return errNoOrder
	} else if err != nil {
		return err
	}
	p, err := d.newPlan(t)
	if err != nil {
		return err
	}
	p.kept, p.ask, p.disk = nil, false, true
	d.env.Log.Info("the task's pods can write nothing, and get a volume", "task", d.task.id)
	if d.log != nil {
		d.log.stop()
		d.log = nil
	}
	if err := d.removeParts(ctx, p.name, d.task.rec.kinds()); err != nil { // the Service, too, since it would go with the Job
		return err
	}
	d.deletePods(ctx, s, 1)
	j, err := d.makeJob(ctx, p)
	if err != nil {
		return err
	}
	if err := d.makeParts(ctx, p, j); err != nil {
		return err
	}
	d.mu.Lock()
	d.removed[d.task.rec.UID] = true
	d.task.rec.Disk = true
	d.task.rec.UID, d.task.job, d.task.jobGone, d.task.pods = j.Meta.UID, j, false, map[string]*podSeen{}
	d.mu.Unlock()
	d.taken, d.remade = time.Time{}, true
	return d.made(d.task, j)
}

// lostAfter is how often it is looked for what a task is to run: somebody may be about to start it again, which tells it.
const lostAfter = 5

// forgotten ends a task whose folder was lost before its pods were told what to run. Nothing of it has run.
func (d *tender) forgotten(ctx context.Context, s *sight) {
	err := d.finish(d.task, &ending{Ended: time.Now(), Result: trainyard.Result{Class: trainyard.ClassNodeLost, ExitCode: -1,
		Message: "the server lost the folder of this compute before the task began, and with it what its pods were to run"}})
	if err != nil {
		d.env.Log.Warn("task has ended", "task", d.task.id, "err", err)
		return
	}
	d.deletePods(ctx, s, 1)
}

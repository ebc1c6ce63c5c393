package kube

import (
	"context"
	"path/filepath"
	"time"

	"github.com/trainyard/trainyard"
)

// remake makes a task's Job again, with a volume, since its pods can write nothing else, as where a policy of the cluster has the
// containers' own disks read-only. Nothing of the task has run. A server that dies meanwhile finds the Job deleted.
func (d *tender) remake(ctx context.Context, s *sight) error {
	d.mu.Lock()
	d.rigid = true
	d.mu.Unlock()
	var t trainyard.Task
	if err := readJSON(filepath.Join(d.task.dir, orderFile), &t); err != nil {
		return err
	}
	p, err := d.newPlan(t)
	if err != nil {
		return err
	}
	p.cache = "" // it was made to be sent
	d.env.Log.Info("the task's pods can write nothing, and get a volume", "task", d.task.id)
	if d.log != nil {
		d.log.stop()
		d.log = nil
	}
	if err := d.removeParts(ctx, p.name, d.task.rec.kinds()); err != nil { // the Service, too, since it would go with the Job
		return err
	}
	d.deletePods(ctx, s, 1)
	if err := d.makeParts(ctx, p); err != nil {
		return err
	}
	j, err := d.makeJob(ctx, p)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.removed[d.task.rec.UID] = true
	d.task.rec.UID, d.task.rec.Owned, d.task.job, d.task.jobGone, d.task.pods = j.Meta.UID, !p.gang(), j, false, map[string]*podSeen{}
	d.mu.Unlock()
	d.taken = time.Time{}
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

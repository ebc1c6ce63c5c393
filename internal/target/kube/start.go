package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Start makes the task's objects, of which the Job, whose name follows from the task, is the first: the cluster is about its pods while the
// others are made, and they go with it. The task has begun when all are there and that is written down.
func (d *Driver) Start(ctx context.Context, t trainyard.Task) error {
	if d.program.none() {
		return trainyard.Invalid("there is no trainyard program for Linux here to send into pods; put trainyard-linux-amd64 beside %s", d.env.Program)
	}
	t, err := d.addressed(t)
	if err != nil {
		return err
	}
	p, err := d.newPlan(t)
	if err != nil {
		return err
	}
	k, err := d.claim(p)
	if err != nil {
		return err
	}
	defer k.op.Unlock()
	d.mu.Lock()
	begun, told := k.rec.UID != "", len(k.rec.Begun) > 0 || k.end != nil
	d.mu.Unlock()
	if begun && (told || d.noted(k)) {
		return nil
	}
	if err := d.note(k, p); err != nil || begun { // it was lost with the folder
		return err
	}
	if err := d.saveFor(k, p); err != nil {
		return err
	}
	j, err := d.makeJob(ctx, p)
	if err != nil {
		return later(err)
	}
	d.mu.Lock()
	k.seenAs(j)
	d.mu.Unlock()
	if j.sent() != p.sent() { // an earlier start has made it, when the compute or the server was set up otherwise
		p.made = j
		if err := errors.Join(d.note(k, p), d.saveFor(k, p)); err != nil {
			return err
		}
	}
	if err := d.makeParts(ctx, p, j); err != nil {
		return later(err)
	}
	return d.made(k, j)
}

// saveFor writes down how the task is started.
func (d *Driver) saveFor(k *task, p *plan) error {
	return d.save(k, func(r *record) { r.Sent, r.Disk = p.sent(), p.hasDisk() })
}

// seenAs notes the task's Job, unless there is later news of it. The caller holds Driver.mu.
func (t *task) seenAs(j *job) {
	if t.job == nil || t.job.Meta.UID != j.Meta.UID {
		t.job, t.jobGone = j, false
	}
}

// noted says whether it is written down what a task's pods are to be sent.
func (d *Driver) noted(k *task) bool {
	_, err := os.Stat(filepath.Join(k.dir, orderFile))
	return err == nil
}

// note writes down what a task's pods are to be sent, in place of what an earlier start wanted: the server's address or the token may be others.
func (d *Driver) note(k *task, p *plan) error {
	path := filepath.Join(k.dir, orderFile)
	if !p.sent() {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write down %s: %w", k.id.Words(), err)
		}
		return nil
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return fmt.Errorf("write down %s: %w", k.id.Words(), err)
	}
	return writeJSON(path, json.RawMessage(p.order))
}

// made notes that all of the task is there: it has begun.
func (d *Driver) made(k *task, j *job) error {
	d.mu.Lock()
	k.added = time.Now()
	k.seenAs(j)
	k.rec.UID = j.Meta.UID
	d.adopt(k)
	d.mu.Unlock()
	if err := d.save(k, nil); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tend(k)
	d.signal()
	return nil
}

// claim returns the task with its op lock held; release it.
func (d *Driver) claim(p *plan) (*task, error) {
	for {
		d.mu.Lock()
		if d.closed {
			d.mu.Unlock()
			return nil, errClosed
		}
		k := d.tasks[p.name]
		if k == nil {
			k = d.newTask(record{ID: p.task.ID, Name: p.name, Ranks: p.ranks(), Main: p.replicaMain(), Sent: p.sent()})
		}
		d.mu.Unlock()
		k.op.Lock()
		d.mu.Lock()
		current := d.tasks[p.name] == k
		d.mu.Unlock()
		if current {
			return k, nil
		}
		k.op.Unlock() // it was removed while we waited
	}
}

// addressed is the task with the server where pods reach it.
func (d *Driver) addressed(t trainyard.Task) (trainyard.Task, error) {
	url := d.cfg.ServerURL
	if url == "" {
		url = d.env.Server
	}
	if t.CA == "" && d.env.CA != "" {
		pem, err := os.ReadFile(d.env.CA)
		if err != nil {
			return t, fmt.Errorf("the certificate authority that tasks are to trust: %w", err)
		}
		t.CA = string(pem)
	}
	if url == "" || url == t.Server {
		return t, nil
	}
	if t.Server != "" {
		env := maps.Clone(t.Env)
		for name, value := range env {
			env[name] = strings.ReplaceAll(value, t.Server, url)
		}
		t.Env = env
	}
	t.Server = url
	return t, nil
}

// makeParts makes what goes with the Job: the Secret that its pods wait for, and the Service.
func (d *Driver) makeParts(ctx context.Context, p *plan, j *job) error {
	if !p.sent() {
		if err := d.makePart(ctx, secrets, p.secret(), p, j); err != nil {
			return fmt.Errorf("make Secret %s: %w", p.name, err)
		}
	}
	service := p.service
	switch {
	case p.serves():
		service = p.front
	case !p.gang():
		return nil
	}
	if err := d.makePart(ctx, services, service(), p, j); err != nil {
		return fmt.Errorf("make Service %s: %w", p.name, err)
	}
	return nil
}

// makePart makes an object, or makes the one of an earlier start into it. One that went with an earlier Job may go meanwhile.
func (d *Driver) makePart(ctx context.Context, kind string, o object, p *plan, j *job) error {
	owner := object{"apiVersion": "batch/v1", "kind": "Job", "name": p.name, "uid": j.Meta.UID}
	if p.serves() {
		owner["apiVersion"], owner["kind"] = "apps/v1", "Deployment"
	}
	o["metadata"].(object)["ownerReferences"] = []object{owner}
	for try := 1; ; try++ {
		err := d.api.create(ctx, d.api.path(kind), o, nil)
		if isThere(err) {
			err = d.api.patch(ctx, d.api.path(kind, p.name), o)
		}
		if !isMissing(err) || try == 3 {
			return err
		}
	}
}

// makeJob makes the Job, or finds the one that an earlier start made.
func (d *Driver) makeJob(ctx context.Context, p *plan) (*job, error) {
	j := &job{serves: p.serves()}
	kind, what, make := jobs, "Job", p.job
	if p.serves() {
		kind, what, make = deployments, "Deployment", p.deployment
	}
	err := d.api.create(ctx, d.api.path(kind), make(), j)
	if isThere(err) {
		err = d.api.get(ctx, d.api.path(kind, p.name), nil, j)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("make %s %s: %w", what, p.name, err)
	case j.Meta.Annotations[idAnnotation] != string(p.task.ID):
		return nil, trainyard.Conflict("namespace %s has a %s %s that is not of %s", d.api.namespace, what, p.name, p.task.ID.Words())
	case j.Meta.Deleted != nil:
		return nil, trainyard.Conflict("%s %s is still being deleted", what, p.name)
	}
	return j, nil
}

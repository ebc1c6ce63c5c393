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

// Start makes the task's objects. The Job is the last, and its name follows from the task: where it is, the task has begun.
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
	err = d.save(k, func(r *record) {
		if r.Sent && !p.sent() { // an earlier start was to be another
			r.Sent, r.Owned = false, false
		}
		r.Disk = p.hasDisk()
	})
	if err != nil {
		return err
	}
	if err := d.makeParts(ctx, p); err != nil {
		return later(err)
	}
	j, err := d.makeJob(ctx, p)
	if err != nil {
		return later(err)
	}
	return d.made(k, j)
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
			return fmt.Errorf("write down task %q: %w", k.id, err)
		}
		return nil
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return fmt.Errorf("write down task %q: %w", k.id, err)
	}
	return writeJSON(path, json.RawMessage(p.order))
}

// made notes that the task's Job is there: the task has begun.
func (d *Driver) made(k *task, j *job) error {
	d.mu.Lock()
	k.added = time.Now()
	if k.job == nil {
		k.job = j
	}
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
			k = d.newTask(record{ID: p.task.ID, Name: p.name, Ranks: p.ranks(), Cached: p.cache != "", Main: p.replicaMain(),
				Sent: p.sent(), Owned: p.sent() && !p.gang()})
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

// makeParts makes what must be there before the Job, or leaves it if an earlier start got as far. They are given to the Job later, so
// that they go with it.
func (d *Driver) makeParts(ctx context.Context, p *plan) error {
	if !p.sent() {
		secret, err := p.secret()
		if err != nil {
			return err
		}
		err = d.api.create(ctx, d.api.path(secrets), secret, nil)
		if isThere(err) {
			err = d.api.patch(ctx, d.api.path(secrets, p.name), object{"data": secret["data"]})
		}
		if err != nil {
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
	if err := d.api.create(ctx, d.api.path(services), service(), nil); err != nil && !isThere(err) {
		return fmt.Errorf("make Service %s: %w", p.name, err)
	}
	return nil
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
		return nil, trainyard.Conflict("namespace %s has a %s %s that is not of task %q", d.api.namespace, what, p.name, p.task.ID)
	case j.Meta.Deleted != nil:
		return nil, trainyard.Conflict("%s %s is still being deleted", what, p.name)
	}
	return j, nil
}

// own makes the Secret and the Service go with the Job.
func (d *Driver) own(ctx context.Context, t *task) error {
	d.mu.Lock()
	owner := object{"apiVersion": "batch/v1", "kind": "Job", "name": t.name, "uid": t.rec.UID}
	gang, secret := t.rec.Ranks > 1, !t.rec.Sent
	if t.rec.Main != "" {
		owner["apiVersion"], owner["kind"], gang = "apps/v1", "Deployment", true
	}
	d.mu.Unlock()
	refs := object{"metadata": object{"ownerReferences": []object{owner}}}
	if secret {
		if err := d.api.patch(ctx, d.api.path(secrets, t.name), refs); err != nil && !isMissing(err) {
			return err
		}
	}
	if gang {
		if err := d.api.patch(ctx, d.api.path(services, t.name), refs); err != nil && !isMissing(err) {
			return err
		}
	}
	return d.save(t, func(r *record) { r.Owned = true })
}

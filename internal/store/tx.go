package store

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// Tx is a transaction, good until its function returns. Reads see what it and those before it in its batch wrote. What is handed in is
// copied, what is handed out is the caller's to change.
type Tx struct {
	s     *Store
	ctx   context.Context
	below *layer // what the batch has written, and everything it has read
	own   *layer // what this function has written
}

// keep makes the function's writes the batch's.
func (tx *Tx) keep() {
	for i := range tx.own.events {
		tx.own.events[i].Seq = tx.s.next()
	}
	tx.below.merge(tx.own)
}

// phase is where a job is as far as the image is concerned.
type phase int64

const (
	phaseOver    phase = 0 // or not begun
	phaseWaiting phase = 1
	phasePlaced  phase = 2
)

func phaseOf(s trainyard.JobState) phase {
	switch {
	case s.Terminal(), s == trainyard.JobNotStarted, s == "":
		return phaseOver
	case s == trainyard.JobQueued:
		return phaseWaiting
	}
	return phasePlaced
}

// job is the job's record as the transaction sees it.
func (tx *Tx) job(key trainyard.JobKey) (*jobRecord, error) {
	if r := tx.own.jobs[key]; r != nil {
		return r, nil
	}
	if r := tx.below.jobs[key]; r != nil {
		return r, nil
	}
	r := &jobRecord{}
	j, ok := tx.s.image.liveJob(key)
	if !ok {
		var err error
		if j, err = readJob(tx.ctx, tx.s.conn, key); err != nil {
			return nil, tx.s.db.explain(err)
		}
	}
	if j != nil {
		r = &jobRecord{job: j, stored: j.Seq, phase: phaseOf(j.Status.State)}
	}
	put(&tx.below.jobs, key, r)
	return r, nil
}

// Job reads a job.
func (tx *Tx) Job(key trainyard.JobKey) (*trainyard.Job, error) {
	r, err := tx.job(key)
	if err != nil {
		return nil, err
	}
	if r.job == nil {
		return nil, noJob(key)
	}
	return cloneJob(r.job), nil
}

func noJob(key trainyard.JobKey) error {
	scope, name, _ := cutLast(string(key))
	return trainyard.NotFound("job %q does not exist in workspace %q", name, workspaceOf(scope))
}

// cutLast cuts a key at its last slash into scope key and name.
func cutLast(key string) (scope, name string, ok bool) {
	i := strings.LastIndexByte(key, '/')
	if i < 0 {
		return "", key, false
	}
	return key[:i], key[i+1:], true
}

func workspaceOf(scopeKey string) string { return scopeKey[strings.LastIndexByte(scopeKey, '/')+1:] }

// InsertJob stores a new job and sets its Seq. It is a Conflict if there is one of that name.
func (tx *Tx) InsertJob(j *trainyard.Job) error {
	if err := checkNames("job", j.Name, j.Scope.Key(), j.Name, j.Plan.Compute); err != nil {
		return err
	}
	r, err := tx.job(j.Key())
	if err != nil {
		return err
	}
	if r.job != nil {
		return trainyard.Conflict("job %q exists already in workspace %q", j.Name, j.Scope.Workspace)
	}
	n := &jobRecord{job: cloneJob(j), stored: r.stored, phase: r.phase, write: true, whole: true}
	n.job.Seq = tx.s.next()
	if err := n.encode(); err != nil {
		return err
	}
	j.Seq = n.job.Seq
	tx.putJob(n)
	return nil
}

// PutJob stores what became of a job: its status, and its spec and plan if they changed. Putting what is there already writes nothing.
func (tx *Tx) PutJob(j *trainyard.Job) error {
	r, err := tx.job(j.Key())
	if err != nil {
		return err
	}
	if r.job == nil {
		return noJob(j.Key())
	}
	n := &jobRecord{stored: r.stored, phase: r.phase, write: true, whole: r.whole, spec: r.spec, plan: r.plan}
	next := *j
	next.Seq, next.Status = r.job.Seq, cloneStatus(j.Status)
	if sameWhole(r.job, j) {
		next.Spec, next.Plan = r.job.Spec, r.job.Plan
		if next.Modified.Equal(r.job.Modified) && reflect.DeepEqual(r.job.Status, next.Status) {
			return nil
		}
	} else {
		if err := checkNames("job", j.Name, j.Plan.Compute); err != nil {
			return err
		}
		next.Spec, next.Plan, n.whole = cloneSpec(j.Spec), clonePlan(j.Plan), true
	}
	n.job = &next
	if err := n.encode(); err != nil {
		return err
	}
	tx.putJob(n)
	return nil
}

// sameWhole says that of two states of a job only what its short row holds can differ.
func sameWhole(a, b *trainyard.Job) bool {
	return a.Scope == b.Scope && a.CreatedBy == b.CreatedBy && a.Created.Equal(b.Created) &&
		reflect.DeepEqual(a.Spec, b.Spec) && reflect.DeepEqual(a.Plan, b.Plan)
}

// DeleteJob deletes a job, waiting or placed or over.
func (tx *Tx) DeleteJob(key trainyard.JobKey) error {
	r, err := tx.job(key)
	if err != nil {
		return err
	}
	if r.job == nil {
		return noJob(key)
	}
	put(&tx.own.jobs, key, &jobRecord{stored: r.stored, phase: r.phase, write: true})
	return nil
}

func (tx *Tx) putJob(r *jobRecord) {
	key := r.job.Key()
	put(&tx.own.jobs, key, r)
	for _, t := range liveTasks(r.job) {
		id := r.job.Status.Attempts[t.Attempt].Tasks[t.Index].Node
		if !slices.Contains(tx.own.onNode[id], key) {
			put(&tx.own.onNode, id, append(tx.own.onNode[id], key))
		}
	}
}

// TaskRef points at a task of a job. Do not change the job.
type TaskRef struct {
	Job     *trainyard.Job
	Attempt int // index into Job.Status.Attempts
	Index   int // index into the attempt's Tasks
}

// Task is what it points at.
func (r TaskRef) Task() *trainyard.RunTask { return &r.Job.Status.Attempts[r.Attempt].Tasks[r.Index] }

// liveTasks lists the tasks of a placed job that have not ended, in attempts that have not ended.
func liveTasks(j *trainyard.Job) []TaskRef {
	if phaseOf(j.Status.State) != phasePlaced {
		return nil
	}
	var out []TaskRef
	for a := range j.Status.Attempts {
		if !j.Status.Attempts[a].Ended.IsZero() {
			continue
		}
		for i := range j.Status.Attempts[a].Tasks {
			if j.Status.Attempts[a].Tasks[i].State != trainyard.TaskEnded {
				out = append(out, TaskRef{j, a, i})
			}
		}
	}
	return out
}

// NodeTasks lists the live tasks on a node as the transaction sees them. Do not change the jobs.
func (tx *Tx) NodeTasks(id trainyard.NodeID) []TaskRef {
	var out []TaskRef
	for _, t := range tx.s.image.nodeTasks(id) {
		if key := t.Job.Key(); tx.own.jobs[key] == nil && (tx.below.jobs[key] == nil || !tx.below.jobs[key].write) {
			out = append(out, t)
		}
	}
	seen := map[trainyard.JobKey]bool{}
	for _, keys := range [][]trainyard.JobKey{tx.below.onNode[id], tx.own.onNode[id]} {
		for _, key := range keys {
			r, err := tx.job(key)
			if err != nil || r.job == nil || seen[key] {
				continue // of this layer, so it is in memory and there is no error
			}
			seen[key] = true
			for _, t := range liveTasks(r.job) {
				if t.Task().Node == id {
					out = append(out, t)
				}
			}
		}
	}
	return out
}

// Event notes that something happened. A zero Time is not filled in. Seq is given when the transaction is kept.
func (tx *Tx) Event(e trainyard.Event) {
	e.Subject, e.Kind, e.What, e.Who = clean(e.Subject, mostName), clean(e.Kind, mostName), clean(e.What, mostName), clean(e.Who, mostName)
	e.Message = clean(e.Message, mostMessage)
	tx.own.events = append(tx.own.events, e)
}

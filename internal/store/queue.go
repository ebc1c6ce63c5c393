package store

import (
	"cmp"
	"slices"

	"github.com/trainyard/trainyard"
)

// queue is the waiting jobs of one compute by priority (higher first), then by submission. It hands itself out as a slice that never
// changes: what was handed out shares memory with the queue, so elements that were ever in sorted are not written to again. Adding at the
// end and taking from the front, which is what happens nearly always, cost nothing more; anything else is put off until somebody looks,
// and then costs one pass.
type queue struct {
	sorted []trainyard.QueuedJob
	late   []trainyard.QueuedJob         // to be merged in, in no order
	gone   map[trainyard.JobKey]struct{} // in sorted or late, and to be left out; never the front of sorted
}

func before(a, b *trainyard.QueuedJob) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Seq, b.Seq))
}

func (q *queue) len() int { return len(q.sorted) + len(q.late) - len(q.gone) }

// add adds a job that is not in the queue.
func (q *queue) add(j trainyard.QueuedJob) {
	if _, ok := q.gone[j.Key]; ok {
		q.settle() // it was taken out and comes back: forget the first one before there are two
	}
	if len(q.late) == 0 && (len(q.sorted) == 0 || before(&q.sorted[len(q.sorted)-1], &j) < 0) {
		q.sorted = append(q.sorted, j)
		return
	}
	q.late = append(q.late, j)
}

// remove takes out a job that is in the queue.
func (q *queue) remove(key trainyard.JobKey) {
	if len(q.sorted) == 0 || q.sorted[0].Key != key {
		put(&q.gone, key, struct{}{})
		if q.len() == 0 {
			*q = queue{}
		}
		return
	}
	q.sorted = q.sorted[1:]
	for len(q.sorted) > 0 && len(q.gone) > 0 {
		if _, ok := q.gone[q.sorted[0].Key]; !ok {
			break
		}
		delete(q.gone, q.sorted[0].Key)
		q.sorted = q.sorted[1:]
	}
	if q.len() == 0 {
		*q = queue{} // let go of the memory
	}
}

// view is the queue in order. It is never changed.
func (q *queue) view() []trainyard.QueuedJob {
	q.settle()
	return slices.Clip(q.sorted)
}

// settle does what was put off, into new memory.
func (q *queue) settle() {
	if len(q.late) == 0 && len(q.gone) == 0 {
		return
	}
	slices.SortFunc(q.late, func(a, b trainyard.QueuedJob) int { return before(&a, &b) })
	out := make([]trainyard.QueuedJob, 0, q.len()+q.len()/8)
	late := q.late
	take := func(j *trainyard.QueuedJob) {
		if _, ok := q.gone[j.Key]; !ok {
			out = append(out, *j)
		}
	}
	for i := range q.sorted {
		for len(late) > 0 && before(&late[0], &q.sorted[i]) < 0 {
			take(&late[0])
			late = late[1:]
		}
		take(&q.sorted[i])
	}
	for i := range late {
		take(&late[i])
	}
	*q = queue{sorted: out}
}

// place is the index of the job in the queue, -1 if it is not there.
func (q *queue) place(j *trainyard.QueuedJob) int {
	q.settle()
	i, ok := slices.BinarySearchFunc(q.sorted, j, func(a trainyard.QueuedJob, b *trainyard.QueuedJob) int { return before(&a, b) })
	if !ok {
		return -1
	}
	return i
}

package mlflow

import (
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/trainyard/trainyard"
)

// journal reads and writes records, and remembers the ones used last. Changes of one record come one after the other.
type journal struct {
	blobs Bucket
	max   int64 // of weight

	mu      sync.Mutex
	entries map[string]*entry
	recent  *list.List // of *entry, the last used first
	weight  int64
}

// entry is a record in memory. rec is nil until it is read, and after anything that may have made it untrue.
type entry struct {
	key string
	at  *list.Element
	// under journal.mu
	users  int
	weight int64

	mu  sync.Mutex
	rec *record
}

func newJournal(blobs Bucket, max int64) *journal {
	return &journal{blobs: blobs, max: max, entries: map[string]*entry{}, recent: list.New()}
}

// view calls do with the record at key, which is empty if there is none. do must not keep it, nor ask the journal for another.
func (j *journal) view(ctx context.Context, key string, do func(*record) error) error {
	e := j.take(key)
	defer j.put(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := j.refresh(ctx, e); err != nil {
		return err
	}
	return do(e.rec)
}

// change calls decide with the record at key and writes down what it returns; nil is no change. decide may be called again, if the file
// turns out to be another than it was.
func (j *journal) change(ctx context.Context, key string, decide func(*record) (*line, error)) error {
	e := j.take(key)
	defer j.put(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	for range 3 {
		if err := j.refresh(ctx, e); err != nil {
			return err
		}
		l, err := decide(e.rec)
		if err != nil || l == nil {
			return err
		}
		written, err := j.write(ctx, e, l)
		if err != nil || written {
			return err
		}
	}
	return fmt.Errorf("append to %s: the file changes under this server", key)
}

// refresh reads the record if it is not in memory or its file is not the one that was read: a job that was deleted takes its file along.
func (j *journal) refresh(ctx context.Context, e *entry) error {
	at, err := j.blobs.Stat(ctx, e.key)
	if trainyard.IsNotFound(err) {
		if e.rec == nil || e.rec.size > 0 {
			e.rec = newRecord()
		}
		return nil
	}
	if err != nil {
		return err
	}
	if e.rec != nil && e.rec.size == at.Size {
		return nil
	}
	e.rec = nil
	r, _, err := j.blobs.OpenRange(ctx, e.key, 0, -1)
	if trainyard.IsNotFound(err) {
		e.rec = newRecord()
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	rec, err := replay(r)
	if err != nil {
		return fmt.Errorf("read %s: %w", e.key, err)
	}
	e.rec = rec
	return nil
}

// tornEnd makes of a torn line one that is certainly no change, whatever is in it, and ends it.
const tornEnd = "!\n"

// write appends a line and applies it. It says false if the file is not as long as it should be.
func (j *journal) write(ctx context.Context, e *entry, l *line) (bool, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return false, err
	}
	text = append(text, '\n')
	print := fingerprint(text)
	if !e.rec.torn && e.rec.size > 0 && print == e.rec.last {
		return true, nil // a client that did not hear the answer says it again
	}
	data := text
	if e.rec.torn {
		data = append([]byte(tornEnd), text...)
	}
	want := e.rec.size + int64(len(data))
	size, err := j.blobs.Append(ctx, e.key, e.rec.size, data)
	if err != nil || size != want {
		e.rec = nil
		return false, err
	}
	e.rec.apply(l)
	e.rec.size, e.rec.torn, e.rec.last = size, false, print
	return true, nil
}

func (j *journal) take(key string) *entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.entries[key]
	if e == nil {
		e = &entry{key: key}
		e.at = j.recent.PushFront(e)
		j.entries[key] = e
	}
	e.users++
	j.recent.MoveToFront(e.at)
	return e
}

// put gives an entry back, and forgets those not used for longest while there are too many.
func (j *journal) put(e *entry) {
	e.mu.Lock()
	weight := int64(200 + len(e.key))
	if e.rec != nil {
		weight += e.rec.weight
	}
	e.mu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	e.users--
	j.weight += weight - e.weight
	e.weight = weight
	for at := j.recent.Back(); at != nil && j.weight > j.max; {
		old := at.Value.(*entry)
		at = at.Prev()
		if old.users == 0 {
			j.recent.Remove(old.at)
			delete(j.entries, old.key)
			j.weight -= old.weight
		}
	}
}

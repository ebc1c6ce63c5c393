package slurm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
)

// What lies in the folder that nodes see, and in a task's folder there.
const (
	tasksFolder  = "tasks"
	signsFolder  = "signs"
	sharedFolder = "bin"

	taskFile  = "task.json"
	jobFile   = "job"
	logFile   = "log"
	slurmFile = "slurm.out"
	stopFile  = "stop.json"
	graceFile = "grace"
	endFile   = "end.json"

	newFolder  = ".new-"  // a task's folder on its way in
	goneFolder = ".gone-" // and out
	beginSign  = "b"
)

// record is what is written down of a task before it is handed to Slurm: the task itself, and what is ours. The program reads over that.
type record struct {
	trainyard.Task
	Mark string `json:"slurmName"` // of the job
	Note string `json:"slurmNote,omitempty"`
}

// ranks is how many nodes the task has.
func (r *record) ranks() int { return r.Hi - r.Lo }

// stopRecord is stop.json.
type stopRecord struct {
	At       time.Time `json:"at"`
	Deadline time.Time `json:"deadline"`          // the end of the grace; until SIGTERM got through, that as if it had At; At for none
	Sibling  bool      `json:"sibling,omitempty"` // nobody asked: another rank failed
	Told     bool      `json:"told,omitempty"`    // SIGTERM got through
	Since    time.Time `json:"since,omitzero"`    // then

	Killed time.Duration `json:"killed,omitempty"` // how long after that SIGKILL was sent; 0: it was not
}

// atOnce says whether the task has no grace: its job is ended with nothing stored.
func (s *stopRecord) atOnce() bool { return !s.Deadline.After(s.At) }

// told notes that SIGTERM got through: the grace begins.
func (s *stopRecord) told() {
	s.Told, s.Since = true, time.Now()
	if !s.atOnce() {
		s.Deadline = s.Since.Add(s.Deadline.Sub(s.At))
	}
}

// ending is end.json.
type ending struct {
	Started time.Time        `json:"started,omitzero"`
	Ended   time.Time        `json:"ended"`
	Result  trainyard.Result `json:"result"`
	Spans   []trainyard.Span `json:"spans,omitempty"`
	Notes   []string         `json:"notes,omitempty"`
	Killed  time.Duration    `json:"killed,omitempty"` // as in trainyard.Observation
}

// create makes a task's folder, whole or not at all, unless it is there. A task that is to stop gets none any more.
func (d *Driver) create(t *task) error {
	d.mu.Lock()
	laid, stopped := t.laid, t.stop != nil
	d.mu.Unlock()
	if laid {
		return nil
	}
	if stopped {
		return errStopped
	}
	err := d.write(t)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		t.laid = true
	}
	return err
}

func (d *Driver) write(t *task) error {
	if _, err := d.client.Stat(d.path(t.name, taskFile)); !errors.Is(err, fs.ErrNotExist) {
		return err // it was made, and the connection broke off before that was heard
	}
	rec, err := json.Marshal(t.rec)
	if err != nil {
		return fmt.Errorf("encode task: %w", err)
	}
	making := d.path(newFolder+t.name, "")
	if err := d.client.Remove(making); err != nil {
		return err
	}
	if err := d.client.Mkdir(making); err != nil {
		return err
	}
	if err := slurm.Put(d.client, filepath.Join(making, taskFile), rec, 0o600); err != nil {
		return err
	}
	return d.client.Rename(making, d.path(t.name, ""))
}

// discard takes a task's folder and signs away. It is no task any more once the folder is renamed; what then cannot be deleted is only
// untidy.
func (d *Driver) discard(t *task) error {
	going := d.path(goneFolder+t.name+"-"+slurm.Random(4), "")
	if err := d.client.Rename(d.path(t.name, ""), going); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i := range max(t.rec.ranks(), 1) {
		_ = d.client.Remove(d.sign(t.name) + "." + strconv.Itoa(i))
	}
	_ = d.client.Remove(d.sign(t.name) + "." + beginSign)
	if err := d.client.Remove(going); err != nil {
		d.env.Log.Warn("clear away a task's folder", "dir", going, "err", err)
	}
	return nil
}

// adopt reads the tasks that are there.
func (d *Driver) adopt() error {
	entries, err := d.client.List(filepath.Join(d.base, tasksFolder))
	if err != nil {
		return fmt.Errorf("read tasks: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, newFolder) || strings.HasPrefix(name, goneFolder) {
			if err := d.client.Remove(d.path(name, "")); err != nil {
				d.env.Log.Warn("clear away a task's folder", "dir", name, "err", err)
			}
			continue
		}
		t, err := d.read(name)
		if err != nil {
			return err
		}
		d.tasks[name] = t
	}
	_, err = d.signs()
	return err
}

// read reads one task's folder.
func (d *Driver) read(name string) (*task, error) {
	var rec record
	if ok, err := d.readJSON(d.path(name, taskFile), &rec); err != nil || !ok || rec.Mark == "" {
		return nil, fmt.Errorf("record of task %s is damaged (%v); take the folder %s away if no job of Slurm is its", name, err, d.path(name, ""))
	}
	t := newTask(rec.ID, name)
	t.rec, t.laid = rec, true
	if data, err := slurm.Read(d.client, d.path(name, jobFile)); err == nil {
		if job, whole := strings.CutSuffix(string(data), "\n"); whole {
			t.job, t.since, t.began = job, time.Now(), true
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var stop stopRecord
	if ok, err := d.readJSON(d.path(name, stopFile), &stop); err != nil {
		return nil, err
	} else if ok {
		t.stop = &stop
	}
	var end ending
	if ok, err := d.readJSON(d.path(name, endFile), &end); err != nil {
		return nil, err
	} else if ok {
		t.ending, t.began = &end, true
		close(t.done)
	}
	return t, nil
}

// number writes down a task's job. It returns after the task is shown.
func (d *Driver) number(t *task, job string) error {
	err := slurm.Put(d.client, d.path(t.name, jobFile), []byte(job+"\n"), 0o600)
	d.mu.Lock()
	defer d.mu.Unlock()
	t.job, t.since, t.began, t.waits, t.missed = job, time.Now(), true, "", 0
	return err
}

// conclude writes down how a task ended, and shows it.
func (d *Driver) conclude(t *task, e *ending) {
	d.saveEnd(t, e)
	d.show(t, e)
}

// show shows how a task ended.
func (d *Driver) show(t *task, e *ending) {
	d.mu.Lock()
	if t.ending == nil {
		t.ending, t.began = e, true
		close(t.done)
	}
	d.mu.Unlock()
	d.signal()
}

func (d *Driver) saveEnd(t *task, e *ending) {
	if data, err := json.Marshal(e); err != nil {
		d.env.Log.Warn("encode the end of a task", "task", t.id, "err", err)
	} else if err := slurm.Put(d.client, d.path(t.name, endFile), data, 0o600); err != nil {
		d.env.Log.Warn("write down the end of a task", "task", t.id, "err", err)
	}
}

func (d *Driver) saveStop(t *task) {
	t.saving.Lock()
	defer t.saving.Unlock()
	d.mu.Lock()
	s := *t.stop
	d.mu.Unlock()
	data, err := json.Marshal(s)
	if err == nil {
		err = slurm.Put(d.client, d.path(t.name, stopFile), data, 0o600)
	}
	if err != nil {
		d.env.Log.Warn("that the task is to stop could not be written down", "task", t.id, "err", err)
	}
}

// readJSON reads v; ok is false if the file is not there or was not written whole.
func (d *Driver) readJSON(path string, v any) (ok bool, err error) {
	data, err := slurm.Read(d.client, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return json.Unmarshal(data, v) == nil, nil
}

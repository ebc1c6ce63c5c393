package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/trainyard/trainyard"
)

// What is kept of a task in Env.Dir/<TaskID.Dir()>.
const (
	recordFile = "task.json"  // record
	endFile    = "end.json"   // ending
	logFile    = "log"        // standard output and error of the first rank, as far as they were read
	markFile   = "log.mark"   // where to go on reading them
	orderFile  = "order.json" // the task, of one that is sent with the program
)

// record is what must be known of a task that the cluster does not tell.
type record struct {
	ID       trainyard.TaskID `json:"id"`
	Name     string           `json:"name"`
	Ranks    int              `json:"ranks"`
	UID      string           `json:"uid,omitempty"`      // of the Job; "" until all of the task was made
	Sent     bool             `json:"sent,omitempty"`     // it comes with the program: there is no Secret
	Disk     bool             `json:"disk,omitempty"`     // its pods have a volume for what they write
	Begun    map[string]bool  `json:"begun,omitempty"`    // UIDs of pods that have the program
	Main     string           `json:"main,omitempty"`     // of a replica: the container that serves
	Answered bool             `json:"answered,omitempty"` // it was ready once

	// Stop is set once it was told to end: until when its process might take if its pods knew at once.
	Stop   *time.Time      `json:"stop,omitempty"`
	Grace  *time.Duration  `json:"grace,omitempty"`  // how long it may take once its pod knows; nil: an earlier version was told, which kept no more
	Told   map[string]told `json:"told,omitempty"`   // by UIDs of pods that know
	Scaled bool            `json:"scaled,omitempty"` // of a replica: its Deployment knows
}

// kinds are the kinds of objects that a task has, or may have.
func (r *record) kinds() []string {
	var all []string
	if !r.Sent {
		all = append(all, secrets)
	}
	if r.Ranks > 1 || r.Main != "" {
		all = append(all, services)
	}
	if r.Main != "" {
		return append(all, deployments)
	}
	return append(all, jobs)
}

// newTask makes a task known. The caller holds d.mu, or nobody else has d yet.
func (d *Driver) newTask(r record) *task {
	t := &task{id: r.ID, name: r.Name, dir: filepath.Join(d.env.Dir, r.ID.Dir()), rec: r,
		nudge: make(chan struct{}, 1), pods: map[string]*podSeen{}}
	if t.rec.Begun == nil {
		t.rec.Begun = map[string]bool{}
	}
	d.tasks[t.name] = t
	return t
}

// load reads what was kept.
func (d *Driver) load() error {
	files, err := filepath.Glob(filepath.Join(d.env.Dir, "*", recordFile))
	if err != nil {
		return fmt.Errorf("open kube target: %w", err)
	}
	for _, file := range files {
		var r record
		if err := readJSON(file, &r); err != nil {
			return fmt.Errorf("open kube target: %w", err)
		}
		t := d.newTask(r)
		var end ending
		switch err := readJSON(filepath.Join(t.dir, endFile), &end); {
		case err == nil:
			t.end = &end
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("open kube target: %w", err)
		}
		if t.rec.UID != "" {
			d.tend(t)
		}
	}
	return nil
}

// save writes the task's record down. change, which may be nil, is made to it first.
func (d *Driver) save(t *task, change func(*record)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if change != nil {
		change(&t.rec)
	}
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return fmt.Errorf("write down %s: %w", t.id.Words(), err)
	}
	return writeJSON(filepath.Join(t.dir, recordFile), t.rec)
}

// finish writes down how a task ended, and makes it known.
func (d *Driver) finish(t *task, end *ending) error {
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return fmt.Errorf("write down the end of %s: %w", t.id.Words(), err)
	}
	if err := writeJSON(filepath.Join(t.dir, endFile), end); err != nil {
		return err
	}
	d.mu.Lock()
	t.end = end
	d.mu.Unlock()
	d.env.Log.Info("task ended", "task", t.id, "job", t.name, "class", end.Result.Class, "code", end.Result.ExitCode, "message", end.Result.Message)
	d.signal()
	return nil
}

func readJSON(path string, out any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// writeJSON replaces a file whole.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

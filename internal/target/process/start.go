package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// longCommand is the length in bytes from which a command goes through a file: Linux takes 128 KiB in one argument, Windows less.
const longCommand = 8000

// launch is all that the operating system needs to make a task's process behind its gate.
type launch struct {
	id     trainyard.TaskID
	name   string // of the folder, and of the cgroups
	folder string
	dir    string // working directory
	argv   []string
	env    []string
	task   *os.File // where the shell writes the status
	log    *os.File
	memory bool // task is in memory alone
	limit  trainyard.Resources
	hide   []string
	keep   []string // reachable even below hide
	gpus   string   // as in record
	lent   lent
}

func (l *launch) close() {
	if l.log != nil {
		l.log.Close()
	}
	if l.task != nil {
		l.task.Close()
	}
}

// Start makes the task's process at its gate, records it, and opens the gate.
func (d *Driver) Start(ctx context.Context, t trainyard.Task) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, err := d.acquire(t.ID, true)
	if err != nil {
		return err
	}
	defer d.release(e, false)
	if e.began {
		return nil
	}
	if t.Resources.GPUs > 0 {
		d.gpuMu.Lock()
		defer d.gpuMu.Unlock()
	}
	if err := d.begin(ctx, e, t); err != nil {
		return fmt.Errorf("start %s: %w", t.ID.Words(), err)
	}
	d.signal()
	return nil
}

// begin is Start for a task that has not begun and whose op lock is held. If it fails, the user's command did not run.
func (d *Driver) begin(ctx context.Context, e *task, t trainyard.Task) error {
	if info, err := os.Stat(t.Run.Dir); err != nil || !info.IsDir() {
		return trainyard.Invalid("its working directory %q is not there or is not a folder", t.Run.Dir)
	}
	d.at("begin")
	lent, err := d.lend(ctx, t)
	if err != nil {
		return err
	}
	l, err := d.prepare(e.dir, t, lent)
	defer l.close()
	if err != nil {
		return errors.Join(err, target.RemoveAll(l.folder))
	}
	d.at("prepared")
	p, rec, err := d.host.spawn(l)
	if err != nil {
		return errors.Join(err, target.RemoveAll(l.folder))
	}
	d.at("spawned")
	rec.Place, rec.Started, rec.GPUs, rec.Lent = d.env.Place, time.Now(), l.gpus, len(l.lent.env) > 0
	rec.Note = strings.Join(slices.DeleteFunc([]string{rec.Note, l.lent.note}, func(s string) bool { return s == "" }), "; ")
	if err := d.admit(p, l, rec); err != nil {
		return errors.Join(err, p.cancel(), target.RemoveAll(l.folder))
	}
	d.at("opened")
	d.mu.Lock()
	e.rec, e.proc, e.began = rec, p, true
	if l.memory {
		e.status, l.task = l.task, nil
	}
	d.mu.Unlock()
	d.follows.Add(1)
	go d.follow(e)
	return nil
}

// admit records the process, puts it into its cgroups and opens its gate, in this order: what is let through is known and held.
func (d *Driver) admit(p *process, l *launch, rec record) error {
	if !l.memory {
		if err := writeRecord(l.task, rec); err != nil {
			return err
		}
	}
	d.at("recorded")
	if err := p.attach(); err != nil {
		return err
	}
	d.at("attached")
	return p.open()
}

// at is where tests die.
func (d *Driver) at(step string) {
	if d.step != nil {
		d.step(step)
	}
}

// prepare makes the task's folder. One that is there is of a start that never opened its gate: it goes, with the files that its process
// may still hold open.
func (d *Driver) prepare(name string, t trainyard.Task, lent lent) (*launch, error) {
	l := &launch{
		id:     t.ID,
		name:   name,
		folder: d.path(name, ""),
		dir:    t.Run.Dir,
		argv:   shellArgs(d.shell, t.Run.Command),
		limit:  t.Resources,
		hide:   t.Run.Hide,
		lent:   lent,
	}
	l.keep = []string{l.folder, l.dir}
	if t.Run.LogDir != "" {
		l.keep = append(l.keep, t.Run.LogDir)
	}
	l.env = d.taskEnv(l, t.Run.Env)
	err := os.Mkdir(l.folder, 0o700)
	if errors.Is(err, fs.ErrExist) {
		if err = target.RemoveAll(l.folder); err == nil {
			err = os.Mkdir(l.folder, 0o700)
		}
	}
	if err != nil {
		return l, err
	}
	if len(t.Run.Command) > longCommand {
		path := filepath.Join(l.folder, longFile+scriptSuffix)
		l.argv = shellFile(d.shell, path)
		if err := os.WriteFile(path, []byte(t.Run.Command+"\n"), 0o600); err != nil {
			return l, err
		}
	}
	return l, l.makeFiles(d.env.Alone)
}

// makeFiles makes what every task's folder has. alone: nobody but this driver will ask how the task ended.
func (l *launch) makeFiles(alone bool) (err error) {
	if alone {
		l.task = memoryFile(taskFile)
		l.memory = l.task != nil
	}
	if l.task == nil {
		if l.task, err = os.OpenFile(filepath.Join(l.folder, taskFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
	}
	if _, err = l.task.WriteAt(noStatus, 0); err != nil {
		return err
	}
	if l.log, err = os.OpenFile(filepath.Join(l.folder, logFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return err
	}
	return os.Mkdir(filepath.Join(l.folder, tmpDir), 0o700)
}

// taskEnv is the task's whole environment.
func (d *Driver) taskEnv(l *launch, own map[string]string) []string {
	all := maps.Clone(d.base)
	maps.Copy(all, l.lent.env)
	for _, name := range tmpNames {
		all[name] = filepath.Join(l.folder, tmpDir)
	}
	maps.Copy(all, own)
	all[markName] = l.folder
	l.gpus = visible(all)
	env := make([]string, 0, len(all))
	for k, v := range all {
		env = append(env, k+"="+v)
	}
	return env
}

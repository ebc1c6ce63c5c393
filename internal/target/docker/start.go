package docker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

//go:embed run.sh
var runScript string

// longCommand is the length in bytes from which a command goes through a file: Linux takes 128 KiB in one argument.
const longCommand = 100_000

// beginPatience bounds how long a started container may take to come to the command.
const beginPatience = time.Minute

// Start makes the task's container, starts it, and returns when the command begins. While the engine is away the error's code is
// trainyard.CodeBusy.
func (d *Driver) Start(ctx context.Context, t trainyard.Task) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e, err := d.acquire(t.ID, true)
	if err != nil {
		return err
	}
	if d.isBegun(e) {
		d.release(e, false)
		return nil
	}
	d.setStarting(e, true)
	err = d.begin(ctx, e, t)
	d.setStarting(e, false)
	d.release(e, err != nil && !d.isBegun(e) && !d.kept(e))
	if err != nil {
		if trainyard.ClassOf(err) != "" {
			return err
		}
		if isAway(err) {
			return trainyard.Errorf(trainyard.CodeBusy, "start %s: %v; see that Docker runs on the node", t.ID.Words(), err)
		}
		return fmt.Errorf("start %s: %w", t.ID.Words(), err)
	}
	d.signal()
	return nil
}

func (d *Driver) setStarting(t *task, starting bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t.starting = starting
}

// kept says whether the task has a folder, so that there may be a container.
func (d *Driver) kept(t *task) bool {
	_, err := os.Lstat(d.path(t, ""))
	return err == nil
}

// begin is Start for a task that is not known to have begun and whose op lock is held. If it fails, the user's command did not run, or the
// engine could not be asked, and Observe cannot ask it either.
func (d *Driver) begin(ctx context.Context, e *task, t trainyard.Task) error {
	if info, err := os.Stat(t.Run.Dir); err != nil || !info.IsDir() {
		return trainyard.Invalid("its working directory %q is not there or is not a folder", t.Run.Dir)
	}
	d.at("begin")
	if began, err := d.clear(ctx, e); began || err != nil {
		return err
	}
	plan, err := d.plan(ctx, e, t)
	if err != nil {
		return err
	}
	if err := d.makeFolder(e, t, plan); err != nil {
		return errors.Join(err, target.RemoveAll(d.path(e, "")))
	}
	d.at("folder")
	if plan.gpus > 0 {
		d.gpuMu.Lock()
		defer d.gpuMu.Unlock()
	}
	note := plan.rec.Note
	if err := d.giveGPUs(ctx, plan); err != nil {
		return errors.Join(err, target.RemoveAll(d.path(e, "")))
	}
	if err := d.writeDown(e, plan, len(plan.rec.GPUs) > 0 || plan.rec.Note != note); err != nil {
		return errors.Join(err, target.RemoveAll(d.path(e, "")))
	}
	if err := d.launch(ctx, e, plan); err != nil {
		return d.undo(ctx, e, plan, err)
	}
	return nil
}

// writeDown keeps what is known of the task, on disk too where that has changed since its folder was made.
func (d *Driver) writeDown(e *task, p *plan, changed bool) error {
	d.mu.Lock()
	e.rec = p.rec
	d.mu.Unlock()
	if !changed {
		return nil
	}
	return target.WriteJSON(d.path(e, taskFile), p.rec)
}

// clear takes away what is left of a start that did not come to its end. began says that it did after all.
func (d *Driver) clear(ctx context.Context, t *task) (began bool, err error) {
	if !d.kept(t) {
		return false, nil
	}
	err = d.engine.remove(ctx, d.container(t), false)
	if at, ok := d.beganAt(t); ok { // it ran, and may be over
		d.markBegun(t, at)
		return true, nil
	}
	if errdefs.IsConflict(err) { // it runs
		ctx, cancel := context.WithTimeout(ctx, workPatience)
		defer cancel()
		return true, d.awaitBegin(ctx, t)
	}
	if err != nil {
		return false, engineError(err)
	}
	return false, target.RemoveAll(d.path(t, ""))
}

// makeFolder makes the task's folder, task.json last.
func (d *Driver) makeFolder(e *task, t trainyard.Task, p *plan) error {
	dirs := []string{d.path(e, ""), d.path(e, boxDir), d.box(e, tmpDir)}
	if p.config.User != rootUser {
		dirs = append(dirs, d.box(e, homeDir))
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	files := map[string]string{scriptFile: runScript, logFile: ""}
	if len(t.Run.Command) > longCommand {
		files[longFile] = t.Run.Command + "\n"
	}
	for name, text := range files {
		if err := os.WriteFile(d.box(e, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := makePipe(d.box(e, pipeFile)); err != nil {
		return fmt.Errorf("make pipe for its output: %w", err)
	}
	return target.WriteJSON(d.path(e, taskFile), p.rec)
}

// launch makes the container, starts it, and waits until its command begins.
func (d *Driver) launch(ctx context.Context, e *task, p *plan) error {
	ctx, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	err := d.make(ctx, e, p)
	if d.without(ctx, e, p, err) {
		if err = d.writeDown(e, p, true); err == nil {
			err = d.make(ctx, e, p)
		}
	}
	if err != nil {
		return err
	}
	d.at("started")
	return d.awaitBegin(ctx, e)
}

// make makes the container and starts it.
func (d *Driver) make(ctx context.Context, e *task, p *plan) error {
	name := d.container(e)
	create := func() error {
		_, err := d.engine.ContainerCreate(ctx, client.ContainerCreateOptions{Name: name, Config: &p.config, HostConfig: &p.host})
		return err
	}
	err := create()
	// A request of an agent that died came late; it never got to the request to start it. While the engine is still about it, the name is
	// taken and there is nothing to remove yet.
	for late := time.Now().Add(beginPatience); errdefs.IsConflict(err) && ctx.Err() == nil && time.Now().Before(late); {
		if err = d.engine.remove(ctx, name, false); err == nil {
			err = create()
		}
		if errdefs.IsConflict(err) {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	if err != nil {
		return err
	}
	d.at("created")
	d.learn(ctx, name, p)
	_, err = d.engine.ContainerStart(ctx, name, client.ContainerStartOptions{})
	return err
}

// awaitBegin waits until the command begins in a container that was started.
func (d *Driver) awaitBegin(ctx context.Context, t *task) error {
	late := time.Now().Add(beginPatience)
	for look := 0; ; look++ {
		if at, ok := d.beganAt(t); ok {
			d.markBegun(t, at)
			return nil
		}
		if look%100 == 99 {
			over, err := d.neverBegan(ctx, t)
			if over || err != nil {
				return err
			}
			if time.Now().After(late) {
				return fmt.Errorf("its container was started, and did not come to the command in %v", beginPatience)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// neverBegan looks at a container that does not come to the command: one that ended says why. over is true if it began after all.
func (d *Driver) neverBegan(ctx context.Context, t *task) (over bool, err error) {
	r, err := d.engine.ContainerInspect(ctx, d.container(t), client.ContainerInspectOptions{})
	if err != nil {
		return false, err
	}
	s := r.Container.State
	if s == nil || s.Running || s.Status == stateCreated {
		return false, nil
	}
	if at, ok := d.beganAt(t); ok {
		d.markBegun(t, at)
		return true, nil
	}
	if _, err := os.Lstat(d.box(t, scriptFile)); errors.Is(err, fs.ErrNotExist) { // it began, and took away what says so
		return false, fault(trainyard.ClassUser, "the command deleted %s, where how it ends is written down: it ran, with exit code %d, and its log is lost; "+
			"leave that folder out of what it deletes", inBox, s.ExitCode)
	}
	words := strings.Join(strings.Fields(s.Error+" "+d.output(ctx, d.container(t))), " ")
	return false, fault(trainyard.ClassEnvironment, "image %q cannot run a command here: its container ended with exit code %d before that (%s); "+
		"the image must be for this kind of processor and have /bin/sh", t.rec.Image, s.ExitCode, words)
}

// undo takes a container away that could not be started, and puts the engine's reason into words. One of an engine that went away is left to
// the next Start or to Observe: the engine may start it yet, and a request to take it away would come after that.
func (d *Driver) undo(ctx context.Context, e *task, p *plan, err error) error {
	if isAway(err) {
		if at, ok := d.beganAt(e); ok {
			d.markBegun(e, at)
			return nil
		}
		return engineError(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), workPatience)
	defer cancel()
	removed := d.engine.remove(ctx, d.container(e), true)
	if at, ok := d.beganAt(e); ok {
		d.markBegun(e, at)
		return nil
	}
	if removed != nil { // it may run: what the engine says later counts
		return fmt.Errorf("%w (%w)", err, engineError(removed))
	}
	if errdefs.IsNotFound(err) && strings.Contains(err.Error(), "No such container: "+d.container(e)) {
		err = trainyard.Errorf(trainyard.CodeBusy, "its container was taken away from outside before it was started (%v)", err)
	} else {
		err = p.explain(err)
	}
	return errors.Join(err, target.RemoveAll(d.path(e, "")))
}

// at is where tests die.
func (d *Driver) at(step string) {
	if d.step != nil {
		d.step(step)
	}
}

// Package process makes machines that are processes of this computer: each is one agent in a session of its own, with a folder of its own,
// that outlives the server. It remembers nothing that it could not find again on disk and in the system's list of processes. It does not
// hold CPU or memory of a machine's size: the agent's own driver does. Machines may be larger together than the computer.
//
// On disk, below Env.Dir:
//
//	NODE/machine.json   what the machine is, and which process is its agent
//	NODE/join-token     for the agent, its owner alone may read it
//	NODE/agent.log      what the agent says; agent.log.1 is what it said before that
//	NODE/node/          the agent's own
//	.new-…, .gone-…     machines on their way in and out
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/gpu"
)

// Kind is the entry for the list of fleets.
func Kind() fleet.Kind {
	return fleet.Kind{Name: "process", Doc: "agents as processes of this computer", New: func() fleet.Config { return &Config{} }}
}

// Config has no settings: everything comes with the environment.
type Config struct{}

// Validate finds nothing to object to.
func (*Config) Validate() error { return nil }

// Open opens the fleet in env.Dir, finding the machines that are there.
func (*Config) Open(_ context.Context, env fleet.Env) (fleet.Driver, error) {
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the folder of machines: %w", err)
	}
	env.Dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of machines: %w", err)
	}
	d := &Driver{env: env, log: env.Log, changed: make(chan struct{}, 1), over: make(chan struct{}),
		watched: map[string]identity{}, notes: map[string]string{}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if err := d.tidy(); err != nil {
		return nil, err
	}
	d.work.Go(d.tend)
	return d, nil
}

// Driver is the fleet.
type Driver struct {
	env     fleet.Env
	log     *slog.Logger
	changed chan struct{}
	over    chan struct{} // closed by Close
	once    sync.Once
	work    sync.WaitGroup
	turns   fleet.Turns // by folder
	gpus    gpu.Reader
	gpuMu   sync.Mutex // held from the choice of GPUs until it is written down

	mu      sync.Mutex
	watched map[string]identity // agents that somebody waits for, by folder
	notes   map[string]string   // how the last agent ended, by folder
}

var _ fleet.Driver = (*Driver)(nil)

// Close stops looking after the machines, which go on.
func (d *Driver) Close() error {
	d.once.Do(func() { close(d.over) })
	d.work.Wait()
	d.gpus.Close()
	return nil
}

// Changed says that an agent ended.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Machines lists every machine here, or fails: half a view is none.
func (d *Driver) Machines(context.Context) ([]trainyard.Machine, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	var out []trainyard.Machine
	for _, name := range names {
		r, err := d.read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went while we looked
		}
		if err != nil {
			return nil, err
		}
		m := trainyard.Machine{ID: r.ID, Compute: r.Compute, State: trainyard.MachineDead}
		if r.Agent != nil && r.Agent.alive() {
			m.State = trainyard.MachineRunning
		} else {
			d.mu.Lock()
			m.Note = d.notes[name]
			d.mu.Unlock()
		}
		out = append(out, m)
	}
	return out, nil
}

// names lists the folders of machines: what has none of a machine's own files is somebody else's, and left alone.
func (d *Driver) names() ([]string, error) {
	entries, err := os.ReadDir(d.env.Dir)
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && d.isMachine(e.Name()) {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// isMachine says whether a folder is a machine's. After a loss of power its record may be gone, and not all else.
func (d *Driver) isMachine(name string) bool {
	for _, own := range []string{recordFile, tokenFile, nodeFolder} {
		if _, err := os.Lstat(filepath.Join(d.env.Dir, name, own)); err == nil {
			return true
		}
	}
	return false
}

// tidy clears what an earlier server left half done, takes up agents that it had started and not written down, and waits for those that
// live.
func (d *Driver) tidy() error {
	for _, half := range []string{goneFolder, newFolder} {
		paths, err := filepath.Glob(filepath.Join(d.env.Dir, half+"*"))
		if err != nil {
			return fmt.Errorf("list machines: %w", err)
		}
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil { // of another user, perhaps; it is no machine any more
				d.log.Warn("clear away a machine's folder", "dir", path, "err", err)
			}
		}
	}
	names, err := d.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		r, err := d.read(name)
		if err != nil {
			return err
		}
		if r.Agent != nil && r.Server != "" && r.Server != d.env.Server && r.Agent.alive() {
			d.log.Info("this server has another address than the agent knows: the agent is started again, its tasks go on", "node", r.ID, "was", r.Server)
			r.Agent.kill()
		}
		if err := d.find(name, &r); err != nil {
			return err
		}
	}
	return nil
}

// find looks for the machine's agent, and waits for its end if there is one.
func (d *Driver) find(name string, r *record) error {
	if r.Agent == nil || !r.Agent.alive() {
		found := strays(r.ID, filepath.Join(d.env.Dir, name, nodeFolder))
		if len(found) == 0 {
			return nil
		}
		d.log.Info("found an agent that was not written down", "node", r.ID, "pid", found[0].PID)
		r.Agent = &found[0]
		if err := d.save(name, *r); err != nil {
			return err
		}
	}
	d.watch(name, *r.Agent)
	return nil
}

// watch has the end of an agent noticed.
func (d *Driver) watch(name string, agent identity) {
	d.mu.Lock()
	known := d.watched[name] == agent
	d.watched[name] = agent
	d.mu.Unlock()
	if known {
		return
	}
	d.work.Go(func() {
		how, ended := agent.wait(d.over)
		if !ended {
			return
		}
		note := ending(how, filepath.Join(d.env.Dir, name, logFile))
		d.mu.Lock()
		if d.watched[name] == agent {
			delete(d.watched, name)
			d.notes[name] = note
		}
		d.mu.Unlock()
		select {
		case d.changed <- struct{}{}:
		default:
		}
	})
}

// tend keeps the agents' logs from growing without end.
func (d *Driver) tend() {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-d.over:
			return
		case <-tick.C:
		}
		names, err := d.names()
		if err != nil {
			d.log.Warn("look after the agents' logs", "err", err)
			continue
		}
		for _, name := range names {
			if err := rotate(filepath.Join(d.env.Dir, name, logFile), maxLog); err != nil {
				d.log.Warn("look after an agent's log", "dir", name, "err", err)
			}
		}
	}
}

// alone waits until nobody else works on a machine, and keeps others out until done is called.
func (d *Driver) alone(name string) (done func()) {
	done, _ = d.turns.Alone(context.Background(), name)
	return done
}

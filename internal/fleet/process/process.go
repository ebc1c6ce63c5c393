// Package process makes machines that are processes of this computer: each is one agent in a session of its own, with a folder of its own,
// that outlives the server. It holds nothing in memory that it could not find again on disk; CPU and memory of a machine's size are held
// by the agent's own driver, not here.
package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
)

// Kind is the entry for the list of fleets.
func Kind() fleet.Kind {
	return fleet.Kind{Name: "process", Doc: "agents as processes of this computer", New: func() fleet.Config { return &Config{} }}
}

// Config has no settings: everything comes with the environment.
type Config struct{}

// Validate finds nothing to object to.
func (*Config) Validate() error { return nil }

// Open opens the fleet in env.Dir.
func (*Config) Open(_ context.Context, env fleet.Env) (fleet.Driver, error) {
	if err := os.MkdirAll(env.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of machines: %w", err)
	}
	return &Driver{env: env, changed: make(chan struct{}, 1)}, nil
}

// Driver is the fleet.
type Driver struct {
	env     fleet.Env
	mu      sync.Mutex // one Grow or Shrink at a time
	changed chan struct{}
}

var _ fleet.Driver = (*Driver)(nil)

// How long an agent that was asked to stop may take, and how long the end of what ran on its machine may take.
const (
	stopTime = 3 * time.Second
	killTime = 10 * time.Second
)

// machine is what is on disk of a machine: its folder holds machine.json, written before its agent starts.
type machine struct {
	ID      trainyard.NodeID     `json:"id"`
	Compute trainyard.ComputeKey `json:"compute"`
	Agent   *identity            `json:"agent,omitempty"` // nil: never started
}

const (
	recordFile = "machine.json"
	tokenFile  = "join-token"
	logFile    = "agent.log"
	maxLog     = 10 << 20 // bytes; an older half is kept beside it
)

// Changed says that an agent ended.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Machines lists every folder here. One that cannot be read is an error: half a view is none.
func (d *Driver) Machines(context.Context) ([]trainyard.Machine, error) {
	entries, err := os.ReadDir(d.env.Dir)
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var out []trainyard.Machine
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		m, err := d.read(e.Name())
		if errors.Is(err, os.ErrNotExist) {
			m = machine{ID: trainyard.NodeID(e.Name())} // died between mkdir and the record: a machine without an agent
		} else if err != nil {
			return nil, err
		}
		state := trainyard.MachineDead
		if m.Agent != nil && m.Agent.alive() {
			state = trainyard.MachineRunning
		}
		out = append(out, trainyard.Machine{ID: m.ID, Compute: m.Compute, State: state})
	}
	return out, nil
}

// Grow starts an agent for every machine that has none that lives.
func (d *Driver) Grow(ctx context.Context, want []trainyard.MachineSpec) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	started := 0
	var errs []error
	for _, spec := range want {
		if err := ctx.Err(); err != nil {
			return started, errors.Join(append(errs, err)...)
		}
		if err := d.grow(spec); err != nil {
			errs = append(errs, &fleet.MachineError{ID: spec.ID, Err: err})
			continue
		}
		started++
	}
	return started, errors.Join(errs...)
}

func (d *Driver) grow(spec trainyard.MachineSpec) error {
	if !safe(string(spec.ID)) {
		return trainyard.Invalid("%q cannot be a machine's name", spec.ID)
	}
	dir := filepath.Join(d.env.Dir, string(spec.ID))
	m, err := d.read(string(spec.ID))
	if err == nil && m.Agent != nil && m.Agent.alive() {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	m = machine{ID: spec.ID, Compute: spec.Compute}
	if err := write(filepath.Join(dir, tokenFile), []byte(spec.Token)); err != nil {
		return err
	}
	out, err := openLog(filepath.Join(dir, logFile))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(d.env.Binary, d.args(spec, dir)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, dir
	cmd.Env = append(os.Environ(), nodeVariable+"="+string(spec.ID))
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent %s: %w", d.env.Binary, err)
	}
	id, err := identify(cmd.Process.Pid)
	if err == nil {
		m.Agent = &id
		err = d.save(m)
	}
	if err != nil { // without a record it could never be found again
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return err
	}
	go func() { // reap it, and say so; it lives on when this process ends
		_ = cmd.Wait()
		select {
		case d.changed <- struct{}{}:
		default:
		}
	}()
	return nil
}

// args is the agent's command line. The token is in a file, so that no list of processes shows it.
func (d *Driver) args(spec trainyard.MachineSpec, dir string) []string {
	args := []string{"agent", "--node", string(spec.ID), "--dir", dir, "--server", d.env.Server, "--token-file", filepath.Join(dir, tokenFile),
		"--size", spec.Size.Name, "--cpus", strconv.Itoa(spec.Size.VCPUs), "--memory-mb", strconv.FormatInt(int64(spec.Size.MemoryGB*1024), 10),
		"--group", string(spec.ID)}
	if d.env.CA != "" {
		args = append(args, "--ca", d.env.CA)
	}
	if d.env.Cache != "" {
		args = append(args, "--cache", d.env.Cache)
	}
	for _, path := range d.env.Hide {
		args = append(args, "--hide", path)
	}
	return args
}

// Shrink ends machines: the agent is asked, then made to stop, then everything that ran there is ended, then the folder goes.
func (d *Driver) Shrink(ctx context.Context, ids []trainyard.NodeID) ([]trainyard.NodeID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var stopped []trainyard.NodeID
	var errs []error
	for _, id := range ids {
		wg.Go(func() {
			err := d.shrink(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, &fleet.MachineError{ID: id, Err: err})
				return
			}
			stopped = append(stopped, id)
		})
	}
	wg.Wait()
	return stopped, errors.Join(errs...)
}

func (d *Driver) shrink(ctx context.Context, id trainyard.NodeID) error {
	if !safe(string(id)) {
		return nil // nothing of that name was ever made
	}
	dir := filepath.Join(d.env.Dir, string(id))
	m, err := d.read(string(id))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if m.Agent != nil && m.Agent.alive() {
		m.Agent.ask()
		if !await(ctx, stopTime, func() bool { return !m.Agent.alive() }) {
			m.Agent.kill()
		}
	}
	gone := func() bool {
		if m.Agent != nil && m.Agent.alive() {
			m.Agent.kill()
			return false
		}
		return endAll(string(id)) == 0
	}
	if !await(ctx, killTime, gone) {
		return fmt.Errorf("processes of the machine still run %s after they were killed", killTime)
	}
	if d.env.Cache != "" {
		if err := os.RemoveAll(filepath.Join(d.env.Cache, "work", string(id))); err != nil {
			return fmt.Errorf("delete the machine's work folder: %w", err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("delete the machine's folder: %w", err)
	}
	return nil
}

// await looks until holds is true, for at most limit.
func await(ctx context.Context, limit time.Duration, holds func() bool) bool {
	deadline := time.After(limit)
	pause := time.Millisecond
	for !holds() {
		select {
		case <-ctx.Done():
			return false
		case <-deadline:
			return holds()
		case <-time.After(pause):
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
	return true
}

func (d *Driver) read(name string) (machine, error) {
	var m machine
	path := filepath.Join(d.env.Dir, name, recordFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("the record %s is damaged: %w", path, err)
	}
	return m, nil
}

func (d *Driver) save(m machine) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return write(filepath.Join(d.env.Dir, string(m.ID), recordFile), data)
}

// write replaces a file whole or not at all, for its owner alone.
func write(path string, data []byte) error {
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// openLog opens an agent's log for appending; one that has grown large is put aside first.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".old"); err != nil {
			slog.Default().Warn("put the agent's log aside", "path", path, "error", err)
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// safe says whether a name can be a folder here.
func safe(name string) bool {
	return name != "" && name != "." && name != ".." && filepath.Base(name) == name
}

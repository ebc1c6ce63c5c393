package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/gpu"
)

// Grow starts an agent for every machine that has none that lives.
func (d *Driver) Grow(ctx context.Context, want []trainyard.MachineSpec) (int, error) {
	there := 0
	var errs []error
	for _, spec := range want {
		err := ctx.Err()
		if err == nil {
			err = d.grow(ctx, spec)
		}
		if err != nil {
			errs = append(errs, &fleet.MachineError{ID: spec.ID, Err: err})
			continue
		}
		there++
	}
	return there, errors.Join(errs...)
}

func (d *Driver) grow(ctx context.Context, spec trainyard.MachineSpec) error {
	if spec.ID == "" {
		return trainyard.Invalid("a machine needs an ID")
	}
	name := fleet.Folder(spec.ID)
	defer d.alone(name)()
	dir := filepath.Join(d.env.Dir, name)
	r := record{ID: spec.ID, Compute: spec.Compute}
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		if err := d.create(name, r, spec.Token); err != nil {
			return fmt.Errorf("make the folder of the machine: %w", err)
		}
	} else if err != nil {
		return fmt.Errorf("look for the machine: %w", err)
	} else if r, err = d.read(name); err != nil {
		return err
	}
	if r.Agent == nil || !r.Agent.alive() {
		r.ID, r.Compute = spec.ID, spec.Compute // a damaged record is made good
		if err := d.find(name, &r); err != nil {
			return err
		}
	}
	if r.Agent != nil && r.Agent.alive() {
		return nil
	}
	if err := write(filepath.Join(dir, tokenFile), []byte(spec.Token)); err != nil {
		return fmt.Errorf("leave the join token for the agent: %w", err)
	}
	if err := d.lend(ctx, name, &r, spec.Size.GPUs); err != nil {
		return err
	}
	return d.start(name, r, spec)
}

// start starts the machine's agent and writes down which process it is. Should we die in between, the next server finds it by its
// command line.
func (d *Driver) start(name string, r record, spec trainyard.MachineSpec) error {
	dir := filepath.Join(d.env.Dir, name)
	if err := os.MkdirAll(filepath.Join(dir, nodeFolder), 0o700); err != nil {
		return fmt.Errorf("make the agent's folder: %w", err)
	}
	out, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the agent's log: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(d.env.Binary, d.args(name, spec)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, dir
	cmd.Env = append(withoutOurs(os.Environ(), d.env.Vars), nodeVariable+"="+string(spec.ID))
	if len(r.GPUs) > 0 {
		cmd.Env = append(cmd.Env, gpu.VisibleVariable+"="+strings.Join(r.GPUs, ","), "CUDA_DEVICE_ORDER=PCI_BUS_ID")
	}
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	id, err := identify(cmd.Process.Pid)
	if err == nil {
		r.Agent, r.Server = &id, d.env.Server
		err = d.save(name, r)
	}
	if err != nil {
		_ = cmd.Process.Kill() // we could not find it again for certain
		_ = cmd.Wait()
		return fmt.Errorf("write down the agent: %w", err)
	}
	d.log.Info("started an agent", "node", spec.ID, "pid", id.PID)
	_ = cmd.Process.Release() // whoever watches it reaps it
	d.watch(name, id)
	return nil
}

// args is the agent's command line. The token is in a file, so that no list of processes shows it.
func (d *Driver) args(name string, spec trainyard.MachineSpec) []string {
	dir := filepath.Join(d.env.Dir, name)
	args := []string{"agent", "--node", string(spec.ID), "--dir", filepath.Join(dir, nodeFolder), "--server", d.env.Server,
		"--token-file", filepath.Join(dir, tokenFile), "--group", d.group(name),
		"--size", spec.Size.Name, "--cpus", strconv.Itoa(spec.Size.VCPUs), "--memory-mb", strconv.FormatInt(int64(spec.Size.MemoryGB*1024), 10)}
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

// nodeVariable marks every process of a machine: the agent hands it to its tasks, and children inherit it.
const nodeVariable = "TRAINYARD_NODE"

// withoutOurs is an environment without our own variables but those named: they are about whoever started the server, and may hold its
// token.
func withoutOurs(env, but []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "TRAINYARD_") && !slices.Contains(but, name)
	})
}

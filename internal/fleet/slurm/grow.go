package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/slurm"
)

// maxSubmits is how many sbatch may run at once.
const maxSubmits = 8

// signalTime is how long Slurm may take to pass a signal on to a batch script.
const signalTime = 10 * time.Second

// Grow submits a job for every machine that has none, and has the agent started again in a job whose agent is dead or dials a server that has
// moved.
func (d *Driver) Grow(ctx context.Context, want []trainyard.MachineSpec) (int, error) {
	if len(want) == 0 {
		return 0, nil
	}
	there, err := fleet.GrowEach(want, func(spec trainyard.MachineSpec) error { return d.grow(ctx, spec) })
	d.forget()
	return there, err
}

func (d *Driver) grow(ctx context.Context, spec trainyard.MachineSpec) error {
	if spec.ID == "" {
		return trainyard.Invalid("a machine needs an ID")
	}
	settings, err := d.settings(spec)
	if err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	name := fleet.Folder(spec.ID)
	defer d.alone(name)()
	select {
	case d.submits <- struct{}{}:
		defer func() { <-d.submits }()
	case <-ctx.Done():
		return ctx.Err()
	}
	r, err := d.read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := d.client.Mkdir(d.path(name, nodeFolder)); err != nil {
			return fmt.Errorf("make the folder of the machine: %w", err)
		}
	case err != nil:
		return err
	}
	r.ID, r.Compute = spec.ID, spec.Compute
	job := ""
	if r.Mark != "" {
		if job, err = d.alive(ctx, r.Mark); err != nil {
			return err
		}
	}
	s, err := d.said(name)
	if err != nil {
		return err
	}
	if job != "" && s.down == "" {
		if !s.up || r.Server == d.env.Server {
			return nil
		}
		if err := d.endAgent(ctx, name, slurm.Ref{ID: job, Name: r.Mark}); err != nil {
			return fmt.Errorf("end the agent that dials %s, where the server is no more: %w", r.Server, err)
		}
	}
	if err := d.prepare(name, &r, spec); err != nil {
		return fmt.Errorf("leave what the machine needs: %w", err)
	}
	if job != "" {
		d.log.Info("have an agent started again", "node", spec.ID)
		if err := d.save(name, r); err != nil {
			return err
		}
		return slurm.Put(d.client, d.path(name, goFile), []byte(slurm.Random(8)), 0o600)
	}
	return d.submit(name, r, spec, settings)
}

// alive is the number of the machine's job that waits or runs, as Slurm says now; "" if none does.
func (d *Driver) alive(ctx context.Context, mark string) (string, error) {
	jobs, err := d.client.Queue(ctx, mark)
	if err != nil {
		return "", err
	}
	for _, j := range jobs {
		if j.Name == mark && !j.Ended() && j.State != slurm.Completing {
			return j.ID, nil
		}
	}
	return "", nil
}

// endAgent ends a machine's agent, and nothing else that runs there, and returns when its batch script has said so. Slurm passes signals on
// when it likes: a second one could hit the next agent, so there is one.
func (d *Driver) endAgent(ctx context.Context, name string, job slurm.Ref) error {
	if err := d.client.Signal(ctx, job, "USR1", slurm.Script); err != nil {
		return err
	}
	limit := time.After(signalTime)
	for {
		s, err := d.said(name)
		if err != nil || s.down != "" {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			return fmt.Errorf("job %s has not heeded its signal for %s; it is sent again", job.ID, signalTime)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// prepare leaves what an agent is started with.
func (d *Driver) prepare(name string, r *record, spec trainyard.MachineSpec) error {
	r.Server = d.env.Server
	if err := d.client.Mkdir(d.path(name, nodeFolder)); err != nil {
		return err
	}
	for file, text := range map[string]string{tokenFile: spec.Token, agentFile: d.agent(name, spec)} {
		if err := slurm.Put(d.client, d.path(name, file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// submit hands the machine to Slurm, under a name that was written down before: should we die in between, the next server finds it.
func (d *Driver) submit(name string, r record, spec trainyard.MachineSpec, settings slurm.Settings) error {
	if err := d.client.Remove(d.statePath(name)); err != nil {
		return err
	}
	r.Mark = name + "." + slurm.Random(3) + d.suffix
	if err := d.save(name, r); err != nil {
		return err
	}
	job, err := d.client.Submit(d.life, slurm.Batch{
		Script: settings.Head() + d.script(name), Name: r.Mark, Dir: d.path(name, ""), Output: d.path(name, slurmFile), Nodes: 1,
		CPUs: spec.Size.VCPUs, MemoryMB: int64(spec.Size.MemoryGB * 1024), GPUs: spec.Size.GPUs, Args: settings.Args(), Hold: d.lock,
	})
	if err != nil {
		return fmt.Errorf("submit the machine to Slurm: %w", err)
	}
	d.log.Info("submitted a machine", "node", spec.ID, "job", job)
	return nil
}

// agent is the script that becomes the agent. The token is in a file, so that no list of processes shows it.
func (d *Driver) agent(name string, spec trainyard.MachineSpec) string {
	args := []string{d.program, "agent", "--node", string(spec.ID), "--dir", d.path(name, nodeFolder), "--server", d.env.Server,
		"--token-file", d.path(name, tokenFile), "--group", name + strings.Replace(d.suffix, "@", "-", 1),
		"--size", spec.Size.Name, "--cpus", strconv.Itoa(spec.Size.VCPUs), "--memory-mb", strconv.FormatInt(int64(spec.Size.MemoryGB*1024), 10)}
	if d.ca != "" {
		args = append(args, "--ca", d.ca)
	}
	if d.cache != "" {
		args = append(args, "--cache", d.cache)
	}
	for _, path := range d.hide {
		args = append(args, "--hide", path)
	}
	for i, a := range args {
		args[i] = slurm.Quote(a)
	}
	return "exec " + strings.Join(args, " ") + ` --address "$1"` + "\n"
}

// script is what the batch job does: it is the agent's parent. An agent that says it is done gives the nodes back. One that dies may have
// left tasks behind, so the job holds on to them for ten minutes, in which it can be asked to start the agent again.
func (d *Driver) script(name string) string {
	return fmt.Sprintf(`cd %s || exit 1
state=%s
say() { echo "$@" >"$state.part" && mv "$state.part" "$state"; }
address=$(scontrol --oneliner show node "$SLURMD_NODENAME" | sed -n 's/.* NodeAddr=\([^ ]*\) .*/\1/p')
agent= over=
trap 'over=1; [ -z "$agent" ] || kill -TERM "$agent"' TERM
trap '[ -z "$agent" ] || kill -KILL "$agent"' USR1
while :; do
	if [ "$(stat -c %%s agent.log 2>/dev/null || echo 0)" -gt 10485760 ]; then mv agent.log agent.log.1; fi
	bash agent.sh "${address:-$(hostname)}" </dev/null >>agent.log 2>&1 &
	agent=$!
	[ -z "$over" ] || kill -TERM "$agent"
	say up "$agent"
	while :; do # a signal ends wait, and not the agent
		wait "$agent"; status=$?
		[ "$status" -gt 128 ] && kill -0 "$agent" 2>/dev/null || break
	done
	agent= last=$(cat go 2>/dev/null)
	say down "$status"
	if [ -n "$over" ] || [ "$status" = 0 ]; then exit 0; fi
	tries=0
	while [ "$(cat go 2>/dev/null)" = "$last" ]; do
		sleep 0.5
		tries=$((tries + 1))
		if [ -n "$over" ] || [ "$tries" -gt 1200 ]; then exit 0; fi
	done
done
`, slurm.Quote(d.path(name, "")), slurm.Quote(d.statePath(name)))
}

// remove takes a machine's folder away. It is no machine any more once it is renamed; what then cannot be deleted is only untidy.
func (d *Driver) remove(name string, id trainyard.NodeID) error {
	going := d.path(goneFolder+name+"-"+slurm.Random(4), "")
	if err := d.client.Rename(d.path(name, ""), going); err != nil {
		return fmt.Errorf("delete the machine's folder: %w", err)
	}
	_ = d.client.Remove(d.statePath(name))
	if err := d.client.Remove(going); err != nil {
		d.log.Warn("clear away a machine's folder", "dir", going, "err", err)
	}
	if d.cache != "" && name == string(id) { // what its tasks left there is nobody's now, where we see it
		work := filepath.Join(d.cache, "work", name)
		if err := d.client.Remove(work); err != nil {
			d.log.Warn("clear away a machine's work folder", "dir", work, "err", err)
		}
	}
	return nil
}

package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/slurm"
)

// maxSubmits is how many sbatch may run at once.
const maxSubmits = 8

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
	if r.Mark != "" {
		j, err := d.current(ctx, r.Mark)
		switch {
		case err != nil:
			return err
		case j.State == slurm.Completing: // what runs there may be storing what it made; the next must not take it up yet
			return nil
		case j.State != "" && !j.Ended():
			return d.again(ctx, name, r, j, spec)
		}
		r.Lost = lostBy(j)
	}
	return d.submit(ctx, name, r, spec, settings)
}

// current is a machine's job as Slurm says now: the one that waits, runs or is being ended, or else the last that has ended. One without a state is
// for none that Slurm knows.
func (d *Driver) current(ctx context.Context, mark string) (slurm.Job, error) {
	jobs, err := d.client.Queue(ctx, mark)
	if err != nil {
		return slurm.Job{}, err
	}
	var last slurm.Job
	for _, j := range jobs {
		if j.Name == mark && (last.State == "" || last.Ended()) {
			last = j
		}
	}
	return last, nil
}

// again has an agent that is dead, or dials where the server is no more, started again in the machine's job. It does not wait for it: Slurm
// passes a signal on when it likes, so the batch script heeds one only if it has an order that is newer than its agent.
func (d *Driver) again(ctx context.Context, name string, r record, j slurm.Job, spec trainyard.MachineSpec) error {
	s, err := d.said(name, r)
	switch {
	case err != nil:
		return err
	case !s.up && s.down == "": // it starts
		return nil
	case s.up && !s.asked() && s.dials(d.env.Server): // it is well
		return nil
	case s.up && j.State != slurm.Running:
		return fmt.Errorf("job %s of the machine is %s in Slurm: its agent must be replaced, and is when the job runs", j.ID, j.State)
	}
	if !s.asked() || s.last.job != r.Mark || s.last.server != d.env.Server {
		d.log.Info("have an agent started again", "node", spec.ID, "job", j.ID)
		if err := d.prepare(name, r, spec); err != nil {
			return err
		}
	}
	if !s.up {
		return nil
	}
	return d.client.Signal(ctx, slurm.Ref{ID: j.ID, Name: r.Mark}, "USR1", slurm.Script)
}

// prepare leaves what an agent of a machine's job is started with, and last the order to start it.
func (d *Driver) prepare(name string, r record, spec trainyard.MachineSpec) error {
	if err := d.client.Mkdir(d.path(name, nodeFolder)); err != nil {
		return fmt.Errorf("make the folder of the agent: %w", err)
	}
	start := order{r.Mark, slurm.Random(8), d.env.Server}
	for _, file := range []struct{ name, text string }{{tokenFile, spec.Token}, {agentFile, d.agent(name, r, spec)}, {goFile, start.String()}} {
		if err := slurm.Put(d.client, d.path(name, file.name), []byte(file.text), 0o600); err != nil {
			return fmt.Errorf("leave what the machine needs: %w", err)
		}
	}
	return nil
}

// submit hands the machine to Slurm, under a name that was written down before: should we die in between, the next server finds it.
func (d *Driver) submit(ctx context.Context, name string, r record, spec trainyard.MachineSpec, settings slurm.Settings) error {
	if err := d.client.Remove(d.statePath(name)); err != nil {
		return err
	}
	r.Mark = name + "." + slurm.Random(3) + d.suffix
	if err := d.prepare(name, r, spec); err != nil {
		return err
	}
	if err := d.save(name, r); err != nil {
		return err
	}
	job, err := d.client.Submit(d.life, slurm.Batch{ // not ctx: half a submission helps nobody
		Script: settings.Head() + d.script(name, r.Mark), Name: r.Mark, Dir: d.path(name, ""), Output: d.path(name, slurmFile), Nodes: 1,
		CPUs: spec.Size.VCPUs, MemoryMB: int64(spec.Size.MemoryGB * 1024), GPUs: spec.Size.GPUs, Args: settings.Args(), Hold: d.lock,
	})
	if err != nil && slurm.Away(err) { // Slurm may have heard what sbatch did not come to tell
		if jobs, look := d.client.Queue(ctx, r.Mark); look == nil && len(jobs) > 0 {
			d.log.Warn("Slurm has a machine whose number was not told", "node", spec.ID, "job", jobs[0].ID, "err", err)
			job, err = jobs[0].ID, nil
		}
	}
	if err != nil {
		return fmt.Errorf("submit the machine to Slurm: %w", err)
	}
	d.log.Info("submitted a machine", "node", spec.ID, "job", job)
	return nil
}

// agent is the script that becomes the agent: at an address, in an allocation, which Slurm has put back in its queue so many times. The token is
// in a file, so that no list of processes shows it.
func (d *Driver) agent(name string, r record, spec trainyard.MachineSpec) string {
	args := []string{d.program, "agent", "--node", string(spec.ID), "--dir", d.path(name, nodeFolder), "--server", d.env.Server,
		"--token-file", d.path(name, tokenFile), "--notice", d.path(name, noticeFile), "--group", name + strings.Replace(d.suffix, "@", "-", 1),
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
	again := lostBy(slurm.Job{State: slurm.Requeued, ID: "$SLURM_JOB_ID"})
	return fmt.Sprintf("class=%s lost=%s\n", slurm.Quote(string(r.Lost.Class)), slurm.Quote(r.Lost.Words)) +
		fmt.Sprintf(`[ "${3:-0}" = 0 ] || { class=%s lost="%s"; }`+"\n", again.Class, again.Words) +
		"exec " + strings.Join(args, " ") + ` --address "$1" --place "$2.${3:-0}" --lost-class "$class" --lost "$lost"` + "\n"
}

// words are what the batch script of a machine's job says of why Slurm takes it away. They are a shell's, within double quotes.
func words(state string) string {
	l := lostBy(slurm.Job{State: state, ID: "$SLURM_JOB_ID"})
	return string(l.Class) + " " + l.Words
}

// notices has the batch script find out, when it gets SIGTERM, why and how long there is until SIGKILL, which it leaves for the agent. What
// slurmstepd says of the job's end it says into the job's file before that. A partition's GraceTime is over by then: at its beginning only the steps of
// a job get SIGTERM, and there are none. Where nothing is said the signal is for the script alone: Shrink's, which does not wait for long, or somebody's.
func notices() string {
	return fmt.Sprintf(`kill=$(scontrol show config | sed -n 's/^KillWait *= *\([1-9][0-9]*\).*/\1/p') skip=$(wc -l <slurm.out)
why() {
	case $(tail -n "+$((skip + 1))" slurm.out | grep -F "JOB $SLURM_JOB_ID ON " | grep -F " CANCELLED AT " | tail -n 1) in
	*"DUE TO PREEMPTION"*) echo "${kill:-2} %s"; return 0 ;;
	*"DUE TO TIME LIMIT"*) echo "${kill:-2} %s"; return 0 ;;
	*"DUE TO NODE FAIL"*) echo "${kill:-2} %s"; return 0 ;;
	*"DUE TO JOB REQUEUE"*) echo "${kill:-2} %s"; return 0 ;;
	*"CANCELLED AT"*) echo "${kill:-2} %s"; return 0 ;;
	esac
	echo "2 %s"
}
notice() {
	over=1
	[ -n "$agent" ] || return 0 # a bare return has the status from before the trap
	why >notice.part && mv notice.part notice
	kill -TERM "$agent"
}
`, words(slurm.Preempted), words(slurm.Timeout), words(slurm.NodeFail), words(slurm.Requeued), words(slurm.Cancelled), string(trainyard.ClassNodeLost)+
		" the agent of its node was asked to end (job $SLURM_JOB_ID)")
}

// script is what the batch job does: it is the agent's parent. An agent that says it is done gives the nodes back. One that dies may have
// left tasks behind, so the job holds on to them for ten minutes, in which it can be asked to start the agent again. What it cannot say, as
// on a full disk, it says later: the program echo, unlike the shell's own, fails where the disk proves to be full when the file is closed. A
// job that Slurm had given up, and that runs nevertheless when the machine has another, says nothing and starts nothing.
func (d *Driver) script(name, mark string) string {
	return fmt.Sprintf(`cd %s || exit 1
state=%s job=%s
ours() { order=$(cat go) && [ "${order%%%% *}" = "$job" ]; }
asked() { ours && [ "$order" != "$last" ]; }
say() { ours && env echo "$@" >"$state.part" && mv "$state.part" "$state"; }
idle() {
	sleep 0.5
	tries=$((tries + 1))
	if [ -n "$over" ] || [ "$tries" -gt 1200 ]; then exit 0; fi
	[ -z "$order" ] || [ "${order%%%% *}" = "$job" ] || exit 0
}
address=$(scontrol --oneliner show node "$SLURMD_NODENAME" | sed -n 's/.* NodeAddr=\([^ ]*\) .*/\1/p')
agent= over= last= order=
rm -f notice notice.part
%strap notice TERM
trap '[ -z "$agent" ] || ! asked || kill -KILL "$agent"' USR1
while :; do
	if [ "$(stat -c %%s agent.log 2>/dev/null || echo 0)" -gt 10485760 ]; then mv agent.log agent.log.1; fi
	tries=0
	until ours; do idle; done
	last=$order
	bash agent.sh "${address:-$(hostname)}" "$job" "$SLURM_RESTART_COUNT" </dev/null >>agent.log 2>&1 &
	agent=$!
	[ -z "$over" ] || notice
	until say up "$agent" "$last" || ! kill -0 "$agent" 2>/dev/null; do sleep 0.5; done
	while :; do # a signal ends wait, and not the agent
		wait "$agent"; status=$?
		[ "$status" -gt 128 ] && kill -0 "$agent" 2>/dev/null || break
	done
	agent=
	say down "$status" "$last"; told=$?
	if [ -n "$over" ] || [ "$status" = 0 ]; then exit 0; fi
	tries=0
	until asked; do
		idle
		[ "$told" = 0 ] || { say down "$status" "$last"; told=$?; }
	done
done
`, slurm.Quote(d.path(name, "")), slurm.Quote(d.statePath(name)), slurm.Quote(mark), notices())
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

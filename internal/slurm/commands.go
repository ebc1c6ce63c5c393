package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"time"
)

// commands ask Slurm with its own commands.
type commands struct {
	runner
	folder, conf string
}

// runner runs a command where Slurm's commands are, with nothing of our own environment.
type runner interface {
	run(ctx context.Context, c command) (out, errs string, err error)
}

// command is a command to run.
type command struct {
	name         string
	args         []string
	folder, conf string
	env          []string // besides what every command gets
	input        string
	hold         *os.File // kept open while it lives
}

// run runs a command and returns what it printed.
func (c *commands) run(ctx context.Context, name string, args ...string) (string, error) {
	return c.start(ctx, command{name: name, args: args, env: []string{"SLURM_TIME_FORMAT=%s"}})
}

// start is run for a command with more to it.
func (c *commands) start(ctx context.Context, cmd command) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, slowest)
	defer cancel()
	cmd.folder, cmd.conf = c.folder, c.conf
	out, errs, err := c.runner.run(ctx, cmd)
	if err == nil {
		return out, nil
	}
	if _, ok := err.(*Error); ok {
		return "", err
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return "", &Error{Command: cmd.name, Words: lastWords(errs), Err: err}
}

// Submit is sbatch.
func (c *commands) Submit(ctx context.Context, b Batch) (string, error) {
	args := []string{"--parsable", "--export=ALL", "--no-requeue", "--open-mode=append", "--input=/dev/null",
		"--chdir=" + b.Dir, "--output=" + b.Output, "--error=" + b.Output, "--job-name=" + b.Name,
		fmt.Sprintf("--nodes=%d", b.Nodes), fmt.Sprintf("--ntasks=%d", b.Nodes), "--ntasks-per-node=1"}
	if b.CPUs > 0 {
		args = append(args, fmt.Sprintf("--cpus-per-task=%d", b.CPUs))
	}
	if b.MemoryMB > 0 {
		args = append(args, fmt.Sprintf("--mem=%dM", b.MemoryMB))
	}
	if b.GPUs > 0 {
		args = append(args, fmt.Sprintf("--gres=gpu:%d", b.GPUs))
	}
	if b.Time > 0 {
		args = append(args, fmt.Sprintf("--time=%d", (b.Time+time.Minute-1)/time.Minute))
	}
	args = append(args, b.Args...)
	out, err := c.start(ctx, command{name: "sbatch", args: args, input: b.Script, hold: b.Hold}) // its environment is the job's
	if err != nil {
		return "", err
	}
	id := jobNumber(out)
	switch {
	case id != "":
		return id, nil
	case strings.TrimSpace(out) == "":
		return "", untold("sbatch", "it did not say the number of a job", "")
	}
	return "", &Error{Command: "sbatch", Words: fmt.Sprintf("its answer %q is not the number of a job", out)}
}

// jobNumber is what sbatch says: with --parsable NUMBER or NUMBER;CLUSTER on a line of its own, and "Submitted batch job NUMBER" where a site's
// own sbatch does not know that. Such a one may print more, before it and after; the last that could be a number counts. "" if there is none.
func jobNumber(out string) (id string) {
	for line := range strings.Lines(out) {
		n := strings.TrimSpace(line)
		if words, said := strings.CutPrefix(n, "Submitted batch job "); said {
			n, _, _ = strings.Cut(words, " ")
		}
		if n, _, _ = strings.Cut(n, ";"); isNumber(n) {
			id = n
		}
	}
	return id
}

// end is scancel.
func (c *commands) end(ctx context.Context, j Ref, how ending) error {
	args := []string{"--name=" + j.Name}
	id := j.ID
	switch {
	case how.waiting:
		args = append(args, "--state=PENDING")
	case how.signal != "" && how.part == Script:
		args = append(args, "--signal="+how.signal, "--batch")
	case how.signal != "":
		args, id = append(args, "--signal="+how.signal), id+".0" // without a step SIGKILL would be for the job
	}
	_, err := c.run(ctx, "scancel", append(args, id)...)
	return over(err)
}

// over makes it no error that there was nothing to signal or to cancel.
func over(err error) error {
	if err == nil || Away(err) {
		return err
	}
	words := strings.ToLower(err.Error())
	for _, w := range []string{"already completing or completed", "invalid job id", "not running", "job is pending", "no active", "transition to the requested state"} {
		if strings.Contains(words, w) {
			return nil
		}
	}
	return err
}

// here runs commands on this computer.
type here struct{}

func (here) run(ctx context.Context, c command) (string, string, error) {
	path := filepath.Join(c.folder, c.name)
	if c.folder == "" {
		var err error
		if path, err = exec.LookPath(c.name); err != nil {
			return "", "", &Error{Command: c.name, Err: exec.ErrNotFound, Words: fmt.Sprintf(
				"there is no %s in PATH: install Slurm's commands here, or name their folder (setting commands)", c.name)}
		}
	}
	cmd := exec.CommandContext(ctx, path, c.args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = &out, &errs, append(environ(c), c.env...), "/"
	cmd.WaitDelay = lastPrint
	if c.input != "" {
		cmd.Stdin = strings.NewReader(c.input)
	}
	if c.hold != nil {
		cmd.ExtraFiles = []*os.File{c.hold}
	}
	err := cmd.Run()
	exit, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, exec.ErrWaitDelay):
		err = untold(c.name, fmt.Sprintf("what it printed was held open for %s after its end, and may not be all", lastPrint), errs.String())
	case failed && !exit.Exited():
		err = untold(c.name, "it was ended from outside ("+exit.String()+")", errs.String())
	}
	return out.String(), errs.String(), err
}

// lastPrint is how long what a command has printed may take to arrive after its end. On a computer with much to do a process of ours that is on
// its way to its program holds the same pipe for a second and more.
const lastPrint = 5 * time.Second

// untold is an error of a command that did not come to say what it had done.
func untold(command, why, errs string) error {
	if words := lastWords(errs); words != "" {
		why += ": " + words
	}
	return &Error{Command: command, Words: why, Err: errAway}
}

// environ is the environment of commands, and through sbatch that of jobs.
func environ(c command) []string {
	env := []string{"LANG=C.UTF-8", "SHELL=/bin/bash"}
	path := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	if c.folder != "" {
		path = c.folder + ":" + path
	}
	env = append(env, "PATH="+path)
	if c.conf != "" {
		env = append(env, "SLURM_CONF="+c.conf)
	} else if conf := os.Getenv("SLURM_CONF"); conf != "" {
		env = append(env, "SLURM_CONF="+conf)
	}
	if home, err := os.UserHomeDir(); err == nil {
		env = append(env, "HOME="+home)
	}
	if u, err := user.Current(); err == nil {
		env = append(env, "USER="+u.Username, "LOGNAME="+u.Username)
	}
	return env
}

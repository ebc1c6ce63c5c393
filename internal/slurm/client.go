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
	"slices"
	"strings"
	"time"
)

// Client runs Slurm's commands.
type Client struct{ folder, conf string }

// slowest is how long a command may take: without a controller they give up by themselves after some 10 s, or 20.
const slowest = time.Minute

// Error is a command that said no.
type Error struct {
	Command string // squeue
	Words   string // what it said
	Err     error
}

func (e *Error) Error() string {
	if e.Words == "" {
		return fmt.Sprintf("%s: %v", e.Command, e.Err)
	}
	return e.Command + ": " + e.Words
}

func (e *Error) Unwrap() error { return e.Err }

// away are words of commands that reached nobody: the same again later may work. From slurm_errno.c and slurm_protocol_api.c.
var away = []string{"unable to contact slurm controller", "socket timed out", "connection refused", "connect failure", "connection reset",
	"temporarily unable to accept job", "zero bytes were transmitted", "standby mode", "resource temporarily unavailable",
	"unexpected message received", "munge encode failed", "munge decode failed", "authentication credential", "no route to host",
	"insane message length", "communication connection failure", "message connection failure", "slurmctld disabled", "could not establish a configuration source",
	"protocol authentication error", "failed to load previous job state", "transport endpoint is not connected"}

// Away says whether err means that Slurm's controller could not be asked, rather than that it said no.
func Away(err error) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	if errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled) {
		return true
	}
	words := strings.ToLower(e.Words)
	for _, w := range away {
		if strings.Contains(words, w) {
			return true
		}
	}
	return false
}

// path finds a command.
func (c *Client) path(name string) (string, error) {
	if c.folder != "" {
		return filepath.Join(c.folder, name), nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("there is no %s in PATH: install Slurm's commands here, or name their folder (setting commands)", name)
	}
	return path, nil
}

// run runs a command with nothing of our own environment, and returns what it printed.
func (c *Client) run(ctx context.Context, name string, args ...string) (string, error) {
	return c.start(ctx, nil, "", name, args...)
}

// start is run for a command that reads input, and keeps hold open while it lives.
func (c *Client) start(ctx context.Context, hold *os.File, input, name string, args ...string) (string, error) {
	path, err := c.path(name)
	if err != nil {
		return "", &Error{Command: name, Words: err.Error(), Err: exec.ErrNotFound}
	}
	ctx, cancel := context.WithTimeout(ctx, slowest)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = &out, &errs, c.environ(), "/"
	cmd.WaitDelay = time.Second
	if name != "sbatch" { // whose environment is the job's
		cmd.Env = append(cmd.Env, "SLURM_TIME_FORMAT=%s")
	}
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	if hold != nil {
		cmd.ExtraFiles = []*os.File{hold}
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", &Error{Command: name, Words: lastWords(errs.String()), Err: err}
	}
	return out.String(), nil
}

// environ is the environment of commands, and through sbatch that of jobs.
func (c *Client) environ() []string {
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

// lastWords is what a command complained of, in one line, without the names before each.
func lastWords(errs string) string {
	var said []string
	for line := range strings.Lines(errs) {
		line = strings.TrimSpace(line)
		if _, rest, ok := strings.Cut(line, ": error: "); ok {
			line = rest
		}
		line = strings.TrimPrefix(line, "Batch job submission failed: ")
		if line != "" && !slices.Contains(said, line) {
			said = append(said, line)
		}
	}
	text := strings.Join(said, "; ")
	return text[:min(len(text), 500)]
}

// Batch is one job to submit.
type Batch struct {
	Script string // its text
	Name   string // by which it is found again
	Dir    string // working directory
	Output string // file for what the script and Slurm itself say

	Nodes    int // each gets one task of:
	CPUs     int
	MemoryMB int64
	GPUs     int
	Time     time.Duration // 0: as the settings or the partition say
	Args     []string      // of Settings

	Hold *os.File // kept open by sbatch while it runs, whatever becomes of us
}

// Submit hands a job to Slurm and returns its number. A job that Slurm takes off its node is not begun again by Slurm.
func (c *Client) Submit(ctx context.Context, b Batch) (string, error) {
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
	out, err := c.start(ctx, b.Hold, b.Script, "sbatch", args...)
	if err != nil {
		return "", err
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";")
	if !isNumber(id) {
		return "", &Error{Command: "sbatch", Words: fmt.Sprintf("its answer %q is not the number of a job", out)}
	}
	return id, nil
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

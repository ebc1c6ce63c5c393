// Package process runs tasks as processes of this computer. It knows nothing of staging, images or the network, and it is no jail: it
// keeps a task's processes together, within limits and away from named paths where the system can, and says by name what it cannot hold.
//
// A task's life, on disk, below Env.Dir/<TaskID.Dir()>/:
//
//	task       made first: 16 bytes of status, filled so that to write it needs no room on the disk later; and then the record of the
//	           process (pid, start time, boot), written while the process waits at its gate
//	log        standard output and error, appended to by the task itself
//	stop.json  Stop was called, and until when the task may take
//	end.json   how it ended, only if the status alone does not say
//	tmp/       its TMPDIR
//
// With Env.Alone the folder is named run-<TaskID.Dir()>, and the task file is in memory where the system has such files, and without a record:
// on a file system where a new file takes long, each takes longer than all else that is done for a short task.
//
// The process is a few lines of shell that wait at a gate: a pipe the agent holds. The agent records the process, puts it where it is
// tracked and limited, and opens the gate. The shell then writes "b" as the status, runs the user's command, and writes its exit code. If
// the agent dies before it opens the gate, the shell reads end of file and leaves. So "b" means that the user's command ran, and a task
// without it may be started anew: exactly once, without a word from any memory.
package process

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu"
	"github.com/trainyard/trainyard/internal/target"
)

// alonePrefix begins the folder's name with Env.Alone, so that Env.Dir may be where its stager makes one with the task's own name: a folder
// less to make and to remove.
const alonePrefix = "run-"

// Kind is the entry for the list of targets.
func Kind() target.Kind {
	return target.Kind{
		Name: "process",
		Doc:  "processes on this computer",
		New:  func() target.Config { return &Config{} },
	}
}

// Config is how tasks run here. The zero value is right for most.
type Config struct {
	Shell      string `json:"shell,omitempty"`      // runs commands as SHELL -c COMMAND; default: bash, or sh where there is none; cmd on Windows
	CgroupRoot string `json:"cgroupRoot,omitempty"` // where cgroups are mounted; default /sys/fs/cgroup; "none" uses none
}

var (
	_ target.Config  = (*Config)(nil)
	_ target.Driver  = (*Driver)(nil)
	_ target.Watcher = (*Driver)(nil)
	_ target.Closer  = (*Driver)(nil)
)

// Validate says what is wrong with c.
func (c *Config) Validate() error {
	if c.Shell != "" {
		if _, err := exec.LookPath(c.Shell); err != nil {
			return trainyard.Invalid("shell %q cannot be run (%v); name one that is installed, or leave the setting out", c.Shell, err)
		}
	}
	if c.CgroupRoot != "" && c.CgroupRoot != "none" && !filepath.IsAbs(c.CgroupRoot) {
		return trainyard.Invalid("cgroupRoot %q is not an absolute path; cgroups are usually mounted at /sys/fs/cgroup", c.CgroupRoot)
	}
	return nil
}

// Open takes env.Dir for this process alone, and adopts the tasks that it finds there.
func (c *Config) Open(ctx context.Context, env target.Env) (target.Driver, error) {
	return c.open(ctx, env, nil)
}

// open is Open. step, if not nil, is called by name between any two steps of a start, so that tests can die there.
func (c *Config) open(ctx context.Context, env target.Env, step func(string)) (*Driver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return nil, fmt.Errorf("open process target: %w", err)
	}
	env.Dir = dir
	if err := os.MkdirAll(env.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open process target: %w", err)
	}
	var lock io.Closer
	if !env.Alone { // before anything is touched that another agent may have
		if lock, err = lockDir(ctx, env.Dir); err != nil {
			return nil, err
		}
	}
	d := &Driver{
		env:     env,
		shell:   c.shell(),
		lock:    lock,
		host:    newHost(c.CgroupRoot, env),
		base:    environ(os.Environ()),
		tasks:   map[string]*task{},
		changed: make(chan struct{}, 1),
		closing: make(chan struct{}),
		step:    step,
		gpus:    cmp.Or(env.GPUs, &gpu.Reader{}),
	}
	if env.Alone {
		d.prefix = alonePrefix
		return d, nil
	}
	if err := d.adopt(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

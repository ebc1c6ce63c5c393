// Package docker runs tasks as containers of a Docker engine on the same computer, in images that it pulls, or builds, or puts Python
// packages on top of. It knows nothing of staging or the network, it does not install an engine, and it asks the engine for nothing that
// would give a job the computer: what a job's docker_args may say is a short list.
//
// A task's life, on disk, below Env.Dir/tasks/<TaskID.Dir()>/:
//
//	task.json  made first: the task's ID and what its container is like
//	box/       the container's /.trainyard/task: run.sh, the first process; pipe, which it reads the task's output from; and what it writes:
//	           began   made when the user's command is about to be run, by whom it is run
//	           log     standard output and error
//	           status  how the command ended, and what memory it used
//	           tmp/, home/, python/  the task's TMPDIR, its HOME where it is not root's, and what it has installed with pip
//	stop.json  Stop was called, when the task was told, and until when it may take
//	end.json   how it ended, once that is known
//
// The container is made, and then started; both requests may still be on their way to the engine when the agent dies. So what counts is
// began: run.sh makes that file, or leaves because it is there. A container that was not started is taken away and made anew, which the
// engine refuses if it has started it meanwhile. Exit status and log are files, so a container that someone prunes loses neither.
package docker

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/docker/go-units"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// Kind is the entry for the list of targets.
func Kind() target.Kind {
	return target.Kind{
		Name: "docker",
		Doc:  "containers of a Docker engine on this computer",
		New:  func() target.Config { return &Config{} },
	}
}

// Config is how tasks run here. The zero value is right for most. Whoever owns a machine has it in the environment of its agent:
// target.Kind.Variable.
type Config struct {
	Host  string `json:"host,omitempty"`  // of the engine, such as unix:///var/run/docker.sock; default: DOCKER_HOST, or that
	Image string `json:"image,omitempty"` // for tasks whose environment names none; default: there is none, and they are refused

	// Network is host, bridge, none or the name of a network of the engine. The default is host: what a job is told of the server and of
	// the other nodes of its gang are addresses of this computer, on loopback when the server is on it too.
	Network string `json:"network,omitempty"`

	ShmSize   string   `json:"shmSize,omitempty"`   // of /dev/shm where a job does not say; default 2g, as in Azure ML
	Pids      int64    `json:"pids,omitempty"`      // processes and threads that one task may have; default 32768
	AllowArgs []string `json:"allowArgs,omitempty"` // further options that jobs may use in docker_args, such as --privileged and --volume
}

// Defaults of Config.
const (
	defaultShm  = "2g"
	defaultPids = 32768
	hostNetwork = "host"
)

var (
	_ target.Config   = (*Config)(nil)
	_ target.Driver   = (*Driver)(nil)
	_ target.Preparer = (*Driver)(nil)
	_ target.Watcher  = (*Driver)(nil)
	_ target.Closer   = (*Driver)(nil)
	_ target.Named    = (*Driver)(nil)
)

var networkName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// Validate says what is wrong with c.
func (c *Config) Validate() error {
	if c.Host != "" {
		if u, err := url.Parse(c.Host); err != nil || (u.Scheme != "unix" && u.Scheme != "tcp" && u.Scheme != "npipe") {
			return trainyard.Invalid("host %q is not the address of a Docker engine; write it as unix:///var/run/docker.sock", c.Host)
		}
	}
	if c.Network != "" && !networkName.MatchString(c.Network) {
		return trainyard.Invalid("network %q is not the name of a network; use host, bridge, none or what \"docker network ls\" lists", c.Network)
	}
	if c.ShmSize != "" {
		if n, err := units.RAMInBytes(c.ShmSize); err != nil || n <= 0 {
			return trainyard.Invalid("shmSize %q is not a size; write it as 2g or 512m", c.ShmSize)
		}
	}
	if c.Pids < 0 {
		return trainyard.Invalid("pids is %d; it is how many processes a task may have: leave it out for %d", c.Pids, defaultPids)
	}
	for _, name := range c.AllowArgs {
		if o, known := options[longName(name)]; !known || o.guarded == nil {
			return trainyard.Invalid("allowArgs names %q, which is not an option that can be allowed; those are %s", name, strings.Join(guardedNames(), ", "))
		}
	}
	return nil
}

// Open takes env.Dir for this process alone, and finds the tasks that are there. Where there are none and no engine answers, the error's
// code is trainyard.CodeUnsupported; an engine that is away while it has tasks of ours is an error of Observe, not of Open.
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
		return nil, fmt.Errorf("open docker target: %w", err)
	}
	env.Dir = dir
	e, err := dial(c.Host)
	if err != nil {
		return nil, err
	}
	away := e.ping(ctx)
	if away != nil && !hasTasks(env.Dir) {
		e.close()
		return nil, trainyard.Errorf(trainyard.CodeUnsupported, "no Docker engine answers at %s (%v); start one, or set host or DOCKER_HOST to where it is",
			e.host(), away)
	}
	if err := os.MkdirAll(filepath.Join(env.Dir, tasksDir), 0o700); err != nil {
		e.close()
		return nil, fmt.Errorf("open docker target: %w", err)
	}
	lock, err := lockDir(ctx, env.Dir)
	if err != nil {
		e.close()
		return nil, err
	}
	d := newDriver(*c, env, e, lock, step)
	if err := d.adopt(); err != nil {
		d.Close()
		return nil, err
	}
	if away == nil {
		d.sweep(ctx)
	}
	d.start()
	return d, nil
}

// hasTasks says whether an agent before us left tasks in dir.
func hasTasks(dir string) bool {
	entries, _ := os.ReadDir(filepath.Join(dir, tasksDir))
	return len(entries) > 0
}

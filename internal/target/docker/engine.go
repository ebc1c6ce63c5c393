package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
)

// How long the engine may take: to say a word, and to do something. An engine that hangs must not take the agent with it.
const (
	wordPatience = 10 * time.Second
	workPatience = 2 * time.Minute
)

// Labels of what is made here, so that it can be told from what others make, and be pruned.
const (
	labelGroup       = "trainyard.group"       // of containers: Env.Group
	labelTask        = "trainyard.task"        // of a task's container: its ID
	labelBuild       = "trainyard.build"       // of a container that builds a layer
	labelGPUs        = "trainyard.gpus"        // of a task's container: the numbers of its GPUs
	labelEnvironment = "trainyard.environment" // of images: the name of the environment they were built for
)

// engine is the connection to a Docker engine.
type engine struct {
	*client.Client

	mu   sync.Mutex
	info *system.Info // asked for once: an engine changes what it can do only by a restart, and then rarely
}

func dial(host string) (*engine, error) {
	opts := []client.Opt{client.FromEnv}
	if host != "" {
		opts = append(opts, client.WithHost(host))
	}
	c, err := client.New(opts...)
	if err != nil {
		return nil, trainyard.Invalid("the Docker engine's address cannot be used: %v; write it as unix:///var/run/docker.sock in host or DOCKER_HOST", err)
	}
	return &engine{Client: c}, nil
}

func (e *engine) host() string { return e.DaemonHost() }

func (e *engine) close() { _ = e.Client.Close() }

func (e *engine) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wordPatience)
	defer cancel()
	if runtime.GOOS == "windows" {
		return errors.New("tasks in containers need an engine on Linux or macOS")
	}
	p, err := e.Ping(ctx, client.PingOptions{NegotiateAPIVersion: true})
	if err == nil && p.OSType != "" && p.OSType != "linux" {
		return fmt.Errorf("it runs %s containers, and tasks need Linux ones", p.OSType)
	}
	return err
}

// about is what the engine says of itself.
func (e *engine) about(ctx context.Context) (system.Info, error) {
	e.mu.Lock()
	info := e.info
	e.mu.Unlock()
	if info != nil {
		return *info, nil
	}
	return e.ask(ctx)
}

// ask is about, asked anew.
func (e *engine) ask(ctx context.Context) (system.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, wordPatience)
	defer cancel()
	r, err := e.Info(ctx, client.InfoOptions{})
	if err != nil {
		return system.Info{}, engineError(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.info = &r.Info
	return r.Info, nil
}

// rootless says whether root in a container is the user who runs the engine.
func rootless(info system.Info) bool {
	return slices.ContainsFunc(info.SecurityOptions, func(s string) bool { return strings.Contains(s, "rootless") })
}

// rootUser is root, in the words of the engine.
const rootUser = "0:0"

// user is who tasks run as, in the words of the engine, such that the agent may remove what they write.
func user(info system.Info) string {
	if os.Getuid() == 0 || rootless(info) || os.Getuid() < 0 {
		return rootUser
	}
	return fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
}

// list lists all containers of the group that carry a label.
func (e *engine) list(ctx context.Context, group, label string) ([]container.Summary, error) {
	ctx, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	filters := client.Filters{}.Add("label", labelGroup+"="+group, label)
	r, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters})
	if err != nil {
		return nil, engineError(err)
	}
	return r.Items, nil
}

// remove takes a container away. Without force the engine refuses one that runs: errdefs.IsConflict. Unknown is no error.
func (e *engine) remove(ctx context.Context, name string, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	for {
		_, err := e.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: force, RemoveVolumes: true})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err) || !force && !strings.Contains(err.Error(), "already in progress"):
			return err
		}
		select { // somebody else removes it: wait until it is gone
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// isAway says whether an engine could not be asked, or did not answer in time. What was asked of it may be done all the same, now or later.
func isAway(err error) bool {
	return client.IsErrConnectionFailed(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errdefs.IsDeadlineExceeded(err) || errdefs.IsUnavailable(err)
}

// engineError says in words that the engine could not be asked.
func engineError(err error) error {
	if isAway(err) {
		return fmt.Errorf("the Docker engine does not answer: %w", err)
	}
	return fmt.Errorf("the Docker engine: %w", err)
}

// fault is an error that ends a task.
func fault(class trainyard.Class, format string, args ...any) error {
	return &trainyard.ClassError{Class: class, Err: trainyard.Invalid(format, args...)}
}

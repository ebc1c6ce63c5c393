package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

var _ target.Meter = (*Driver)(nil)

// bridge is the network that an engine has by itself, unless it was told to have none.
const bridge = "bridge"

// modelVariable is where staging says where the input "model" is.
const modelVariable = "AZURE_ML_INPUT_model"

// serveNetwork is the network of replicas here: one of their own, so that several may listen on one port, where the engine has that.
func (d *Driver) serveNetwork(ctx context.Context) (container.NetworkMode, error) {
	if d.cfg.Network != "" {
		return container.NetworkMode(d.cfg.Network), nil
	}
	ctx, cancel := context.WithTimeout(ctx, wordPatience)
	defer cancel()
	_, err := d.engine.NetworkInspect(ctx, bridge, client.NetworkInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		return hostNetwork, nil
	case err != nil:
		return "", engineError(err)
	}
	return bridge, nil
}

// serve makes a plan that of a replica: its port is published on loopback, or is one of this computer's own where it has the computer's
// network.
func (d *Driver) serve(ctx context.Context, p *plan, e *task, t trainyard.Task, env map[string]string) error {
	s := t.Serve
	if s == nil {
		return nil
	}
	port := s.ContainerPort()
	switch mode := p.host.NetworkMode; {
	case mode == "none":
		return fault(trainyard.ClassEnvironment, "a replica is reached over the network, and containers here have none; set the node's docker target another network, such as bridge")
	case mode != hostNetwork:
		inside, err := network.ParsePort(strconv.Itoa(port) + "/tcp")
		if err != nil {
			return fault(trainyard.ClassEnvironment, "the replica's port %d: %v", port, err)
		}
		p.config.ExposedPorts = network.PortSet{inside: {}}
		p.host.PortBindings = network.PortMap{inside: {{HostIP: netip.AddrFrom4([4]byte{127, 0, 0, 1})}}}
		p.rec.Published = port
	case s.Port == 0 && !s.Image:
		free, hold, err := target.FreePort()
		if err != nil {
			return err
		}
		d.hold(e, hold)
		for _, name := range trainyard.PortVariables {
			env[name] = strconv.Itoa(free)
		}
		p.rec.Port = free
	default:
		p.rec.Port = port
	}
	return nil
}

// ownEntry makes a plan run what the image runs by itself, with the model where the image looks for it.
func (d *Driver) ownEntry(ctx context.Context, p *plan, t trainyard.Task, image string) error {
	if t.Serve == nil || !t.Serve.Image {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	r, err := d.engine.ImageInspect(ctx, image)
	if err != nil {
		return err
	}
	var words []string
	if c := r.Config; c != nil {
		words = append(append(words, c.Entrypoint...), c.Cmd...)
		p.config.WorkingDir = c.WorkingDir
	}
	if len(words) == 0 {
		return fault(trainyard.ClassEnvironment, "image %q has neither ENTRYPOINT nor CMD, so it serves nothing by itself; give the deployment a scoring script, or another image", p.rec.Image)
	}
	if p.config.WorkingDir == "" {
		p.config.WorkingDir = "/"
	}
	var b strings.Builder
	b.WriteString("exec")
	for _, w := range words {
		b.WriteString(" '" + strings.ReplaceAll(w, "'", `'\''`) + "'")
	}
	p.config.Cmd = []string{b.String()}
	return nil
}

// modelMount is where a replica whose image serves by itself finds its model.
func modelMount(t trainyard.Task) []mount.Mount {
	from := t.Run.Unseen(t.Run.Env[modelVariable])
	if t.Serve == nil || !t.Serve.Image || t.Serve.ModelPath == "" || from == "" {
		return nil
	}
	return []mount.Mount{bind(from, t.Serve.ModelPath, true)}
}

// hold keeps a port for the task until it is removed.
func (d *Driver) hold(t *task, hold io.Closer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.hold != nil {
		t.hold.Close()
	}
	t.hold = hold
}

// letGo gives the task's port back.
func (d *Driver) letGo(t *task) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.hold != nil {
		t.hold.Close()
		t.hold = nil
	}
}

// address is where a task's port is reached; "" while the engine has not said. The caller holds Driver.mu.
func (t *task) address() string {
	switch {
	case t.rec.Port != 0:
		return target.Loopback(t.rec.Port)
	case t.public != 0:
		return target.Loopback(t.public)
	}
	return ""
}

// unpublished says whether the engine is still to be asked where a task's port is. The caller holds Driver.mu.
func (t *task) unpublished() bool {
	return t.rec.Published != 0 && t.public == 0 && t.began && t.end == nil
}

// publish notes where the engine has put the tasks' ports.
func (d *Driver) publish(tasks []*task, seen map[string]container.Summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range tasks {
		if !t.unpublished() {
			continue
		}
		for _, p := range seen[string(t.id)].Ports {
			if int(p.PrivatePort) == t.rec.Published && p.PublicPort != 0 {
				t.public = int(p.PublicPort)
			}
		}
	}
}

// Usage is what the engine says of the task's container.
func (d *Driver) Usage(ctx context.Context, id trainyard.TaskID) (u target.Usage, err error) {
	d.mu.Lock()
	t := d.tasks[id.Dir()]
	runs := t != nil && t.began && t.end == nil
	var gpus []string
	if runs {
		gpus = t.rec.GPUs
	}
	d.mu.Unlock()
	if !runs {
		return u, trainyard.NotFound("%s does not run here", id.Words())
	}
	ctx, cancel := context.WithTimeout(ctx, wordPatience)
	defer cancel()
	r, err := d.engine.ContainerStats(ctx, d.container(t), client.ContainerStatsOptions{})
	if err != nil {
		return u, engineError(err)
	}
	defer r.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		return u, fmt.Errorf("what %s uses: %w", id.Words(), err)
	}
	cache := max(s.MemoryStats.Stats["inactive_file"], s.MemoryStats.Stats["total_inactive_file"])
	if cache > s.MemoryStats.Usage {
		cache = 0
	}
	u.CPU, u.MemoryMB = time.Duration(s.CPUStats.CPUUsage.TotalUsage), int64(s.MemoryStats.Usage-cache)>>20
	u.GPU, u.GPUWhy = d.gpuUse(gpus)
	return u, nil
}

package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu"
)

// nodeGPUs are the GPUs that tasks may have here.
func (d *Driver) nodeGPUs(ctx context.Context) ([]gpu.GPU, error) {
	all, err := d.gpus.List(ctx)
	limit := d.env.Limit.GPUs
	switch {
	case err != nil:
		return nil, err
	case limit > 0 && len(all) == 0:
		return gpu.Numbered(limit), nil
	case limit > 0:
		return all[:min(limit, len(all))], nil
	}
	return all, nil
}

// giveGPUs chooses a task's GPUs: as many as it asks for, which no other container that asked has, or all that none asked for where it asks
// for none, as processes see them. The caller holds gpuMu until the container is made.
func (d *Driver) giveGPUs(ctx context.Context, p *plan) error {
	nodes, err := d.nodeGPUs(ctx)
	switch {
	case p.gpus > 0 && err != nil:
		return err
	case p.gpus > 0:
	case slices.ContainsFunc(p.config.Env, wantsNone):
		return nil
	case err != nil:
		p.note("it has no GPU: %v", err)
		return nil
	case len(nodes) == 0:
		return nil
	case d.givesNone():
		p.note(noToolkit)
		return nil
	}
	taken, err := d.takenGPUs(ctx)
	if err != nil {
		return err
	}
	free := gpu.Free(nodes, taken)
	n, fewer := gpu.Fit(p.gpus, d.env.Limit.GPUs, len(nodes))
	if len(free) < n {
		return trainyard.Conflict("it needs %d GPUs, and %d of this node's %d are free", n, len(free), len(nodes))
	}
	if fewer != "" {
		p.note("%s", fewer)
	}
	if p.gpus > 0 {
		free = free[:n]
		p.config.Labels[labelGPUs] = strings.Join(free, ",")
	}
	if p.rec.GPUs = free; len(free) > 0 {
		p.host.DeviceRequests = []container.DeviceRequest{{DeviceIDs: free, Capabilities: [][]string{{"gpu"}}}}
	}
	return nil
}

// wantsNone says whether a variable hides all GPUs from CUDA.
func wantsNone(kv string) bool {
	name, value, _ := strings.Cut(kv, "=")
	return name == gpu.VisibleVariable && gpu.Value(value, true) == gpu.None
}

// takenGPUs are the numbers of GPUs that containers of ours have asked for.
func (d *Driver) takenGPUs(ctx context.Context) (map[string]bool, error) {
	all, err := d.engine.list(ctx, d.env.Group, labelGPUs)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, c := range all {
		if c.State == stateCreated || c.State == stateRunning || c.State == statePaused || c.State == stateRestarts {
			for id := range strings.SplitSeq(c.Labels[labelGPUs], ",") {
				taken[id] = true
			}
		}
	}
	return taken, nil
}

// gpuAgain is how long an engine that could not give GPUs is not asked for any that a task did not ask for itself.
const gpuAgain = 10 * time.Minute

const noToolkit = "it has no GPU: the node's Docker engine cannot give GPUs to containers; install the NVIDIA container toolkit on the node"

// noDriver says whether the engine refused a container because it cannot give it GPUs.
func noDriver(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "could not select device driver") || strings.Contains(text, "failed to discover GPU vendor from CDI")
}

func (d *Driver) givesNone() bool { return time.Now().Unix() < d.noGPUs.Load() }

// without takes back GPUs that the task did not ask for where the engine refused a container with them, and says whether to try again: what
// it refuses may be the GPUs only, as for an image that needs a newer driver than the node's.
func (d *Driver) without(ctx context.Context, e *task, p *plan, refused error) bool {
	if refused == nil || p.gpus > 0 || len(p.rec.GPUs) == 0 || ctx.Err() != nil || isAway(refused) {
		return false
	}
	if d.engine.remove(ctx, d.container(e), false) != nil { // it runs after all, or the engine is away
		return false
	}
	if _, began := d.beganAt(e); began {
		return false
	}
	if noDriver(refused) {
		d.noGPUs.Store(time.Now().Add(gpuAgain).Unix())
	}
	p.host.DeviceRequests, p.rec.GPUs = nil, nil
	p.note("%s", noGPU(refused))
	return true
}

// noGPU says why a task has no GPU though its node has some.
func noGPU(refused error) string {
	if noDriver(refused) {
		return noToolkit
	}
	words := refused.Error()
	if i := strings.Index(words, "nvidia-container-cli"); i >= 0 { // what stands before is of programs that called it
		words = words[i:]
	}
	return fmt.Sprintf("it has no GPU: its container did not start with the node's GPUs (%s)", gpu.Clean(words, 300))
}

// gpuUse is how busy a task's GPUs are. The caller does not hold Driver.mu.
func (d *Driver) gpuUse(given []string) (percent *float64, why string) {
	if len(given) == 0 {
		return nil, "its container was given no GPU"
	}
	return d.gpus.Use(strings.Join(given, ","))
}

package docker

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu"
)

// nodeGPUs are the GPUs that tasks may have here.
func (d *Driver) nodeGPUs(ctx context.Context) []gpu.GPU {
	all, limit := d.gpus.List(ctx), d.env.Limit.GPUs
	switch {
	case limit > 0 && len(all) == 0:
		return gpu.Numbered(limit)
	case limit > 0:
		return all[:min(limit, len(all))]
	}
	return all
}

// giveGPUs chooses a task's GPUs: as many as it asks for, for itself alone, or all that nobody has for himself where it asks for none, as
// processes see them. The caller holds gpuMu until the container is made.
func (d *Driver) giveGPUs(ctx context.Context, p *plan) error {
	nodes := d.nodeGPUs(ctx)
	switch {
	case p.gpus > 0:
	case slices.Contains(p.config.Env, gpu.VisibleVariable+"="+gpu.None): // it wants none
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
	if len(free) < p.gpus {
		return trainyard.Conflict("it needs %d GPUs, and %d of this node's %d are free", p.gpus, len(free), len(nodes))
	}
	if p.gpus > 0 {
		free = free[:p.gpus]
		p.config.Labels[labelGPUs] = strings.Join(free, ",")
	}
	if p.rec.GPUs = free; len(free) > 0 {
		p.host.DeviceRequests = []container.DeviceRequest{{DeviceIDs: free, Capabilities: [][]string{{"gpu"}}}}
	}
	return nil
}

// takenGPUs are the numbers of GPUs that containers of ours have for themselves.
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
	return err != nil && strings.Contains(err.Error(), "could not select device driver")
}

func (d *Driver) givesNone() bool { return time.Now().Unix() < d.noGPUs.Load() }

// without takes back GPUs that the task did not ask for, since the engine cannot give them.
func (d *Driver) without(p *plan) {
	d.noGPUs.Store(time.Now().Add(gpuAgain).Unix())
	p.host.DeviceRequests, p.rec.GPUs = nil, nil
	p.note(noToolkit)
}

// gpuUse is how busy a task's GPUs are. The caller does not hold Driver.mu.
func (d *Driver) gpuUse(given []string) (percent *float64, why string) {
	if len(given) == 0 {
		return nil, "its container was given no GPU"
	}
	return d.gpus.Use(strings.Join(given, ","))
}

package docker

import (
	"context"

	"github.com/trainyard/trainyard"
)

// Capacity is what the node's limit says, within what the engine has.
func (d *Driver) Capacity(ctx context.Context) (trainyard.Resources, error) {
	info, err := d.engine.ask(ctx)
	if err != nil {
		return trainyard.Resources{}, err
	}
	r := d.env.Limit
	if cpus := float64(info.NCPU); r.CPUs == 0 || r.CPUs > cpus {
		r.CPUs = cpus
	}
	if mb := info.MemTotal >> 20; r.MemoryMB == 0 || r.MemoryMB > mb {
		r.MemoryMB = mb
	}
	if r.Slots == 0 {
		r.Slots = max(4, info.NCPU)
	}
	all, _ := d.nodeGPUs(ctx) // a node whose nvidia-smi never answers joins without
	r.GPUs = len(all)
	return r, nil
}

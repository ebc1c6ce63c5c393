package process

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"github.com/trainyard/trainyard"
)

// Capacity is what the node's limit says, and this computer's own where it says nothing. It fails if the tasks' folder is gone.
func (d *Driver) Capacity(ctx context.Context) (trainyard.Resources, error) {
	if _, err := os.Stat(d.env.Dir); err != nil {
		return trainyard.Resources{}, fmt.Errorf("process target: %w", err)
	}
	r := d.env.Limit
	if r.CPUs == 0 {
		r.CPUs = float64(runtime.NumCPU())
	}
	if r.Slots == 0 {
		r.Slots = max(4, runtime.NumCPU())
	}
	if r.MemoryMB == 0 {
		mb, err := machineMemoryMB()
		if err != nil {
			return trainyard.Resources{}, fmt.Errorf("process target: memory of this computer: %w", err)
		}
		r.MemoryMB = mb
	}
	if r.GPUs == 0 {
		all, _ := d.gpus.List(ctx) // a node whose nvidia-smi never answers joins without
		r.GPUs = len(all)
	}
	return r, nil
}

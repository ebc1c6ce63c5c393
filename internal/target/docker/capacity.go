package docker

import (
	"bufio"
	"bytes"
	"context"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// gpuPatience bounds how long a GPU driver may take to say what there is.
const gpuPatience = 2 * time.Second

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
	r.GPUs = d.gpuTotal(ctx)
	return r, nil
}

// gpuTotal is how many GPUs tasks may have.
func (d *Driver) gpuTotal(ctx context.Context) int {
	if d.env.Limit.GPUs > 0 {
		return d.env.Limit.GPUs
	}
	return d.gpus.count(ctx)
}

// gpuCount asks nvidia-smi once.
type gpuCount struct {
	once sync.Once
	n    int
}

func (g *gpuCount) count(ctx context.Context) int {
	g.once.Do(func() {
		path, err := exec.LookPath("nvidia-smi")
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gpuPatience)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, "-L")
		cmd.WaitDelay = 100 * time.Millisecond
		out, err := cmd.Output()
		if err != nil {
			return
		}
		for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
			if strings.HasPrefix(s.Text(), "GPU ") { // "GPU 0: NVIDIA H200 (UUID: GPU-…)"; the MIG slices below it are indented
				g.n++
			}
		}
	})
	return g.n
}

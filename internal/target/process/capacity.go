package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// gpuPatience bounds how long a GPU driver may take to say what there is.
const gpuPatience = 2 * time.Second

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
		r.GPUs = d.gpus.count(ctx)
	}
	return r, nil
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
		if out, err := cmd.Output(); err == nil {
			g.n = countGPUs(out)
		}
	})
	return g.n
}

// countGPUs counts lines such as "GPU 0: NVIDIA H200 (UUID: GPU-…)". The MIG slices below them are indented.
func countGPUs(out []byte) int {
	n := 0
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		if strings.HasPrefix(s.Text(), "GPU ") {
			n++
		}
	}
	return n
}

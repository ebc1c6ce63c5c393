package main

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// hostResources is what this computer has; memory is 0 where the system does not say.
func hostResources() trainyard.Resources {
	r := trainyard.Resources{CPUs: float64(runtime.NumCPU())}
	data, err := os.ReadFile("/proc/meminfo")
	if err == nil {
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
				if kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64); err == nil {
					r.MemoryMB = kb / 1024
				}
			}
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
	defer stop()
	if out, err := exec.CommandContext(ctx, "nvidia-smi", "-L").Output(); err == nil {
		r.GPUs = strings.Count(string(out), "GPU ")
	}
	return r
}

package main

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu"
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
	var gpus gpu.Reader
	defer gpus.Close()
	all, _ := gpus.List(context.Background()) // what never answers counts for nothing
	r.GPUs = len(all)
	return r
}

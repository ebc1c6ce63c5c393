package kube

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/internal/gpu"
)

// gpuResource is what NVIDIA's device plugin calls the GPUs of a node.
const gpuResource = "nvidia.com/gpu"

// How busy a pod's GPUs are is read from nvidia-smi in the pod, where NVIDIA's container runtime puts it, and where it sees no others.
const (
	gpuPatience = 3 * time.Second
	gpuLater    = time.Minute // after one that did not answer: each that hangs stays in the pod
)

// gpuTold is how busy a pod's GPUs are; percent is nil where that is not known, and why.
type gpuTold struct {
	percent *float64
	why     string
}

// gpuSilent is a pod whose GPUs do not tell.
type gpuSilent struct {
	pod   string // UID
	why   string
	until time.Time // zero: for as long as it is there
}

// gpuUse asks a pod for its GPUs' use, while something else is asked.
func (d *Driver) gpuUse(ctx context.Context, t *task, p *pod) <-chan gpuTold {
	out := make(chan gpuTold, 1)
	d.mu.Lock()
	silent := t.silent
	d.mu.Unlock()
	switch {
	case !p.hasGPU():
		out <- gpuTold{why: "its pod has no " + gpuResource}
		return out
	case silent.pod == p.Meta.UID && (silent.until.IsZero() || time.Now().Before(silent.until)):
		out <- gpuTold{why: silent.why}
		return out
	}
	go func() {
		ctx, cancel := context.WithTimeout(ctx, gpuPatience)
		defer cancel()
		text, err := d.api.ask(ctx, p, append([]string{gpu.Program}, gpu.Query()...)...)
		told, silent := tellGPUs(ctx, text, err)
		if silent != nil {
			silent.pod = p.Meta.UID
			d.mu.Lock()
			t.silent = *silent
			d.mu.Unlock()
		}
		out <- told
	}()
	return out
}

// tellGPUs reads what nvidia-smi said in a pod. silent is not nil where asking again soon is of no use.
func tellGPUs(ctx context.Context, text string, err error) (told gpuTold, silent *gpuSilent) {
	switch {
	case isNoProgram(err):
		told.why = "its image has no " + gpu.Program + ", which the NVIDIA container runtime puts into containers"
		return told, &gpuSilent{why: told.why}
	case ctx.Err() != nil:
		told.why = fmt.Sprintf("%s in its pod did not answer within %s", gpu.Program, gpuPatience)
		return told, &gpuSilent{why: told.why, until: time.Now().Add(gpuLater)}
	case err != nil:
		told.why = fmt.Sprintf("%s in its pod: %v: %s", gpu.Program, err, gpu.FirstLine(text))
		return told, &gpuSilent{why: told.why, until: time.Now().Add(gpuLater)}
	}
	told.percent, told.why = gpu.Mean(gpu.Parse(text))
	return told, nil
}

// hasGPU says whether the pod's main container was given a GPU.
func (p *pod) hasGPU() bool {
	for _, c := range p.Spec.Containers {
		if q, err := resource.ParseQuantity(c.Resources.Limits[gpuResource]); err == nil && !q.IsZero() {
			return true
		}
	}
	return false
}

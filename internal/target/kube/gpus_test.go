//go:build linux

package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu/gputest"
	"github.com/trainyard/trainyard/internal/target"
)

const (
	gpuType  = "onegpu"
	nodePath = "/api/v1/nodes/test-node"
)

// withGPUs has an instance type with a GPU.
func withGPUs(c *Config) {
	r := c.InstanceTypes[DefaultInstanceType].Resources
	c.InstanceTypes[gpuType] = InstanceType{Resources: PodResources{Requests: r.Requests, Limits: map[string]string{gpuResource: "1"}}}
}

// gpus has the cluster's node say that it has so many GPUs, as NVIDIA's device plugin would, until the test ends.
func (b *bench) gpus(n int) {
	b.Helper()
	set := func(ctx context.Context, value any) error {
		amount := object{gpuResource: value}
		return b.api.patch(ctx, nodePath+"/status", object{"status": object{"capacity": amount, "allocatable": amount}})
	}
	b.must(set(b.Context(), fmt.Sprint(n)))
	b.Cleanup(func() {
		if err := set(context.Background(), nil); err != nil {
			b.Errorf("take the GPUs away again: %v", err)
		}
	})
}

// uses waits until so much of a task's GPUs is told; -1: it is not known, for the reason given. What else is told, as on a busy machine that
// nvidia-smi was late, is forgotten, and it is asked again.
func (b *bench) uses(k trainyard.Task, want float64, words string) {
	b.Helper()
	var u target.Usage
	eventually(b.T, fmt.Sprintf("it uses %v of its GPUs (%s)", want, words), func() bool {
		b.mu.Lock()
		b.tasks[b.nameOf(k.ID)].measured = time.Time{} // not in ten seconds
		b.mu.Unlock()
		var err error
		if u, err = b.Usage(b.Context(), k.ID); err != nil {
			return false
		}
		if u.GPU == nil && want == -1 && strings.Contains(u.GPUWhy, words) || u.GPU != nil && *u.GPU == want {
			return true
		}
		b.Logf("it uses %v of its GPUs (%s)", u.GPU, u.GPUWhy)
		b.silence(k, func(s *gpuSilent) { *s = gpuSilent{} })
		return false
	})
	if u.CPU <= 0 || u.MemoryMB <= 0 {
		b.Errorf("it uses %+v", u)
	}
}

// silence changes what is known of a task whose GPUs do not tell.
func (b *bench) silence(k trainyard.Task, change func(*gpuSilent)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.tasks[b.nameOf(k.ID)].silent)
}

// A job whose instance type has a GPU waits for one, and has it when there is one.
func TestAJobIsPlacedWhereItsGPUsAre(t *testing.T) {
	b := newBench(t, withGPUs)
	k := b.task(1, "sleep 0.2")
	k.InstanceType = gpuType
	b.start(k)
	b.says(k, "Insufficient "+gpuResource)
	if p := b.onlyPod(k); p.Spec.Containers[0].Resources.Limits[gpuResource] != "1" {
		t.Errorf("its limits are %v", p.Spec.Containers[0].Resources.Limits)
	}
	b.gpus(2)
	b.ends(k, trainyard.ClassOK, "")
	if r, err := b.Capacity(t.Context()); err != nil || r.GPUs != 2 {
		t.Errorf("capacity is %+v, %v", r, err)
	}
}

// What a replica's GPUs do is read from nvidia-smi in its pod.
func TestAReplicaTellsHowBusyItsGPUsAre(t *testing.T) {
	b := newBench(t, withGPUs)
	b.gpus(2)
	dir := b.TempDir()
	file := filepath.Join(dir, "gpus")
	set := func(busy ...string) {
		t.Helper()
		b.must(os.WriteFile(file, []byte(gputest.Lines(busy...)), 0o644))
	}
	set("80", "20")
	k := b.replica("cp " + dir + "/smi /usr/local/bin/nvidia-smi")
	b.must(os.WriteFile(filepath.Join(dir, "smi"), []byte(gputest.Script(file)), 0o755))
	k.InstanceType = gpuType
	b.start(k)
	b.answers(k, "the model")
	b.uses(k, 50, "")
	set("0", "0")
	b.uses(k, 0, "")
	set("[N/A]", "[N/A]")
	b.uses(k, -1, "none of its GPUs (0, 1) tells")
	b.must(os.Remove(file))
	b.uses(k, -1, "couldn't communicate with the NVIDIA driver")
	b.silence(k, func(s *gpuSilent) {
		if s.until.IsZero() {
			b.Errorf("it is not left alone: %+v", *s)
		}
		s.until = s.until.Add(time.Hour)
	})
	set("30", "40")
	b.uses(k, -1, "couldn't communicate with the NVIDIA driver") // it is not asked again at once
	b.silence(k, func(s *gpuSilent) { *s = gpuSilent{} })
	b.uses(k, 35, "")
	asked, _ := os.ReadFile(file + ".asked")
	if n := strings.Count(string(asked), "\n"); n < 5 {
		t.Errorf("it was asked %d times", n)
	}

	bare := b.replica("")
	bare.ID = trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), "bare"), 1, 0)
	bare.InstanceType = gpuType
	b.start(bare)
	b.answers(bare, "the model")
	b.uses(bare, -1, "its image has no nvidia-smi, which the NVIDIA container runtime puts into containers")
	b.uses(bare, -1, "its image has no nvidia-smi, which the NVIDIA container runtime puts into containers")
}

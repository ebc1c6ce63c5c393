package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestAControlGroupIsRead(t *testing.T) {
	two := "usage_usec 1500000\nuser_usec 1\nnr_periods 0\nlow 0\noom 3\noom_kill 2\nanon 104857600\nfile 999999999\nkernel 1048576\nshmem 0\n"
	if u, err := readGroup(two); err != nil || u.CPU != 1500*time.Millisecond || u.MemoryMB != 101 || u.OOMKills != 2 {
		t.Errorf("%+v, %v", u, err)
	}
	one := "2500000000\ncache 5\nrss 52428800\nshmem 0\ntotal_rss 7\n"
	if u, err := readGroup(one); err != nil || u.CPU != 2500*time.Millisecond || u.MemoryMB != 50 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := readGroup("anon 5\n"); trainyard.CodeOf(err) != trainyard.CodeUnsupported {
		t.Errorf("without an account of processors: %v", err)
	}
}

func TestWhatAnImageCallsCatFillsNoMemory(t *testing.T) {
	var h head
	long := strings.Repeat("x", 3*mostAccounts/2)
	for range 3 {
		if n, err := io.Copy(&h, strings.NewReader(long)); n != int64(len(long)) || err != nil {
			t.Fatal(n, err)
		}
	}
	if h.b.Len() != mostAccounts {
		t.Errorf("%d bytes were kept", h.b.Len())
	}
}

func TestAPodThatAskedForNoGPUIsNotAsked(t *testing.T) {
	var d Driver // it has no way to a cluster
	told := <-d.gpuUse(t.Context(), &task{}, &pod{})
	if told.percent != nil || told.why != "its pod has no nvidia.com/gpu" {
		t.Errorf("%+v", told)
	}
	var p pod
	if err := json.Unmarshal([]byte(`{"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "0"}}}, {"resources": {"limits": {"cpu": "1"}}}]}}`), &p); err != nil || p.hasGPU() {
		t.Errorf("a pod with none has one: %v", err)
	}
}

func TestATaskWithGPUsOfItsOwnHasThemAsALimit(t *testing.T) {
	p := plan{shape: InstanceType{Resources: PodResources{Limits: map[string]string{"nvidia.com/gpu": "1", "cpu": "2"}}}, task: trainyard.Task{Resources: trainyard.Resources{GPUs: 4}}}
	if got := fmt.Sprint(p.resources()["limits"]); got != "map[cpu:2 nvidia.com/gpu:4]" {
		t.Errorf("its limits are %s", got)
	}
}

func TestNvidiaSmiThatHangsInAPodIsNotAskedAgainSoon(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	told, silent := tellGPUs(ctx, "", ctx.Err())
	if told.percent != nil || told.why != "nvidia-smi in its pod did not answer within 3s" || silent == nil || silent.until.IsZero() {
		t.Fatalf("%+v, %+v", told, silent)
	}
	silent.pod = "uid"
	p := &pod{}
	if err := json.Unmarshal([]byte(`{"metadata": {"uid": "uid"}, "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}`), p); err != nil {
		t.Fatal(err)
	}
	var d Driver // it has no way to a cluster
	if again := <-d.gpuUse(t.Context(), &task{silent: *silent}, p); again != told {
		t.Errorf("it is asked again: %+v", again)
	}
}

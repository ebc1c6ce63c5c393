package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard"
)

// What is reported of a cluster whose nodes may not be looked at, or that makes them as they are needed: it has a queue of its own.
const (
	unknownCPUs     = 1000
	unknownMemoryMB = 4 << 20
	defaultTasks    = 1000
)

// Capacity is what the nodes that are ready have in all. Slots are generous: a cluster queues by itself what has no room.
func (d *Driver) Capacity(ctx context.Context) (trainyard.Resources, error) {
	f, err := d.api.found(ctx)
	if err != nil {
		return trainyard.Resources{}, err
	}
	r, limit := f.Allocatable, d.env.Limit
	if r.CPUs == 0 {
		r.CPUs, r.MemoryMB = unknownCPUs, unknownMemoryMB
	}
	r.Slots = defaultTasks
	if d.cfg.Tasks > 0 {
		r.Slots = d.cfg.Tasks
	}
	if limit.CPUs > 0 {
		r.CPUs = limit.CPUs
	}
	if limit.MemoryMB > 0 {
		r.MemoryMB = limit.MemoryMB
	}
	if limit.GPUs > 0 {
		r.GPUs = limit.GPUs
	}
	if limit.Slots > 0 {
		r.Slots = limit.Slots
	}
	return r, nil
}

// found adds up the nodes. Without the right to list them nothing is known of them.
func (c *client) found(ctx context.Context) (Found, error) {
	var all page[node]
	err := c.get(ctx, c.path(nodes), nil, &all)
	if isForbidden(err) {
		var version any
		return Found{}, c.get(ctx, "/version", nil, &version)
	}
	if err != nil {
		return Found{}, err
	}
	var f Found
	for _, n := range all.Items {
		f.Nodes++
		if !n.ready() || n.Spec.Unschedulable {
			continue
		}
		f.Ready++
		amount := func(name string) resource.Quantity {
			q, _ := resource.ParseQuantity(n.Status.Allocatable[name]) // what is not there is zero
			return q
		}
		cpu, memory, gpus := amount("cpu"), amount("memory"), amount(gpuResource)
		f.Allocatable.CPUs += float64(cpu.MilliValue()) / 1000
		f.Allocatable.MemoryMB += memory.Value() >> 20
		f.Allocatable.GPUs += int(gpus.Value())
	}
	return f, nil
}

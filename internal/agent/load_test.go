package agent

import (
	"context"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// costly is a driver whose capacity is dear to ask for.
type costly struct {
	target.Driver
	asked int
	spent time.Duration
}

func (c *costly) Capacity(context.Context) (trainyard.Resources, error) {
	c.asked++
	return trainyard.Resources{CPUs: 4}, nil
}

func (c *costly) Usage(context.Context, trainyard.TaskID) (target.Usage, error) {
	c.spent += time.Second
	return target.Usage{CPU: c.spent}, nil
}

func TestCapacityIsAskedForOnceForAReplica(t *testing.T) {
	d := &costly{}
	k := newTask(New(Config{Driver: d}), trainyard.Task{ID: "scope/r.1.0"})
	var m meter
	for range 5 {
		m.next = time.Time{}
		m.measure(t.Context(), k)
	}
	if d.spent != 5*time.Second || m.cpus != 4 || d.asked != 1 {
		t.Errorf("measured for %s, of %v CPUs, capacity asked for %d times", d.spent, m.cpus, d.asked)
	}
}

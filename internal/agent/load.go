package agent

import (
	"context"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

const (
	measureEvery = 2 * time.Second
	loadsWithin  = 500 * time.Millisecond // loads of several replicas go together
)

// meter measures what one replica uses. Its zero value is ready.
type meter struct {
	next  time.Time
	at    time.Time     // of the last measurement
	spent time.Duration // of processors until then
	none  bool          // it cannot be measured here
	cpus  float64       // that the task may use, once that is known: an engine may have to ask all its nodes
}

// measure notes the task's load when it is time to.
func (m *meter) measure(ctx context.Context, k *task) {
	now := time.Now()
	if now.Before(m.next) {
		return
	}
	m.next = now.Add(measureEvery)
	d, ok := k.a.cfg.Driver.(target.Meter)
	if !ok || m.none {
		m.next = now.Add(time.Hour)
		return
	}
	u, err := d.Usage(ctx, k.id)
	if err != nil {
		m.none = trainyard.CodeOf(err) == trainyard.CodeUnsupported
		return
	}
	if passed := now.Sub(m.at); !m.at.IsZero() && passed > 0 && u.CPU >= m.spent {
		load := trainyard.TaskLoad{ID: k.id, GPU: u.GPU, GPUWhy: u.GPUWhy, MemoryMB: u.MemoryMB, PeakMB: max(u.PeakMB, u.MemoryMB), OOMKills: u.OOMKills}
		if m.cpus == 0 {
			m.cpus = k.cpus(ctx)
		}
		if m.cpus > 0 {
			load.CPU = 100 * (u.CPU - m.spent).Seconds() / passed.Seconds() / m.cpus
		}
		k.a.reports.load(load)
	}
	m.at, m.spent = now, u.CPU
}

// cpus is how many processors the task may use.
func (k *task) cpus(ctx context.Context) float64 {
	all, err := k.a.cfg.Driver.Capacity(ctx)
	if own := k.kept.Task.Resources.CPUs; own > 0 && (err != nil || own < all.CPUs) {
		return own
	}
	return all.CPUs
}

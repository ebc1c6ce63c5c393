package process

import (
	"context"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

var _ target.Meter = (*Driver)(nil)

// Usage adds up what the task's processes use. Memory that several of them share is counted once, as far as can be told.
func (d *Driver) Usage(_ context.Context, id trainyard.TaskID) (target.Usage, error) {
	d.mu.Lock()
	t := d.tasks[id.Dir()]
	var p *process
	visible := ""
	if t != nil && t.began && t.end == nil {
		p, visible = t.proc, t.rec.GPUs
	}
	d.mu.Unlock()
	if p == nil {
		return target.Usage{}, trainyard.NotFound("%s does not run here", id.Words())
	}
	u, err := p.measure()
	if err != nil {
		return target.Usage{}, err
	}
	u.GPU, u.GPUWhy = d.gpus.Use(visible)
	return u, nil
}

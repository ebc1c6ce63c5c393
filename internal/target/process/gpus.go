package process

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu"
)

// mostNames is how many bytes of names of GPUs are written down: a record is shorter than a page.
const mostNames = 1000

// lent is what a task is given that asks for GPUs. The zero value is for one that asks for none, and sees what the node sees.
type lent struct {
	env  map[string]string // the variables that CUDA reads
	note string            // that others have them too, or that they are fewer than it asks for
}

// lend chooses GPUs for a task that asks for some: those that the fewest other tasks here were lent, since the replica that takes another's
// place is there before that one goes. The caller holds d.gpuMu until the task is known.
func (d *Driver) lend(ctx context.Context, t trainyard.Task) (l lent, err error) {
	n := t.Resources.GPUs
	if n == 0 {
		return l, nil
	}
	there, err := d.gpus.List(ctx)
	if err != nil {
		return l, err
	}
	all, limit := gpu.Names(there), d.env.Limit.GPUs
	if len(all) == 0 && limit > 0 {
		all = gpu.Names(gpu.Numbered(limit))
	}
	if n, l.note = gpu.Fit(n, limit, len(all)); len(all) < n {
		return l, trainyard.Conflict("it needs %d GPUs, and nvidia-smi tells of %d on this node", n, len(all))
	}
	used := d.lentOut(t.ID)
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(used[a], used[b]) })
	all = all[:n]
	if used[all[n-1]] > 0 {
		l.note = strings.TrimPrefix(l.note+"; ", "; ") + fmt.Sprintf("other tasks have its GPUs (%s) too: this node has no more", strings.Join(all, ", "))
	}
	l.env = map[string]string{gpu.VisibleVariable: strings.Join(all, ","), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} // numbers as nvidia-smi has them
	return l, nil
}

// lentOut is how many tasks other than id were lent each GPU.
func (d *Driver) lentOut(id trainyard.TaskID) map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	used := map[string]int{}
	for _, t := range d.tasks {
		if t.id == id || !t.began || t.end != nil || !t.rec.Lent {
			continue
		}
		for name := range strings.SplitSeq(t.rec.GPUs, ",") {
			used[name]++
		}
	}
	return used
}

// visible is which GPUs a task sees that has this environment.
func visible(env map[string]string) string {
	value, set := env[gpu.VisibleVariable]
	names := gpu.Value(value, set)
	if len(names) > mostNames {
		return names[:strings.LastIndexByte(names[:mostNames], ',')+1] + gpu.None
	}
	return names
}

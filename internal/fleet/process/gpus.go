package process

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/trainyard/trainyard/internal/gpu"
)

// lend gives a machine as many GPUs of this computer as its size has, those first that the fewest other machines have, and writes them
// down: machines may be larger together than the computer. A machine whose size has none sees what the server sees.
func (d *Driver) lend(ctx context.Context, name string, r *record, n int) error {
	if n == 0 || len(r.GPUs) > 0 {
		return nil
	}
	there, err := d.gpus.List(ctx)
	if err != nil {
		return err
	}
	all := gpu.Names(there)
	if len(all) == 0 {
		return nil
	}
	d.gpuMu.Lock()
	defer d.gpuMu.Unlock()
	used, err := d.lent(name)
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(used[a], used[b]) })
	r.GPUs = all[:min(n, len(all))]
	return d.save(name, *r)
}

// lent is how many other machines have each GPU.
func (d *Driver) lent(but string) (map[string]int, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	used := map[string]int{}
	for _, name := range names {
		if name == but {
			continue
		}
		r, err := d.read(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, id := range r.GPUs {
			used[id]++
		}
	}
	return used, nil
}

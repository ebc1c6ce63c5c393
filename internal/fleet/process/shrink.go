package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
)

// How long an agent that was asked to stop may take, and how long the end of everything that ran on its machine may take.
const (
	stopTime = 3 * time.Second
	killTime = 10 * time.Second
)

// Shrink ends machines: the agent is asked, then made to stop, then everything that ran there is ended, then the folder goes.
func (d *Driver) Shrink(ctx context.Context, ids []trainyard.NodeID) ([]trainyard.NodeID, error) {
	return fleet.ShrinkEach(ids, func(id trainyard.NodeID) error { return d.shrink(ctx, id) })
}

func (d *Driver) shrink(ctx context.Context, id trainyard.NodeID) error {
	name := fleet.Folder(id)
	defer d.alone(name)()
	r, err := d.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	agents := strays(id, filepath.Join(d.env.Dir, name, nodeFolder))
	if r.Agent != nil {
		agents = append(agents, *r.Agent)
	}
	if err := d.end(ctx, name, string(id), agents); err != nil {
		return err
	}
	if err := d.remove(name); err != nil {
		return err
	}
	if work := filepath.Join(d.env.Cache, "work", name); d.env.Cache != "" && name == string(id) { // what its tasks left there is nobody's now
		if err := os.RemoveAll(work); err != nil {
			d.log.Warn("clear away a machine's work folder", "dir", work, "err", err)
		}
	}
	return nil
}

// end ends the agents of a machine and everything that ran there.
func (d *Driver) end(ctx context.Context, name, node string, agents []identity) error {
	for _, a := range agents {
		a.ask()
	}
	await(ctx, stopTime, func() bool { return !anyAlive(agents) })
	places := groups(d.group(name))
	gone := func() bool {
		for _, a := range agents {
			a.kill()
		}
		return endAll(node, places) == 0 && !anyAlive(agents)
	}
	if !await(ctx, killTime, gone) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("processes of the machine still run %s after they were killed", killTime)
	}
	for _, a := range agents {
		_ = a.reap()
	}
	removeGroups(places)
	return nil
}

// remove takes the machine's folder away. It is no machine any more once it is renamed; what then cannot be deleted is only untidy.
func (d *Driver) remove(name string) error {
	going := filepath.Join(d.env.Dir, fmt.Sprintf("%s%s-%d", goneFolder, name, time.Now().UnixNano()))
	if err := os.Rename(filepath.Join(d.env.Dir, name), going); err != nil {
		return fmt.Errorf("delete the machine's folder: %w", err)
	}
	d.mu.Lock()
	delete(d.watched, name)
	delete(d.notes, name)
	d.mu.Unlock()
	if err := os.RemoveAll(going); err != nil {
		d.log.Warn("clear away a machine's folder", "dir", going, "err", err)
	}
	return nil
}

func anyAlive(agents []identity) bool {
	for _, a := range agents {
		if a.alive() {
			return true
		}
	}
	return false
}

// await looks until holds is true, for at most limit.
func await(ctx context.Context, limit time.Duration, holds func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for pause := time.Millisecond; !holds(); pause = min(2*pause, 100*time.Millisecond) {
		select {
		case <-ctx.Done():
			return false
		case <-deadline.C:
			return holds()
		case <-time.After(pause):
		}
	}
	return true
}

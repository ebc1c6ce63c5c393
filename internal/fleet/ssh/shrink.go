package ssh

import (
	"context"
	"fmt"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
)

// Shrink ends agents and all that ran under them, and clears away what is ours on the machines. A machine that cannot be reached is not gone:
// the error says why, and it stays on the list until it could be cleared.
func (d *Driver) Shrink(ctx context.Context, ids []trainyard.NodeID) ([]trainyard.NodeID, error) {
	return fleet.ShrinkEach(ids, func(id trainyard.NodeID) error { return d.shrink(ctx, id) })
}

func (d *Driver) shrink(ctx context.Context, id trainyard.NodeID) error {
	d.mu.Lock()
	m := d.machines[d.folder(id)]
	d.mu.Unlock()
	if m == nil {
		return nil
	}
	m.mu.Lock()
	if m.growing != nil {
		m.growing.cancel()
	}
	m.mu.Unlock()
	done, err := m.turn(ctx)
	if err != nil {
		if m.ctx.Err() != nil && d.ctx.Err() == nil {
			return nil // somebody else has just ended it
		}
		return err
	}
	defer done()
	if err := m.empty(ctx); err != nil {
		return fmt.Errorf("it is not known to be gone: %w", err)
	}
	if err := d.forget(m); err != nil {
		return err
	}
	m.stop()
	d.log.Info("left a machine", "node", id)
	return nil
}

// empty leaves nothing of ours on the machine.
func (m *machine) empty(ctx context.Context) error {
	m.mu.Lock()
	s, touched := m.access, m.rec.Touched
	m.mu.Unlock()
	if !touched {
		return nil
	}
	l, err := m.reach(ctx)
	if err != nil {
		return err
	}
	home, err := m.d.turns.Alone(ctx, "home of "+s.String())
	if err != nil {
		return err
	}
	defer home()
	if _, err := run(ctx, l.client, m.vars(), "shrink"); err != nil {
		return thereTrouble(s, "", err)
	}
	return nil
}

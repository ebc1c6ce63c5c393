package ssh

import (
	"context"
	"fmt"
	"maps"
	"slices"

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
	where, touched := m.rec.Where, m.rec.Touched
	m.mu.Unlock()
	if !touched {
		return nil
	}
	l, err := m.reach(ctx)
	if s := m.d.neighbour(m); err != nil && s != nil {
		if err := m.adopt(s); err != nil {
			return err
		}
		l, err = m.reach(ctx)
	}
	if err != nil {
		return err
	}
	home, err := m.d.turns.Alone(ctx, "home of "+where)
	if err != nil {
		return err
	}
	defer home()
	if _, err := run(ctx, l.client, m.vars(), "shrink"); err != nil {
		m.mu.Lock()
		s := m.access
		m.mu.Unlock()
		return thereTrouble(s, "", err)
	}
	return nil
}

// neighbour is how another machine at the same place is logged in to at the moment, if otherwise than m: the computer may have another host
// key, which was pinned there, or let in another private key. Who may log in there as that user may also clear away what is m's. Nil: there
// is none.
func (d *Driver) neighbour(m *machine) *Settings {
	m.mu.Lock()
	where, own := m.rec.Where, m.access
	m.mu.Unlock()
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.machines))
	d.mu.Unlock()
	for _, other := range all {
		other.mu.Lock()
		s, connected := other.access, other.line != nil
		other.mu.Unlock()
		if other != m && connected && s != nil && s.String() == where && !same(s, own) {
			return s
		}
	}
	return nil
}

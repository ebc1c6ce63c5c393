package ssh

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/login"
)

// Grow connects to every machine asked for, and starts an agent where none lives. What takes long, as the first copy of the program does over
// a slow line, goes on when Grow has returned: such a machine is there, and starting.
func (d *Driver) Grow(ctx context.Context, want []trainyard.MachineSpec) (int, error) {
	return fleet.GrowEach(want, func(spec trainyard.MachineSpec) error { return d.grow(ctx, spec) })
}

func (d *Driver) grow(ctx context.Context, spec trainyard.MachineSpec) error {
	s, err := checked(spec)
	if err != nil {
		return err
	}
	m, err := d.machine(spec)
	if err != nil {
		return err
	}
	limit := time.NewTimer(d.patience)
	defer limit.Stop()
	for {
		g, mine := m.raise(spec, s)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return nil
		case <-g.done:
		}
		if mine || g.err == nil && same(g.settings, s) {
			return g.err
		} // else it was with other settings, or failed before we came
	}
}

// checked is how to log in to the machine asked for; nil if that is not said.
func checked(spec trainyard.MachineSpec) (*Settings, error) {
	if spec.ID == "" {
		return nil, trainyard.Invalid("a machine needs an ID")
	}
	if strings.ContainsFunc(string(spec.ID), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return nil, trainyard.Invalid("the ID %q of a machine has control characters in it", spec.ID)
	}
	if len(spec.Settings) == 0 {
		return nil, nil
	}
	s, err := ParseSettings(spec.Settings)
	if err == nil && s.HostKey == "" {
		err = trainyard.Invalid("no host key of machine %s is pinned: attach it again, so that it is", s.Address)
	}
	return s, err
}

func same(a, b *Settings) bool { return a == b || a != nil && b != nil && *a == *b }

// growing is the making of a machine under way.
type growing struct {
	settings *Settings
	cancel   context.CancelFunc
	done     chan struct{}
	err      error // once done
}

// raise begins to make the machine, unless that is under way.
func (m *machine) raise(spec trainyard.MachineSpec, s *Settings) (g *growing, mine bool) {
	m.mu.Lock()
	if g = m.growing; g != nil {
		m.mu.Unlock()
		return g, false
	}
	ctx, cancel := context.WithCancel(m.ctx)
	g = &growing{settings: s, cancel: cancel, done: make(chan struct{})}
	m.growing, m.doing = g, "connecting"
	m.mu.Unlock()
	end := func(err error) {
		m.mu.Lock()
		m.growing, g.err = nil, err
		m.mu.Unlock()
		close(g.done)
		cancel()
		m.d.news()
	}
	if !m.d.spawn(func() { end(m.create(ctx, spec, s)) }) {
		end(errClosed)
	}
	return g, true
}

// create makes the machine: every step looks what is there first.
func (m *machine) create(ctx context.Context, spec trainyard.MachineSpec, s *Settings) error {
	done, err := m.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := m.use(spec, s); err != nil {
		return err
	}
	l, err := m.reach(ctx)
	if err != nil {
		return m.failed(ctx, err)
	}
	alive, err := m.see(ctx, l)
	if err == nil && !alive {
		err = m.install(ctx, l, spec)
	}
	if err != nil {
		return m.failed(ctx, err)
	}
	return nil
}

// failed keeps for people why there is no agent.
func (m *machine) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	m.mu.Lock()
	running := m.rec.State == trainyard.MachineRunning
	m.mu.Unlock()
	if running { // an agent was there when we last saw it
		return err
	}
	return errors.Join(err, m.rest(trainyard.MachineDead, troubleOf(err).Short))
}

// use takes what the spec says for what is true from now on.
func (m *machine) use(spec trainyard.MachineSpec, s *Settings) error {
	m.mu.Lock()
	changed, moved := s != nil && !same(m.access, s), m.rec.Compute != spec.Compute
	m.mu.Unlock()
	if changed {
		if err := m.adopt(s); err != nil {
			return err
		}
	}
	if !changed && !moved {
		return nil
	}
	return m.note(func(r *record) {
		r.Compute = spec.Compute
		if s != nil {
			r.Where = s.String()
		}
	})
}

// adopt logs in with other settings from now on.
func (m *machine) adopt(s *Settings) error {
	if err := m.d.writeAccess(m.name, s); err != nil {
		return err
	}
	m.mu.Lock()
	old, l := m.access, m.line
	elsewhere := old != nil && (old.String() != s.String() || old.HostKey != s.HostKey)
	m.access, m.retry = s, time.Time{}
	if elsewhere {
		m.line, m.cut = nil, login.Trouble{}
	}
	m.mu.Unlock()
	if elsewhere && l != nil {
		l.client.Close()
	}
	return nil
}

// install brings the program there if need be, and starts the agent. The caller has the turn.
func (m *machine) install(ctx context.Context, l *line, spec trainyard.MachineSpec) error {
	m.mu.Lock()
	s, before := m.access, m.rec.Note
	m.mu.Unlock()
	p, err := m.d.program(l.os, l.arch)
	if err != nil {
		return err
	}
	home, err := m.d.turns.Alone(ctx, "home of "+s.String()) // programs are shared by the machines there
	if err != nil {
		return err
	}
	defer home()
	if err := m.note(func(r *record) { r.Touched = true }); err != nil {
		return err
	}
	vars := m.vars()
	for name, value := range map[string]string{
		"TOKEN": spec.Token, "SUM": p.sum, "SIZE": fmt.Sprint(p.size), "PART": p.sum + ".part-" + m.name, "PORT": fmt.Sprint(l.port), "ADDRESS": s.Address,
		"VM": spec.Size.Name, "CPUS": strconv.Itoa(spec.Size.VCPUs), "MEMORY": strconv.FormatInt(int64(spec.Size.MemoryGB*1024), 10),
	} {
		vars[name] = value
	}
	a, err := run(ctx, l.client, vars, "ensure")
	if err == nil && a.first("need") != "" {
		a, err = m.bring(ctx, l, p, vars, a.first("free"))
	}
	if err != nil {
		return thereTrouble(s, "", err)
	}
	m.d.log.Info("started an agent", "node", spec.ID, "machine", s, "agent", a.first("agent"))
	if before == rebooted {
		m.mu.Lock()
		m.back, m.stale = "rebooted: its agent was started again at "+time.Now().Format("15:04"), time.Now().Add(time.Hour)
		m.mu.Unlock()
	}
	err = m.note(func(r *record) { r.Boot, r.State, r.Note = l.boot, trainyard.MachineRunning, "" })
	m.d.news()
	return err
}

// bring copies the program and starts it as the agent.
func (m *machine) bring(ctx context.Context, l *line, p program, vars map[string]string, free string) (answer, error) {
	m.mu.Lock()
	m.doing = fmt.Sprintf("copying the program (%d MiB)", p.size>>20)
	m.mu.Unlock()
	if kib, err := strconv.ParseInt(free, 10, 64); err == nil && kib<<10 < p.size {
		return nil, &scriptError{"copy the program", fmt.Sprintf("No space left: it has %d MiB, free are %d", p.size>>20, kib>>10)}
	}
	err := p.upload(ctx, l.client, vars["PART"])
	var a answer
	if err == nil {
		a, err = run(ctx, l.client, vars, "settle")
	}
	if err != nil {
		if ctx.Err() == nil {
			_, _ = run(ctx, l.client, vars, "drop") // if it cannot be dropped the next copy takes its place
		}
		return nil, err
	}
	return a, nil
}

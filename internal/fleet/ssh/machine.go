package ssh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/login"
)

// machine is one computer that we want, or have not left yet. A goroutine keeps the connection to it and looks at it now and then.
type machine struct {
	d     *Driver
	name  string          // of its folder, here and there
	ctx   context.Context // done when the machine is gone or the driver closed
	stop  context.CancelFunc
	nudge chan struct{} // look sooner

	mu      sync.Mutex // for what follows; nobody is called while it is held
	rec     record
	access  *Settings     // nil: not known
	line    *line         // nil: not connected
	cut     login.Trouble // why not
	since   time.Time     // for how long not
	retry   time.Time     // not before then, with the same settings
	doing   string        // of growing, for people
	growing *growing
	back    string // good news to be told until stale
	stale   time.Time
}

func (d *Driver) newMachine(name string, r record) *machine {
	m := &machine{d: d, name: name, nudge: make(chan struct{}, 1), rec: r}
	m.ctx, m.stop = context.WithCancel(d.ctx)
	return m
}

// keep connects for as long as the machine is wanted, and looks at it.
func (m *machine) keep() {
	for tries := 0; ; {
		wait := m.d.look
		if m.known() {
			err := m.visit()
			if m.ctx.Err() != nil {
				return
			}
			tries++
			if err == nil {
				tries = 0
			} else {
				wait = patienceFor(troubleOf(err).Kind, tries)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-m.ctx.Done():
			timer.Stop()
			return
		case <-m.nudge:
			timer.Stop()
			if !pause(m.ctx, 100*time.Millisecond) { // often many at once
				return
			}
		case <-timer.C:
		}
	}
}

// patienceFor is how long to wait between tries to connect, shortened by chance so that many machines do not come back as one. A machine that
// refuses us is not asked often: some lock out who fails too often.
func patienceFor(kind login.Kind, tries int) time.Duration {
	d := min(time.Second<<min(tries-1, 10), 30*time.Second)
	if kind == login.Access {
		d = refusedPause
	}
	return d/2 + rand.N(d/2)
}

const refusedPause = 4 * time.Minute

func (m *machine) known() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.access != nil
}

// poke has the machine looked at soon.
func (m *machine) poke() {
	select {
	case m.nudge <- struct{}{}:
	default:
	}
}

// turn waits until nobody else works on the machine.
func (m *machine) turn(ctx context.Context) (done func(), err error) {
	done, err = m.d.turns.Alone(ctx, m.name)
	if err == nil && m.ctx.Err() != nil {
		done()
		err = errors.New("the machine is gone, or the fleet closed")
	}
	return done, err
}

// visit connects if that is needed, and looks at the machine.
func (m *machine) visit() error {
	done, err := m.turn(m.ctx)
	if err != nil {
		return err
	}
	defer done()
	l, err := m.reach(m.ctx)
	if err != nil {
		return err
	}
	_, err = m.see(m.ctx, l)
	return err
}

// vars is what every script needs to know.
func (m *machine) vars() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return map[string]string{"ID": string(m.rec.ID), "NAME": m.name, "CA": m.d.ca}
}

// reach returns the connection, making it if need be. The caller has the turn.
func (m *machine) reach(ctx context.Context) (*line, error) {
	m.mu.Lock()
	l, s, port, cut, retry := m.line, m.access, m.rec.Port, m.cut, m.retry
	m.mu.Unlock()
	if l != nil {
		select {
		case <-l.over:
		default:
			return l, nil
		}
	}
	if s == nil {
		return nil, login.Trouble{Kind: login.Access, Short: "how to log in there is not known",
			Err: trainyard.Conflict("how to log in to the machine is not known here any more; attach it again")}
	}
	if time.Now().Before(retry) {
		return nil, cut
	}
	l, err := m.connect(ctx, s, port)
	if err != nil {
		if ctx.Err() == nil {
			m.lost(nil, err)
		}
		return nil, err
	}
	m.mu.Lock()
	m.line, m.cut, m.retry = l, login.Trouble{}, time.Time{}
	m.mu.Unlock()
	if !m.d.spawn(func() { m.lost(l, l.serve(m.ctx, m.d.home, m.d.alive, m.poke)) }) {
		l.client.Close()
		return nil, errClosed
	}
	if l.port != port { // written down before an agent is told
		if err := m.note(func(r *record) { r.Port = l.port }); err != nil {
			l.client.Close()
			return nil, err
		}
	}
	m.d.log.Info("connected to a machine", "node", m.rec.ID, "machine", s, "port", l.port)
	return l, nil
}

// lost takes note that there is no connection, or that the one there was is gone.
func (m *machine) lost(l *line, err error) {
	if m.ctx.Err() != nil {
		return
	}
	t := troubleOf(err)
	m.mu.Lock()
	if m.line != l {
		m.mu.Unlock()
		return // there is a newer one
	}
	m.line = nil
	first := m.cut.Kind == login.None
	if first {
		m.since = time.Now()
	}
	m.cut = t
	switch t.Kind {
	case login.Access:
		m.retry = time.Now().Add(refusedPause)
	case login.HostKey:
		m.retry = time.Now().Add(10 * time.Second)
	}
	id := m.rec.ID
	m.mu.Unlock()
	if first {
		m.d.log.Warn("a machine is cut off", "node", id, "err", err)
		m.d.news()
	}
	if l != nil {
		m.poke()
	}
}

// see looks whether the agent lives and can reach us, and writes it down. The caller has the turn.
func (m *machine) see(ctx context.Context, l *line) (alive bool, err error) {
	a, err := run(ctx, l.client, m.vars(), "look")
	if err != nil {
		if s, ok := errors.AsType[*scriptError](err); ok {
			return false, errors.Join(m.rest(trainyard.MachineDead, s.Error()), err)
		}
		if ctx.Err() == nil {
			l.client.Close()
		}
		return false, err
	}
	m.mu.Lock()
	boot := m.rec.Boot
	m.mu.Unlock()
	agent := a.first("agent")
	_, port, _ := strings.Cut(agent, " ")
	switch {
	case agent != "" && (port == "" || port == fmt.Sprint(l.port) && a.first("ca") == ""):
		return true, m.rest(trainyard.MachineRunning, "")
	case agent != "":
		why := "its agent has to be started again, because the server has another certificate; tasks there go on"
		if port != fmt.Sprint(l.port) {
			why = "its agent has to be started again, because another program took port " + port + " there; tasks there go on"
		}
		if _, err := run(ctx, l.client, m.vars(), "halt"); err != nil {
			return false, err
		}
		return false, m.rest(trainyard.MachineDead, why)
	case boot == "": // never was
		return false, nil
	case boot != l.boot:
		return false, m.rest(trainyard.MachineDead, rebooted)
	}
	return false, m.rest(trainyard.MachineDead, strings.TrimSuffix("its agent ended: "+a.first("last"), ": "))
}

const rebooted = "rebooted: its agent has to be started again"

// rest writes down what the machine is known to be.
func (m *machine) rest(state trainyard.MachineState, note string) error {
	m.mu.Lock()
	same, moved := m.rec.State == state && m.rec.Note == note, m.rec.State != state
	m.mu.Unlock()
	if same {
		return nil
	}
	err := m.note(func(r *record) { r.State, r.Note = state, note })
	if moved {
		m.d.news()
	}
	return err
}

// note changes the record, here and on disk. The caller has the turn.
func (m *machine) note(change func(*record)) error {
	m.mu.Lock()
	change(&m.rec)
	r := m.rec
	m.mu.Unlock()
	return m.d.writeRecord(m.name, r)
}

// describe is what is known of the machine, in the words of those who look from outside.
func (m *machine) describe() trainyard.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	out := trainyard.Machine{ID: m.rec.ID, Compute: m.rec.Compute, State: m.rec.State, Note: m.rec.Note}
	switch {
	case m.growing != nil && out.State != trainyard.MachineRunning:
		out.State, out.Note = trainyard.MachineStarting, m.doing
	case m.line == nil && m.cut.Kind == login.Network:
		out.Cut, out.Note = true, fmt.Sprintf("cut off since %s: %s", clock(m.since, now), m.cut.Short)
		if out.State == trainyard.MachineRunning {
			out.Note += "; tasks there go on"
		}
	case m.line == nil && m.cut.Kind != login.None: // only somebody can mend that; as a dead machine it is asked for again, with what was mended
		out.State, out.Cut, out.Note = trainyard.MachineDead, true, m.cut.Short
	case m.line == nil && out.State == trainyard.MachineRunning:
		out.Note = "connecting"
	case out.State == trainyard.MachineRunning && now.Before(m.stale):
		out.Note = m.back
	case out.State == trainyard.MachineRunning && !m.line.python:
		out.Note = noPython
	}
	return out
}

// Package fleettest holds what every fleet driver must do, as one suite. A driver's test is one call of Run. It knows nothing of how
// machines are made: what it must do to them from outside, it is given.
package fleettest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
)

// Fleet is an empty location under test, and hands to reach into it.
type Fleet struct {
	// Open opens the location. Every call is a server that starts: it knows nothing but what is in the location.
	Open func(t *testing.T) fleet.Driver
	// Agent names the agent that lives on a machine, so that two that followed each other differ; "" if there is none.
	Agent func(t *testing.T, id trainyard.NodeID) string
	// Kill ends a machine's agent as a crash does, and nothing else there.
	Kill func(t *testing.T, id trainyard.NodeID)
	// Work starts something on a machine that outlives its agent, as tasks do, and returns what says whether it still runs.
	Work func(t *testing.T, id trainyard.NodeID) (runs func() bool)
	// Spoil makes it impossible to make a machine.
	Spoil func(t *testing.T, id trainyard.NodeID)
	// Patience is how long a machine may take to come or go; 0 is half a minute.
	Patience time.Duration
}

// Run holds a driver to its contract. empty makes a new location for each test.
func Run(t *testing.T, empty func(t *testing.T) Fleet) {
	for _, c := range []struct {
		name string
		test func(s *suite)
	}{
		{"an empty location has no machines", (*suite).none},
		{"machines are made once, however often they are asked for", (*suite).idempotent},
		{"a machine with a dead agent gets a new one in the same place", (*suite).revive},
		{"a machine that goes takes everything with it", (*suite).shrink},
		{"machines that nobody knows count as gone", (*suite).unknown},
		{"a server that starts again finds the same machines", (*suite).reopen},
		{"a machine that cannot be made does not keep others from being made", (*suite).partial},
		{"many are made and ended at once", (*suite).concurrent},
		{"IDs need not be file names", (*suite).names},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := empty(t)
			if f.Patience == 0 {
				f.Patience = 30 * time.Second
			}
			s := &suite{T: t, Fleet: f, mark: fmt.Sprintf("t%d", time.Now().UnixNano()%1e9)}
			s.open()
			t.Cleanup(s.end)
			c.test(s)
		})
	}
}

// suite is one test on one location.
type suite struct {
	*testing.T
	Fleet
	mark   string // in all IDs, so that tests beside each other do not meet
	driver fleet.Driver
}

// open opens the location as a server does that starts.
func (s *suite) open() {
	s.Helper()
	if c, ok := s.driver.(interface{ Close() error }); ok {
		if err := c.Close(); err != nil {
			s.Fatalf("Close: %v", err)
		}
	}
	s.driver = s.Open(s.T)
}

// end leaves nothing behind, and looks whether that worked.
func (s *suite) end() {
	ctx := context.Background() // the test's own is done by now
	list, err := s.driver.Machines(ctx)
	if err != nil {
		s.Errorf("Machines: %v", err)
	}
	var ids []trainyard.NodeID
	for _, m := range list {
		ids = append(ids, m.ID)
	}
	if gone, err := s.driver.Shrink(ctx, ids); err != nil || len(gone) != len(ids) {
		s.Errorf("Shrink of what was left, %v: %v, %v", ids, gone, err)
	}
	if c, ok := s.driver.(interface{ Close() error }); ok {
		if err := c.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	}
}

// specs asks for machines.
func (s *suite) specs(names ...string) []trainyard.MachineSpec {
	var out []trainyard.MachineSpec
	for _, n := range names {
		out = append(out, trainyard.MachineSpec{
			ID: trainyard.NodeID(n + "-" + s.mark), Compute: "sub/rg/ws/cluster", Token: "token of " + n,
			Size: trainyard.VMSize{Name: "Standard_DS3_v2", VCPUs: 4, MemoryGB: 14}})
	}
	return out
}

// grow asks for machines and waits until their agents live.
func (s *suite) grow(want []trainyard.MachineSpec) {
	s.Helper()
	n, err := s.driver.Grow(s.Context(), want)
	if err != nil || n != len(want) {
		s.Fatalf("Grow of %d machines: %d, %v", len(want), n, err)
	}
	for _, m := range want {
		s.until("the agent of "+string(m.ID)+" lives", func() bool { return s.Agent(s.T, m.ID) != "" && s.state(m.ID) == trainyard.MachineRunning })
	}
}

// machines lists what there is.
func (s *suite) machines() map[trainyard.NodeID]trainyard.Machine {
	s.Helper()
	list, err := s.driver.Machines(s.Context())
	if err != nil {
		s.Fatalf("Machines: %v", err)
	}
	out := map[trainyard.NodeID]trainyard.Machine{}
	for _, m := range list {
		if _, twice := out[m.ID]; twice {
			s.Errorf("machine %s is listed twice", m.ID)
		}
		out[m.ID] = m
	}
	return out
}

func (s *suite) state(id trainyard.NodeID) trainyard.MachineState {
	s.Helper()
	return s.machines()[id].State
}

// only checks which machines there are.
func (s *suite) only(want ...trainyard.MachineSpec) {
	s.Helper()
	have := s.machines()
	for _, w := range want {
		if m, ok := have[w.ID]; !ok {
			s.Errorf("machine %s is not listed", w.ID)
		} else if m.Compute != w.Compute {
			s.Errorf("machine %s is said to be of compute %q, not %q", w.ID, m.Compute, w.Compute)
		}
		delete(have, w.ID)
	}
	for id := range have {
		s.Errorf("machine %s is listed and should not be", id)
	}
}

// until waits for something that must come.
func (s *suite) until(what string, ok func() bool) {
	s.Helper()
	limit := time.NewTimer(s.Patience)
	defer limit.Stop()
	for !ok() {
		select {
		case <-limit.C:
			s.Fatalf("waited %s in vain until %s", s.Patience, what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *suite) none() { s.only() }

func (s *suite) idempotent() {
	want := s.specs("a", "b")
	s.grow(want)
	s.only(want...)
	agents := []string{s.Agent(s.T, want[0].ID), s.Agent(s.T, want[1].ID)}
	s.grow(want)
	s.grow(slices.Concat(want, s.specs("c")))
	s.only(s.specs("a", "b", "c")...)
	for i, w := range want {
		if now := s.Agent(s.T, w.ID); now != agents[i] {
			s.Errorf("machine %s lived and got another agent (%s, then %s)", w.ID, agents[i], now)
		}
	}
}

func (s *suite) revive() {
	want := s.specs("a", "b")
	s.grow(want)
	id := want[0].ID
	first, other, runs := s.Agent(s.T, id), s.Agent(s.T, want[1].ID), s.Work(s.T, id)
	changed := make(<-chan struct{})
	w, watches := s.driver.(interface{ Changed() <-chan struct{} })
	if watches {
		changed = w.Changed()
		for drained := false; !drained; {
			select {
			case <-changed:
			default:
				drained = true
			}
		}
	}
	s.Kill(s.T, id)
	if watches {
		select {
		case <-changed:
		case <-time.After(s.Patience):
			s.Error("Changed says nothing when an agent dies")
		}
	}
	s.until("the machine is known to be dead", func() bool { return s.state(id) == trainyard.MachineDead })
	s.only(want...)
	s.grow(want)
	if now := s.Agent(s.T, id); now == first {
		s.Errorf("the agent is still %s", now)
	}
	if now := s.Agent(s.T, want[1].ID); now != other {
		s.Errorf("the other machine's agent changed from %s to %s", other, now)
	}
	if !runs() {
		s.Error("what ran on the machine did not outlive the agent")
	}
	s.only(want...)
}

func (s *suite) shrink() {
	want := s.specs("a", "b", "c")
	s.grow(want)
	gone, stays := s.Work(s.T, want[0].ID), s.Work(s.T, want[1].ID)
	orphan := s.Work(s.T, want[2].ID)
	s.Kill(s.T, want[2].ID) // its agent is dead, its work goes on
	ids := []trainyard.NodeID{want[0].ID, want[2].ID}
	stopped, err := s.driver.Shrink(s.Context(), ids)
	if err != nil {
		s.Fatalf("Shrink: %v", err)
	}
	slices.Sort(stopped)
	slices.Sort(ids)
	if !slices.Equal(stopped, ids) {
		s.Errorf("Shrink of %v says %v", ids, stopped)
	}
	if gone() || orphan() {
		s.Error("what ran on a machine that is gone for certain still runs")
	}
	if a := s.Agent(s.T, want[0].ID); a != "" {
		s.Errorf("agent %s lives on a machine that is gone for certain", a)
	}
	if !stays() || s.Agent(s.T, want[1].ID) == "" {
		s.Error("another machine was touched")
	}
	s.only(want[1])
	if stopped, err = s.driver.Shrink(s.Context(), ids); err != nil || len(stopped) != 2 {
		s.Errorf("a second Shrink: %v, %v", stopped, err)
	}
	s.grow(want) // the same IDs may come again
	s.only(want...)
}

func (s *suite) unknown() {
	ids := []trainyard.NodeID{"never-was-" + trainyard.NodeID(s.mark), "../.."}
	stopped, err := s.driver.Shrink(s.Context(), ids)
	if err != nil || len(stopped) != len(ids) {
		s.Errorf("Shrink: %v, %v", stopped, err)
	}
	if stopped, err := s.driver.Shrink(s.Context(), nil); err != nil || len(stopped) != 0 {
		s.Errorf("Shrink of nothing: %v, %v", stopped, err)
	}
	if n, err := s.driver.Grow(s.Context(), nil); err != nil || n != 0 {
		s.Errorf("Grow of nothing: %v, %v", n, err)
	}
}

func (s *suite) reopen() {
	want := s.specs("a", "b", "c")
	s.grow(want)
	runs := s.Work(s.T, want[0].ID)
	agents := map[trainyard.NodeID]string{}
	for _, w := range want {
		agents[w.ID] = s.Agent(s.T, w.ID)
	}
	s.open()
	s.only(want...)
	s.grow(want[:2])
	for _, w := range want {
		if now := s.Agent(s.T, w.ID); now != agents[w.ID] {
			s.Errorf("machine %s got another agent (%s, then %s)", w.ID, agents[w.ID], now)
		}
	}
	s.Kill(s.T, want[1].ID)
	s.until("the new server knows that the agent is dead", func() bool { return s.state(want[1].ID) == trainyard.MachineDead })
	s.open()
	if st := s.state(want[1].ID); st != trainyard.MachineDead {
		s.Errorf("a machine whose agent died is %s to the next server", st)
	}
	if stopped, err := s.driver.Shrink(s.Context(), []trainyard.NodeID{want[0].ID}); err != nil || len(stopped) != 1 || runs() {
		s.Errorf("Shrink by another server than the one that made the machine: %v, %v; work still runs: %v", stopped, err, runs())
	}
	s.only(want[1:]...)
}

func (s *suite) partial() {
	want := s.specs("a", "bad", "c")
	s.Spoil(s.T, want[1].ID)
	n, err := s.driver.Grow(s.Context(), want)
	if n != 2 {
		s.Errorf("Grow says %d of 3 exist", n)
	}
	e, ok := errors.AsType[*fleet.MachineError](err)
	if !ok || e.ID != want[1].ID {
		s.Errorf("Grow does not say which machine could not be made: %v", err)
	}
	for _, i := range []int{0, 2} {
		s.until("the others live", func() bool { return s.state(want[i].ID) == trainyard.MachineRunning && s.Agent(s.T, want[i].ID) != "" })
	}
	if st := s.state(want[1].ID); st == trainyard.MachineRunning {
		s.Errorf("the machine that could not be made is %s", st)
	}
}

func (s *suite) concurrent() {
	first, second := s.specs("a", "b", "c"), s.specs("d", "e", "f")
	s.grow(first)
	var wg sync.WaitGroup
	wg.Go(func() {
		var ids []trainyard.NodeID
		for _, m := range first {
			ids = append(ids, m.ID)
		}
		if stopped, err := s.driver.Shrink(s.Context(), ids); err != nil || len(stopped) != 3 {
			s.Errorf("Shrink: %v, %v", stopped, err)
		}
	})
	for range 2 {
		wg.Go(func() {
			if n, err := s.driver.Grow(s.Context(), second); err != nil || n != 3 {
				s.Errorf("Grow: %d, %v", n, err)
			}
		})
	}
	wg.Wait()
	s.only(second...)
	s.grow(second)
}

func (s *suite) names() {
	long := make([]byte, 300)
	for i := range long {
		long[i] = 'x'
	}
	var want []trainyard.MachineSpec
	for _, n := range []string{"a/b", "../up", "Upper", "upper", "sp ace ü", string(long)} {
		want = append(want, s.specs(n)...)
	}
	s.grow(want)
	s.only(want...)
	s.open()
	s.only(want...)
}

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agent"
	"github.com/trainyard/trainyard/internal/fleet"
)

// park is a location: its fleet and the server's side of it, both made up.
type park struct {
	mu      sync.Mutex
	rev     int64
	wake    chan struct{}
	want    []trainyard.MachineSpec
	have    map[trainyard.NodeID]trainyard.MachineState
	grown   map[trainyard.NodeID]int
	reports []trainyard.FleetReport
	changed chan struct{}

	blind   bool                            // Machines fails
	deaf    bool                            // the server does
	grow    func(id trainyard.NodeID) error // fails a machine
	growAll error
	slow    time.Duration // that Shrink takes
	stuck   error         // why it ends nothing
	shrinks int           // how often it was asked to
}

func newPark() *park {
	return &park{wake: make(chan struct{}), have: map[trainyard.NodeID]trainyard.MachineState{}, grown: map[trainyard.NodeID]int{}, changed: make(chan struct{}, 1)}
}

func (p *park) set(ids ...trainyard.NodeID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want = nil
	for _, id := range ids {
		p.want = append(p.want, trainyard.MachineSpec{ID: id})
	}
	p.rev++
	close(p.wake)
	p.wake = make(chan struct{})
}

func (p *park) die(id trainyard.NodeID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.have[id] = trainyard.MachineDead
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *park) FleetWanted(ctx context.Context, _ string, after int64) (trainyard.FleetWanted, error) {
	hold := time.NewTimer(25 * time.Second)
	defer hold.Stop()
	for timeout := false; ; {
		p.mu.Lock()
		w, wake, deaf := trainyard.FleetWanted{Rev: p.rev, Machines: slices.Clone(p.want)}, p.wake, p.deaf
		p.mu.Unlock()
		if deaf {
			return w, trainyard.Errorf(trainyard.CodeBusy, "the server cannot be reached")
		}
		if w.Rev > after || timeout {
			return w, nil
		}
		select {
		case <-ctx.Done():
			return w, ctx.Err()
		case <-wake:
		case <-hold.C:
			timeout = true
		}
	}
}

func (p *park) FleetReport(_ context.Context, r trainyard.FleetReport) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf {
		return trainyard.Errorf(trainyard.CodeBusy, "the server cannot be reached")
	}
	p.reports = append(p.reports, r)
	return nil
}

func (p *park) Changed() <-chan struct{} { return p.changed }

func (p *park) Machines(context.Context) ([]trainyard.Machine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blind {
		return nil, errors.New("one machine's record cannot be read")
	}
	var out []trainyard.Machine
	for _, id := range slices.Sorted(maps.Keys(p.have)) {
		out = append(out, trainyard.Machine{ID: id, State: p.have[id], Note: "exit status 1"})
	}
	return out, nil
}

func (p *park) Grow(_ context.Context, want []trainyard.MachineSpec) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.growAll != nil {
		return 0, p.growAll
	}
	var errs []error
	for _, s := range want {
		if p.grow != nil {
			if err := p.grow(s.ID); err != nil {
				errs = append(errs, &fleet.MachineError{ID: s.ID, Err: err})
				continue
			}
		}
		p.have[s.ID] = trainyard.MachineRunning
		p.grown[s.ID]++
		n++
	}
	return n, errors.Join(errs...)
}

func (p *park) Shrink(ctx context.Context, ids []trainyard.NodeID) ([]trainyard.NodeID, error) {
	if p.slow > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(p.slow):
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shrinks++; p.stuck != nil {
		return fleet.ShrinkEach(ids, func(trainyard.NodeID) error { return p.stuck })
	}
	for _, id := range ids {
		delete(p.have, id)
	}
	return ids, nil
}

// machines lists what is there, and last is what the server was told.
func (p *park) machines() []trainyard.NodeID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.have))
}

func (p *park) last() trainyard.FleetReport {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.reports) == 0 {
		return trainyard.FleetReport{}
	}
	return p.reports[len(p.reports)-1]
}

// told says whether a machine was ever reported stopped.
func (p *park) told(id trainyard.NodeID) (times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.reports {
		if slices.Contains(r.Stopped, id) {
			times++
		}
	}
	return times
}

func (p *park) starts(id trainyard.NodeID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.grown[id]
}

func hosted(t *testing.T, f func(t *testing.T, p *park)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPark()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- agent.NewFleetHost(agent.FleetConfig{Location: "local", Link: p, Driver: p}).Run(ctx) }()
		synctest.Wait()
		f(t, p)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func equal(t *testing.T, got []trainyard.NodeID, want ...trainyard.NodeID) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("machines %v, want %v", got, want)
	}
}

func TestFleetFollowsWhatIsWantedAtOnce(t *testing.T) {
	hosted(t, func(t *testing.T, p *park) {
		p.set("a", "b", "c")
		synctest.Wait()
		equal(t, p.machines(), "a", "b", "c")
		if got := p.last(); got.Location != "local" || len(got.Machines) != 3 || len(got.Failed) != 0 {
			t.Errorf("told %+v", got)
		}
		p.set("b")
		synctest.Wait()
		equal(t, p.machines(), "b")
		if p.told("a") != 1 || p.told("c") != 1 || p.told("b") != 0 {
			t.Error("what was ended was not told once")
		}
	})
}

func TestSlowEndKeepsNobodyWaiting(t *testing.T) {
	hosted(t, func(t *testing.T, p *park) {
		p.slow = time.Minute
		p.set("a")
		synctest.Wait()
		p.set("b")
		synctest.Wait()
		equal(t, p.machines(), "a", "b")
		<-time.After(time.Minute)
		synctest.Wait()
		equal(t, p.machines(), "b")
	})
}

func TestDeadAgentIsStartedAgainAtOnce(t *testing.T) {
	hosted(t, func(t *testing.T, p *park) {
		p.set("a")
		<-time.After(2 * time.Minute)
		p.die("a")
		synctest.Wait()
		if p.starts("a") != 2 || p.last().Machines[0].State != trainyard.MachineRunning || len(p.last().Failed) != 0 {
			t.Errorf("%d starts, told %+v", p.starts("a"), p.last())
		}
	})
}

func TestAgentThatKeepsDyingIsStartedMoreAndMoreSeldom(t *testing.T) {
	hosted(t, func(t *testing.T, p *park) {
		p.set("a")
		for range 600 {
			<-time.After(time.Second)
			p.die("a")
		}
		if n := p.starts("a"); n < 10 || n > 40 {
			t.Errorf("%d starts in ten minutes", n)
		}
		if why := p.last().Failed["a"]; !strings.Contains(why, "times in a row: exit status 1") {
			t.Errorf("told %q", why)
		}
	})
}

func TestHalfAViewOfAFleetChangesNothing(t *testing.T) {
	hosted(t, func(t *testing.T, p *park) {
		p.set("a")
		synctest.Wait()
		p.mu.Lock()
		p.blind = true
		n := len(p.reports)
		p.mu.Unlock()
		p.set("b")
		<-time.After(time.Minute)
		equal(t, p.machines(), "a")
		p.mu.Lock()
		told := slices.Clone(p.reports[n:])
		p.mu.Unlock()
		since := ""
		for _, r := range told {
			if since == "" {
				since = r.Away
			}
			if len(r.Machines) > 0 || r.Away != since || !strings.Contains(r.Away, "location local") || !strings.Contains(r.Away, "cannot be read") {
				t.Errorf("half a view was told as %+v", r)
			}
		}
		if since == "" {
			t.Error("nobody was told that there is half a view")
		}
		p.mu.Lock()
		p.blind = false
		p.mu.Unlock()
		<-time.After(6 * time.Second)
		equal(t, p.machines(), "b")
		if got := p.last(); got.Away != "" || len(got.Machines) != 1 {
			t.Errorf("told %+v", got)
		}
	})
}

// Somebody mends a machine's settings while it is being tried with the old ones: the old ones' failure is nobody's then.
func TestSettingsThatChangeWhileAMachineIsTried(t *testing.T) {
	hosted(t, func(t *testing.T, p *park) {
		tried := 0
		p.grow = func(trainyard.NodeID) error {
			tried++
			p.mu.Unlock() // others go on meanwhile
			defer p.mu.Lock()
			if tried > 1 {
				return nil
			}
			p.mu.Lock()
			p.want[0].Settings = []byte(`{"hostKey":"new"}`)
			p.rev++
			close(p.wake)
			p.wake = make(chan struct{})
			p.mu.Unlock()
			<-time.After(time.Second)
			return errors.New("another host key")
		}
		p.set("a")
		<-time.After(time.Minute)
		equal(t, p.machines(), "a")
		if why := p.last().Failed["a"]; why != "" {
			t.Errorf("told %q", why)
		}
	})
}

func TestMachinesThatCannotBeHad(t *testing.T) {
	hosted(t, func(t *testing.T, p *park) {
		p.grow = func(id trainyard.NodeID) error {
			if id == "b" {
				return fmt.Errorf("no room for %s", id)
			}
			return nil
		}
		p.set("a", "b")
		synctest.Wait()
		equal(t, p.machines(), "a")
		if f := p.last().Failed; len(f) != 1 || f["b"] != "no room for b" {
			t.Errorf("told %v", f)
		}
		p.mu.Lock()
		p.grow = nil
		p.mu.Unlock()
		<-time.After(10 * time.Second) // two looks at least
		equal(t, p.machines(), "a", "b")
		if f := p.last().Failed; len(f) != 0 {
			t.Errorf("still told %v", f)
		}
		p.mu.Lock()
		p.growAll = errors.New("the fleet is out of order")
		p.mu.Unlock()
		p.set("a", "b", "c", "d")
		synctest.Wait()
		if f := p.last().Failed; len(f) != 2 || f["c"] != "the fleet is out of order" {
			t.Errorf("told %v", f)
		}
	})
}

// A machine that is there and cannot be had, as when nobody is let in any more, has no agent that ended.
func TestWhyAMachineCannotBeHadIsNotTakenForTheEndOfItsAgent(t *testing.T) {
	hosted(t, func(t *testing.T, p *park) {
		p.set("a")
		<-time.After(2 * time.Minute)
		synctest.Wait() // what is said at this very moment is of before
		p.mu.Lock()
		p.grow = func(trainyard.NodeID) error { return errors.New("its host key changed") }
		before := len(p.reports)
		p.mu.Unlock()
		p.die("a")
		<-time.After(5 * time.Minute)
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range p.reports[before:] {
			if why := r.Failed["a"]; why != "its host key changed" {
				t.Fatalf("told %q", why)
			}
		}
	})
}

func TestAMachineThatCannotBeEndedSaysWhyAndIsTriedMoreAndMoreSeldom(t *testing.T) {
	hosted(t, func(t *testing.T, p *park) {
		p.set("a")
		synctest.Wait()
		p.mu.Lock()
		p.stuck = errors.New("it is switched off")
		p.mu.Unlock()
		p.set()
		synctest.Wait()
		if f := p.last().Failed; len(f) != 1 || f["a"] != "it is switched off" {
			t.Errorf("told %v", f)
		}
		<-time.After(time.Hour)
		tries := func() int { p.mu.Lock(); defer p.mu.Unlock(); return p.shrinks }
		if n := tries(); n < 12 || n > 25 {
			t.Errorf("%d tries in an hour", n)
		}
		before := tries()
		p.set("b") // what it is reached by may serve a, too
		synctest.Wait()
		if n := tries(); n != before+1 {
			t.Errorf("%d tries when a machine is new, after %d", n, before)
		}
		<-time.After(time.Hour)
		p.mu.Lock()
		p.stuck = nil
		p.mu.Unlock()
		p.die("a") // something is new about it
		synctest.Wait()
		equal(t, p.machines(), "b")
		if f := p.last().Failed; len(f) != 0 || p.told("a") != 1 {
			t.Errorf("still told %v; gone %d times", f, p.told("a"))
		}
	})
}

func TestWhatWentIsToldWhenTheServerIsBack(t *testing.T) {
	hosted(t, func(t *testing.T, p *park) {
		p.slow = time.Second
		p.set("a")
		synctest.Wait()
		p.set()
		synctest.Wait()
		p.mu.Lock()
		p.deaf = true
		p.mu.Unlock()
		<-time.After(time.Minute)
		equal(t, p.machines())
		p.mu.Lock()
		p.deaf = false
		p.mu.Unlock()
		<-time.After(6 * time.Second)
		if p.told("a") != 1 {
			t.Errorf("told %d times", p.told("a"))
		}
	})
}

func TestFleetIsLeftAloneBeforeTheServersFirstWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPark()
		p.deaf = true
		p.have["a"] = trainyard.MachineRunning
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := agent.NewFleetHost(agent.FleetConfig{Location: "local", Link: p, Driver: p}).Run(ctx); err != nil {
			t.Error(err)
		}
		equal(t, p.machines(), "a")
	})
}

package process

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu/gputest"
)

// sees is which GPUs a machine's agent is told to use; "" where it is told nothing.
func (l location) sees(t *testing.T, id trainyard.NodeID) string {
	t.Helper()
	until(t, "the agent lives", func() bool { return l.pid(id) != 0 })
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", l.pid(id)))
	if err != nil {
		t.Fatal(err)
	}
	for kv := range strings.SplitSeq(string(env), "\x00") {
		if value, ok := strings.CutPrefix(kv, "CUDA_VISIBLE_DEVICES="); ok {
			return value
		}
	}
	return ""
}

func TestEachMachineHasItsOwnGPUs(t *testing.T) {
	gputest.Here(t).Set("0", "0", "0")
	l := newLocation(t)
	d := l.open(t)
	of := func(name string, n int) trainyard.MachineSpec {
		s := spec(t, name, "Lab")
		s.Size.GPUs = n
		return s
	}
	one, two, none := of("a", 1), of("b", 2), of("c", 0)
	grow(t, d, one, two, none)
	if a, b, c := l.sees(t, one.ID), l.sees(t, two.ID), l.sees(t, none.ID); a != "0" || b != "1,2" || c != "" {
		t.Errorf("they see %q, %q and %q", a, b, c)
	}
	l.kill(t, one.ID)
	until(t, "the agent is gone", func() bool { return l.pid(one.ID) == 0 })
	grow(t, d, one)
	if a := l.sees(t, one.ID); a != "0" {
		t.Errorf("after its agent was killed it sees %q", a)
	}
	if _, err := d.Shrink(t.Context(), []trainyard.NodeID{two.ID}); err != nil {
		t.Fatal(err)
	}
	next, many := of("d", 1), of("e", 8) // more than there are
	grow(t, d, next, many)
	if a, b := l.sees(t, next.ID), l.sees(t, many.ID); a != "1" || len(strings.Split(b, ",")) != 3 {
		t.Errorf("the next see %q and %q", a, b)
	}
}

// A machine is not made to see all GPUs because nvidia-smi was late.
func TestAMachineWaitsUntilItIsKnownWhichGPUsThereAre(t *testing.T) {
	smi := gputest.Here(t)
	smi.Set("0", "0")
	smi.Hang()
	l := newLocation(t)
	d := l.open(t)
	s := spec(t, "a", "Lab")
	s.Size.GPUs = 1
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.grow(gone, s); trainyard.CodeOf(err) != trainyard.CodeBusy {
		t.Errorf("before nvidia-smi answers: %v", err)
	}
	smi.Wake()
	grow(t, d, s)
	if got := l.sees(t, s.ID); got != "0" {
		t.Errorf("it sees %q", got)
	}
}

package ssh

import (
	"fmt"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/fleet/fleettest"
	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
)

func TestContract(t *testing.T) {
	one, two := sshtest.New(t, sshtest.Options{}), sshtest.New(t, sshtest.Options{})
	fleettest.Run(t, func(t *testing.T) fleettest.Fleet {
		l := newLocation(t, one, two)
		return fleettest.Fleet{
			Open: func(t *testing.T) fleet.Driver { return dressed{l.open(t), l, t} },
			Agent: func(_ *testing.T, id trainyard.NodeID) string {
				if pid := l.agent(id); pid != 0 {
					return fmt.Sprint(pid)
				}
				return ""
			},
			Kill: l.kill,
			Work: l.work,
			Spoil: func(_ *testing.T, id trainyard.NodeID) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.spoiled[id] = true
			},
		}
	})
	for _, m := range []*sshtest.Machine{one, two} {
		if left := m.Run(t, "ls -A /home/yard"); left != ".ssh" {
			t.Errorf("left in the home folder: %s", left)
		}
		if left := m.Processes(t); len(left) > 0 {
			t.Errorf("left processes: %q", left)
		}
	}
}

package process

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
)

// identity names a process for good: the system uses process IDs again.
type identity struct {
	PID   int   `json:"pid"`
	Start int64 `json:"start"` // microseconds since 1970
}

const zombie = 5 // SZOMB of sys/proc.h

func identify(pid int) (identity, error) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return identity{}, fmt.Errorf("look up process %d: %w", pid, err)
	}
	if int(p.Proc.P_pid) != pid || p.Proc.P_stat == zombie {
		return identity{}, fmt.Errorf("look up process %d: %w", pid, syscall.ESRCH)
	}
	return identity{PID: pid, Start: p.Proc.P_starttime.Sec*1e6 + int64(p.Proc.P_starttime.Usec)}, nil
}

// alive says whether the process runs.
func (id identity) alive() bool {
	now, err := identify(id.PID)
	return err == nil && now == id
}

// wait returns when the process has ended, and how if that can be known, or when over is closed.
func (id identity) wait(over <-chan struct{}) (how string, ended bool) { return id.poll(over) }

// strays finds agents of a node by their command line.
func strays(node trainyard.NodeID, dir string) []identity {
	var out []identity
	want := fmt.Sprintf(" agent --node %s --dir %s ", node, dir)
	for line := range strings.Lines(ps("-axww", "-o", "pid=,command=")) {
		if pid, _, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.Contains(line, want) {
			if n, err := strconv.Atoi(pid); err == nil {
				if id, err := identify(n); err == nil {
					out = append(out, id)
				}
			}
		}
	}
	return out
}

// endAll kills every process whose environment names the node, and says how many there were. There are no cgroups here; a process that
// changed its environment or belongs to another user is not found.
func endAll(node string, _ []string) int {
	n := 0
	for line := range strings.Lines(ps("-axwwE", "-o", "pid=,command=")) {
		pid, rest, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || !strings.Contains(rest+" ", " "+nodeVariable+"="+node+" ") {
			continue
		}
		if p, err := strconv.Atoi(pid); err == nil && p != syscall.Getpid() && syscall.Kill(p, syscall.SIGKILL) == nil {
			n++
		}
	}
	return n
}

func ps(args ...string) string {
	out, err := exec.Command("ps", args...).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

func groups(string) []string { return nil }
func removeGroups([]string)  {}

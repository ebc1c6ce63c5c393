package process

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// host is what macOS contributes: sessions. It has no cgroups and no Landlock, and says so.
type host struct {
	boot  string
	limit trainyard.Resources
}

func newHost(_ string, env target.Env) *host {
	boot, _ := unix.Sysctl("kern.bootsessionuuid")
	return &host{boot: boot, limit: env.Limit}
}

func (h *host) notes() []string {
	notes := []string{
		"a task's processes are known by their session and parents alone: one that leaves both can outlive its task",
		"the server's files are not hidden from tasks: macOS has no Landlock",
	}
	if note := unheld(h.limit); note != "" {
		notes = append(notes, note)
	}
	return notes
}

func (h *host) close()       {}
func (h *host) sweep(string) {}

func (h *host) enclose(l *launch, rec *record) (hold, error) {
	rec.Note = unheld(l.limit)
	return &session{}, nil
}

func (h *host) restore(rec record, _ string) hold {
	return &session{leader: rec.Pid, start: rec.PidStart}
}

func (h *host) confine(_ *launch, _ *syscall.SysProcAttr, fork func() error) error { return fork() }

func unheld(r trainyard.Resources) string {
	switch {
	case r.MemoryMB > 0 && r.CPUs > 0:
		return fmt.Sprintf("memory limit of %d MB and CPU limit of %g are not held: macOS has no cgroups", r.MemoryMB, r.CPUs)
	case r.MemoryMB > 0:
		return fmt.Sprintf("memory limit of %d MB is not held: macOS has no cgroups", r.MemoryMB)
	case r.CPUs > 0:
		return fmt.Sprintf("CPU limit of %g is not held: macOS has no cgroups", r.CPUs)
	}
	return ""
}

// pipe must keep others from forking between the two steps: a gate that another child holds open would never be seen to close.
func pipe() (r, w int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		return 0, 0, err
	}
	syscall.CloseOnExec(p[0])
	syscall.CloseOnExec(p[1])
	return p[0], p[1], nil
}

func wantPidfd(*syscall.SysProcAttr) func() *os.File { return func() *os.File { return nil } }
func openPidfd(int) *os.File                         { return nil }
func (p *process) waitPidfd() exit                   { return p.poll() }
func maxRSSMB(use *unix.Rusage) int64                { return (use.Maxrss + 1<<20 - 1) >> 20 }
func raiseOOMScore(int)                              {}

func machineMemoryMB() (int64, error) {
	n, err := unix.SysctlUint64("hw.memsize")
	return int64(n >> 20), err
}

// zombieState is SZOMB of sys/proc.h.
const zombieState = 5

func startOf(k *unix.KinfoProc) uint64 {
	return uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec)
}

func procStart(pid int) (start uint64, zombie, ok bool) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return 0, false, false
	}
	return startOf(k), k.Proc.P_stat == zombieState, true
}

// members are the shell's session, and what descends from it.
func (s *session) members() ([]int, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	start, _, ok := procStart(s.leader)
	sameSession := !ok || start == s.start
	var pids []int
	for grew := true; grew; {
		grew = false
		for i := range all {
			k := &all[i]
			pid := int(k.Proc.P_pid)
			if pid <= 1 || k.Proc.P_stat == zombieState || startOf(k) < s.start || slices.Contains(pids, pid) {
				continue
			}
			sid, err := unix.Getsid(pid)
			if sameSession && err == nil && sid == s.leader || slices.Contains(pids, int(k.Eproc.Ppid)) {
				pids = append(pids, pid)
				grew = true
			}
		}
	}
	return pids, nil
}

// memoryFile is for systems that have files in memory alone.
func memoryFile(string) *os.File { return nil }

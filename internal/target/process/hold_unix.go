//go:build linux || darwin

package process

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hold keeps a task's processes together and within limits.
type hold interface {
	prepare(attr *syscall.SysProcAttr) // before the fork
	attach(pid int) error              // after it, while the gate is closed
	pids() ([]int, error)
	kill() error // when it returns nil no process is left
	usage() (peakMB int64, ooms int)
	remove() error
}

// killAll kills what list lists until it lists nothing.
func killAll(list func() ([]int, error)) error {
	deadline := time.Now().Add(killPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		pids, err := list()
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not go after SIGKILL; they wait for a device or a network file system", pids)
		}
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(pause)
	}
}

// nothing is the hold of a task whose processes went with another boot.
type nothing struct{}

func (nothing) prepare(*syscall.SysProcAttr) {}
func (nothing) attach(int) error             { return nil }
func (nothing) pids() ([]int, error)         { return nil, nil }
func (nothing) kill() error                  { return nil }
func (nothing) usage() (int64, int)          { return 0, 0 }
func (nothing) remove() error                { return nil }

// session is the hold where there are no cgroups: processes are known by the session that the shell leads, and by what they inherit. A
// process that leaves its session and drops its environment is not found.
type session struct {
	leader int
	start  uint64
	mark   string // "NAME=value", in the environment of each
}

func (s *session) prepare(*syscall.SysProcAttr) {}
func (s *session) kill() error                  { return killAll(s.pids) }
func (s *session) usage() (int64, int)          { return 0, 0 }
func (s *session) remove() error                { return nil }

func (s *session) attach(pid int) error {
	start, _, ok := procStart(pid)
	if !ok {
		return fmt.Errorf("process %d vanished", pid)
	}
	s.leader, s.start = pid, start
	raiseOOMScore(pid)
	return nil
}

func (s *session) pids() ([]int, error) {
	if s.leader == 0 {
		return nil, nil
	}
	return s.members()
}

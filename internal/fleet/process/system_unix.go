//go:build unix

package process

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// detach gives the agent a session of its own, so that no signal to the server's reaches it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func (id identity) ask()  { id.signal(syscall.SIGTERM) }
func (id identity) kill() { id.signal(syscall.SIGKILL) }

func (id identity) signal(s syscall.Signal) {
	if id.alive() {
		_ = syscall.Kill(id.PID, s)
	}
}

// reap takes note of the end of a process if it is a child of ours, and says how it ended.
func (id identity) reap() string {
	var status syscall.WaitStatus
	for {
		pid, err := syscall.Wait4(id.PID, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || pid != id.PID:
			return ""
		case status.Signaled():
			return fmt.Sprintf("signal %d (%s)", status.Signal(), status.Signal())
		}
		return fmt.Sprintf("exit status %d", status.ExitStatus())
	}
}

// poll waits by looking again and again.
func (id identity) poll(over <-chan struct{}) (how string, ended bool) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for id.alive() {
		select {
		case <-over:
			return "", false
		case <-tick.C:
		}
	}
	return id.reap(), true
}

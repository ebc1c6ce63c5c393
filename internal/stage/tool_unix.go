//go:build unix && !linux

package stage

import (
	"os/exec"
	"syscall"
	"time"
)

// inGroup makes a tool the leader of a group that is ended as one.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
}

// groupCPU is not known here without starting a process.
func groupCPU(int) (time.Duration, bool) { return 0, false }

// memoryLimit is not known here.
func memoryLimit() int64 { return 0 }

const exeSuffix = ""

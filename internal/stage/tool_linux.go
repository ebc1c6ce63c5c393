package stage

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// inGroup makes a tool the leader of a group that is ended as one, and dies with this process.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
}

// groupCPU is the time that the processes of a group have computed so far, in clock ticks as a Duration: it says that they work, not how
// much.
func groupCPU(pgid int) (time.Duration, bool) {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return 0, false
	}
	var ticks int64
	for _, p := range procs {
		if p.Name()[0] < '0' || p.Name()[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 15 || string(fields[2]) != strconv.Itoa(pgid) { // fields from "state" on: pgrp is the third
			continue
		}
		for _, f := range fields[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.ParseInt(string(f), 10, 64)
			ticks += n
		}
	}
	return time.Duration(ticks), true
}

// memoryLimit is what this container's processes may use of memory, in MB; 0: it is not limited, or cannot be told.
func memoryLimit() int64 {
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
		if err == nil && n < 1<<50 { // version 1 has a number of its own for no limit
			return max(1, n>>20)
		}
	}
	return 0
}

const exeSuffix = ""

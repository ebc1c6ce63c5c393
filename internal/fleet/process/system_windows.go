package process

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/windows"

	"github.com/trainyard/trainyard"
)

// identity names a process for good: by the moment it was made, beside its ID.
type identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // creation time in 100 ns
}

const stillActive = 259 // exit code of a process that runs, see GetExitCodeProcess

func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

func identify(pid int) (identity, error) {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return identity{}, err
	}
	defer windows.CloseHandle(h)
	var code uint32
	if err := windows.GetExitCodeProcess(h, &code); err != nil || code != stillActive {
		return identity{}, os.ErrProcessDone
	}
	var made, exit, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &made, &exit, &kernel, &user); err != nil {
		return identity{}, err
	}
	return identity{PID: pid, Start: uint64(made.HighDateTime)<<32 | uint64(made.LowDateTime)}, nil
}

// alive says whether the process runs.
func (id identity) alive() bool {
	now, err := identify(id.PID)
	return err == nil && now == id
}

// ask cannot be done politely here: a detached process hears no signal.
func (id identity) ask() { id.kill() }

func (id identity) kill() {
	if !id.alive() {
		return
	}
	if p, err := os.FindProcess(id.PID); err == nil {
		_ = p.Kill()
	}
}

func (id identity) reap() string { return "" }

// wait returns when the process has ended or over is closed.
func (id identity) wait(over <-chan struct{}) (how string, ended bool) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for id.alive() {
		select {
		case <-over:
			return "", false
		case <-tick.C:
		}
	}
	return "", true
}

// On Windows tasks end with their agent, which holds them in a job object, and an agent that was not written down finds its folder
// locked by none: there is nothing to look for.
func strays(trainyard.NodeID, string) []identity { return nil }
func endAll(string, []string) int                { return 0 }
func groups(string) []string                     { return nil }
func removeGroups([]string)                      {}

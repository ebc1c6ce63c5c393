package process

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// nodeVariable marks every process of a machine.
const nodeVariable = "TRAINYARD_NODE"

// identity names a process for good: by the moment it was made, beside its ID.
type identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // creation time in 100 ns
}

func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

func identify(pid int) (identity, error) {
	start, err := created(pid)
	return identity{PID: pid, Start: start}, err
}

func created(pid int) (uint64, error) {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, uint32(pid))
	if err != nil {
		return 0, err
	}
	defer windows.CloseHandle(h)
	var code uint32
	if err := windows.GetExitCodeProcess(h, &code); err != nil || code != 259 { // STILL_ACTIVE
		return 0, os.ErrProcessDone
	}
	var made, exit, kernel, user windows.Filetime
	if err := windows.GetProcessTimes(h, &made, &exit, &kernel, &user); err != nil {
		return 0, err
	}
	return uint64(made.HighDateTime)<<32 | uint64(made.LowDateTime), nil
}

func (id *identity) alive() bool {
	start, err := created(id.PID)
	return err == nil && start == id.Start
}

// ask cannot be done politely here: a detached process hears no signal.
func (id *identity) ask() { id.kill() }

func (id *identity) kill() {
	if !id.alive() {
		return
	}
	if p, err := os.FindProcess(id.PID); err == nil {
		_ = p.Kill()
	}
}

// endAll finds nothing to do: on Windows tasks end with their agent, which holds them in a job object.
func endAll(string) int { return 0 }

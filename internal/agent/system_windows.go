package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// openLog is how a file that a task made is opened.
const openLog = os.O_RDONLY

// lock takes a file for this process alone; the system frees it when the process dies, however that happens.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the agent's folder: %w", err)
	}
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	if err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, new(windows.Overlapped)); err != nil {
		f.Close()
		return nil, fmt.Errorf("another agent works in this folder (%s is locked): %w", path, err)
	}
	return func() { f.Close() }, nil
}

//go:build unix

package agent

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openLog is how a file that a task made is opened: without waiting, should it be a pipe.
const openLog = os.O_RDONLY | unix.O_NONBLOCK

// lock takes a file for this process alone; the system frees it when the process dies, however that happens.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the agent's folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another agent works in this folder (%s is locked): %w", path, err)
	}
	return func() { f.Close() }, nil
}

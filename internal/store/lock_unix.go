//go:build unix

package store

import (
	"os"
	"syscall"
)

// lockFile takes the lock on an open file, or says that another process has it. The system lets go of it when the process ends.
func lockFile(f *os.File) (held bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, err
}

package store

import (
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes the lock on an open file, or says that another process has it. The system lets go of it when the process ends. The byte
// that is locked lies far behind the content, which others may still read.
func lockFile(f *os.File) (held bool, err error) {
	at := &windows.Overlapped{Offset: 1 << 30}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if err == windows.ERROR_LOCK_VIOLATION {
		return false, nil
	}
	return err == nil, err
}

//go:build !windows

package taskrun

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// hold locks a file for as long as it is open.
func hold(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_EX) }

// held says whether somebody holds the file.
func held(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

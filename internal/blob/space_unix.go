//go:build unix

package blob

import (
	"errors"
	"syscall"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"
)

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func isReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// free is how much this user may still write where dir is, for people.
func free(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "unknown"
	}
	return humanize.IBytes(uint64(s.Bavail) * uint64(s.Bsize))
}

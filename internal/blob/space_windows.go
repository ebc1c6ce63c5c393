package blob

import (
	"errors"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/windows"
)

func isFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

func isReadOnly(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }

// free is how much this user may still write where dir is, for people.
func free(dir string) string {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return "unknown"
	}
	var left uint64
	if err := windows.GetDiskFreeSpaceEx(path, &left, nil, nil); err != nil {
		return "unknown"
	}
	return humanize.IBytes(left)
}

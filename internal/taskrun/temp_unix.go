//go:build !windows

package taskrun

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tempAge is how old a folder is at least that is swept away: a new one may not be held yet.
const tempAge = time.Minute

// holdDir locks a new folder until release is called, or this program ends. ours is false if the folder was swept away before.
func holdDir(dir string) (release func(), ours bool) {
	fd, err := openOwn(dir)
	if err != nil {
		return nil, false
	}
	_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) // a file system without locks has none to take from us either
	var st unix.Stat_t
	if _, err := os.Lstat(dir); err != nil || unix.Fstat(fd, &st) != nil || st.Nlink == 0 {
		unix.Close(fd)
		return nil, false
	}
	return func() { unix.Close(fd) }, true
}

// sweepTemp takes away what programs of this user left of their tasks when they were killed: folders in temp that nobody holds. Links
// and what is another user's are let alone.
func sweepTemp(temp string) {
	f, err := os.Open(temp)
	if err != nil {
		return
	}
	names, _ := f.Readdirnames(-1)
	f.Close()
	for _, name := range names {
		if strings.HasPrefix(name, tempPrefix) {
			sweepDir(filepath.Join(temp, name))
		}
	}
}

func sweepDir(dir string) {
	fd, err := openOwn(dir)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || int(st.Uid) != os.Geteuid() || time.Since(time.Unix(st.Mtim.Unix())) < tempAge {
		return
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.RemoveAll(dir) // follows no links; in a folder for all, only its owner can put another in its place
	}
}

func openOwn(dir string) (fd int, err error) {
	return unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

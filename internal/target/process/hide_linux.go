package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// fence hides paths from tasks. Both its ways are laid on one thread, the task is forked from it, and the thread ends; nobody else in the
// agent is touched, and no other program is needed.
//
// Root gets a mount namespace with nothing at the hidden folders, and Landlock so that a task, root itself, cannot leave or change it.
// Everything else is as it was. Where that cannot be, Landlock alone does it; landlock_linux.go says at what price.
type fence struct {
	abi int // of the kernel's Landlock; 0: none

	try    sync.Once // of mayMount, which sets the two that follow
	mounts bool      // we may make mount namespaces
	lock   int       // descriptor of rules that forbid no file; 0: none

	mu    sync.Mutex
	key   string
	rules int // descriptor of the rules for key; 0: none yet
	seen  []stamp
}

func newFence() *fence { return &fence{abi: landlockABI()} }

// mayMount says whether we may make mount namespaces. That is tried when it is first asked: most programs for one task hide nothing.
func (f *fence) mayMount() bool {
	f.try.Do(func() {
		if f.missing() == "" && onOwnThread(ownMounts) == nil {
			lock, err := f.lockRules()
			f.lock, f.mounts = lock, err == nil
		}
	})
	return f.mounts
}

const notHidden = "the server's files are not hidden from tasks: " // and why

// wantABI is the first version of Landlock that lets a task move files between folders.
const wantABI = 2

// missing says why nothing can be hidden; "" if it can.
func (f *fence) missing() string {
	switch {
	case f.abi == 0:
		return "this kernel has no Landlock"
	case f.abi < wantABI:
		return fmt.Sprintf("this kernel's Landlock is too old (version %d, needed is %d)", f.abi, wantABI)
	}
	return ""
}

// run calls fork so that what it forks cannot reach hide, except for keep.
func (f *fence) run(hide, keep []string, fork func() error) error {
	if len(hide) == 0 || f.missing() != "" {
		return fork()
	}
	hide = resolveAll(hide)
	keep = slices.DeleteFunc(resolveAll(keep), func(k string) bool {
		return !slices.ContainsFunc(hide, func(h string) bool { return within(k, h) })
	})
	if f.covers(hide) {
		return f.cover(hide, keep, fork)
	}
	if unlisted(hide) != "" { // price says so
		return fork()
	}
	return f.restrict(hide, keep, fork)
}

// price says what else changes for a task with hidden paths, and what is not held; "" for nothing.
func (f *fence) price(hide []string) string {
	if len(hide) == 0 {
		return ""
	}
	if why := f.missing(); why != "" {
		return notHidden + why
	}
	if hide = resolveAll(hide); f.covers(hide) {
		return ""
	}
	if dir := unlisted(hide); dir != "" {
		return notHidden + "they are below " + dir + ", which whoever runs the task may not list"
	}
	var said []string
	dirs := slices.DeleteFunc(onTheWay(hide), func(dir string) bool { return unix.Access(dir, unix.W_OK) != nil })
	if len(dirs) > 0 {
		said = append(said, "new files cannot be made right in "+strings.Join(dirs, ", ")+" (folders in them can be used), as the server's files are below")
	}
	if f.abi < truncateABI {
		said = append(said, fmt.Sprintf("tasks cannot read the server's files, but can empty them: this kernel's Landlock (version %d, Linux 6.2 has 3) does not hold truncate", f.abi))
	}
	return strings.Join(said, "; ")
}

// unlisted is a folder on the way to a hidden path that we may not list, as where everybody's homes are may be; "" if there is none. Rules
// name what is beside the way: without its names, what others share there would be out of reach.
func unlisted(hide []string) string {
	for _, dir := range onTheWay(hide) {
		if unix.Access(dir, unix.R_OK) == unix.EACCES {
			return dir
		}
	}
	return ""
}

// truncateABI is the first version of Landlock that forbids truncate(2).
const truncateABI = 3

// covers says whether mounts can hide the paths: only folders that are there, as a file or a new folder takes the place of a mount.
func (f *fence) covers(hide []string) bool {
	return f.mayMount() && !slices.ContainsFunc(hide, func(h string) bool {
		info, err := os.Stat(h)
		return err != nil || !info.IsDir()
	})
}

// cover forks where empty folders lie over the hidden ones.
func (f *fence) cover(hide, keep []string, fork func() error) error {
	return onOwnThread(func() error {
		err := ownMounts()
		if err == nil {
			err = layCovers(hide, keep)
		}
		if err == nil {
			err = restrictThread(f.lock)
		}
		if err != nil {
			return fmt.Errorf("hide paths from the task: %w", err)
		}
		return fork()
	})
}

// ownMounts gives this thread a copy of the mounts, that follows what others mount and is followed by nobody.
func ownMounts() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
}

// layCovers mounts an empty folder over each of hide, and puts keep back in.
func layCovers(hide, keep []string) error {
	kept := map[string]int{}
	for _, path := range keep {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) // now: it cannot be reached by name once it is covered
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		defer unix.Close(fd)
		kept[path] = fd
	}
	hide = slices.DeleteFunc(slices.Clone(hide), func(h string) bool {
		return slices.ContainsFunc(hide, func(o string) bool { return o != h && within(h, o) })
	})
	for _, h := range hide {
		if err := unix.Mount("trainyard-hidden", h, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0711,size=64k"); err != nil {
			return fmt.Errorf("%s: %w", h, err)
		}
	}
	for path, fd := range kept {
		if err := os.MkdirAll(path, 0o711); err != nil {
			return err
		}
		if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, h := range hide {
		if err := unix.Mount("", h, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("%s: %w", h, err)
		}
	}
	return nil
}

// onOwnThread runs f on a thread that ends with it, so that what f does to its thread is done to nobody else.
func onOwnThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the main thread cannot end: hold it, so that the next goroutine gets another
			result <- onOwnThread(f)
			runtime.UnlockOSThread()
			return
		}
		result <- f() // still locked: the thread ends here
	}()
	return <-result
}

// within says whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// resolveAll follows the links in paths, as far as the paths exist.
func resolveAll(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = resolve(filepath.Clean(p))
	}
	return out
}

func resolve(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real
	}
	if path == "/" || path == "." || !errors.Is(err, os.ErrNotExist) {
		return path
	}
	return filepath.Join(resolve(filepath.Dir(path)), filepath.Base(path))
}

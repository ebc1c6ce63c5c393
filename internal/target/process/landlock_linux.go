package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock (landlock(7)) knows only what is allowed, so everything beside the way from / to a hidden path is: each entry of each folder on
// that way, with all that is below it. The price: what is made right in such a folder later is not reachable by tasks that began before,
// and a task cannot make files right there itself. Folders stay listable, so that ls / and globs work.

// stamp tells whether a folder was changed since.
type stamp struct {
	path  string
	inode uint64
	mtime unix.Timespec
}

// fileRights go for files, all of allRights for folders. Listing (READ_DIR) is left alone on purpose.
const (
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE
	allRights = fileRights | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG |
		unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_REFER
)

func landlockABI() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// rights takes from r what this kernel does not know.
func (f *fence) rights(r uint64) uint64 {
	if f.abi < truncateABI {
		r &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	return r
}

// restrict forks under Landlock alone. Tasks whose own folders are not below a hidden path share one set of rules.
func (f *fence) restrict(hide, keep []string, fork func() error) error {
	rules, err := f.rulesFor(hide, keep)
	if err != nil {
		return err
	}
	defer unix.Close(rules)
	return onOwnThread(func() error {
		if err := restrictThread(rules); err != nil {
			return fmt.Errorf("hide paths from the task: %w", err)
		}
		return fork()
	})
}

func (f *fence) close() {
	f.try.Do(func() {}) // what was not tried by now will not be
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop()
	if f.lock > 0 {
		unix.Close(f.lock)
		f.lock = 0
	}
}

func (f *fence) drop() {
	if f.rules > 0 {
		unix.Close(f.rules)
	}
	f.rules, f.key, f.seen = 0, "", nil
}

// restrictThread lays rules on this thread. Without the right to administer the system that takes giving up setuid programs.
func restrictThread(rules int) error {
	_, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0)
	if errno == unix.EPERM {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
		_, _, errno = unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0)
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// rulesFor returns the descriptor of a set of rules, which the caller closes. The set for tasks that keep nothing is made once, until a
// folder on the way to a hidden path changes.
func (f *fence) rulesFor(hide, keep []string) (rules int, err error) {
	if len(keep) > 0 {
		rules, _, err = f.build(hide, keep)
		return rules, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := strings.Join(hide, "\x00")
	if f.key != key || f.rules == 0 || slices.ContainsFunc(f.seen, stamp.changed) {
		f.drop()
		made, seen, err := f.build(hide, nil)
		if err != nil {
			return 0, err
		}
		f.rules, f.seen, f.key = made, seen, key
	}
	return unix.FcntlInt(uintptr(f.rules), unix.F_DUPFD_CLOEXEC, 0)
}

// lockRules are the rules that allow every file, and with that forbid all a process under rules may not do: to change mounts, and to look
// into processes that are not under them.
func (f *fence) lockRules() (rules int, err error) {
	rules, err = f.newRules(unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_REFER)
	if err != nil {
		return 0, err
	}
	if err := f.allow(rules, "/", unix.LANDLOCK_ACCESS_FS_EXECUTE|unix.LANDLOCK_ACCESS_FS_REFER); err != nil {
		unix.Close(rules)
		return 0, err
	}
	return rules, nil
}

// signalABI is the first version that keeps a task from signalling processes that are not its own, such as the server, and leaves the
// threads of one process alone, which version 6 did not.
const signalABI = 7

// newRules makes a set of rules that forbids rights wherever they are not allowed.
func (f *fence) newRules(rights uint64) (int, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: rights}
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if f.abi >= signalABI {
		attr.Scoped, size = unix.LANDLOCK_SCOPE_SIGNAL, unsafe.Offsetof(attr.Quiet_access_fs)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return 0, fmt.Errorf("hide paths from the task: %w", errno)
	}
	return int(fd), nil
}

// build makes the rules.
func (f *fence) build(hide, keep []string) (rules int, seen []stamp, err error) {
	if rules, err = f.newRules(f.rights(allRights)); err != nil {
		return 0, nil, err
	}
	defer func() {
		if err != nil {
			unix.Close(rules)
		}
	}()
	for _, dir := range onTheWay(hide) {
		s, ok := stampOf(dir)
		if !ok {
			continue // not there, so nothing is beside the way
		}
		seen = append(seen, s)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return rules, nil, fmt.Errorf("hide paths from the task: %w", err)
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if slices.ContainsFunc(hide, func(h string) bool { return within(h, path) }) || e.Type()&os.ModeSymlink != 0 {
				continue // it is hidden or on the way; what a link points to is reached by its own path
			}
			if err := f.allow(rules, path, allRights); err != nil {
				return rules, nil, err
			}
		}
	}
	for _, path := range keep {
		if err := f.allow(rules, path, allRights); err != nil {
			return rules, nil, err
		}
	}
	return rules, seen, nil
}

// allow adds one path and all below it. One that has vanished since it was listed needs no rule.
func (f *fence) allow(rules int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err == unix.ENOENT || err == unix.EACCES {
		return nil
	}
	if err != nil {
		return fmt.Errorf("hide paths from the task: %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("hide paths from the task: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: f.rights(rights), Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("hide paths from the task: %s: %w", path, errno)
	}
	return nil
}

// onTheWay lists the folders above the paths, each once.
func onTheWay(paths []string) []string {
	var dirs []string
	for _, p := range paths {
		for dir := filepath.Dir(p); ; dir = filepath.Dir(dir) {
			inHidden := slices.ContainsFunc(paths, func(h string) bool { return within(dir, h) })
			if !inHidden && !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
			if dir == "/" {
				break
			}
		}
	}
	return dirs
}

func stampOf(path string) (stamp, bool) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return stamp{}, false
	}
	return stamp{path: path, inode: st.Ino, mtime: st.Mtim}, true
}

func (s stamp) changed() bool {
	now, ok := stampOf(s.path)
	return !ok || now != s
}

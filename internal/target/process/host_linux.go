package process

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard/internal/target"
)

// host is what Linux contributes: cgroups, Landlock, pidfds.
type host struct {
	boot   string
	groups *cgroups
	fence  *fence
}

func newHost(cgroupRoot string, env target.Env) *host {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if cgroupRoot == "" {
		cgroupRoot = "/sys/fs/cgroup"
	}
	return &host{
		boot:   strings.TrimSpace(string(boot)),
		groups: openCgroups(cgroupRoot, "/proc/self/cgroup", env.Group, env.Limit, env.Alone),
		fence:  newFence(),
	}
}

func (h *host) notes() []string {
	notes := h.groups.notes()
	if why := h.fence.missing(); why != "" {
		notes = append(notes, notHidden+why)
	}
	return notes
}

func (h *host) close() {
	h.groups.close()
	h.fence.close()
}

// sweep removes the cgroups of a task that left no record.
func (h *host) sweep(name string) {
	if g := h.groups.found(name); g != nil && g.kill() == nil {
		_ = g.remove()
	}
}

func (h *host) enclose(l *launch, rec *record) (hold, error) {
	g, err := h.groups.make(l.name, l.limit, rec)
	if err != nil {
		return nil, err
	}
	if price := h.fence.price(l.hide); price != "" {
		rec.Note = strings.TrimPrefix(rec.Note+"; "+price, "; ")
	}
	if rec.Groups.Tree != "" {
		return g, nil
	}
	return &sessionGroup{session: session{mark: markName + "=" + l.folder}, group: g}, nil
}

func (h *host) restore(rec record, folder string) hold {
	g := &cgroup{groups: rec.Groups}
	if rec.Groups.Tree != "" {
		return g
	}
	return &sessionGroup{session: session{leader: rec.Pid, start: rec.PidStart, mark: markName + "=" + folder}, group: g}
}

// sessionGroup tracks a task by session, and limits it by whatever cgroups there are.
type sessionGroup struct {
	session
	group *cgroup
}

func (s *sessionGroup) attach(pid int) error {
	if err := s.session.attach(pid); err != nil {
		return err
	}
	return s.group.attach(pid)
}
func (s *sessionGroup) usage() (int64, int) { return s.group.usage() }
func (s *sessionGroup) remove() error       { return s.group.remove() }

// confine forks where the task's hidden paths are out of reach. Where a process may not be made in its cgroup it is moved there later.
func (h *host) confine(l *launch, attr *syscall.SysProcAttr, fork func() error) error {
	return h.fence.run(l.hide, l.keep, func() error {
		err := fork()
		if err != nil && attr.UseCgroupFD {
			attr.UseCgroupFD = false
			err = fork()
		}
		return err
	})
}

func pipe() (r, w int, err error) {
	var p [2]int
	err = syscall.Pipe2(p[:], syscall.O_CLOEXEC)
	return p[0], p[1], err
}

// wantPidfd asks for a descriptor that is made with the process, so that it cannot be of another one.
func wantPidfd(attr *syscall.SysProcAttr) func() *os.File {
	fd := -1
	attr.PidFD = &fd
	return func() *os.File { return pollable(fd) }
}

// openPidfd returns nil where the kernel has none (before 5.3), or the process is gone.
func openPidfd(pid int) *os.File {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	return pollable(fd)
}

// pollable gives a pidfd to the runtime's poller, so a task that runs costs no thread.
func pollable(fd int) *os.File {
	if fd < 0 {
		return nil
	}
	if unix.SetNonblock(fd, true) != nil {
		unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), "pidfd")
}

// waitPidfd returns when the process is gone. Its status is there to be had if it is a child of ours, and not reaped yet.
func (p *process) waitPidfd() exit {
	conn, err := p.pidfd.SyscallConn()
	if err != nil {
		return exit{abandoned: true}
	}
	ours := false
	err = conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if err != nil || n == 0 {
			return false
		}
		ours = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil
		return true
	})
	if err != nil {
		return exit{abandoned: true}
	}
	if !ours {
		return exit{}
	}
	return reap(p.pid, unix.WNOHANG)
}

func maxRSSMB(use *unix.Rusage) int64 { return (use.Maxrss + 1023) >> 10 }

// memoryFile makes a file that is on no disk; nil where that cannot be.
func memoryFile(name string) *os.File {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), name)
}

// raiseOOMScore makes the kernel prefer a task to the agent and the server when the whole machine is out of memory.
func raiseOOMScore(pid int) {
	f, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	_, _ = f.WriteString("500")
	f.Close()
}

func machineMemoryMB() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, err
	}
	return int64(uint64(info.Totalram) * uint64(info.Unit) >> 20), nil
}

// stat is what /proc/PID/stat tells, see proc_pid_stat(5).
type stat struct {
	state   byte
	session int
	start   uint64 // clock ticks since boot
}

func readStat(pid string) (stat, bool) {
	data, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return stat{}, false
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:]) // the name before it may hold anything
	if len(fields) < 20 {
		return stat{}, false
	}
	s := stat{state: fields[0][0]}
	s.session, _ = strconv.Atoi(string(fields[3]))
	s.start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return s, err == nil
}

func procStart(pid int) (start uint64, zombie, ok bool) {
	s, ok := readStat(strconv.Itoa(pid))
	return s.start, s.state == 'Z' || s.state == 'X', ok
}

// members reads all of /proc: which costs about a millisecond per hundred processes.
func (s *session) members() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	start, _, ok := procStart(s.leader)
	sameSession := !ok || start == s.start // else the number was given out again, and is another session's
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		st, ok := readStat(name)
		if !ok || st.state == 'Z' || st.state == 'X' || st.start < s.start {
			continue
		}
		if sameSession && st.session == s.leader || s.marked(name) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func (s *session) marked(pid string) bool {
	env, err := os.ReadFile(filepath.Join("/proc", pid, "environ"))
	return err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+s.mark+"\x00"))
}

// retry calls f again for a short while as long as the kernel says that something is busy.
func retry(f func() error) error {
	deadline := time.Now().Add(time.Second)
	for pause := 100 * time.Microsecond; ; pause *= 2 {
		err := f()
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pause)
	}
}

package process

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
)

// identity names a process for good: the system uses process IDs again.
type identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // field 22 of /proc/PID/stat, in ticks since boot
	Boot  string `json:"boot"`
}

func identify(pid int) (identity, error) {
	start, _, err := stat(pid)
	if err != nil {
		return identity{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return identity{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, err
}

// alive says whether the process runs. One that has ended and was not waited for does not.
func (id identity) alive() bool {
	now, err := identify(id.PID)
	if err != nil || now != id {
		return false
	}
	_, state, err := stat(id.PID)
	return err == nil && state != "Z" && state != "X"
}

// stat reads when a process began, and its state; see proc_pid_stat(5).
func stat(pid int) (start, state string, err error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", "", err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:])) // the name before it may hold anything
	if len(fields) < 20 {
		return "", "", fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields[19], fields[0], nil
}

// wait returns when the process has ended, and how if that can be known, or when over is closed.
func (id identity) wait(over <-chan struct{}) (how string, ended bool) {
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err != nil || !id.alive() { // it has ended, or the kernel is older than 5.10
		if err == nil {
			unix.Close(fd)
		}
		return id.poll(over)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return id.poll(over)
	}
	done := make(chan struct{})
	defer close(done)
	go func() { // closing f ends the Read below
		select {
		case <-over:
		case <-done:
		}
		f.Close()
	}()
	if err := raw.Read(func(uintptr) bool { return !id.alive() }); err != nil {
		select {
		case <-over:
			return "", false
		default:
			return id.poll(over)
		}
	}
	return id.reap(), true
}

// strays finds agents of a node by their command line.
func strays(node trainyard.NodeID, dir string) []identity {
	var out []identity
	for _, pid := range processes() {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(string(data), "\x00")
		if len(args) < 6 || args[1] != "agent" || args[2] != "--node" || args[3] != string(node) || args[5] != dir {
			continue
		}
		if id, err := identify(pid); err == nil && id.alive() {
			out = append(out, id)
		}
	}
	return out
}

// processes lists all process IDs.
func processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var out []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// endAll kills every process of the node that it finds, but for this one, and says how many there were: those in the cgroups given, and
// those whose environment names the node.
func endAll(node string, groups []string) int {
	for _, g := range groups { // on v2 all at once, whatever it forks meanwhile
		_ = os.WriteFile(filepath.Join(g, "cgroup.kill"), []byte("1"), 0)
	}
	n := 0
	for _, pid := range append(members(groups), marked(node)...) {
		if pid == os.Getpid() {
			continue
		}
		if _, state, err := stat(pid); err != nil || state == "Z" || state == "X" {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil || err == syscall.EPERM {
			n++
		}
	}
	return n
}

// groups finds the cgroups …/trainyard/NAME of all hierarchies.
func groups(name string) []string {
	var out []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // a cgroup that goes while we look
		}
		if d.Name() == name && filepath.Base(filepath.Dir(path)) == "trainyard" {
			out = append(out, path)
			return fs.SkipDir
		}
		return nil
	})
	return out
}

// members lists the processes in cgroups and below.
func members(groups []string) []int {
	var out []int
	for _, g := range groups {
		_ = filepath.WalkDir(g, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() == "cgroup.procs" {
				data, _ := os.ReadFile(path)
				for _, f := range strings.Fields(string(data)) {
					if pid, err := strconv.Atoi(f); err == nil {
						out = append(out, pid)
					}
				}
			}
			return nil
		})
	}
	return out
}

// marked lists the processes whose environment names the node.
func marked(node string) []int {
	var out []int
	want := []byte("\x00" + nodeVariable + "=" + node + "\x00")
	for _, pid := range processes() {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err == nil && bytes.Contains(slices.Concat([]byte{0}, data, []byte{0}), want) {
			out = append(out, pid)
		}
	}
	return out
}

// removeGroups removes empty cgroups.
func removeGroups(groups []string) {
	for _, g := range groups {
		var dirs []string
		_ = filepath.WalkDir(g, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			_ = syscall.Rmdir(dir) // one that is not empty stays; it costs nothing
		}
	}
}

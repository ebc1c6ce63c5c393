//go:build !windows

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// nodeVariable marks every process of a machine: children inherit it.
const nodeVariable = "TRAINYARD_NODE"

// identity names a process for good: a process ID alone is used again by the system.
type identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // of /proc/PID/stat, in ticks since boot; empty where there is no /proc
	Boot  string `json:"boot"`
}

// detach gives the agent a session of its own, so that no signal to the server's reaches it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func identify(pid int) (identity, error) {
	return identity{PID: pid, Start: startOf(pid), Boot: boot()}, nil
}

func (id *identity) alive() bool {
	if id.Boot != boot() || syscall.Kill(id.PID, 0) == syscall.ESRCH {
		return false
	}
	return startOf(id.PID) == id.Start && !zombie(id.PID)
}

func (id *identity) ask() {
	if id.alive() {
		_ = syscall.Kill(id.PID, syscall.SIGTERM)
	}
}

func (id *identity) kill() {
	if id.alive() {
		_ = syscall.Kill(id.PID, syscall.SIGKILL)
	}
}

func boot() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data))
}

// stat is the fields of /proc/PID/stat behind the name, which may hold anything.
func stat(pid int) []string {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil
	}
	text := string(data)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
}

func startOf(pid int) string {
	if f := stat(pid); len(f) > 19 {
		return f[19]
	}
	return ""
}

func zombie(pid int) bool {
	f := stat(pid)
	return len(f) > 0 && f[0] == "Z"
}

// endAll kills every process that ran on the machine, but for this one, and returns how many there were: those in its cgroups and those
// that carry its name in their environment.
func endAll(node string) int {
	n := 0
	for _, pid := range append(grouped(node), marked(node)...) {
		if pid != os.Getpid() && !zombie(pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			n++
		}
	}
	return n
}

// grouped lists the processes in cgroups …/trainyard/NODE and below, of all hierarchies.
func grouped(node string) []int {
	var out []int
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/trainyard/" + node)
	roots = append(roots, "/sys/fs/cgroup/trainyard/"+node)
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.Name() != "cgroup.procs" {
				return nil
			}
			data, _ := os.ReadFile(path)
			for _, f := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(f); err == nil {
					out = append(out, pid)
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
	entries, _ := os.ReadDir("/proc")
	want := "\x00" + nodeVariable + "=" + node + "\x00"
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && strings.Contains("\x00"+string(data)+"\x00", want) {
			out = append(out, pid)
		}
	}
	return out
}

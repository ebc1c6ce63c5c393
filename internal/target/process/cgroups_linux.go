package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
)

// cgroups are the node's places in the cgroup trees of this computer: {mount}/trainyard/{node}/{task}. The node's limits are held at its
// own place, a task's below. With v2 one tree does everything; with v1 each controller has its own, and a v2 tree beside them
// ("hybrid") is the best to track processes by, as a process can be made in it and all in it can be killed at once.
type cgroups struct {
	tree   place
	memory place
	cpu    place
	limit  trainyard.Resources
	limits func() // finds memory and cpu, if that was left until something is to be limited
}

// place is the node's folder in one tree. An empty dir: not to be had, and why.
type place struct {
	dir string
	v2  bool
	why string
}

// openCgroups finds what there is below root. self is /proc/self/cgroup. Nothing that is missing is an error: see notes.
// alone: for one task, which may not need to be limited. On v1 to make the places for that, and to clear them away, takes longer than the rest.
func openCgroups(root, self, group string, limit trainyard.Resources, alone bool) *cgroups {
	c := &cgroups{limit: limit, limits: func() {}}
	if root == "none" {
		off := place{why: "cgroups are switched off by cgroupRoot: none"}
		c.tree, c.memory, c.cpu = off, off, off
		return c
	}
	own := ownCgroups(self)
	find := func(v2 bool, controller string, mounts ...string) place {
		return findPlace(filepath.Join("trainyard", cleanGroup(group)), v2, controller, own, mounts)
	}
	if exists(filepath.Join(root, "cgroup.controllers")) {
		c.tree = find(true, "", root)
		c.memory, c.cpu = c.enable("memory", limit.MemoryMB > 0), c.enable("cpu", limit.CPUs > 0)
		c.hold()
	} else {
		c.tree = find(true, "", filepath.Join(root, "unified"))
		for _, name := range []string{"pids", "freezer"} {
			if c.tree.dir == "" {
				c.tree = find(false, name, filepath.Join(root, name))
			}
		}
		c.limits = sync.OnceFunc(func() {
			c.memory = find(false, "memory", filepath.Join(root, "memory"))
			c.cpu = find(false, "cpu", filepath.Join(root, "cpu"), filepath.Join(root, "cpu,cpuacct"))
			c.hold()
		})
	}
	if !alone || limit.MemoryMB > 0 || limit.CPUs > 0 {
		c.limits()
	}
	return c
}

// cleanGroup makes a folder name of any name.
func cleanGroup(s string) string {
	clean := strings.TrimLeft(strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, s), ".")
	if clean == "" {
		return "node"
	}
	return clean
}

// ownCgroups reads /proc/self/cgroup: the path of this process by controller, "" for v2. See cgroups(7).
func ownCgroups(file string) map[string]string {
	own := map[string]string{}
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 {
			for _, name := range strings.Split(parts[1], ",") {
				own[name] = strings.TrimSuffix(parts[2], "/"+agentLeaf)
			}
		}
	}
	return own
}

// agentLeaf is where an agent moves itself on v2, because a cgroup with processes in it cannot have limited ones below it.
const agentLeaf = "trainyard-agent"

// findPlace makes the node's folder at the top of a tree, as root may, or else below the cgroup that this process is in, as a user may
// who was given one (systemd's Delegate=yes).
func findPlace(name string, v2 bool, controller string, own map[string]string, mounts []string) place {
	p := place{v2: v2, why: "there is no cgroup " + strings.TrimSpace(controller+" controller")}
	for _, mount := range mounts {
		if !exists(filepath.Join(mount, "cgroup.procs")) {
			continue
		}
		p.why = "no cgroup " + strings.TrimSpace(controller+" controller") + " is writable"
		for _, above := range []string{mount, filepath.Join(mount, own[controller])} {
			dir := filepath.Join(above, name)
			if unix.Access(filepath.Join(above, "cgroup.procs"), unix.W_OK) == nil && os.MkdirAll(dir, 0o755) == nil && unix.Access(dir, unix.W_OK) == nil {
				p.dir, p.why = dir, ""
				return p
			}
		}
	}
	return p
}

// enable makes a controller available in the node's folder on v2, and to the tasks below it.
func (c *cgroups) enable(controller string, wanted bool) place {
	if c.tree.dir == "" {
		return c.tree
	}
	p := place{v2: true, why: "no cgroup " + controller + " controller is writable"}
	node := c.tree.dir
	top := filepath.Dir(filepath.Dir(node))
	for _, dir := range []string{top, filepath.Dir(node), node} {
		if has(filepath.Join(dir, "cgroup.subtree_control"), controller) {
			continue
		}
		on := func() error { return write(filepath.Join(dir, "cgroup.subtree_control"), "+"+controller) }
		err := on()
		if errors.Is(err, unix.EBUSY) && wanted && dir == top && stepAside(top) == nil {
			err = on()
		}
		if err != nil {
			p.why = fmt.Sprintf("the cgroup %s controller cannot be had in %s: %v", controller, dir, errors.Unwrap(err))
			return p
		}
	}
	p.dir, p.why = node, ""
	return p
}

// stepAside moves this process into a leaf of its own cgroup.
func stepAside(own string) error {
	leaf := filepath.Join(own, agentLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return write(filepath.Join(leaf, "cgroup.procs"), strconv.Itoa(os.Getpid()))
}

// hold writes the node's limits. Where that fails the place is given up, with the reason.
func (c *cgroups) hold() {
	if c.memory.dir != "" {
		if err := setMemory(c.memory.dir, c.memory.v2, c.limit.MemoryMB); err != nil {
			c.memory.dir, c.memory.why = "", err.Error()
		}
	}
	if c.cpu.dir != "" {
		if err := setCPU(c.cpu.dir, c.cpu.v2, c.limit.CPUs); err != nil {
			c.cpu.dir, c.cpu.why = "", err.Error()
		}
	}
}

// notes says what is not held, and why.
func (c *cgroups) notes() []string {
	var notes []string
	if c.limit.MemoryMB > 0 && c.memory.dir == "" {
		notes = append(notes, memoryNote(c.limit.MemoryMB, c.memory.why))
	}
	if note := c.cpuNote(c.limit.CPUs); note != "" {
		notes = append(notes, note)
	}
	if c.tree.dir == "" {
		notes = append(notes, "a task's processes are known by their session and environment alone ("+c.tree.why+
			"): one that leaves both can outlive its task")
	}
	return notes
}

func memoryNote(mb int64, why string) string {
	return fmt.Sprintf("memory limit of %d MB is not held: %s", mb, why)
}

func (c *cgroups) cpuNote(cpus float64) string {
	switch {
	case cpus > float64(runtime.NumCPU()):
		return fmt.Sprintf("CPU limit of %g is not held: this computer has %d CPUs", cpus, runtime.NumCPU())
	case cpus > 0 && c.cpu.dir == "":
		return fmt.Sprintf("CPU limit of %g is not held: %s", cpus, c.cpu.why)
	}
	return ""
}

// close removes the node's folders if no task is in them.
func (c *cgroups) close() {
	for _, p := range []place{c.tree, c.memory, c.cpu} {
		if p.dir != "" && unix.Rmdir(p.dir) == nil {
			_ = unix.Rmdir(filepath.Dir(p.dir))
		}
	}
}

func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }

func has(file, word string) bool {
	data, err := os.ReadFile(file)
	for _, w := range strings.Fields(string(data)) {
		if err == nil && w == word {
			return true
		}
	}
	return false
}

// write sets a control file.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}

func writeIf(path, value string) error {
	if !exists(path) {
		return nil
	}
	return write(path, value)
}

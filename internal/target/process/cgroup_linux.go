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
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
)

// cgroup is the hold of one task.
type cgroup struct {
	groups groups
	shared string // the node's own CPU cgroup on v1, which the task joins
	fd     *os.File
	attr   *syscall.SysProcAttr // of the fork; says whether the process was made in its tree
}

// dirs are the task's own folders, each once.
func (g *cgroup) dirs() []string {
	var dirs []string
	for _, dir := range []string{g.groups.Tree, g.groups.Memory, g.groups.CPU} {
		if dir != "" && (len(dirs) == 0 || dirs[0] != dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func (g *cgroup) limit(limit trainyard.Resources) error {
	if g.groups.Memory != "" && limit.MemoryMB > 0 {
		if err := setMemory(g.groups.Memory, g.groups.MemV2, limit.MemoryMB); err != nil {
			return err
		}
	}
	if g.groups.CPU != "" {
		return setCPU(g.groups.CPU, g.groups.V2 && g.groups.CPU == g.groups.Tree, limit.CPUs)
	}
	return nil
}

// prepare has the process made in its v2 cgroup, which spares the kernel a move.
func (g *cgroup) prepare(attr *syscall.SysProcAttr) {
	if !g.groups.V2 {
		return
	}
	f, err := os.OpenFile(g.groups.Tree, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	g.fd, g.attr = f, attr
	attr.UseCgroupFD, attr.CgroupFD = true, int(f.Fd())
}

func (g *cgroup) attach(pid int) error {
	raiseOOMScore(pid)
	if g.fd != nil {
		g.fd.Close()
		g.fd = nil
	}
	dirs := g.dirs()
	if g.attr != nil && g.attr.UseCgroupFD {
		dirs = dirs[1:]
	}
	if g.shared != "" {
		dirs = append(dirs, g.shared)
	}
	for _, dir := range dirs {
		if err := write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("put process %d into its cgroup: %w", pid, err)
		}
	}
	return nil
}

// pids lists the processes in the tree, those in cgroups that the task made below it too.
func (g *cgroup) pids() ([]int, error) {
	var pids []int
	for _, dir := range withChildren(g.groups.Tree) {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// kill stops new processes first where the tree can do that, so that a task which forks faster than we kill goes too.
func (g *cgroup) kill() error {
	pids, err := g.pids()
	if err != nil || len(pids) == 0 {
		return err
	}
	if g.groups.V2 {
		_ = write(filepath.Join(g.groups.Tree, "cgroup.kill"), "1")
	} else {
		_ = write(filepath.Join(g.groups.Tree, "pids.max"), "0")
	}
	return killAll(g.pids)
}

func (g *cgroup) usage() (peakMB int64, ooms int) {
	dir := g.groups.Memory
	if dir == "" {
		return 0, 0
	}
	peak, events := "memory.max_usage_in_bytes", "memory.oom_control"
	if g.groups.MemV2 {
		peak, events = "memory.peak", "memory.events"
	}
	data, _ := os.ReadFile(filepath.Join(dir, peak))
	bytes, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	data, _ = os.ReadFile(filepath.Join(dir, events))
	for line := range strings.Lines(string(data)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			ooms, _ = strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return (bytes + 1<<20 - 1) >> 20, ooms
}

func (g *cgroup) remove() error {
	if g.fd != nil {
		g.fd.Close()
		g.fd = nil
	}
	for _, own := range g.dirs() {
		dirs := withChildren(own)
		for i := len(dirs) - 1; i >= 0; i-- {
			err := retry(func() error { return unix.Rmdir(dirs[i]) })
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove cgroup %s: %w", dirs[i], err)
			}
		}
	}
	return nil
}

// withChildren lists a cgroup and all below it, parents first. The link count tells at once that there is nothing below.
func withChildren(dir string) []string {
	if dir == "" {
		return nil
	}
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil || st.Nlink <= 2 {
		return []string{dir}
	}
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

// make makes a task's cgroups with its limits, and notes in rec where they are and what is not held.
func (c *cgroups) make(name string, limit trainyard.Resources, rec *record) (*cgroup, error) {
	if limit.MemoryMB > 0 || limit.CPUs > 0 {
		c.limits() // nothing, unless this is the one task
	}
	g := &cgroup{}
	g.groups = c.pathsOf(name, limit)
	if c.cpu.dir != "" && !c.cpu.v2 && g.groups.CPU == "" && c.limit.CPUs > 0 {
		g.shared = c.cpu.dir
	}
	for _, dir := range g.dirs() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("make cgroup: %w", err), g.remove())
		}
	}
	if err := g.limit(limit); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	rec.Groups = g.groups
	var notes []string
	if c.memory.dir != "" {
		rec.LimitMB = smaller(limit.MemoryMB, c.limit.MemoryMB)
	} else if limit.MemoryMB > 0 {
		notes = append(notes, memoryNote(limit.MemoryMB, c.memory.why))
	}
	if note := c.cpuNote(limit.CPUs); note != "" {
		notes = append(notes, note)
	}
	rec.Note = strings.Join(notes, "; ")
	return g, nil
}

// pathsOf names the cgroups that a task with these limits needs: none for memory and CPU where nothing is limited, as each costs time.
func (c *cgroups) pathsOf(name string, limit trainyard.Resources) groups {
	var g groups
	if c.tree.dir != "" {
		g.Tree, g.V2 = filepath.Join(c.tree.dir, name), c.tree.v2
	}
	if c.memory.dir != "" && (c.memory.v2 || limit.MemoryMB > 0 || c.limit.MemoryMB > 0) {
		g.Memory, g.MemV2 = filepath.Join(c.memory.dir, name), c.memory.v2
	}
	if c.cpu.dir != "" && limit.CPUs > 0 {
		g.CPU = filepath.Join(c.cpu.dir, name)
	}
	return g
}

// found is what there is of a task's cgroups by name alone; nil for nothing.
func (c *cgroups) found(name string) *cgroup {
	all := c.pathsOf(name, trainyard.Resources{MemoryMB: 1, CPUs: 1})
	g := &cgroup{groups: all}
	for _, dir := range g.dirs() {
		if exists(dir) {
			return g
		}
	}
	return nil
}

// cpuPeriod is the slice of time in microseconds that CPU quotas are counted in: the kernel's own default.
const cpuPeriod = 100_000

// setMemory limits memory in MiB, and swap to none: a task that is out of its memory should be told, not slowed down. 0: no limit.
func setMemory(dir string, v2 bool, mb int64) error {
	if v2 {
		if mb == 0 {
			return write(filepath.Join(dir, "memory.max"), "max")
		}
		if exists(filepath.Join(dir, "memory.swap.max")) {
			_ = write(filepath.Join(dir, "memory.swap.max"), "0")
		}
		return write(filepath.Join(dir, "memory.max"), strconv.FormatInt(mb<<20, 10))
	}
	value := "-1"
	if mb > 0 {
		value = strconv.FormatInt(mb<<20, 10)
	}
	swap := filepath.Join(dir, "memory.memsw.limit_in_bytes") // must never be the smaller one: raised before, lowered after
	_ = writeIf(swap, "-1")
	if err := write(filepath.Join(dir, "memory.limit_in_bytes"), value); err != nil {
		return err
	}
	return writeIf(swap, value)
}

// setCPU limits CPU time. 0, or more than there is: no limit.
func setCPU(dir string, v2 bool, cpus float64) error {
	quota := int64(cpus * cpuPeriod)
	held := cpus > 0 && cpus < float64(runtime.NumCPU())
	switch {
	case v2 && held:
		return write(filepath.Join(dir, "cpu.max"), fmt.Sprintf("%d %d", quota, cpuPeriod))
	case v2:
		return write(filepath.Join(dir, "cpu.max"), fmt.Sprintf("max %d", cpuPeriod))
	case !held:
		quota = -1
	}
	if err := write(filepath.Join(dir, "cpu.cfs_period_us"), strconv.Itoa(cpuPeriod)); err != nil {
		return err
	}
	return write(filepath.Join(dir, "cpu.cfs_quota_us"), strconv.FormatInt(quota, 10))
}

func smaller(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

package process

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/target/targettest"
)

// fakeTree makes files that look like a mounted cgroup tree. What is written to them can be read; nothing is held.
func fakeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// wantFiles fails unless each file in dir holds its text.
func wantFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || strings.TrimSpace(string(data)) != text {
			t.Errorf("%s holds %q (%v), want %q", name, data, err, text)
		}
	}
}

// nodeLimit is of a node with less than this computer has, so that all of it can be held.
var (
	nodeCPUs  = float64(runtime.NumCPU()) / 4
	nodeLimit = trainyard.Resources{CPUs: nodeCPUs, MemoryMB: 1024}
	taskLimit = trainyard.Resources{CPUs: nodeCPUs / 2, MemoryMB: 100}
)

func micros(cpus float64) string { return strconv.Itoa(int(cpus * cpuPeriod)) }

func TestLimitsAreWrittenAsVersion2Wants(t *testing.T) {
	root := fakeTree(t, map[string]string{
		"cgroup.controllers": "cpu memory pids", "cgroup.procs": "", "cgroup.subtree_control": "cpu memory",
		"trainyard/cgroup.subtree_control":    "cpu memory",
		"trainyard/n1/cgroup.subtree_control": "", "trainyard/n1/memory.max": "max", "trainyard/n1/memory.swap.max": "max", "trainyard/n1/cpu.max": "",
		"trainyard/n1/task/memory.max": "", "trainyard/n1/task/cpu.max": "", "trainyard/n1/task/cgroup.procs": "",
		"trainyard/n1/task/memory.peak":   "104857601\n",
		"trainyard/n1/task/memory.events": "low 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n",
	})
	c := openCgroups(root, "/dev/null", "n1", nodeLimit, false)
	if notes := c.notes(); len(notes) > 0 {
		t.Errorf("notes are %q", notes)
	}
	var rec record
	g, err := c.make("task", taskLimit, &rec)
	if err != nil {
		t.Fatal(err)
	}
	task := filepath.Join(root, "trainyard/n1/task")
	if want := (groups{Tree: task, Memory: task, CPU: task, V2: true, MemV2: true}); rec.Groups != want || rec.LimitMB != 100 || rec.Note != "" {
		t.Errorf("record is %+v", rec)
	}
	if err := g.attach(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, filepath.Dir(task), map[string]string{
		"cgroup.subtree_control": "+cpu", // the last that was switched on
		"memory.max":             "1073741824", "memory.swap.max": "0", "cpu.max": micros(nodeCPUs) + " 100000",
		"task/memory.max": "104857600", "task/cpu.max": micros(nodeCPUs/2) + " 100000", "task/cgroup.procs": strconv.Itoa(os.Getpid()),
	})
	if peak, ooms := g.usage(); peak != 101 || ooms != 1 {
		t.Errorf("peak is %d MB, %d killed; want 101 and 1", peak, ooms)
	}
}

func TestLimitsAreWrittenAsVersion1Wants(t *testing.T) {
	root := fakeTree(t, map[string]string{
		"pids/cgroup.procs": "", "memory/cgroup.procs": "", "cpu,cpuacct/cgroup.procs": "",
		"memory/trainyard/n1/memory.limit_in_bytes": "", "memory/trainyard/n1/memory.memsw.limit_in_bytes": "",
		"cpu,cpuacct/trainyard/n1/cpu.cfs_quota_us": "", "cpu,cpuacct/trainyard/n1/cpu.cfs_period_us": "", "cpu,cpuacct/trainyard/n1/cgroup.procs": "",
		"memory/trainyard/n1/task/memory.limit_in_bytes": "", "memory/trainyard/n1/task/cgroup.procs": "", "pids/trainyard/n1/task/cgroup.procs": "",
		"memory/trainyard/n1/task/memory.max_usage_in_bytes": "1048576\n",
		"memory/trainyard/n1/task/memory.oom_control":        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
	})
	c := openCgroups(root, "/dev/null", "n1", nodeLimit, false)
	if notes := c.notes(); len(notes) > 0 {
		t.Errorf("notes are %q", notes)
	}
	var rec record
	g, err := c.make("task", trainyard.Resources{MemoryMB: 100}, &rec)
	if err != nil {
		t.Fatal(err)
	}
	want := groups{Tree: root + "/pids/trainyard/n1/task", Memory: root + "/memory/trainyard/n1/task"}
	if rec.Groups != want || rec.LimitMB != 100 {
		t.Errorf("record is %+v", rec)
	}
	if err := g.attach(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(os.Getpid())
	wantFiles(t, root, map[string]string{
		"memory/trainyard/n1/memory.limit_in_bytes": "1073741824", "memory/trainyard/n1/memory.memsw.limit_in_bytes": "1073741824",
		"cpu,cpuacct/trainyard/n1/cpu.cfs_period_us": "100000", "cpu,cpuacct/trainyard/n1/cpu.cfs_quota_us": micros(nodeCPUs),
		"memory/trainyard/n1/task/memory.limit_in_bytes": "104857600",
		"memory/trainyard/n1/task/cgroup.procs":          pid, "pids/trainyard/n1/task/cgroup.procs": pid, "cpu,cpuacct/trainyard/n1/cgroup.procs": pid,
	})
	if peak, ooms := g.usage(); peak != 1 || ooms != 3 {
		t.Errorf("peak is %d MB, %d killed; want 1 and 3", peak, ooms)
	}
}

func TestWhatIsNotHeldIsNamed(t *testing.T) {
	huge := trainyard.Resources{CPUs: 4096, MemoryMB: 14336}
	none := fakeTree(t, nil)
	closed := fakeTree(t, map[string]string{"cgroup.controllers": "cpu", "cgroup.procs": ""}) // version 2, and nothing may be switched on
	for _, c := range []struct {
		says  string
		root  string
		limit trainyard.Resources
		want  []string
	}{
		{"no cgroups at all", none, nodeLimit, []string{"memory limit of 1024 MB is not held: there is no cgroup memory controller",
			"CPU limit of", "known by their session"}},
		{"switched off", "none", nodeLimit, []string{"memory limit of 1024 MB is not held: cgroups are switched off",
			"CPU limit of", "known by their session"}},
		{"more CPUs than there are", "none", huge, []string{"memory limit of 14336 MB",
			"CPU limit of 4096 is not held: this computer has", "known by"}},
		{"nothing to hold", closed, trainyard.Resources{}, nil},
		{"nothing may be switched on", closed, nodeLimit, []string{"the cgroup memory controller cannot be had", "the cgroup cpu controller cannot be had"}},
	} {
		notes := openCgroups(c.root, "/dev/null", "n1", c.limit, false).notes()
		if len(notes) != len(c.want) {
			t.Errorf("%s: notes are %q, want %d", c.says, notes, len(c.want))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(notes[i], want) {
				t.Errorf("%s: note is %q, want %q in it", c.says, notes[i], want)
			}
		}
	}
	c := openCgroups("none", "/dev/null", "n1", trainyard.Resources{}, false)
	var rec record
	if _, err := c.make("task", taskLimit, &rec); err != nil || !strings.Contains(rec.Note, "memory limit of 100 MB is not held") || rec.LimitMB != 0 {
		t.Errorf("record is %+v (%v), want a note on memory and no limit", rec, err)
	}
}

func TestPlaceBelowTheOwnCgroupWhereTheTopIsNotOurs(t *testing.T) {
	self := filepath.Join(t.TempDir(), "cgroup")
	if err := os.WriteFile(self, []byte("4:memory:/a\n1:cpu,cpuacct:/b\n0::/user.slice/app.service/"+agentLeaf+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := ownCgroups(self)
	if own[""] != "/user.slice/app.service" || own["memory"] != "/a" || own["cpu"] != "/b" || own["cpuacct"] != "/b" {
		t.Errorf("own cgroups are %v", own)
	}
	root := fakeTree(t, map[string]string{"cgroup.procs": "", "trainyard": "in the way", "user.slice/app.service/cgroup.procs": ""})
	p := findPlace("trainyard/n1", true, "", own, []string{root})
	if want := filepath.Join(root, "user.slice/app.service/trainyard/n1"); p.dir != want {
		t.Errorf("place is %+v, want %s", p, want)
	}
}

// version1 is the real tree of this computer without its version 2 part; where there is none, the suite runs without cgroups.
func version1(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"pids", "memory", "cpu"} {
		if err := os.Symlink(filepath.Join("/sys/fs/cgroup", name), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestConformanceWithVersion1(t *testing.T) {
	targettest.Run(t, suite(Config{CgroupRoot: version1(t)}))
}

func TestNodeLimitIsHeldOrNamed(t *testing.T) {
	d := open(t, &Config{}, t.TempDir(), trainyard.Resources{CPUs: nodeCPUs, MemoryMB: 100})
	named := slices.ContainsFunc(d.Notes(), func(n string) bool { return strings.Contains(n, "memory limit of 100 MB is not held") })
	o, _ := run(t, d, job(t, "eat", "head -c 200000000 /dev/zero | tail; exit ${PIPESTATUS[1]}"))
	held := o.Result.Class == trainyard.ClassOutOfMemory && o.Result.LimitMB == 100 && o.Result.PeakMB > 90 && o.PeakMB == o.Result.PeakMB
	if held == named {
		t.Errorf("notes are %q, and a task that takes more memory than its node has ends as %+v", d.Notes(), *o.Result)
	}
	if g := d.host.groups; g.cpu.dir != "" && !g.cpu.v2 {
		wantFiles(t, g.cpu.dir, map[string]string{"cpu.cfs_quota_us": micros(nodeCPUs)})
		sleeper := job(t, "sleep", "sleep 600")
		start(t, d, sleeper)
		var tree, held string // the shell forks while we look: both must show the same in the end
		deadline := time.After(10 * time.Second)
		for tree == "" || tree != held {
			tree = strings.Join(inTree(t, d, sleeper.ID), "\n")
			data, err := os.ReadFile(filepath.Join(g.cpu.dir, "cgroup.procs"))
			if err != nil {
				t.Fatal(err)
			}
			held = strings.TrimSpace(string(data))
			select {
			case <-deadline:
				t.Fatalf("the CPU limit holds processes %q, and the task is %q", held, tree)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

func inTree(t *testing.T, d *Driver, id trainyard.TaskID) []string {
	t.Helper()
	pids, err := d.tasks[id.Dir()].proc.hold.pids()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(pids)
	var out []string
	for _, pid := range pids {
		out = append(out, strconv.Itoa(pid))
	}
	return out
}

func TestNoCgroupIsLeftBehind(t *testing.T) {
	d := reopen(t, &Config{}, t.TempDir(), trainyard.Resources{MemoryMB: 1000})
	// A task may make cgroups of its own below the one that it is in.
	task := job(t, "nest", `while IFS=: read -r _ c path; do case $c in "") d=/sys/fs/cgroup/unified$path; test -d $d || d=/sys/fs/cgroup$path;; *) continue;; esac
		mkdir $d/own && (sh -c 'echo $$' > $d/own/cgroup.procs; exec sleep 600) & done < /proc/self/cgroup; sleep 0.05`)
	run(t, d, task)
	if err := d.Remove(t.Context(), task.ID); err != nil {
		t.Error(err)
	}
	groups := d.host.groups
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, p := range []place{groups.tree, groups.memory, groups.cpu} {
		if p.dir != "" && exists(p.dir) {
			t.Errorf("%s is left", p.dir)
		}
	}
}

func TestFullDiskCostsNoStatus(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("full", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := open(t, &Config{}, dir, trainyard.Resources{})
	task := job(t, "fill", `head -c 1000000 /dev/zero >"$TMPDIR/fill"; echo more; touch full
		until test -e go; do sleep 0.01; done; exit 3`)
	start(t, d, task)
	waitFor(t, "the disk is full", func() bool { _, err := os.Stat(filepath.Join(task.Run.Dir, "full")); return err == nil })
	late := job(t, "late", "true")
	if err := d.Start(t.Context(), late); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("a task starts on a full disk with %v", err)
	}
	if _, err := os.Stat(d.path(late.ID.Dir(), "")); !os.IsNotExist(err) {
		t.Errorf("the task that could not start left its folder (%v)", err)
	}
	if err := os.WriteFile(filepath.Join(task.Run.Dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := waitEnded(t, d, task.ID); o.Result.ExitCode != 3 || o.Result.Class != trainyard.ClassUser {
		t.Errorf("result is %+v, want exit code 3", *o.Result)
	}
}

func TestAnAgentThatIsRefusedTheFolderLeavesTheCgroupsAlone(t *testing.T) {
	dir := t.TempDir()
	d := open(t, &Config{}, dir, trainyard.Resources{MemoryMB: 1000})
	other, err := (&Config{}).open(t.Context(), target.Env{Dir: dir, Group: groupName(t)}, nil)
	if err == nil {
		other.Close()
		t.Fatal("a second agent was let into the folder")
	}
	for _, p := range []place{d.host.groups.tree, d.host.groups.memory} {
		if p.dir != "" && !exists(p.dir) {
			t.Errorf("%s is gone", p.dir)
		}
	}
}

//go:build !windows

package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

func TestTaskHasItsLimits(t *testing.T) {
	d := open(t, needEngine(t), t.TempDir(), trainyard.Resources{})
	task := newTestTask(t, `cd /sys/fs/cgroup
		cat cpu/cpu.cfs_quota_us cpu.max 2>/dev/null | head -1
		cat memory/memory.limit_in_bytes memory.max 2>/dev/null | head -1
		cat pids/pids.max pids.max 2>/dev/null | head -1
		df --output=size -k /dev/shm | tail -1 | tr -d ' '
		ulimit -n; echo $GREETING`)
	task.Resources = trainyard.Resources{CPUs: 0.5, MemoryMB: 300}
	task.ShmSize, task.DockerArgs = "64m", "--ulimit nofile=1000 -e GREETING=hello"
	got, r := run(t, d, task)
	lines := strings.Split(got, "\n")
	if len(lines) != 7 || !strings.HasPrefix(lines[0], "50000") || lines[1] != "314572800" || lines[2] != "32768" || lines[3] != "65536" || lines[4] != "1000" ||
		lines[5] != "hello" {
		t.Errorf("it sees %q (%+v)", lines, r)
	}
}

func TestNodeLimitBoundsEveryTask(t *testing.T) {
	d := open(t, needEngine(t), t.TempDir(), trainyard.Resources{MemoryMB: 200, CPUs: 1, Slots: 3})
	got, _ := run(t, d, newTestTask(t, "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; df -m --output=size /dev/shm | tail -1"))
	if fields := strings.Fields(got); len(fields) != 2 || fields[0] != "209715200" || fields[1] != "2048" {
		t.Errorf("it sees %q, want the node's limit of 200 MB, and 2048 MB of shared memory", fields)
	}
	r, err := d.Capacity(t.Context())
	if err != nil || r.MemoryMB != 200 || r.CPUs != 1 || r.Slots != 3 {
		t.Errorf("capacity is %+v (%v)", r, err)
	}
	huge := open(t, needEngine(t), t.TempDir(), trainyard.Resources{CPUs: 1e6, MemoryMB: 1 << 40})
	if r, err := huge.Capacity(t.Context()); err != nil || r.CPUs > 4096 || r.MemoryMB > 1<<30 {
		t.Errorf("capacity is %+v (%v), more than the engine has", r, err)
	}
}

func TestTaskReachesItsFoldersAndNoOthers(t *testing.T) {
	d := open(t, needEngine(t), t.TempDir(), trainyard.Resources{})
	shared, secret := t.TempDir(), t.TempDir()
	for _, dir := range []string{shared, secret} {
		if err := os.WriteFile(filepath.Join(dir, "data"), []byte("data\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	task := newTestTask(t, "cat "+shared+"/data; echo x > "+shared+"/data || echo read-only; echo x > ../out && echo written; ls "+secret+" 2>/dev/null || echo hidden")
	task.Run.Shared = []string{shared}
	got, _ := run(t, d, task)
	if want := "data\n"; !strings.HasPrefix(got, want) || !strings.Contains(got, "read-only\nwritten\nhidden\n") {
		t.Errorf("it wrote %q", got)
	}
	if data, err := os.ReadFile(filepath.Join(task.Run.Root, "out")); err != nil || string(data) != "x\n" {
		t.Errorf("its output is %q (%v)", data, err)
	}
}

func TestGPUsAreGivenToOneTaskEach(t *testing.T) {
	d := open(t, needEngine(t), t.TempDir(), trainyard.Resources{GPUs: 3})
	var tasks []trainyard.Task
	for _, n := range []int{1, 2, 1} {
		task := newTestTask(t, "echo $NVIDIA_VISIBLE_DEVICES; sleep 600")
		task.Resources.GPUs = n
		tasks = append(tasks, task)
	}
	start(t, d, tasks[0])
	start(t, d, tasks[1])
	until(t, "they have said which", func() bool { return logOf(t, d, tasks[0].ID) == "0\n" && logOf(t, d, tasks[1].ID) == "1,2\n" })
	if err := d.Start(t.Context(), tasks[2]); !trainyard.IsConflict(err) || !strings.Contains(err.Error(), "it needs 1 GPUs, and 0 of this node's 3 are free") {
		t.Errorf("a fourth GPU: %v", err)
	}
	if find(t, d, tasks[2].ID) != nil {
		t.Error("a task that did not start is listed")
	}
	if err := d.Remove(t.Context(), tasks[0].ID); err != nil {
		t.Fatal(err)
	}
	start(t, d, tasks[2])
	until(t, "it has said which", func() bool { return logOf(t, d, tasks[2].ID) == "0\n" })
	if r, err := d.Capacity(t.Context()); err != nil || r.GPUs != 3 {
		t.Errorf("capacity is %+v (%v)", r, err)
	}
}

func TestArgumentsThatAreNotAllowedEndTheTask(t *testing.T) {
	d := open(t, needEngine(t), t.TempDir(), trainyard.Resources{})
	task := newTestTask(t, "true")
	task.DockerArgs = "--privileged"
	if err := d.Start(t.Context(), task); trainyard.ClassOf(err) != trainyard.ClassUser {
		t.Errorf("start: %v", err)
	}
	if err := d.Prepare(t.Context(), task, &teller{}); trainyard.ClassOf(err) != trainyard.ClassUser {
		t.Errorf("prepare: %v", err)
	}
	task.DockerArgs, task.ShmSize = "", "many"
	if err := d.Start(t.Context(), task); trainyard.ClassOf(err) != trainyard.ClassUser || !strings.Contains(err.Error(), `"many"`) {
		t.Errorf("start: %v", err)
	}
}

func TestLogThatIsNoFileIsNotRead(t *testing.T) {
	d := open(t, needEngine(t), t.TempDir(), trainyard.Resources{})
	for _, trick := range []string{"ln -s /etc/hostname", "mkfifo"} {
		task := newTestTask(t, "rm "+inBox+"/log; "+trick+" "+inBox+"/log; sleep 0.1")
		start(t, d, task)
		ended(t, d, task.ID)
		if r, err := d.Logs(t.Context(), task.ID, 0); err == nil {
			r.Close()
			t.Errorf("%s: the log is read", trick)
		}
	}
}

func TestOutputThroughReopenedDescriptorsIsKept(t *testing.T) {
	d := open(t, needEngine(t), t.TempDir(), trainyard.Resources{})
	got, _ := run(t, d, newTestTask(t, "echo one; echo two > /dev/stderr; echo three > /dev/stdout; echo four >> /proc/self/fd/2"))
	if got != "one\ntwo\nthree\nfour\n" {
		t.Errorf("log is %q", got)
	}
}

func TestContainerEndedFromOutside(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	for _, how := range []struct {
		args  []string
		class trainyard.Class
		says  string
	}{
		{[]string{"kill"}, trainyard.ClassNodeLost, "ended from outside"},
		{[]string{"stop"}, trainyard.ClassNodeLost, "told to stop from outside"},
		{[]string{"rm", "-f"}, trainyard.ClassNodeLost, "removed from outside"},
	} {
		task := newTestTask(t, "trap 'echo saved; exit 0' TERM; echo up; sleep 600 & wait")
		start(t, d, task)
		until(t, "it is up", func() bool { return logOf(t, d, task.ID) == "up\n" })
		if err := dockerCLI(c, append(how.args, d.container(newTask(task.ID.Dir())))...); err != nil {
			t.Fatal(err)
		}
		o := ended(t, d, task.ID)
		if o.Result.Class != how.class || !strings.Contains(o.Result.Message, how.says) {
			t.Errorf("docker %v: result is %+v", how.args, *o.Result)
		}
		if how.args[0] == "stop" && logOf(t, d, task.ID) != "up\nsaved\n" {
			t.Errorf("docker stop: log is %q", logOf(t, d, task.ID))
		}
	}
	task := newTestTask(t, "echo kept; exit 7")
	start(t, d, task)
	until(t, "it has ended", func() bool { return d.readStatus(task.ID).ended })
	if err := dockerCLI(c, "rm", "-f", d.container(newTask(task.ID.Dir()))); err != nil {
		t.Fatal(err)
	}
	if o := ended(t, d, task.ID); o.Result.Class != trainyard.ClassUser || o.Result.ExitCode != 7 || logOf(t, d, task.ID) != "kept\n" {
		t.Errorf("a pruned container: %+v", *o.Result)
	}
}

// asNobodyVar makes the test binary an agent without rights that runs one task in the folder it names.
const asNobodyVar = "TRAINYARD_TEST_DOCKER_NOBODY"

func TestTasksOfAnAgentThatIsNotRootAreItsOwn(t *testing.T) {
	c := needEngine(t)
	if dir := os.Getenv(asNobodyVar); dir != "" {
		nobody(t, c, dir)
		return
	}
	if os.Getuid() != 0 {
		nobody(t, c, t.TempDir())
		return
	}
	dir, err := os.MkdirTemp("", "nobody")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const uid = 65534
	if err := errors.Join(os.Chown(dir, uid, uid), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "test"), self, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "test"), "-test.run", "^"+t.Name()+"$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), asNobodyVar+"="+dir, "TMPDIR="+dir, hostVar+"="+relay(t, dir, c.Host), requireVar+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// nobody runs a task that writes files, and removes all of it.
func nobody(t *testing.T, c Config, dir string) {
	d := open(t, c, filepath.Join(dir, "driver"), trainyard.Resources{})
	task := newTestTask(t, `mkdir -p a/b; echo x > a/b/c; chmod 0500 a/b; echo y > "$HOME/z"; id -u; python3 -c 'import getpass; print(getpass.getuser())'`)
	got, r := run(t, d, task)
	if r.Class != trainyard.ClassOK || got != "65534\ntrainyard\n" && os.Getenv(asNobodyVar) != "" {
		t.Errorf("it wrote %q (%+v)", got, r)
	}
	if err := d.Remove(t.Context(), task.ID); err != nil {
		t.Errorf("remove: %v", err)
	}
	if err := target.RemoveAll(filepath.Join(task.Run.Dir, "a")); err != nil {
		t.Errorf("what it wrote cannot be removed: %v", err)
	}
}

func TestOpenWithoutEngine(t *testing.T) {
	dir := t.TempDir()
	c := Config{Host: "unix://" + filepath.Join(dir, "nobody.sock")}
	_, err := c.Open(t.Context(), target.Env{Dir: filepath.Join(dir, "driver"), Group: "x"})
	if trainyard.CodeOf(err) != trainyard.CodeUnsupported || !strings.Contains(err.Error(), c.Host) {
		t.Errorf("error is %v, want %s and the address", err, trainyard.CodeUnsupported)
	}
	if err := os.MkdirAll(filepath.Join(dir, "driver", tasksDir, "left"), 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := c.Open(t.Context(), target.Env{Dir: filepath.Join(dir, "driver"), Group: "x"})
	if err != nil {
		t.Fatalf("with tasks in its folder: %v", err)
	}
	if all, err := d.Observe(context.Background()); err == nil {
		t.Errorf("it lists %v without an engine", all)
	}
	if err := d.(*Driver).Close(); err != nil {
		t.Error(err)
	}
}

// What only the engine finds wrong with docker_args is their author's mistake all the same.
func TestArgsThatTheEngineRefuses(t *testing.T) {
	d := open(t, needEngine(t), t.TempDir(), trainyard.Resources{})
	for _, args := range []string{"--add-host foo:bar", "--cap-drop NOSUCH", "--tmpfs /x:size=zz"} {
		task := newTestTask(t, "true")
		task.DockerArgs = args
		err := d.Start(t.Context(), task)
		if trainyard.ClassOf(err) != trainyard.ClassUser || !strings.Contains(err.Error(), fmt.Sprintf("resources.docker_args %q: the Docker engine refuses", args)) || strings.Contains(err.Error(), string(task.ID)) {
			t.Errorf("%s: %v (class %q)", args, err, trainyard.ClassOf(err))
		}
	}
}

// A command that deletes its own record did run, and that is said.
func TestACommandThatDeletesItsRecord(t *testing.T) {
	d := open(t, needEngine(t), t.TempDir(), trainyard.Resources{})
	task := newTestTask(t, "rm -rf /.trainyard/task/*")
	d.step = func(step string) { // nobody looks before the record is gone
		if step == "started" {
			until(t, "the command deletes its record", func() bool {
				_, err := os.Stat(filepath.Join(d.env.Dir, tasksDir, task.ID.Dir(), boxDir, scriptFile))
				return errors.Is(err, fs.ErrNotExist)
			})
		}
	}
	err := d.Start(t.Context(), task)
	if trainyard.ClassOf(err) != trainyard.ClassUser || !strings.Contains(err.Error(), "deleted /.trainyard/task") {
		t.Errorf("%v (class %q)", err, trainyard.ClassOf(err))
	}
}

//go:build !windows

package docker

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu"
	"github.com/trainyard/trainyard/internal/gpu/gputest"
)

// dirVar names the folder of the engine that test/engines/docker/up.sh made.
const dirVar = "TRAINYARD_TEST_DOCKER_DIR"

// uses waits until so much of a task's GPUs is told; -1: it is not known, for the reason given. It leaves out what Usage asks the engine,
// which takes that a second.
func uses(t *testing.T, d *Driver, id trainyard.TaskID, want float64, words string) {
	t.Helper()
	until(t, string(id)+" uses as much of its GPUs as it should", func() bool {
		d.mu.Lock()
		given := d.tasks[id.Dir()].rec.GPUs
		d.mu.Unlock()
		percent, why := d.gpuUse(given)
		if percent == nil {
			return want == -1 && strings.Contains(why, words)
		}
		return *percent == want
	})
}

func TestAContainerUsesTheGPUsThatItWasGiven(t *testing.T) {
	c := needEngine(t)
	smi := gputest.Here(t)
	smi.Set("80", "20", "50")
	dir := t.TempDir()
	d := reopen(t, c, dir, trainyard.Resources{})
	t.Cleanup(func() { d.Close() })
	run := func(n int, want string) trainyard.TaskID {
		t.Helper()
		task := newTestTask(t, "echo $NVIDIA_VISIBLE_DEVICES; sleep 600")
		task.Resources.GPUs = n
		start(t, d, task)
		t.Cleanup(func() { d.Remove(context.Background(), task.ID) })
		until(t, "it says "+want, func() bool { return logOf(t, d, task.ID) == want+"\n" })
		return task.ID
	}
	whole := run(0, "0,1,2") // as a process, it sees all that nobody has for himself
	one, two := run(1, "0"), run(1, "1")
	rest := run(0, "2")
	without := newTestTask(t, "echo ${NVIDIA_VISIBLE_DEVICES:-none}")
	without.Run.Env = map[string]string{gpu.VisibleVariable: gpu.None}
	start(t, d, without)
	t.Cleanup(func() { d.Remove(context.Background(), without.ID) })
	until(t, "one that wants no GPU has none", func() bool { return logOf(t, d, without.ID) == "none\n" })
	check := func() {
		t.Helper()
		uses(t, d, whole, 50, "")
		uses(t, d, one, 80, "")
		uses(t, d, two, 20, "")
		uses(t, d, rest, 50, "")
	}
	check()
	if u, err := d.Usage(t.Context(), two); err != nil || u.GPU == nil || *u.GPU != 20 || u.CPU <= 0 {
		t.Errorf("the use of the second is %+v, %v", u, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = reopen(t, c, dir, trainyard.Resources{}) // another agent knows whose they are
	check()
	smi.Set("[N/A]", "40", "50")
	uses(t, d, one, -1, "none of its GPUs (0) tells")
	uses(t, d, two, 40, "")
	uses(t, d, whole, 45, "")
}

// An engine on which NVIDIA's toolkit was not installed: a task that asks for a GPU cannot run there, one that does not goes without.
func TestAnEngineThatCannotGiveGPUsSaysSo(t *testing.T) {
	needEngine(t)
	c, image := plainEngine(t)
	gputest.Here(t).Set("80", "20")
	c.Image = image
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	asks := newTestTask(t, "true")
	asks.Resources.GPUs = 1
	err := d.Start(t.Context(), asks)
	if trainyard.ClassOf(err) != trainyard.ClassEnvironment || !strings.Contains(err.Error(), "cannot give GPUs to containers") ||
		!strings.Contains(err.Error(), "install the NVIDIA container toolkit on the node") {
		t.Errorf("a task that asks for a GPU: %v", err)
	}
	if find(t, d, asks.ID) != nil {
		t.Error("a task that did not start is listed")
	}
	for _, tries := range []bool{true, false} { // the second is not even tried with one
		if d.givesNone() == tries {
			t.Errorf("it is known that the engine has none: %v", !tries)
		}
		task := newTestTask(t, "echo ran")
		start(t, d, task)
		if o := ended(t, d, task.ID); logOf(t, d, task.ID) != "ran\n" || o.Note != noToolkit {
			t.Errorf("a task that does not wrote %q, and its note is %q", logOf(t, d, task.ID), o.Note)
		}
	}
}

// plainEngine is a second engine beside the one for tests, on the same containerd, without the hook that stands for NVIDIA's. Its only image
// has a shell and mkdir.
func plainEngine(t *testing.T) (Config, string) {
	t.Helper()
	first := os.Getenv(dirVar)
	if first == "" && os.Getenv(requireVar) == "1" {
		t.Fatalf("%s=1 and %s names no folder: run %s", requireVar, dirVar, upCommand)
	}
	if first == "" {
		t.Skipf("%s not run: there is no folder of the engine in %s; run %s", t.Name(), dirVar, upCommand)
	}
	dir, err := os.MkdirTemp("", "plain")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("umount", dir+"/exec/netns/default").Run() // an engine leaves it there
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	host := "unix://" + dir + "/docker.sock"
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("dockerd", "--host", host, "--containerd", first+"/run/containerd.sock", "--containerd-namespace", "plain", "--containerd-plugins-namespace", "plain-plugins",
		"--data-root", dir+"/data", "--exec-root", dir+"/exec", "--pidfile", dir+"/pid", "--config-file", first+"/etc/daemon.json", "--bridge", "none", "--iptables=false",
		"--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--oom-score-adjust", "0", "--cgroup-parent", "trainyard-engine")
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		late.Stop()
	})
	c := Config{Host: host}
	until(t, "the second engine answers", func() bool { return dockerCLI(c, "version") == nil })
	archive := exec.Command("sh", "-ec", `cp --parents -L $(ldd /bin/sh /bin/mkdir | grep -o '/[^ :]*') "$0"; mkdir -p "$0/tmp"; tar -C "$0" -c .`, t.TempDir())
	tar, err := archive.Output()
	if err != nil {
		t.Fatal(err)
	}
	load := exec.Command("docker", "import", "-", "plain:1")
	load.Env, load.Stdin = append(os.Environ(), "DOCKER_HOST="+host), bytes.NewReader(tar)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return c, "plain:1"
}

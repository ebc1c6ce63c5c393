//go:build !windows

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
		if o := ended(t, d, task.ID); logOf(t, d, task.ID) != "ran\n" || !slices.Equal(o.Notes, []string{noToolkit}) {
			t.Errorf("a task that does not wrote %q, and its note is %q", logOf(t, d, task.ID), o.Notes)
		}
	}
}

// An image that needs a newer driver than the node's is refused with GPUs; a task that did not ask for any runs without.
func TestATaskThatAskedForNoGPUDoesNotFailOverOne(t *testing.T) {
	c := needEngine(t)
	gputest.Here(t).Set("80")
	c.Host = refusesGPUs(t, c.Host, "failed to create task for container: error running prestart hook #0: exit status 1, stdout: , stderr: Auto-detected mode as 'legacy'\n"+
		"nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver")
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	task := newTestTask(t, "echo ${NVIDIA_VISIBLE_DEVICES:-none}")
	start(t, d, task)
	const note = "it has no GPU: its container did not start with the node's GPUs (nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update your driver)"
	if o := ended(t, d, task.ID); logOf(t, d, task.ID) != "none\n" || !slices.Equal(o.Notes, []string{note}) {
		t.Errorf("it wrote %q, and its note is %q", logOf(t, d, task.ID), o.Notes)
	}
	if d.givesNone() {
		t.Error("other images are not tried with GPUs any more")
	}
	asks := newTestTask(t, "true")
	asks.Resources.GPUs = 1
	if err := d.Start(t.Context(), asks); err == nil || !strings.Contains(err.Error(), "cuda>=12.8") {
		t.Errorf("one that asks for a GPU: %v", err)
	}
}

// refusesGPUs is the address of an engine that does not start containers with GPUs.
func refusesGPUs(t *testing.T, host, words string) string {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "engine.sock"))
	if err != nil {
		t.Fatal(err)
	}
	var given sync.Map // names of containers that were made with some
	way := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(host, "unix://"))
	}}
	engine := &httputil.ReverseProxy{FlushInterval: -1, Transport: way, Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" }}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/containers/create") {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			given.Store(r.URL.Query().Get("name"), bytes.Contains(body, []byte(`"DeviceIDs":["`)))
		}
		if name, ok := strings.CutSuffix(r.URL.Path, "/start"); ok {
			if some, _ := given.Load(path.Base(name)); some == true {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusInternalServerError)
				_ = json.NewEncoder(w).Encode(map[string]string{"message": words})
				return
			}
		}
		engine.ServeHTTP(w, r)
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			t.Errorf("end the engine that refuses GPUs: %v", err)
		}
		way.CloseIdleConnections()
	})
	return "unix://" + ln.Addr().String()
}

func TestNewerEnginesSayOtherwiseThatTheyGiveNoGPUs(t *testing.T) {
	err := errors.New("Error response from daemon: failed to discover GPU vendor from CDI: no known GPU vendor found")
	p := plan{gpus: 1}
	if !noDriver(err) || !strings.Contains(p.explain(err).Error(), "install the NVIDIA container toolkit on the node") {
		t.Errorf("%v", p.explain(err))
	}
	if noDriver(errors.New("unsatisfied condition: cuda>=12.8")) {
		t.Error("an image that needs a newer driver is taken for an engine without the toolkit")
	}
}

func TestGPUsOfANodeThatAreNotKnownYet(t *testing.T) {
	smi := gputest.Here(t)
	smi.Hang()
	d := &Driver{gpus: &gpu.Reader{}}
	defer d.gpus.Close()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.giveGPUs(gone, &plan{gpus: 1}); trainyard.CodeOf(err) != trainyard.CodeBusy {
		t.Errorf("a task that asks for one: %v", err)
	}
	var p plan
	if err := d.giveGPUs(gone, &p); err != nil || !strings.HasPrefix(p.rec.Note, "it has no GPU: which GPUs this computer has is not known yet") {
		t.Errorf("one that does not: %v, its note is %q", err, p.rec.Note)
	}
}

func TestATaskThatWantsNoGPUIsNotToldThatItHasNone(t *testing.T) {
	gputest.Here(t)
	d := &Driver{gpus: &gpu.Reader{}}
	d.noGPUs.Store(1 << 60)
	for _, value := range []string{"", gpu.None, "0"} {
		p := plan{}
		p.config.Env = []string{"A=", gpu.VisibleVariable + "=" + value}
		if err := d.giveGPUs(t.Context(), &p); err != nil || (p.rec.Note == "") != (value != "0") {
			t.Errorf("with %q: %v, its note is %q", value, err, p.rec.Note)
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

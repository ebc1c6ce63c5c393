//go:build linux

package kube

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// bench is a driver on the cluster, with what a test needs around it.
type bench struct {
	*testing.T
	*Driver
	cfg Config
	dir string
}

func newBench(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	c := newCluster(t)
	if change != nil {
		change(&c)
	}
	b := &bench{T: t, cfg: c, dir: t.TempDir()}
	b.Driver = openDriver(t, c, b.dir)
	t.Cleanup(func() {
		all, err := b.Observe(context.Background())
		if err != nil {
			t.Error(err)
		}
		for _, o := range all {
			if err := b.Remove(context.Background(), o.ID); err != nil {
				t.Errorf("remove: %v", err)
			}
		}
		b.Driver.Close()
	})
	return b
}

// task is a task of so many ranks. Its command appends to the file "runs" of its folder first, once for every time that it runs.
func (b *bench) task(ranks int, command string) trainyard.Task {
	b.Helper()
	name := strings.NewReplacer("/", "-").Replace(b.Name())
	key := trainyard.MakeJobKey(trainyard.DefaultScope(), name)
	return trainyard.Task{ID: trainyard.MakeTaskID(key, 1, 0), Scope: trainyard.DefaultScope(), JobName: name, Attempt: 1, Hi: ranks, Nodes: ranks,
		Grace: 5 * time.Second, Run: trainyard.Run{Command: "echo ran >>runs; " + command, Dir: b.TempDir()}}
}

func (b *bench) start(t trainyard.Task) {
	b.Helper()
	if err := b.Start(b.Context(), t); err != nil {
		b.Fatal(err)
	}
}

// reaches waits until the task is in a state, and returns how it looks.
func (b *bench) reaches(t trainyard.Task, state trainyard.TaskState) (o trainyard.Observation) {
	b.Helper()
	eventually(b.T, fmt.Sprintf("the task is %s", state), func() bool {
		o, _ = b.find(t.ID)
		return o.State == state
	})
	return o
}

// begins waits until the task's command has written a file.
func (b *bench) begins(t trainyard.Task, file string) {
	b.Helper()
	b.reaches(t, trainyard.TaskRunning)
	eventually(b.T, "the command has written "+file, func() bool {
		info, err := os.Stat(filepath.Join(t.Run.Dir, file))
		return err == nil && info.Size() > 0
	})
}

// says waits until a task that waits says words.
func (b *bench) says(t trainyard.Task, words string) {
	b.Helper()
	last := ""
	eventually(b.T, "the task waits because of "+words, func() bool {
		o, _ := b.find(t.ID)
		if o.Progress != last {
			last = o.Progress
			b.Logf("%s: %s", o.State, last)
		}
		return o.State == trainyard.TaskStaging && strings.Contains(o.Progress, words)
	})
}

func (b *bench) ends(t trainyard.Task, class trainyard.Class, words string) trainyard.Observation {
	b.Helper()
	o := b.reaches(t, trainyard.TaskEnded)
	if o.Result.Class != class || !strings.Contains(o.Result.Message, words) {
		b.Errorf("it ended with %+v, want %s %q", *o.Result, class, words)
	}
	return o
}

func (b *bench) ran(t trainyard.Task, times int) {
	b.Helper()
	data, _ := os.ReadFile(filepath.Join(t.Run.Dir, "runs")) // none: it did not run
	if n := strings.Count(string(data), "\n"); n != times {
		b.Errorf("it ran %d times, want %d", n, times)
	}
}

func (b *bench) log(t trainyard.Task) string {
	b.Helper()
	r, err := b.Logs(b.Context(), t.ID, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

// onlyPod is the task's pod.
func (b *bench) onlyPod(t trainyard.Task) *pod {
	b.Helper()
	var p page[pod]
	if err := b.api.get(b.Context(), b.api.path(pods), map[string][]string{"labelSelector": {taskLabel + "=" + b.nameOf(t.ID)}}, &p); err != nil {
		b.Fatal(err)
	}
	if len(p.Items) != 1 {
		b.Fatalf("there are %d pods, want one", len(p.Items))
	}
	return p.Items[0]
}

func (b *bench) reopen() {
	b.Helper()
	if err := b.Close(); err != nil {
		b.Fatal(err)
	}
	b.Driver = openDriver(b.T, b.cfg, b.dir)
}

// openUnheard opens a driver without waiting until the cluster is heard.
func (b *bench) openUnheard() *Driver {
	b.Helper()
	d, err := b.cfg.Open(b.Context(), environment(b.T, b.dir))
	b.must(err)
	return d.(*Driver)
}

// keepsFor has every task that begins now find the program in the cluster, or be sent it.
func (b *bench) keepsFor(s *stock) {
	b.api.far.Store(s != nil)
	b.api.near.Store(s == nil)
	b.kept.mu.Lock()
	defer b.kept.mu.Unlock()
	b.kept.stock, b.kept.next = s, time.Now().Add(time.Hour)
}

// known are how many objects of a kind a task has.
func (b *bench) known(t trainyard.Task, kind string) int {
	b.Helper()
	var p page[pod]
	b.must(b.api.get(b.Context(), b.api.path(kind), map[string][]string{"labelSelector": {taskLabel + "=" + b.nameOf(t.ID)}}, &p))
	return len(p.Items)
}

// must is for calls that set the stage.
func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// part stops or starts a part of the cluster.
func part(t testing.TB, do, name string) {
	t.Helper()
	dir := filepath.Dir(os.Getenv("TRAINYARD_TEST_KUBECONFIG"))
	if said, err := exec.Command("../../../test/engines/kube/part.sh", dir, do, name).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", do, name, err, said)
	}
}

// namespace makes a namespace with a service account for pods.
func (b *bench) namespace(name string) {
	b.Helper()
	b.ensure("/api/v1/namespaces", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}})
	eventually(b.T, "the namespace is ready", func() bool {
		return b.api.get(b.Context(), "/api/v1/namespaces/"+name+"/serviceaccounts/default", nil, nil) == nil
	})
}

func (b *bench) ensure(path string, o object) {
	b.Helper()
	if err := b.api.create(b.Context(), path, o, nil); err != nil && !isThere(err) {
		b.Fatal(err)
	}
}

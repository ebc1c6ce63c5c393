package process

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu/gputest"
)

// gpuTask says which GPUs it sees and stays. It asks for n.
func gpuTask(t *testing.T, name string, n int, env map[string]string) trainyard.Task {
	t.Helper()
	id := trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), name), 1, 0)
	return trainyard.Task{ID: id, Grace: time.Second, Resources: trainyard.Resources{GPUs: n},
		Run: trainyard.Run{Dir: t.TempDir(), Env: env, Command: `echo "${CUDA_VISIBLE_DEVICES-all}"; exec sleep 600`}}
}

// sees waits until a task has said which GPUs it sees.
func sees(t *testing.T, d *Driver, id trainyard.TaskID, want string) {
	t.Helper()
	got := ""
	eventually(t, fmt.Sprintf("%s sees %q", id, want), func() bool {
		r, err := d.Logs(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		data, _ := io.ReadAll(r)
		got = strings.TrimSpace(string(data))
		return got != ""
	})
	if got != want {
		t.Errorf("it sees %q, want %q", got, want)
	}
}

// uses waits until so much of a task's GPUs is told; -1: it is not known, for the reason given.
func uses(t *testing.T, d *Driver, id trainyard.TaskID, want float64, words string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s uses %v %q", id, want, words), func() bool {
		u, err := d.Usage(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if u.GPU == nil {
			return want == -1 && words != "" && strings.Contains(u.GPUWhy, words)
		}
		return *u.GPU == want && u.GPUWhy == ""
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	late := time.After(5 * time.Minute)
	for !ok() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("it does not come to be that %s", what)
		}
	}
}

func TestATaskUsesTheGPUsThatItWasGiven(t *testing.T) {
	smi := gputest.Here(t)
	smi.Set("80", "20")
	dir := t.TempDir()
	d := reopen(t, &Config{CgroupRoot: "none"}, dir, trainyard.Resources{})
	t.Cleanup(func() { d.Close() })
	if r, err := d.Capacity(t.Context()); err != nil || r.GPUs != 2 {
		t.Fatalf("capacity is %+v, %v", r, err)
	}
	start := func(task trainyard.Task) trainyard.TaskID {
		t.Helper()
		if err := d.Start(t.Context(), task); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Remove(context.Background(), task.ID) })
		return task.ID
	}
	one, two := start(gpuTask(t, "one", 1, nil)), start(gpuTask(t, "two", 1, nil))
	if err := d.Start(t.Context(), gpuTask(t, "many", 3, nil)); !trainyard.IsConflict(err) || !strings.Contains(err.Error(), "it needs 3 GPUs, and nvidia-smi tells of 2 on this node") {
		t.Errorf("three: %v", err)
	}
	any, chosen, none := start(gpuTask(t, "any", 0, nil)), start(gpuTask(t, "chosen", 0, map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-00000002-aaaa"})),
		start(gpuTask(t, "none", 0, map[string]string{"CUDA_VISIBLE_DEVICES": ""}))
	sees(t, d, one, "0")
	sees(t, d, two, "1")
	sees(t, d, any, "all")
	check := func(d *Driver) {
		t.Helper()
		uses(t, d, one, 80, "")
		uses(t, d, two, 20, "")
		uses(t, d, any, 50, "")
		uses(t, d, chosen, 20, "")
		uses(t, d, none, -1, "it has no GPU")
	}
	check(d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = reopen(t, &Config{CgroupRoot: "none"}, dir, trainyard.Resources{}) // another agent knows whose they are
	check(d)
	smi.Set("[N/A]", "40")
	uses(t, d, one, -1, "none of its GPUs (0) tells")
	uses(t, d, any, 40, "")
	if err := d.Remove(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	third, fourth := start(gpuTask(t, "third", 1, nil)), start(gpuTask(t, "fourth", 1, nil))
	sees(t, d, third, "1")
	sees(t, d, fourth, "0")
	if a, b := d.observe1(third), d.observe1(fourth); len(a.Notes) > 0 || !slices.Equal(b.Notes, []string{"other tasks have its GPUs (0) too: this node has no more"}) {
		t.Errorf("the notes are %q and %q", a.Notes, b.Notes)
	}
	before := len(smi.Asked())
	smi.Hang()
	eventually(t, "it is asked again and hangs", func() bool {
		if _, err := d.Usage(t.Context(), any); err != nil {
			t.Fatal(err)
		}
		return len(smi.Asked()) > before
	})
	from := time.Now()
	for range 10 {
		if u, err := d.Usage(t.Context(), one); err != nil || u.MemoryMB < 0 {
			t.Fatalf("while nvidia-smi hangs: %+v, %v", u, err)
		}
	}
	if took := time.Since(from); took > 30*time.Second { // it hangs for longer
		t.Errorf("while nvidia-smi hangs ten readings took %s", took)
	}
}

// A first answer that is late is not taken for one that there are no GPUs.
func TestATaskWaitsUntilItIsKnownWhichGPUsThereAre(t *testing.T) {
	smi := gputest.Here(t)
	smi.Hang()
	d := reopen(t, &Config{CgroupRoot: "none"}, t.TempDir(), trainyard.Resources{})
	t.Cleanup(func() { d.Close() })
	task := gpuTask(t, "early", 1, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.lend(gone, task); trainyard.CodeOf(err) != trainyard.CodeBusy {
		t.Errorf("before nvidia-smi answers: %v", err)
	}
	smi.Wake()
	if err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Remove(context.Background(), task.ID) })
	sees(t, d, task.ID, "0")
}

func TestANodesSizeMayHaveMoreGPUsThanThereAre(t *testing.T) {
	gputest.Here(t).Set("0")
	d := reopen(t, &Config{CgroupRoot: "none"}, t.TempDir(), trainyard.Resources{GPUs: 4})
	t.Cleanup(func() { d.Close() })
	task := gpuTask(t, "large", 4, nil)
	if err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Remove(context.Background(), task.ID) })
	sees(t, d, task.ID, "0")
	if o := d.observe1(task.ID); !slices.Equal(o.Notes, []string{"it needs 4 GPUs and has 1: its node's size has more than this computer"}) {
		t.Errorf("its notes are %q", o.Notes)
	}
	if err := d.Start(t.Context(), gpuTask(t, "larger", 5, nil)); !trainyard.IsConflict(err) {
		t.Errorf("more than the size has: %v", err)
	}
}

//go:build linux

package kube

import (
	"context"
	"crypto/md5"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/target/targettest"
)

const baseImage = "trainyard.test/base:1"

// newCluster is the Kubernetes that test/engines/kube/up.sh made, in a namespace of this test run's own.
func newCluster(t testing.TB) Config {
	t.Helper()
	file := os.Getenv("TRAINYARD_TEST_KUBECONFIG")
	if file == "" {
		const how = "no Kubernetes: test/engines/kube/up.sh FOLDER makes one, and prints what to set TRAINYARD_TEST_KUBECONFIG to"
		if os.Getenv("TRAINYARD_REQUIRE_ENGINES") != "" {
			t.Fatal(how)
		}
		t.Skip(how)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	small := InstanceType{Resources: PodResources{Requests: map[string]string{"cpu": "10m", "memory": "16Mi"}}}
	return Config{Kubeconfig: string(text), Image: baseImage, InstanceTypes: map[string]InstanceType{DefaultInstanceType: small}, shared: os.TempDir()}
}

var builtProgram = sync.OnceValues(func() (string, error) {
	out := filepath.Join(standInDir, "trainyard")
	cmd := exec.Command("go", "build", "-o", out, "./testdata/task")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the stand-in: %w\n%s", err, said)
	}
	return out, nil
})

var standInDir string // set before any test runs

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "trainyard-kube")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	standInDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// environment is an Env of a test's own.
func environment(t testing.TB, dir string) target.Env {
	t.Helper()
	program, err := builtProgram()
	if err != nil {
		t.Fatal(err)
	}
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	return target.Env{Dir: dir, Group: fmt.Sprintf("test-%d-%x", os.Getpid(), md5.Sum([]byte(t.Name()))), Program: program,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level}))}
}

func openDriver(t testing.TB, c Config, dir string) *Driver {
	t.Helper()
	d, err := c.Open(t.Context(), environment(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	k := d.(*Driver)
	eventually(t, "the cluster answers", func() bool { _, err := k.Observe(t.Context()); return err == nil })
	return k
}

// eventually waits until done says true.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	late := time.After(3 * time.Minute)
	for !done() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("after 3 min not true: %s", what)
		}
	}
}

// settled is the driver as the suite wants it: the suite's tasks are staged already, so what the program in the pod would say of a folder
// that is missing is said here, and Start waits until the cluster runs what it has taken.
type settled struct {
	*Driver
	t *testing.T
}

func (s settled) Start(ctx context.Context, t trainyard.Task) error {
	if _, err := os.Stat(t.Run.Dir); err != nil {
		return err
	}
	if err := s.Driver.Start(ctx, t); err != nil {
		return err
	}
	eventually(s.t, "the cluster runs "+string(t.ID), func() bool {
		o, ok := s.find(t.ID)
		return ok && o.State != trainyard.TaskStaging
	})
	return nil
}

func (d *Driver) find(id trainyard.TaskID) (trainyard.Observation, bool) {
	all, _ := d.Observe(context.Background())
	for _, o := range all {
		if o.ID == id {
			return o, true
		}
	}
	return trainyard.Observation{}, false
}

func TestConformance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	targettest.Run(t, func(t *testing.T, dir string) (target.Driver, func() target.Driver) {
		d := openDriver(t, c, dir)
		return settled{d, t}, func() target.Driver {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			d = openDriver(t, c, dir)
			return settled{d, t}
		}
	})
}

func TestAReplicaIsPlacedByWhatItAsksForAndMayUseMore(t *testing.T) {
	shape := PodResources{Requests: map[string]string{"cpu": "100m", "memory": "2Gi"}, Limits: map[string]string{"cpu": "2", "memory": "2Gi"}}
	for name, c := range map[string]struct {
		asks, may        trainyard.Resources
		requests, limits string
	}{
		"nothing":                   {requests: "map[cpu:100m memory:2Gi]", limits: "map[cpu:2 memory:2Gi]"},
		"requests alone":            {asks: trainyard.Resources{CPUs: 0.1, MemoryMB: 102}, requests: "map[cpu:100m memory:102Mi]", limits: "map[cpu:2 memory:2Gi]"},
		"both":                      {asks: trainyard.Resources{CPUs: 0.1, MemoryMB: 102}, may: trainyard.Resources{CPUs: 0.2, MemoryMB: 200}, requests: "map[cpu:100m memory:102Mi]", limits: "map[cpu:200m memory:200Mi]"},
		"limits alone":              {may: trainyard.Resources{CPUs: 0.2, MemoryMB: 200}, requests: "map[cpu:200m memory:200Mi]", limits: "map[cpu:200m memory:200Mi]"},
		"more than the type's":      {asks: trainyard.Resources{CPUs: 4}, requests: "map[cpu:4000m memory:2Gi]", limits: "map[cpu:4000m memory:2Gi]"},
		"a GPU is the same twice":   {asks: trainyard.Resources{GPUs: 1}, requests: "map[cpu:100m memory:2Gi nvidia.com/gpu:1]", limits: "map[cpu:2 memory:2Gi nvidia.com/gpu:1]"},
		"a thousandth is the least": {may: trainyard.Resources{CPUs: 0.0001}, requests: "map[cpu:1m memory:2Gi]", limits: "map[cpu:1m memory:2Gi]"},
	} {
		p := plan{shape: InstanceType{Resources: shape}, task: trainyard.Task{Requests: c.asks, Resources: c.may}}
		got := p.resources()
		if requests, limits := fmt.Sprint(got["requests"]), fmt.Sprint(got["limits"]); requests != c.requests || limits != c.limits {
			t.Errorf("%s: requests %s, limits %s; want %s, %s", name, requests, limits, c.requests, c.limits)
		}
	}
	if shape.Requests["cpu"] != "100m" {
		t.Error("the instance type itself was changed")
	}
}

//go:build !windows

package docker

import (
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/target/targettest"
)

// What test/engines/docker/up.sh prints.
const (
	hostVar     = "TRAINYARD_TEST_DOCKER_HOST"
	imageVar    = "TRAINYARD_TEST_DOCKER_IMAGE"
	registryVar = "TRAINYARD_TEST_DOCKER_REGISTRY"
)

// requireVar, set to 1, makes a missing engine a failure: nothing is to be skipped then.
const requireVar = "TRAINYARD_REQUIRE_ENGINES"

const upCommand = `eval "$(test/engines/docker/up.sh DIR)"`

const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if dir := os.Getenv(agentVar); dir != "" {
		if err := agent(dir, os.Getenv(agentVar+"_GROUP"), os.Getenv(agentVar+"_STEP")); err != nil {
			fmt.Println(err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// needEngine returns how to reach the engine for tests.
func needEngine(t testing.TB) Config {
	t.Helper()
	c := Config{Host: os.Getenv(hostVar), Image: os.Getenv(imageVar)}
	if c.Host != "" && c.Image != "" {
		return c
	}
	if os.Getenv(requireVar) == "1" {
		t.Fatalf("%s=1 and there is no Docker engine: run %s", requireVar, upCommand)
	}
	t.Skipf("%s not run: there is no Docker engine for it; run %s", t.Name(), upCommand)
	return c
}

// groupName tells the containers of one test from all others on the engine.
func groupName(t testing.TB) string {
	return fmt.Sprintf("test-%d-%x", os.Getpid(), md5.Sum([]byte(t.Name())))
}

// reopen opens a driver that its caller closes.
func reopen(t testing.TB, c Config, dir string, limit trainyard.Resources) *Driver {
	t.Helper()
	d, err := c.open(context.Background(), target.Env{Dir: dir, Limit: limit, Group: groupName(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// open opens a driver that is closed when the test ends, without its tasks.
func open(t testing.TB, c Config, dir string, limit trainyard.Resources) *Driver {
	t.Helper()
	d := reopen(t, c, dir, limit)
	t.Cleanup(func() {
		all, err := d.Observe(context.Background())
		if err != nil {
			t.Errorf("observe: %v", err)
		}
		for _, o := range all {
			if err := d.Remove(context.Background(), o.ID); err != nil {
				t.Error(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestConformance(t *testing.T) {
	c := needEngine(t)
	targettest.Run(t, func(t *testing.T, dir string) (target.Driver, func() target.Driver) {
		d := reopen(t, c, dir, trainyard.Resources{})
		return d, func() target.Driver {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			d = reopen(t, c, dir, trainyard.Resources{})
			return d
		}
	})
}

var names atomic.Int64

// newTestTask makes a task with a folder of its own.
func newTestTask(t testing.TB, command string) trainyard.Task {
	t.Helper()
	name := fmt.Sprintf("docker-%d", names.Add(1))
	root := t.TempDir()
	dir := filepath.Join(root, "work")
	for _, d := range []string{dir, filepath.Join(root, "user_logs")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return trainyard.Task{
		ID: trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), name), 1, 0), JobName: name, Attempt: 1, Hi: 1, Nodes: 1,
		Grace: 10 * time.Second,
		Run:   trainyard.Run{Command: command, Dir: dir, LogDir: filepath.Join(root, "user_logs"), Root: root, View: trainyard.ContainedView},
	}
}

func start(t testing.TB, d *Driver, task trainyard.Task) {
	t.Helper()
	if err := d.Start(t.Context(), task); err != nil {
		t.Fatalf("start: %v", err)
	}
}

func find(t testing.TB, d *Driver, id trainyard.TaskID) *trainyard.Observation {
	t.Helper()
	all, err := d.Observe(t.Context())
	if err != nil {
		t.Fatalf("observe: %v", err)
	}
	for _, o := range all {
		if o.ID == id {
			return &o
		}
	}
	return nil
}

// until looks again and again until done says true.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	late := time.After(patience)
	for !done() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("after %v not true: %s", patience, what)
		}
	}
}

// ended waits for the task's end.
func ended(t testing.TB, d *Driver, id trainyard.TaskID) (o trainyard.Observation) {
	t.Helper()
	until(t, "the task ends", func() bool {
		seen := find(t, d, id)
		if seen == nil {
			t.Fatalf("%s is not listed", id)
		}
		o = *seen
		return o.State == trainyard.TaskEnded
	})
	return o
}

// run starts a task, waits for its end and returns what it wrote.
func run(t testing.TB, d *Driver, task trainyard.Task) (string, trainyard.Result) {
	t.Helper()
	start(t, d, task)
	o := ended(t, d, task.ID)
	return logOf(t, d, task.ID), *o.Result
}

func logOf(t testing.TB, d *Driver, id trainyard.TaskID) string {
	t.Helper()
	r, err := d.Logs(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b strings.Builder
	if _, err := io.Copy(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

//go:build linux || darwin

package process

import (
	"context"
	"crypto/md5"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/target/targettest"
)

// open opens a driver on a folder; it is closed when the test ends.
func open(t testing.TB, c *Config, dir string, limit trainyard.Resources) *Driver {
	t.Helper()
	d := reopen(t, c, dir, limit)
	t.Cleanup(func() { d.Close() })
	return d
}

// reopen opens a driver that its caller closes.
func reopen(t testing.TB, c *Config, dir string, limit trainyard.Resources) *Driver {
	t.Helper()
	d, err := c.open(context.Background(), target.Env{Dir: dir, Limit: limit, Group: groupName(t)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// groupName tells the cgroups of one test from all others on the machine.
func groupName(t testing.TB) string {
	return fmt.Sprintf("test-%d-%x", os.Getpid(), md5.Sum([]byte(t.Name())))
}

func suite(c Config) targettest.Open {
	return func(t *testing.T, dir string) (target.Driver, func() target.Driver) {
		d := reopen(t, &c, dir, trainyard.Resources{})
		return d, func() target.Driver {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			d = reopen(t, &c, dir, trainyard.Resources{})
			return d
		}
	}
}

// Run with the race detector: some tasks have limits and some have none.
func TestTasksStartAtOnce(t *testing.T) {
	d := open(t, &Config{}, t.TempDir(), trainyard.Resources{})
	var all sync.WaitGroup
	var ids []trainyard.TaskID
	for i := range 6 {
		task := job(t, fmt.Sprintf("at-once-%d", i), "exit 3")
		if i%2 == 1 {
			task.Resources.MemoryMB = 100
		}
		ids = append(ids, task.ID)
		all.Go(func() {
			if err := d.Start(t.Context(), task); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, id := range ids {
		if o := waitEnded(t, d, id); o.Result.ExitCode != 3 {
			t.Errorf("result is %+v", *o.Result)
		}
		if err := d.Remove(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
}

func TestConformance(t *testing.T) { targettest.Run(t, suite(Config{})) }

func TestConformanceWithoutCgroups(t *testing.T) {
	targettest.Run(t, suite(Config{CgroupRoot: "none"}))
}

//go:build linux || darwin

package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// A driver in another place on the same folder, on the same computer even, knows that what was begun in the one before is gone for good.
func TestTasksOfAnotherPlaceAreLost(t *testing.T) {
	gone := trainyard.Result{Class: trainyard.ClassPreempted, Message: "job 7 was preempted"}
	in := func(t *testing.T, dir, place string) *Driver {
		d, err := (&Config{}).open(context.Background(), target.Env{Dir: dir, Group: groupName(t), Place: place, Lost: gone}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for name, c := range map[string]struct {
		place   string         // of the second driver
		command string         // of the task
		signal  syscall.Signal // that ends it when its driver is gone; 0: nothing does
		class   trainyard.Class
		words   string
	}{
		"killed with it":              {"8", "echo up; sleep 600", syscall.SIGKILL, trainyard.ClassPreempted, gone.Message},
		"it left processes alive":     {"8", "echo up; sleep 600", 0, trainyard.ClassPreempted, gone.Message},
		"the command was ended first": {"8", "echo up; kill -TERM $$", 0, trainyard.ClassPreempted, gone.Message},
		"it ended by itself before":   {"8", "echo up; exit 3", 0, trainyard.ClassUser, "exit code 3"},
		"it succeeded before":         {"8", "echo up", 0, trainyard.ClassOK, ""},
		"in the same place":           {"7", "echo up; sleep 600", syscall.SIGKILL, lostClass, "killed from outside"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := in(t, dir, "7")
			task := job(t, "placed", c.command)
			if err := d.Start(t.Context(), task); err != nil {
				t.Fatal(err)
			}
			d.mu.Lock()
			pid, done := d.tasks[task.ID.Dir()].proc.pid, d.tasks[task.ID.Dir()].done
			d.mu.Unlock()
			waitFor(t, "it is up", func() bool {
				data, err := os.ReadFile(filepath.Join(dir, task.ID.Dir(), logFile))
				return err == nil && strings.HasPrefix(string(data), "up\n")
			})
			if !strings.Contains(c.command, "sleep") {
				<-done
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if c.signal != 0 {
				if err := syscall.Kill(-pid, c.signal); err != nil {
					t.Fatal(err)
				}
			}
			d = in(t, dir, c.place)
			defer d.Close()
			o := waitEnded(t, d, task.ID)
			if o.Result.Class != c.class || !strings.HasPrefix(o.Result.Message, c.words) {
				t.Errorf("result is %+v, want %s and %q", *o.Result, c.class, c.words)
			}
			if _, zombie, there := procStart(pid); there && !zombie {
				t.Errorf("process %d of it is left", pid)
			}
			if err := d.Remove(t.Context(), task.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

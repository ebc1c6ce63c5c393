package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
)

func getsid(pid int) (int, error) { return unix.Getsid(pid) }

// What hides from the environment is found by its cgroup, where there are cgroups.
func TestProcessesAreFoundByTheirCgroup(t *testing.T) {
	l := newLocation(t)
	d := l.open(t)
	s := spec(t, "a", "")
	grow(t, d, s)
	made := 0
	for _, tree := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified/nested.slice"} {
		group := filepath.Join(tree, "trainyard", d.group(string(s.ID)), "task-1")
		if _, err := os.Stat(filepath.Join(filepath.Dir(tree), "cgroup.procs")); filepath.Base(tree) != "nested.slice" || err != nil {
			if _, err := os.Stat(filepath.Join(tree, "cgroup.procs")); err != nil {
				continue // no such hierarchy here
			}
		}
		if err := os.MkdirAll(group, 0o755); errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // what the driver should have removed, and what is shared
			for dir := group; filepath.Dir(dir) != "/sys/fs" && dir != tree; dir = filepath.Dir(dir) {
				_ = unix.Rmdir(dir)
			}
			if filepath.Base(tree) == "nested.slice" {
				_ = unix.Rmdir(tree)
			}
		})
		pid, runs := command(t, nil, "sleep 1000")
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, pid), 0o644); err != nil {
			t.Fatal(err)
		}
		made++
		t.Cleanup(func() {
			if runs() {
				t.Errorf("a process in %s still runs", group)
			}
			if _, err := os.Stat(filepath.Dir(group)); err == nil {
				t.Errorf("%s is still there", filepath.Dir(group))
			}
		})
	}
	if made == 0 {
		t.Skip("no cgroup can be made here: run as root, or in a session with a delegated cgroup")
	}
	if _, err := d.Shrink(t.Context(), []trainyard.NodeID{s.ID}); err != nil {
		t.Fatal(err)
	}
}

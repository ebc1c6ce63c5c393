package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/target/targettest"
)

// openAlone opens a driver as the program does that runs one task.
func openAlone(t *testing.T, dir string) *Driver {
	t.Helper()
	d, err := (&Config{}).open(context.Background(), target.Env{Dir: dir, Group: groupName(t), Alone: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestConformanceAlone(t *testing.T) {
	targettest.RunAlone(t, func(t *testing.T, dir string) (target.Driver, func() target.Driver) {
		d := openAlone(t, dir)
		return d, func() target.Driver { return d }
	})
}

func TestAloneWritesNoMoreThanTheTaskReads(t *testing.T) {
	dir := t.TempDir()
	d := openAlone(t, dir)
	task := job(t, "alone", `echo "$TMPDIR"; exit 3`)
	o, log := run(t, d, task)
	if o.Result.Class != trainyard.ClassUser || o.Result.ExitCode != 3 || strings.TrimSpace(log) != d.path(task.ID.Dir(), tmpDir) {
		t.Errorf("result is %+v, log is %q", *o.Result, log)
	}
	var files []string
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
		rel, _ := filepath.Rel(dir, path)
		files = append(files, strings.ReplaceAll(rel, task.ID.Dir(), "T"))
		return nil
	})
	if got := strings.Join(files, " "); got != ". run-T run-T/log run-T/tmp" {
		t.Errorf("files are %s", got)
	}
	if err := d.Remove(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("after its removal %v are there", left)
	}
}

func TestLimitsOfATaskAloneHold(t *testing.T) {
	d := openAlone(t, t.TempDir())
	task := job(t, "eat", "head -c 200000000 /dev/zero | tail; exit ${PIPESTATUS[1]}")
	task.Resources = trainyard.Resources{MemoryMB: 100, CPUs: 0.5}
	o, _ := run(t, d, task)
	held := o.Result.Class == trainyard.ClassOutOfMemory && o.Result.LimitMB == 100
	if named := strings.Contains(strings.Join(o.Notes, "; "), "memory limit of 100 MB is not held"); held == named {
		t.Errorf("notes are %q, and a task that takes more memory than it may ends as %+v", o.Notes, *o.Result)
	}
	if err := d.Remove(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	groups := d.host.groups
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []place{groups.tree, groups.memory, groups.cpu} {
		if p.dir != "" && exists(p.dir) {
			t.Errorf("%s is left", p.dir)
		}
	}
}

package docker

import (
	"strings"
	"syscall"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestAFullDiskIsSaidOfPackages(t *testing.T) {
	c := needEngine(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatalf("a small disk, which takes root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	d := open(t, c, dir, trainyard.Resources{})
	err := d.Prepare(t.Context(), in(t, "true", trainyard.EnvironmentPlan{Image: c.Image, CondaFile: conda(crashing(t), "", "tiny")}), &teller{})
	if trainyard.ClassOf(err) != trainyard.ClassDisk || !strings.Contains(err.Error(), "no room on node: the disk was full while") || !strings.Contains(err.Error(), dir) {
		t.Errorf("class %q: %v", trainyard.ClassOf(err), err)
	}
}

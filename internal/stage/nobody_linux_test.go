package stage

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
)

// asNobody calls f with the rights of an ordinary user to files, who owns what is in and around dir, a folder in a t.TempDir. Root could do anything.
func asNobody(t *testing.T, dir string, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	err := filepath.WalkDir(filepath.Dir(filepath.Dir(dir)), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	})
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // file system rights are a thread's
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setfsuid(0); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

func TestDiskThatIsFullInTheMiddleIsSaid(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	_, err = full.WriteString("x")
	s := stager(t, newStore(t))
	wantFault(t, s.local(err, trainyard.ClassData, s.cache, 5<<20), trainyard.ClassDisk, "no room on node: needs 5.0 MiB, has", s.cache)
}

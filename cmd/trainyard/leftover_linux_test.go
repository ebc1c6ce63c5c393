package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// A server that was killed before it had taken away what was left of nodes does so at its next start, and leaves alone all else.
func TestWhatIsLeftOfNodesThatAreGoneGoesAtTheNextStart(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.submit("before", "local", "true")
	l.until("before", trainyard.JobCompleted)
	l.kill()
	mine, err := filepath.Glob(filepath.Join(l.data, "nodes", "local-*"))
	if err != nil || len(mine) != 1 {
		t.Fatalf("the folders of nodes are %q, %v", mine, err)
	}
	owner := readFile(filepath.Join(mine[0], "database"))
	if len(owner) != 32 {
		t.Fatalf("its folder is of database %q", owner)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	put := func(path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	node := func(name string, parts ...string) string {
		return filepath.Join(append([]string{l.data, "nodes", name}, parts...)...)
	}
	left, work := node("lab-0123456789"), filepath.Join(l.data, "cache", "work", "lab-0123456789")
	put(filepath.Join(left, "database"), owner)
	put(filepath.Join(left, "tasks", "locked", "file"), "x")
	put(filepath.Join(work, "file"), "x")
	put(filepath.Join(elsewhere, "database"), owner)
	others := []string{node("lab-of-another", "database"), node("lost+found", "file"), filepath.Join(elsewhere, "database")}
	put(others[0], strings.Repeat("0", 32))
	put(others[1], "x")
	if err := errors.Join(os.Chmod(filepath.Join(left, "tasks", "locked"), 0), os.Symlink(elsewhere, node("link-0123456789")),
		os.Symlink(elsewhere, filepath.Join(left, "tasks", "link"))); err != nil {
		t.Fatal(err)
	}
	l.start()
	gone := func(path string) bool { _, err := os.Lstat(path); return errors.Is(err, fs.ErrNotExist) }
	l.wait("what was left is gone", func() bool { return gone(left) && gone(work) })
	for _, path := range append(others, mine[0], node("link-0123456789")) {
		if gone(path) {
			t.Errorf("%s is gone", path)
		}
	}
	l.submit("after", "local", "true")
	l.until("after", trainyard.JobCompleted)
	if now, _ := filepath.Glob(filepath.Join(l.data, "nodes", "local-*")); len(now) != 1 || now[0] != mine[0] {
		t.Errorf("the folders of nodes are %q", now)
	}
}

package slim

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

func pack(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func here(dir string) string {
	return filepath.Join(dir, "trainyard-"+runtime.GOOS+"-"+runtime.GOARCH)
}

func TestWhatIsUnpackedIsWholeAndStays(t *testing.T) {
	dir := t.TempDir()
	programs := map[string][]byte{runtime.GOARCH: pack(t, "one"), "other": pack(t, "two")}
	paths := make([]string, 8)
	var all sync.WaitGroup
	for i := range paths {
		all.Go(func() {
			var err error
			if paths[i], err = unpack(programs, dir, "self"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, p := range paths {
		if p != paths[0] || p != here(filepath.Dir(p)) {
			t.Fatalf("paths are %q", paths)
		}
	}
	for name, want := range map[string]string{paths[0]: "one", filepath.Join(filepath.Dir(paths[0]), "trainyard-linux-other"): "two"} {
		info, err := os.Stat(name)
		if err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s cannot be run: %v %v", name, info, err)
		}
		if got, _ := os.ReadFile(name); string(got) != want {
			t.Errorf("%s holds %q", name, got)
		}
	}
	left, _ := os.ReadDir(filepath.Dir(paths[0]))
	if len(left) != 2 {
		t.Errorf("it left %v", left)
	}
	if err := os.WriteFile(paths[0], []byte("half"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(programs, dir, "self"); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(paths[0]); string(got) != "one" {
		t.Errorf("a damaged one is still %q", got)
	}
	newer, err := unpack(map[string][]byte{runtime.GOARCH: pack(t, "newer")}, dir, "self")
	if err != nil || newer == paths[0] {
		t.Errorf("another version is at %s, %v", newer, err)
	}
	if _, err := os.Stat(paths[0]); err != nil {
		t.Errorf("the version before is gone, and jobs may name it: %v", err)
	}
}

func TestWithoutAProgramForThisComputerItIsThisOne(t *testing.T) {
	for _, programs := range []map[string][]byte{nil, {"other": pack(t, "x")}} {
		if got, err := unpack(programs, t.TempDir(), "/bin/self"); got != "/bin/self" || err != nil {
			t.Errorf("got %s, %v", got, err)
		}
	}
}

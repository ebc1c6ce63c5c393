package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
)

func open(t testing.TB) *Bucket {
	t.Helper()
	b, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func put(t testing.TB, b *Bucket, key, content string) {
	t.Helper()
	if err := b.Put(context.Background(), key, strings.NewReader(content)); err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
}

func content(t testing.TB, b *Bucket, key string, offset int64) string {
	t.Helper()
	r, _, err := b.Open(context.Background(), key, offset)
	if err != nil {
		t.Fatalf("open %q: %v", key, err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read %q: %v", key, err)
	}
	return string(data)
}

func keys(t testing.TB, b *Bucket, prefix string) []string {
	t.Helper()
	infos, err := b.List(context.Background(), prefix)
	if err != nil {
		t.Fatalf("list %q: %v", prefix, err)
	}
	out := []string{}
	for _, i := range infos {
		out = append(out, i.Key)
	}
	return out
}

func TestEveryLegalNameHoldsItsOwnBytes(t *testing.T) {
	b := open(t)
	want := map[string]string{}
	for i, name := range strange {
		key := "c/" + name
		want[key] = fmt.Sprintf("content %d", i)
		put(t, b, key, want[key])
	}
	for key, text := range want {
		if got := content(t, b, key, 0); got != text {
			t.Errorf("%q holds %q, want %q", key, got, text)
		}
		if info, err := b.Stat(t.Context(), key); err != nil || info.Key != key || info.Size != int64(len(text)) {
			t.Errorf("Stat(%q) = %+v, %v", key, info, err)
		}
		size, err := b.Append(t.Context(), key, int64(len(text)), []byte("+more"))
		if err != nil || size != int64(len(text)+5) {
			t.Errorf("Append(%q) = %d, %v", key, size, err)
		}
		if got := content(t, b, key, 0); got != text+"+more" {
			t.Errorf("%q holds %q after append: Append and Put do not agree on the file", key, got)
		}
	}
	listed := keys(t, b, "c/")
	if len(listed) != len(want) {
		t.Errorf("listed %d keys, want %d: %q", len(listed), len(want), listed)
	}
	for _, key := range listed {
		if want[key] == "" {
			t.Errorf("listed %q, which was not stored", key)
		}
		if err := b.Delete(t.Context(), key); err != nil {
			t.Errorf("Delete(%q): %v", key, err)
		}
	}
	if left := files(t, b.dir); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// files lists every file below dir, and folders below the first two levels.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if err == nil && (!d.IsDir() || strings.Count(rel, string(filepath.Separator)) > 1) {
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAPutThatFailsStoresNothing(t *testing.T) {
	b := open(t)
	put(t, b, "c/x", "old")
	broken := errors.New("client hung up")
	r := io.MultiReader(strings.NewReader(strings.Repeat("new", 100_000)), iotest.ErrReader(broken))
	if err := b.Put(t.Context(), "c/x", r); !errors.Is(err, broken) {
		t.Fatalf("Put = %v, want %v", err, broken)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Put(ctx, "c/x", strings.NewReader("new")); !errors.Is(err, context.Canceled) {
		t.Fatalf("Put = %v, want canceled", err)
	}
	if got := content(t, b, "c/x", 0); got != "old" {
		t.Errorf("the object is %q, want it whole as it was", got)
	}
	if left := files(t, filepath.Join(b.dir, putDir)); len(left) > 0 {
		t.Errorf("left in %s: %q", putDir, left)
	}
}

func TestAnObjectIsUnseenUntilWholeAndAReaderKeepsItsVersion(t *testing.T) {
	b := open(t)
	put(t, b, "c/x", "version one")
	reader, info, err := b.Open(t.Context(), "c/x", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- b.Put(context.Background(), "c/x", pr) }()
	io.WriteString(pw, "version ")
	if got := content(t, b, "c/x", 0); got != "version one" {
		t.Errorf("while it is replaced, readers see %q", got)
	}
	if got := keys(t, b, ""); !cmp.Equal(got, []string{"c/x"}) {
		t.Errorf("while it is replaced, the list is %q", got)
	}
	io.WriteString(pw, "two is longer")
	pw.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	old, err := io.ReadAll(reader)
	if err != nil || string(old) != "version one" || info.Size != int64(len(old)) {
		t.Errorf("a reader of the old version got %q of %d bytes, %v", old, info.Size, err)
	}
	if got := content(t, b, "c/x", 8); got != "two is longer" {
		t.Errorf("from byte 8: %q", got)
	}
}

func TestRanges(t *testing.T) {
	b := open(t)
	put(t, b, "c/x", "0123456789")
	for _, c := range []struct {
		offset, length int64
		want           string
	}{{0, -1, "0123456789"}, {3, 4, "3456"}, {8, 100, "89"}, {10, 5, ""}, {99, -1, ""}, {0, 0, ""}} {
		r, info, err := b.OpenRange(t.Context(), "c/x", c.offset, c.length)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(got) != c.want || info.Size != 10 {
			t.Errorf("OpenRange(%d, %d) = %q of %d, %v; want %q", c.offset, c.length, got, info.Size, err, c.want)
		}
	}
	if _, _, err := b.OpenRange(t.Context(), "c/x", -1, 5); trainyard.CodeOf(err) != trainyard.CodeInvalid {
		t.Errorf("a negative offset: %v", err)
	}
}

func TestOnlyIfItDoesNotExist(t *testing.T) {
	b := open(t)
	var won, lost atomic.Int32
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			_, err := b.PutWith(context.Background(), "c/x", strings.NewReader(fmt.Sprint(i)), "", nil, true)
			switch {
			case err == nil:
				won.Add(1)
			case trainyard.IsConflict(err):
				lost.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != 19 {
		t.Errorf("%d won and %d lost, want 1 and 19", won.Load(), lost.Load())
	}
}

func TestMetadataBelongsToTheBytesItWasStoredWith(t *testing.T) {
	b := open(t)
	meta := map[string]string{"upload_status": "completed", "name": "d1"}
	first, err := b.PutWith(t.Context(), "c/dir/x", strings.NewReader("one"), "text/csv", meta, false)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), b.dir) // as after a restart
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	info, err := again.Stat(t.Context(), "c/dir/x")
	if err != nil || !cmp.Equal(info, first) || info.Type != "text/csv" || !cmp.Equal(info.Metadata, meta) {
		t.Fatalf("Stat = %+v, %v; want %+v", info, err, first)
	}
	changed, err := b.SetMetadata(t.Context(), "c/dir/x", map[string]string{"k": "v"})
	if err != nil || changed.ETag == first.ETag || !changed.Modified.After(first.Modified) || changed.Type != "text/csv" {
		t.Fatalf("SetMetadata = %+v, %v", changed, err)
	}
	r, info, err := b.Open(t.Context(), "c/dir/x", 0)
	if err != nil || !cmp.Equal(info, changed) || info.Metadata["k"] != "v" {
		t.Fatalf("Open = %+v, %v; want %+v", info, err, changed)
	}
	r.Close()
	put(t, b, "c/dir/x", "two") // of the same size
	if info, _ := b.Stat(t.Context(), "c/dir/x"); len(info.Metadata) > 0 || info.Type != defaultType || info.ETag == changed.ETag {
		t.Errorf("after a Put without metadata: %+v", info)
	}
	if left := files(t, filepath.Join(b.dir, metaDir)); len(left) > 0 {
		t.Errorf("metadata left behind: %q", left)
	}
	if _, err := b.SetMetadata(t.Context(), "c/none", meta); !trainyard.IsNotFound(err) {
		t.Errorf("SetMetadata of nothing: %v", err)
	}
}

func TestFilesAndFoldersOfOneName(t *testing.T) {
	b := open(t)
	put(t, b, "c/a", "file")
	if err := b.Put(t.Context(), "c/a/b", strings.NewReader("x")); !trainyard.IsConflict(err) || !strings.Contains(err.Error(), `"c/a"`) {
		t.Errorf("below a blob: %v", err)
	}
	if _, err := b.Append(t.Context(), "c/a/b/c", 0, []byte("x")); !trainyard.IsConflict(err) {
		t.Errorf("append below a blob: %v", err)
	}
	put(t, b, "c/d/e", "x")
	if err := b.Put(t.Context(), "c/d", strings.NewReader("x")); !trainyard.IsConflict(err) || !strings.Contains(err.Error(), `"c/d/"`) {
		t.Errorf("in place of a folder: %v", err)
	}
	for _, key := range []string{"c/d", "c/a/b", "c/none", "none/x"} {
		if _, err := b.Stat(t.Context(), key); !trainyard.IsNotFound(err) {
			t.Errorf("Stat(%q) = %v", key, err)
		}
		if _, _, err := b.Open(t.Context(), key, 0); !trainyard.IsNotFound(err) {
			t.Errorf("Open(%q) = %v", key, err)
		}
		if err := b.Delete(t.Context(), key); !trainyard.IsNotFound(err) {
			t.Errorf("Delete(%q) = %v", key, err)
		}
	}
	if err := os.MkdirAll(b.path("c/empty/of/all"), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, b, "c/empty", "an empty folder is nothing")
	if err := b.Delete(t.Context(), "c/d/e"); err != nil {
		t.Fatal(err)
	}
	put(t, b, "c/d", "now it can be")
	if left := files(t, filepath.Join(b.dir, putDir)); len(left) > 0 {
		t.Errorf("left in %s: %q", putDir, left)
	}
}

func TestDeletePrefix(t *testing.T) {
	b := open(t)
	all := []string{"c/job", "c/job1/a", "c/job1/b/c", "c/job10/a", "c/jobs/x", "d/job1/a"}
	for _, k := range all {
		if _, err := b.PutWith(t.Context(), k, strings.NewReader(k), "text/plain", nil, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Append(t.Context(), "c/job1/log", 0, []byte("line")); err != nil {
		t.Fatal(err)
	}
	if err := b.DeletePrefix(t.Context(), "c/job1/"); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, b, ""); !cmp.Equal(got, []string{"c/job", "c/job10/a", "c/jobs/x", "d/job1/a"}) {
		t.Errorf("left: %q", got)
	}
	if size, err := b.Append(t.Context(), "c/job1/log", 4, []byte("more")); size != 0 || err != nil {
		t.Errorf("appending to a deleted log = %d, %v: want 0, it is gone", size, err)
	}
	if err := b.DeletePrefix(t.Context(), "c/job1"); err != nil {
		t.Fatal(err)
	}
	if err := b.DeletePrefix(t.Context(), "c/nothing/here/"); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, b, ""); !cmp.Equal(got, []string{"c/job", "c/jobs/x", "d/job1/a"}) {
		t.Errorf("left: %q", got)
	}
	if err := b.DeletePrefix(t.Context(), "c/"); err != nil {
		t.Fatal(err)
	}
	if left := files(t, b.dir); !cmp.Equal(left, []string{filepath.FromSlash(".meta/d/job1"), filepath.FromSlash(".meta/d/job1/" + filepath.Base(left[1])), filepath.FromSlash("d/job1/a")}) {
		t.Errorf("left on disk: %q", left)
	}
}

func TestOpenRefusesWhatIsNoFolder(t *testing.T) {
	for _, dsn := range []string{"s3://bucket?region=eu", "azblob://c", "gs://b", "mem://"} {
		if _, err := Open(t.Context(), dsn); trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), dsn) {
			t.Errorf("Open(%q) = %v", dsn, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("Open of a file = %v", err)
	}
	if runtime.GOOS != "windows" {
		b, err := Open(t.Context(), "file://"+t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		b.Close()
	}
}

func TestOpenClearsWhatAKilledProcessLeft(t *testing.T) {
	b := open(t)
	left := filepath.Join(b.dir, putDir, "gone-1", "c")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "x"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), b.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if left := files(t, b.dir); len(left) > 0 {
		t.Errorf("still there: %q", left)
	}
}

func BenchmarkPut(b *testing.B) {
	s := open(b)
	data := bytes.Repeat([]byte("x"), 4096)
	for i := range b.N {
		if err := s.Put(b.Context(), fmt.Sprintf("c/%d", i), bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	s := open(b)
	line := bytes.Repeat([]byte("x"), 100)
	for i := range b.N {
		if _, err := s.Append(b.Context(), "c/log", int64(i*len(line)), line); err != nil {
			b.Fatal(err)
		}
	}
}

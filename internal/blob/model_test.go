package blob

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trainyard/trainyard"
)

// names that sort differently as keys and as folders: "a-" < "a/" < "a0".
var nameGen = rapid.SampledFrom([]string{"a", "a-", "a.", "a0", "ab", "b", "ä", "%", "z z", "A"})

func TestListIsWholeAndInOrderOfKeys(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b, err := Open(t.Context(), t.TempDir())
		if err != nil {
			rt.Fatal(err)
		}
		defer b.Close()
		var want []string
		for _, parts := range rapid.SliceOfN(rapid.SliceOfN(nameGen, 1, 4), 0, 25).Draw(rt, "keys") {
			key := "c/" + strings.Join(parts, "/")
			if _, err := b.Append(context.Background(), key, 0, []byte("x")); err == nil && !slices.Contains(want, key) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		prefix := "c/" + rapid.SampledFrom([]string{"", "a", "a/", "a/a", "a-", "b/ä", "none/"}).Draw(rt, "prefix")
		want = slices.DeleteFunc(want, func(k string) bool { return !strings.HasPrefix(k, prefix) })
		if got := keys(t, b, prefix); !slices.Equal(got, want) {
			rt.Fatalf("List(%q) = %q, want %q", prefix, got, want)
		}
		delimiter := rapid.SampledFrom([]string{"", "/", "-", "a", "/a"}).Draw(rt, "delimiter")
		checkPages(rt, b, prefix, delimiter, rapid.IntRange(1, 6).Draw(rt, "max"), rollUp(want, prefix, delimiter))
	})
}

// rollUp is what pages with a delimiter hold in all, the simple way. A prefix is marked.
func rollUp(keys []string, prefix, delimiter string) []string {
	out := []string{}
	for _, k := range keys {
		if i := strings.Index(k[len(prefix):], delimiter); delimiter != "" && i >= 0 {
			k = "prefix " + k[:len(prefix)+i+len(delimiter)]
		}
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

func checkPages(rt *rapid.T, b *Bucket, prefix, delimiter string, max int, want []string) {
	got, marker := []string{}, ""
	for range len(want) + 2 {
		items, prefixes, next, err := b.Page(context.Background(), prefix, delimiter, marker, max)
		if err != nil {
			rt.Fatal(err)
		}
		if len(items)+len(prefixes) > max {
			rt.Fatalf("a page of %d and %d with max %d", len(items), len(prefixes), max)
		}
		for _, i := range items {
			got = append(got, i.Key)
		}
		for _, p := range prefixes {
			got = append(got, "prefix "+p)
		}
		if marker = next; marker == "" {
			break
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		rt.Fatalf("Page(%q, %q, max %d) in all = %q, want %q", prefix, delimiter, max, got, want)
	}
}

func TestBadMarkersAreRefused(t *testing.T) {
	b := open(t)
	for _, m := range []string{"!", "c/x"} {
		if _, _, _, err := b.Page(t.Context(), "c/", "", m, 10); trainyard.CodeOf(err) != trainyard.CodeInvalid {
			t.Errorf("marker %q: %v", m, err)
		}
	}
}

// Whatever is sent, in pieces that overlap, repeat, jump ahead and come after a restart, the log is a prefix of what was said, and no
// byte that was acknowledged is missing.
func TestAppendNeverDoublesNorSkips(t *testing.T) {
	said := strings.Repeat("0123456789abcdef", 20)
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		b, err := Open(t.Context(), dir)
		if err != nil {
			rt.Fatal(err)
		}
		size := int64(0)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				b.Close()
				if b, err = Open(t.Context(), dir); err != nil {
					rt.Fatal(err)
				}
			}
			from := rapid.IntRange(0, min(len(said), int(size)+10)).Draw(rt, "from")
			to := rapid.IntRange(from, min(len(said), from+40)).Draw(rt, "to")
			want := size
			if int64(from) <= size {
				want = max(size, int64(to))
			}
			got, err := b.Append(context.Background(), "c/log", int64(from), []byte(said[from:to]))
			if err != nil || got != want {
				rt.Fatalf("Append([%d:%d)) at size %d = %d, %v; want %d", from, to, size, got, err, want)
			}
			size = got
		}
		if size > 0 {
			if got := content(t, b, "c/log", 0); got != said[:size] {
				rt.Fatalf("the log is %q, want %q", got, said[:size])
			}
		} else if _, err := b.Stat(context.Background(), "c/log"); !trainyard.IsNotFound(err) {
			rt.Fatalf("a gap made an object: %v", err)
		}
		b.Close()
	})
}

func TestAppendFollowsPutAndDelete(t *testing.T) {
	b := open(t)
	ctx := t.Context()
	appendTo := func(offset int64, data string, want int64) {
		t.Helper()
		if got, err := b.Append(ctx, "c/x", offset, []byte(data)); got != want || err != nil {
			t.Errorf("Append(%d, %q) = %d, %v; want %d", offset, data, got, err, want)
		}
	}
	appendTo(0, "log", 3)
	put(t, b, "c/x", "replaced")
	appendTo(8, "+", 9)
	if got := content(t, b, "c/x", 0); got != "replaced+" {
		t.Errorf("%q", got)
	}
	if err := b.Delete(ctx, "c/x"); err != nil {
		t.Fatal(err)
	}
	appendTo(9, "gone", 0)
	appendTo(0, "anew", 4)
	if got := content(t, b, "c/x", 0); got != "anew" {
		t.Errorf("%q", got)
	}
	if _, err := b.Append(ctx, "c/x", -1, []byte("x")); trainyard.CodeOf(err) != trainyard.CodeInvalid {
		t.Errorf("a negative offset: %v", err)
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	b := open(t)
	for round := range 2 {
		for i := range 600 {
			key := fmt.Sprintf("c/%d", i)
			if size, err := b.Append(t.Context(), key, int64(round), []byte("x")); size != int64(round)+1 || err != nil {
				t.Fatalf("Append(%s) = %d, %v", key, size, err)
			}
		}
	}
	held := 0
	for i := range b.stripes {
		held += len(b.stripes[i].open)
	}
	if held == 0 || held > len(b.stripes)*perStripe {
		t.Errorf("%d files are open, want at most %d", held, len(b.stripes)*perStripe)
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil && len(fds) > len(b.stripes)*perStripe+50 {
		t.Errorf("the process has %d open files", len(fds))
	}
}

func TestPagesWithMetadata(t *testing.T) {
	b := open(t)
	meta := map[string]string{"k": "v"}
	want, err := b.PutWith(t.Context(), "c/x", strings.NewReader("x"), "text/plain", meta, false)
	if err != nil {
		t.Fatal(err)
	}
	items, _, _, err := b.Page(t.Context(), "c/", "/", "", 10)
	if err != nil || !cmp.Equal(items, []trainyard.BlobInfo{want}) {
		t.Errorf("Page = %+v, %v; want %+v", items, err, want)
	}
}

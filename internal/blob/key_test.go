package blob

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// strange names are ones that some layer below us gives a meaning of its own.
var strange = []string{"a b", "a+b", "a%20b", "100%", "#1", "?x=1", "a&b", "grün/日本語/🚂", "x.attrs", "x.attrs.attrs", "x.tmp",
	"__0x2f__", "..foo", "foo..", "foo2../bar", "a\\b", "CON", "nul.txt", "COM1", "tab\tnewline\n", "<a:b>|*\"", " lead", "trail ",
	"dot.", ".hidden", "@", "a@1-2", ".put", ".meta/x", strings.Repeat("n", 220), "%2E", "\u00e9", "e\u0301"}

func TestBadKeysAreRefused(t *testing.T) {
	b := open(t)
	for name, key := range map[string]string{
		"empty":                  "",
		"no container":           "file.txt",
		"absolute":               "/etc/passwd",
		"ends with a slash":      "c/folder/",
		"empty part":             "c//x",
		"dot part":               "c/./x",
		"climbs":                 "c/../../etc/passwd",
		"climbs at once":         "../x/y",
		"climbs at the end":      "c/..",
		"NUL":                    "c/a\x00b",
		"not UTF-8":              "c/\xff\xfe",
		"longer than 1024 bytes": "c/" + strings.Repeat("d/", 600) + "x",
		"part longer than 220":   "c/" + strings.Repeat("n", 221),
		"escapes to over 220":    "c/" + strings.Repeat("%", 80),
		"a folder of our own":    ".put/x",
		"metadata of our own":    ".meta/c/x@1-1",
	} {
		t.Run(name, func(t *testing.T) {
			_, statErr := b.Stat(t.Context(), key)
			_, _, openErr := b.Open(t.Context(), key, 0)
			_, appendErr := b.Append(t.Context(), key, 0, []byte("x"))
			_, metaErr := b.SetMetadata(t.Context(), key, nil)
			for op, err := range map[string]error{"Put": b.Put(t.Context(), key, strings.NewReader("x")), "Stat": statErr, "Open": openErr,
				"Append": appendErr, "SetMetadata": metaErr, "Delete": b.Delete(t.Context(), key)} {
				if trainyard.CodeOf(err) != trainyard.CodeInvalid {
					t.Errorf("%s(%q) = %v, want a ValidationError", op, key, err)
				}
			}
		})
	}
	for _, prefix := range []string{"../", "c/../", "c//", "/", ".put/"} {
		if _, err := b.List(t.Context(), prefix); trainyard.CodeOf(err) != trainyard.CodeInvalid {
			t.Errorf("List(%q) = %v, want a ValidationError", prefix, err)
		}
	}
	for _, prefix := range []string{"", "c", "../", "c/../", ".put/", ".meta/"} {
		if err := b.DeletePrefix(t.Context(), prefix); trainyard.CodeOf(err) != trainyard.CodeInvalid {
			t.Errorf("DeletePrefix(%q) = %v, want a ValidationError", prefix, err)
		}
	}
}

func FuzzKey(f *testing.F) {
	for _, name := range strange {
		f.Add("c/" + name)
	}
	f.Add("../../etc/passwd")
	f.Add("c/%2E%2E/x")
	f.Fuzz(func(t *testing.T, key string) {
		name, err := diskName(key)
		if err != nil {
			if trainyard.CodeOf(err) != trainyard.CodeInvalid {
				t.Fatalf("%q: %v is not for a user", key, err)
			}
			return
		}
		root := filepath.FromSlash("/root/of/blobs")
		path := filepath.Join(root, filepath.FromSlash(name))
		if rel, err := filepath.Rel(root, path); err != nil || rel != filepath.FromSlash(name) || strings.HasPrefix(rel, ".") {
			t.Fatalf("%q becomes %q, which is at %q", key, name, path)
		}
		var back []string
		for part := range strings.SplitSeq(name, "/") {
			p, ok := unescapeName(part)
			if !ok {
				t.Fatalf("%q becomes %q, and that is not taken for ours", key, part)
			}
			if strings.HasSuffix(part, ".attrs") || strings.Contains(part, "__0x") || strings.HasSuffix(part, ".") || strings.ContainsAny(part, `\:*?"<>|`) {
				t.Fatalf("%q becomes %q, which some layer below gives a meaning", key, part)
			}
			back = append(back, p)
		}
		if got := strings.Join(back, "/"); got != key {
			t.Fatalf("%q becomes %q and comes back as %q", key, name, got)
		}
	})
}

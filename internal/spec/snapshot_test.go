package spec_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trainyard/trainyard/internal/spec"
)

func paths(t *testing.T, dir string) []string {
	t.Helper()
	tree, err := spec.Snapshot(dir, -1)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range tree.Files {
		all = append(all, f.Path)
	}
	return all
}

// The value was computed by get_content_hash of azure-ai-ml 1.35.2 for the same files.
func TestHashIsTheOneThatClientsOfAzureSend(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"train.py": "print(1)\n", "Zeta.txt": "z", "sub/a.txt": "", "Sub2/é.txt": "accent\n", "alpha.txt": "a"} {
		write(t, dir, name, text)
	}
	tree, err := spec.Snapshot(dir, spec.SnapshotLimit)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tree.Hash()
	if err != nil {
		t.Fatal(err)
	}
	if want := "5d09cd51bf8c723a4702947b88eb65e415b340b7b517fdc3204656c8d545641d"; got != want {
		t.Errorf("the hash is %s, want %s", got, want)
	}
	if want := []string{"alpha.txt", "sub/a.txt", "Sub2/é.txt", "train.py", "Zeta.txt"}; !slices.Equal(paths(t, dir), want) {
		t.Errorf("files are %v, want %v", paths(t, dir), want)
	}
	if tree.Size != 18 {
		t.Errorf("the size is %d", tree.Size)
	}
}

func TestASnapshotOfAFileHoldsThatFile(t *testing.T) {
	file := write(t, t.TempDir(), "train.py", "x")
	tree, err := spec.Snapshot(file, spec.SnapshotLimit)
	if err != nil || len(tree.Files) != 1 || tree.Files[0].Path != "train.py" {
		t.Fatalf("got %+v, %v", tree, err)
	}
	got, err := tree.Hash()
	sum := sha256.Sum256([]byte("1#train.py#1x"))
	if err != nil || got != hex.EncodeToString(sum[:]) {
		t.Errorf("the hash is %s, %v", got, err)
	}
}

func TestAmlignoreWinsOverGitignoreInItsFolder(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{".amlignore": "*.log\n", ".gitignore": "*.py\n", "a.py": "", "a.log": "", "sub/.gitignore": "*.txt\n!keep.txt\n/only-here\n",
		"sub/a.txt": "", "sub/keep.txt": "", "sub/a.log": "", "sub/only-here": "", "sub/deep/only-here": "", ".git/config": "", "sub/.git/HEAD": "", "a.txt": ""} {
		write(t, dir, name, text)
	}
	want := []string{".amlignore", ".gitignore", "a.py", "a.txt", "sub/.gitignore", "sub/deep/only-here", "sub/keep.txt"}
	if diff := cmp.Diff(want, paths(t, dir)); diff != "" {
		t.Error(diff)
	}
}

func TestLinksAreFollowedInside(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege on Windows")
	}
	dir, outside := t.TempDir(), t.TempDir()
	write(t, dir, "real/a.txt", "a")
	write(t, outside, "secret.txt", "s")
	for link, to := range map[string]string{"link.txt": "real/a.txt", "folder": "real", "real/ring": "..", "out.txt": filepath.Join(outside, "secret.txt"), "out": outside, "gone": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, filepath.FromSlash(link))); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := spec.Snapshot(dir, -1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"folder/a.txt", "link.txt", "real/a.txt"}, paths(t, dir)); diff != "" {
		t.Error(diff)
	}
	notes := strings.Join(tree.Notes, "\n")
	for _, want := range []string{"out.txt is a link out of the folder", "out is a link out of the folder", "gone is a link that leads nowhere", "real/ring is a link to a folder that it is in"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
}

func TestABigFolderIsRefusedWithItsHeaviestParts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "train.py", "x")
	write(t, dir, "data/big.bin", strings.Repeat("x", 3000))
	write(t, dir, "data/more.bin", strings.Repeat("x", 3000))
	_, err := spec.Snapshot(dir, 1000)
	wantWords(t, err, "holds 5.9 KiB in 3 files, more than the 1000 B of a code snapshot (data/ 5.9 KiB, train.py 1 B)", ".amlignore", spec.SnapshotEnv)
	write(t, dir, ".amlignore", "data/\n")
	if _, err := spec.Snapshot(dir, 1000); err != nil {
		t.Errorf("without data: %v", err)
	}
	limit, err := spec.LimitFromEnv(func(string) string { return "7" })
	if err != nil || limit != 7<<20 {
		t.Errorf("the limit is %d, %v", limit, err)
	}
	_, err = spec.LimitFromEnv(func(string) string { return "lots" })
	wantWords(t, err, `is "lots", want a number of megabytes`)
}

func TestAFileThatChangesWhileItIsReadIsNoticed(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "a.txt", "one")
	tree, err := spec.Snapshot(dir, -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("longer"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = tree.Hash()
	wantWords(t, err, "changed while it was read")
	_, err = spec.Snapshot(filepath.Join(dir, "none"), -1)
	wantWords(t, err, "cannot be read")
}

// Random trees with random ignore files must come out as git sees them.
func TestIgnoreFilesMeanWhatGitMakesOfThem(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not here: apt-get install git")
	}
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	rules := func() string {
		var b strings.Builder
		for range 1 + random.IntN(5) {
			b.WriteString(pick("", "", "", "!"))
			b.WriteString(pick("", "", "/", "**/", "a/", "*/", "a/**/", "!", `\`, `\#`, "#"))
			b.WriteString(pick("a", "b", "*", "a*", "*.txt", "?", "[ab]", "[!a]", "b.txt", "a/b", "**", "a/**", "a b", "[a-", "b**c", "a.txt", "**/b", `[]a]`, "c", "[^b].txt"))
			b.WriteString(pick("", "", "/", " ", `\ `, "/**", "  ", "/*"))
			b.WriteString(pick("\n", "\n", "\r\n"))
		}
		return b.String()
	}
	for round := range 40 {
		dir := t.TempDir()
		for range 25 {
			var parts []string
			for range 1 + random.IntN(3) {
				parts = append(parts, pick("a", "b", "c", "ab", "bc"))
			}
			name := strings.Join(parts, "/") + pick(".txt", ".txt", "", ".d/x", "/a b")
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.IsDir() {
				continue
			}
			if os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755) == nil {
				os.WriteFile(filepath.Join(dir, name), nil, 0o644)
			}
		}
		ignores := map[string]string{".gitignore": rules()}
		for _, sub := range []string{"a", "b", "a/b"} {
			if info, err := os.Stat(filepath.Join(dir, sub)); err == nil && info.IsDir() && random.IntN(2) == 0 {
				ignores[sub+"/.gitignore"] = rules()
			}
		}
		for name, text := range ignores {
			write(t, dir, name, text)
		}
		cmd := exec.Command(git, "-c", "core.excludesFile=/dev/null", "-c", "core.quotePath=false", "ls-files", "-z", "--others", "--exclude-standard")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		if out, err := exec.Command(git, "init", "-q", dir).CombinedOutput(); err != nil {
			t.Fatalf("git init: %v %s", err, out)
		}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git ls-files: %v", err)
		}
		want := strings.FieldsFunc(string(bytes.TrimSpace(out)), func(r rune) bool { return r == 0 })
		got := paths(t, dir)
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(strings.Join(want, "\n"), strings.Join(got, "\n")); diff != "" {
			t.Fatalf("round %d (- git, + snapshot):\n%s\n%s", round, diff, fmt.Sprintf("%q", ignores))
		}
	}
}

package spec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/trainyard/trainyard"
)

const (
	// SnapshotLimit is how many bytes a snapshot holds at most, unless the caller says otherwise.
	SnapshotLimit = 300 << 20
	// SnapshotEnv is the environment variable with which users raise the limit, in MB.
	SnapshotEnv = "TRAINYARD_MAX_SNAPSHOT_MB"

	maxSnapshotFiles = 100_000
)

// Tree is what a folder (or one file) holds, without what its ignore files leave out.
type Tree struct {
	Root  string
	Files []File // in order of their paths in lower case
	Size  int64
	Notes []string // what was left out although no ignore file says so: links out of the folder, pipes, devices
}

// File is one file of a Tree.
type File struct {
	Path string // relative to the root, with slashes
	Full string // where it is on this machine; for a link, what it leads to
	Size int64
	Mode fs.FileMode
}

// LimitFromEnv is the limit that users set with SnapshotEnv, or SnapshotLimit.
func LimitFromEnv(getenv func(string) string) (int64, error) {
	text := getenv(SnapshotEnv)
	if text == "" {
		return SnapshotLimit, nil
	}
	mb, err := strconv.ParseInt(text, 10, 40)
	if err != nil || mb < 1 {
		return 0, trainyard.Invalid("%s is %q, want a number of megabytes such as 1000", SnapshotEnv, text)
	}
	return mb << 20, nil
}

// Snapshot lists the files of a folder, or a file alone. Ignore files (.amlignore, or else .gitignore) count in every folder as git has
// it. Links are followed as long as they stay inside. A folder of more than limit bytes is refused in words; a negative limit is none.
func Snapshot(root string, limit int64) (*Tree, error) {
	real, err := filepath.EvalSymlinks(root)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return nil, trainyard.Invalid("%s cannot be read: %v", root, err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return nil, trainyard.Invalid("%s cannot be read: %v", root, err)
	}
	w := walker{tree: &Tree{Root: real}}
	if info.IsDir() {
		err = w.dir(real, "", nil, nil)
	} else {
		err = w.add(filepath.Base(root), real, info)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(w.tree.Files, func(a, b File) int {
		return cmp.Or(cmp.Compare(strings.ToLower(a.Path), strings.ToLower(b.Path)), cmp.Compare(a.Path, b.Path))
	})
	if limit >= 0 && w.tree.Size > limit {
		return nil, w.tree.tooBig(limit)
	}
	return w.tree, nil
}

type walker struct{ tree *Tree }

// dir adds a folder. full is the folder on disk, rel its path in the tree, above the real folders that it is in, against links in a ring.
func (w *walker) dir(full, rel string, rules []rule, above []string) error {
	if slices.Contains(above, full) {
		w.tree.Notes = append(w.tree.Notes, rel+" is a link to a folder that it is in: left out")
		return nil
	}
	above = append(above[:len(above):len(above)], full)
	own, err := rulesIn(full, rel)
	if err != nil {
		return trainyard.Invalid("the ignore file of %s cannot be read: %v", full, err)
	}
	rules = append(rules[:len(rules):len(rules)], own...)
	entries, err := os.ReadDir(full)
	if err != nil {
		return trainyard.Invalid("%s cannot be read: %v", full, err)
	}
	for _, e := range entries {
		if err := w.entry(filepath.Join(full, e.Name()), path.Join(rel, e.Name()), e.Type(), rules, above); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entry(full, rel string, mode fs.FileMode, rules []rule, above []string) error {
	if path.Base(rel) == history || ignored(rules, rel, mode.IsDir()) { // to git, a link to a folder is no folder
		return nil
	}
	if mode&fs.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(full)
		if err != nil {
			w.tree.Notes = append(w.tree.Notes, rel+" is a link that leads nowhere: left out")
			return nil
		}
		if inside, err := filepath.Rel(w.tree.Root, target); err != nil || !filepath.IsLocal(inside) {
			w.tree.Notes = append(w.tree.Notes, rel+" is a link out of the folder, to "+target+": left out")
			return nil
		}
		full = target
	}
	info, err := os.Stat(full)
	if err != nil {
		return trainyard.Invalid("%s cannot be read: %v", full, err)
	}
	switch {
	case info.IsDir():
		return w.dir(full, rel, rules, above)
	case !info.Mode().IsRegular():
		w.tree.Notes = append(w.tree.Notes, rel+" is no file but a pipe, a socket or a device: left out")
		return nil
	}
	return w.add(rel, full, info)
}

func (w *walker) add(rel, full string, info fs.FileInfo) error {
	if !utf8.ValidString(rel) {
		return trainyard.Invalid("the name of the file %q is not UTF-8: rename it, or leave it out with .amlignore", full)
	}
	if len(w.tree.Files) >= maxSnapshotFiles {
		return trainyard.Invalid("%s holds more than %s files: is it the right folder? Leave out what the job does not need with .amlignore",
			w.tree.Root, humanize.Comma(maxSnapshotFiles))
	}
	w.tree.Files = append(w.tree.Files, File{Path: rel, Full: full, Size: info.Size(), Mode: info.Mode()})
	w.tree.Size += info.Size()
	return nil
}

// tooBig names the heaviest parts of a tree.
func (t *Tree) tooBig(limit int64) error {
	sizes := map[string]int64{}
	for _, f := range t.Files {
		top, _, below := strings.Cut(f.Path, "/")
		if below {
			top += "/"
		}
		sizes[top] += f.Size
	}
	var names []string
	for name := range sizes {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b)) })
	var heavy []string
	for _, name := range names[:min(3, len(names))] {
		heavy = append(heavy, name+" "+humanize.IBytes(uint64(sizes[name])))
	}
	return trainyard.Invalid("%s holds %s in %d files, more than the %s of a code snapshot (%s): leave out what the job does not need with .amlignore, "+
		"make it an input, or raise the limit with %s", t.Root, humanize.IBytes(uint64(t.Size)), len(t.Files), humanize.IBytes(uint64(limit)), strings.Join(heavy, ", "), SnapshotEnv)
}

// Hash is the content hash that clients of Azure ML send (hash version 202208): the count of files, each path and size, each content.
func (t *Tree) Hash() (string, error) {
	h := sha256.New()
	io.WriteString(h, strconv.Itoa(len(t.Files)))
	for _, f := range t.Files {
		fmt.Fprintf(h, "#%s#%d", f.Path, f.Size)
	}
	for _, f := range t.Files {
		if err := f.copyTo(h); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (f *File) copyTo(w io.Writer) error {
	r, err := os.Open(f.Full)
	if err != nil {
		return trainyard.Invalid("%s cannot be read: %v", f.Full, err)
	}
	defer r.Close()
	n, err := io.Copy(w, r)
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Full, err)
	}
	if n != f.Size {
		return trainyard.Conflict("%s changed while it was read (%d bytes, then %d): try again when nobody writes to it", f.Full, f.Size, n)
	}
	return nil
}

package blob

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/trainyard/trainyard"
)

// List returns every object whose key begins with prefix, in the order of their keys: all of them, or an error. Types and metadata are
// left out; Stat and Page have them.
func (b *Bucket) List(ctx context.Context, prefix string) ([]trainyard.BlobInfo, error) {
	var all []trainyard.BlobInfo
	w := walker{b: b, prefix: prefix}
	err := w.walk(ctx, func(key, _ string, fi fs.FileInfo) error {
		all = append(all, infoOf(key, fi, attributes{}))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

var errPageFull = errors.New("page is full")

// Page is a part of a list in the order of keys, at most max entries long, with metadata. With a delimiter, the keys that hold it after
// the prefix are rolled up: of each only the part to the delimiter's end is returned, once, in prefixes. marker is "" or the next of the
// page before; next is "" on the last page.
func (b *Bucket) Page(ctx context.Context, prefix, delimiter, marker string, max int) (items []trainyard.BlobInfo, prefixes []string, next string, err error) {
	w := walker{b: b, prefix: prefix}
	if marker != "" {
		at, err := base64.RawURLEncoding.DecodeString(marker)
		if err != nil || len(at) == 0 {
			return nil, nil, "", trainyard.Invalid("marker %q is not one that a list gave", marker)
		}
		if w.after = string(at[1:]); at[0] == 'p' {
			w.skip = w.after
		}
	}
	last := ""
	err = w.walk(ctx, func(key, name string, fi fs.FileInfo) error {
		if len(items)+len(prefixes) >= max {
			next = base64.RawURLEncoding.EncodeToString([]byte(last))
			return errPageFull
		}
		if delimiter != "" {
			if i := strings.Index(key[len(prefix):], delimiter); i >= 0 {
				common := key[:len(prefix)+i+len(delimiter)]
				prefixes = append(prefixes, common)
				w.skip, last = common, "p"+common
				return nil
			}
		}
		items = append(items, infoOf(key, fi, b.attributes(name, etag(fi))))
		last = "k" + key
		return nil
	})
	if err != nil && err != errPageFull {
		return nil, nil, "", err
	}
	return items, prefixes, next, nil
}

// walker goes through the objects whose keys begin with prefix and come after a key, in the order of keys.
type walker struct {
	b      *Bucket
	prefix string
	after  string // keys up to and including this one are passed over
	skip   string // if not empty, so are those that begin with this; visit may move it forward
}

// walk calls visit for every object until it returns an error, and returns that error.
func (w *walker) walk(ctx context.Context, visit func(key, name string, fi fs.FileInfo) error) error {
	above, start := "", ""
	if i := strings.LastIndexByte(w.prefix, '/'); i >= 0 {
		name, err := escapeKey(w.prefix[:i])
		if err != nil {
			return err
		}
		above, start = w.prefix[:i+1], name
	}
	return w.dir(ctx, above, start, visit)
}

// entry is one name in a folder: key is that of an object, or of a folder with a slash at its end.
type entry struct {
	key, name string
	e         fs.DirEntry
}

func (w *walker) dir(ctx context.Context, key, name string, visit func(key, name string, fi fs.FileInfo) error) error {
	entries, err := w.read(key, name)
	if err != nil {
		return err
	}
	for _, x := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if w.skip != "" && strings.HasPrefix(x.key, w.skip) {
			continue
		}
		if x.e.IsDir() {
			if err := w.dir(ctx, x.key, x.name, visit); err != nil {
				return err
			}
			continue
		}
		fi, err := x.e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted since
		}
		if err != nil {
			return fmt.Errorf("list %q: %w", w.prefix, err)
		}
		if err := visit(x.key, x.name, fi); err != nil {
			return err
		}
	}
	return nil
}

// read returns the entries of a folder that can lead to an object wanted, in the order of keys. A folder that is not there is empty.
func (w *walker) read(key, name string) ([]entry, error) {
	found, err := os.ReadDir(w.b.path(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %q: %w", w.prefix, err)
	}
	var entries []entry
	for _, e := range found {
		part, ours := unescapeName(e.Name())
		if !ours || key == "" && strings.HasPrefix(part, ".") {
			continue
		}
		x := entry{key: key + part, name: strings.TrimPrefix(name+"/"+e.Name(), "/"), e: e}
		if e.IsDir() {
			x.key += "/"
		}
		if w.wants(x) {
			entries = append(entries, x)
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	return entries, nil
}

func (w *walker) wants(x entry) bool {
	switch {
	case x.e.IsDir():
		return (strings.HasPrefix(x.key, w.prefix) || strings.HasPrefix(w.prefix, x.key)) &&
			(x.key > w.after || strings.HasPrefix(w.after, x.key))
	case x.e.Type().IsRegular():
		return strings.HasPrefix(x.key, w.prefix) && x.key > w.after && strings.Contains(x.key, "/")
	}
	return false
}

// Delete removes an object. One that is not there is NotFound.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	name, err := diskName(key)
	if err != nil {
		return err
	}
	s := b.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(key)
	fi, err := b.stat(key, name)
	if err != nil {
		return err
	}
	if err := b.bodies.Delete(ctx, name); err != nil {
		return fmt.Errorf("delete blob %q: %w", key, err)
	}
	b.removeAttributes(name, etag(fi))
	b.prune(filepath.Dir(b.path(name)))
	return nil
}

// DeletePrefix removes every object whose key begins with prefix, which must name a container and a slash at least. Nothing there is no
// error. Folders go at once: an object stored meanwhile is either removed or stays whole.
func (b *Bucket) DeletePrefix(ctx context.Context, prefix string) error {
	i := strings.LastIndexByte(prefix, '/')
	if i < 0 {
		return trainyard.Invalid("cannot delete everything that begins with %q: name a container and a slash at least", prefix)
	}
	name, err := escapeKey(prefix[:i])
	if err != nil {
		return err
	}
	if i == len(prefix)-1 {
		return b.discard(prefix, name)
	}
	w := walker{b: b, prefix: prefix}
	entries, err := w.read(prefix[:i+1], name)
	if err != nil {
		return err
	}
	for _, x := range entries {
		if x.e.IsDir() {
			err = b.discard(x.key, x.name)
		} else if err = b.Delete(ctx, x.key); trainyard.IsNotFound(err) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// discard takes a folder away, the folder of its metadata with it.
func (b *Bucket) discard(key, name string) error {
	drop := func() {
		for i := range b.stripes {
			b.stripes[i].dropAll(func(k string) bool { return strings.HasPrefix(k, key) })
		}
	}
	drop() // Windows moves no folder that holds open files
	for _, path := range []string{b.path(name), b.path(metaDir + "/" + name)} {
		if !isDir(path) {
			continue
		}
		gone := filepath.Join(b.dir, putDir, fmt.Sprintf("gone-%d", b.staged.Add(1)))
		if err := os.Rename(path, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete blobs under %q: %w", key, err)
		}
		drop() // what was opened meanwhile is gone, and must not be written to
		if err := os.RemoveAll(gone); err != nil {
			return fmt.Errorf("delete blobs under %q: %w", key, err)
		}
		b.prune(filepath.Dir(path))
	}
	return nil
}

// prune removes a folder and those above it as far as they are empty. The separator at the end makes removing anything but a folder an
// error, should a file have taken its name.
func (b *Bucket) prune(path string) {
	for ; path != b.dir && filepath.Dir(path) != b.dir; path = filepath.Dir(path) {
		if os.Remove(path+string(filepath.Separator)) != nil {
			return
		}
	}
}

// removeEmptyDirs removes a tree that holds nothing but folders, and says whether it is gone.
func removeEmptyDirs(path string) bool {
	entries, err := os.ReadDir(path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	for _, e := range entries {
		if !e.IsDir() || !removeEmptyDirs(filepath.Join(path, e.Name())) {
			return false
		}
	}
	return os.Remove(path+string(filepath.Separator)) == nil
}

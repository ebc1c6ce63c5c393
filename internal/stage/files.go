package stage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// replaceFile writes a file aside and renames it into place.
func replaceFile(path string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// removeAll is os.RemoveAll that also takes away folders without write permission.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	// The walk reads a folder before it opens the ones below it, so what was closed to reading takes one round a level.
	for range 64 {
		err := os.RemoveAll(dir)
		if err == nil || !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if p, ok := errors.AsType[*fs.PathError](err); !ok || !openUp(dir, p.Path) {
			return err
		}
	}
	return os.RemoveAll(dir)
}

// openUp gives this user all rights to a path below dir and to the folder it is in.
func openUp(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return false
	}
	if path != dir {
		_ = os.Chmod(filepath.Dir(path), 0o700)
	}
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		_ = os.Chmod(path, 0o700)
	}
	return true
}

// scan lists the regular files below dir in order, as they are now.
func scan(dir string) ([]fileRecord, error) {
	var out []fileRecord
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		r := fileRecord{Path: filepath.ToSlash(rel), Size: info.Size(), Time: info.ModTime().UnixNano()}
		if !info.Mode().IsRegular() {
			r.Size = -1 // nothing that we put there
		}
		out = append(out, r)
		return nil
	})
	slices.SortFunc(out, func(a, b fileRecord) int { return strings.Compare(a.Path, b.Path) })
	return out, err
}

// unaltered says whether dir holds exactly the files of the record, by size and time.
func unaltered(dir string, rec record) bool {
	now, err := scan(dir)
	return err == nil && slices.Equal(now, rec.Files)
}

// freeze takes all write permission away from what is below dir, dir itself included.
func freeze(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			dirs = append(dirs, path)
			return nil
		case !e.Type().IsRegular():
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode().Perm()&^0o222)
	})
	for _, d := range slices.Backward(dirs) {
		if err == nil {
			err = os.Chmod(d, 0o555)
		}
	}
	return err
}

// copyTree makes a private copy of the files of rec, which are in src: every byte of its own, writable, in the order of the record.
func copyTree(ctx context.Context, src, dst string, rec record) error {
	if err := os.MkdirAll(dst, 0o755); err != nil {
		return err
	}
	made := map[string]bool{}
	for _, f := range rec.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := filepath.Join(dst, filepath.FromSlash(f.Path))
		if dir := filepath.Dir(to); dir != dst && !made[dir] {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			made[dir] = true
		}
		if err := copyFile(filepath.Join(src, filepath.FromSlash(f.Path)), to); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies bytes and the right to execute. Where the file system can share blocks, the kernel does.
func copyFile(src, dst string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return fmt.Errorf("copy %s: %w", filepath.Base(src), err)
	}
	return out.Close()
}

// plainName is a name for a file of ours: name itself if it is one, else a hash of it.
func plainName(name string) string {
	ok := name != "" && len(name) <= 128 && filepath.IsLocal(name) && name != "." && !strings.HasPrefix(name, ".") &&
		!strings.ContainsAny(name, `/\:*?"<>|`+"\x00")
	if ok {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "name-" + hex.EncodeToString(sum[:8])
}

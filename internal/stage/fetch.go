package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trainyard/trainyard"
)

// object is one thing to bring to this node: where it goes, how big it is, which version it is, and how to read it from an offset.
type object struct {
	Path string // slashes, relative to the entry
	Size int64  // -1: not known beforehand
	ETag string
	Open func(ctx context.Context, offset int64) (io.ReadCloser, error)
}

// errChanged says that an object is no longer the version that was listed.
var errChanged = errors.New("it changed while it was read")

// blobObjects lists what is stored at key: everything under it, or the one object it names. whole says which.
func (s *Stager) blobObjects(ctx context.Context, key string) (objects []object, whole bool, err error) {
	prefix := strings.TrimSuffix(key, "/") + "/"
	items, err := s.list(ctx, prefix)
	if err != nil {
		return nil, false, err
	}
	for _, it := range items {
		if rel, ok := strings.CutPrefix(it.Key, prefix); ok && rel != "" && !strings.HasSuffix(rel, "/") {
			objects = append(objects, s.blobObject(it, rel))
		}
	}
	objects = withoutMarkers(objects)
	if len(objects) > 0 || strings.HasSuffix(key, "/") {
		return objects, false, nil
	}
	info, err := s.stat(ctx, key)
	if trainyard.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	info.Key = key
	return []object{s.blobObject(info, path.Base(key))}, true, nil
}

// stat asks for one object's size and version.
func (s *Stager) stat(ctx context.Context, key string) (trainyard.BlobInfo, error) {
	var info trainyard.BlobInfo
	err := s.again(ctx, func() error {
		body, got, err := s.blobs.Open(ctx, key, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", key, err)
		}
		info = got
		return body.Close()
	})
	return info, err
}

func (s *Stager) list(ctx context.Context, prefix string) ([]trainyard.BlobInfo, error) {
	var items []trainyard.BlobInfo
	err := s.again(ctx, func() (err error) {
		if items, err = s.blobs.List(ctx, prefix); err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		return nil
	})
	return items, err
}

func (s *Stager) blobObject(info trainyard.BlobInfo, rel string) object {
	return object{Path: rel, Size: info.Size, ETag: info.ETag, Open: func(ctx context.Context, offset int64) (io.ReadCloser, error) {
		body, now, err := s.blobs.Open(ctx, info.Key, offset)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", info.Key, err)
		}
		if now.ETag != info.ETag {
			body.Close()
			return nil, fmt.Errorf("%s: %w", info.Key, errChanged)
		}
		return body, nil
	}}
}

// withoutMarkers leaves out the empty objects that some tools write to stand for a folder.
func withoutMarkers(objects []object) []object {
	folders := map[string]bool{}
	for _, o := range objects {
		for dir := path.Dir(o.Path); dir != "." && dir != "/" && !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	return slices.DeleteFunc(objects, func(o object) bool { return o.Size == 0 && folders[o.Path] })
}

// keyOfObjects is the cache key of exactly these versions of exactly these objects.
func keyOfObjects(kind string, objects []object) string {
	parts := []string{kind}
	for _, o := range objects {
		parts = append(parts, o.Path, fmt.Sprint(o.Size), o.ETag)
	}
	return keyOf(parts...)
}

// fetch brings objects into dir, a few at a time, and returns what is there then. said is told the bytes so far, now and then.
func (s *Stager) fetch(ctx context.Context, dir string, objects []object, said func(done, total int64)) (record, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return record{}, fmt.Errorf("open cache entry: %w", err)
	}
	defer root.Close()
	total := int64(0)
	for _, o := range objects {
		total += max(o.Size, 0)
	}
	if err := s.room(ctx, dir, total); err != nil {
		return record{}, err
	}
	// Files are made in order first: some programs take a folder in the order in which it was filled.
	for _, o := range objects {
		if err := place(root, o.Path); err != nil {
			return record{}, s.local(err, trainyard.ClassData, dir, total)
		}
	}
	var done atomic.Int64
	tell := throttle(time.Second, func() { said(done.Load(), total) })
	if len(objects) > 0 {
		s.many()
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, o := range objects {
		group.Go(func() error {
			err := s.fill(ctx, root, o, func(n int64) { done.Add(n); tell() })
			return s.local(err, trainyard.ClassData, dir, total)
		})
	}
	if err := group.Wait(); err != nil {
		return record{}, err
	}
	files, err := scan(dir)
	return record{Bytes: done.Load(), Files: files}, err
}

// place makes an empty file and the folders above it. Names that would leave the folder, and those that this system cannot have, are
// refused.
func place(root *os.Root, name string) error {
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) || path.Clean(name) != name {
		return fault(trainyard.ClassData, "an object is named %q, which cannot be a file below a folder on this node; rename it", name)
	}
	if dir := filepath.Dir(local); dir != "." {
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return clash(name, err)
		}
	}
	f, err := root.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return clash(name, err)
	}
	return f.Close()
}

// clash explains names that a blob store can hold at once and a file system cannot.
func clash(name string, err error) error {
	if isFull(err) || isReadOnly(err) || errors.Is(err, os.ErrPermission) {
		return err
	}
	return fault(trainyard.ClassData, "object %q cannot be a file on this node beside the others (%v); rename it, or another that is a folder and a file at once",
		name, err)
}

// fill downloads one object, going on where a broken connection left off.
func (s *Stager) fill(ctx context.Context, root *os.Root, o object, add func(n int64)) error {
	f, err := root.OpenFile(filepath.FromSlash(o.Path), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	at := int64(0)
	err = s.again(ctx, func() error {
		body, err := o.Open(ctx, at)
		if err != nil {
			return err
		}
		defer body.Close()
		n, err := io.Copy(f, counted{body, add})
		at += n
		if err != nil {
			return fmt.Errorf("read %s: %w", o.Path, err)
		}
		if o.Size >= 0 && at < o.Size {
			return fmt.Errorf("read %s: %d of %d bytes came: %w", o.Path, at, o.Size, io.ErrUnexpectedEOF)
		}
		return nil
	})
	err = errors.Join(err, f.Close())
	if err == nil && o.Size >= 0 && at != o.Size {
		return fault(trainyard.ClassData, "%s should have %d bytes and has %d", o.Path, o.Size, at)
	}
	return err
}

// counted tells of every read.
type counted struct {
	io.Reader
	add func(n int64)
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if n > 0 {
		c.add(int64(n))
	}
	return n, err
}

// again does something that may fail for a moment, with growing pauses. What will not change is not tried again.
func (s *Stager) again(ctx context.Context, do func() error) error {
	err := do()
	for _, pause := range s.pauses {
		if err == nil || lasting(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
		err = do()
	}
	return err
}

// lasting says whether an error would only come again: the server's verdict, the disk's, or the task's own end.
func lasting(err error) bool {
	switch trainyard.CodeOf(err) {
	case trainyard.CodeInvalid, trainyard.CodeNotFound, trainyard.CodeForbidden, trainyard.CodeUnknown, trainyard.CodeUnsupported,
		trainyard.CodeConflict:
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errChanged) || isFull(err) ||
		errors.Is(err, os.ErrPermission)
}

// throttle calls f at most once a period; it is safe for many callers.
func throttle(period time.Duration, f func()) func() {
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	return func() {
		then, now := last.Load(), time.Now().UnixNano()
		if now-then >= int64(period) && last.CompareAndSwap(then, now) {
			f()
		}
	}
}

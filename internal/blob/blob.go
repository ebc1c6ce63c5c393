// Package blob keeps bytes by key, "container/path…", over gocloud.dev/blob on a folder. Objects are replaced whole or not at all, logs
// grow by offset, and nothing half-written is ever seen. It does not know what the bytes mean, who may read them, or any other store
// than a folder: no driver for another one is linked.
//
// On disk a key is a path: workspaceblobstore/LocalUpload/1f2e/train.py is the file of that name below the folder, with the few
// characters that some file system cannot hold written as %XX. Beside the containers stand ".put", where uploads wait to be whole, and
// ".meta", where content types and metadata are, in files named for the version of the object that they belong to.
//
// A killed process loses no object that was acknowledged. Put also asks the disk to hold the bytes before it makes them visible, so that
// a power failure cannot leave an object of the right name and the wrong content; Append does not, and may lose its last moments to one.
package blob

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	gocloud "gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/trainyard/trainyard"
)

const (
	putDir      = ".put"  // uploads on their way in, and folders on their way out; emptied by Open
	metaDir     = ".meta" // content types and metadata
	defaultType = "application/octet-stream"
)

// Bucket is a blob store. It is safe for concurrent use, by one process at a time.
type Bucket struct {
	dir     string
	bodies  *gocloud.Bucket
	seed    maphash.Seed
	stripes [64]stripe
	stamped atomic.Int64 // last modification time given out, in microseconds
	staged  atomic.Int64 // names in putDir
}

// Open opens the store in folder dir and makes it if it is not there. What an earlier process was killed in the middle of is cleared
// away. Anything but a folder (s3://…) is refused by name.
func Open(_ context.Context, dir string) (*Bucket, error) {
	if scheme, rest, ok := strings.Cut(dir, "://"); ok {
		if scheme != "file" {
			return nil, trainyard.Invalid("blob store %q: this build keeps blobs in a folder and knows no %q store; give the path of a folder", dir, scheme)
		}
		dir = rest
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open blob folder: %w", err)
	}
	for _, d := range []string{dir, filepath.Join(dir, putDir), filepath.Join(dir, metaDir)} {
		if filepath.Base(d) == putDir {
			if err := os.RemoveAll(d); err != nil {
				return nil, unwritable(dir, err)
			}
		}
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, unwritable(dir, err)
		}
	}
	bodies, err := fileblob.OpenBucket(dir, &fileblob.Options{NoTempDir: true, DirFileMode: 0o700, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		return nil, fmt.Errorf("open blob folder %s: %w", dir, err)
	}
	return &Bucket{dir: dir, bodies: bodies, seed: maphash.MakeSeed()}, nil
}

func unwritable(dir string, err error) error {
	return trainyard.Errorf(trainyard.CodeInternal, "the blob folder %s cannot be written: %v; give it to this user or choose another with --data", dir, err)
}

// Close lets go of open files. Objects stay.
func (b *Bucket) Close() error {
	for i := range b.stripes {
		b.stripes[i].dropAll(func(string) bool { return true })
	}
	return b.bodies.Close()
}

// Put stores all of r under key, replacing what was there. Until it returns nil, readers see what was there.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader) error {
	_, err := b.PutWith(ctx, key, r, "", nil, false)
	return err
}

// PutWith is Put with a content type ("" is application/octet-stream) and metadata. With ifNoneMatch an object that is there stays, and
// the error is a Conflict. An error of r is returned, wrapped, and stores nothing.
func (b *Bucket) PutWith(ctx context.Context, key string, r io.Reader, contentType string, metadata map[string]string, ifNoneMatch bool) (trainyard.BlobInfo, error) {
	name, err := diskName(key)
	if err != nil {
		return trainyard.BlobInfo{}, err
	}
	if ifNoneMatch && isFile(b.path(name)) {
		return trainyard.BlobInfo{}, exists(key)
	}
	staged, err := b.stage(ctx, key, r)
	if err != nil {
		return trainyard.BlobInfo{}, err
	}
	info, err := b.commit(key, name, staged, attributes{Type: contentType, Metadata: metadata}, ifNoneMatch)
	if err != nil {
		os.Remove(staged)
	}
	return info, err
}

func exists(key string) error {
	return trainyard.Conflict("blob %q exists already, and was to be stored only if it did not", key)
}

// stage writes r to a file of its own, with a modification time that no other object has, and returns the file's path.
func (b *Bucket) stage(ctx context.Context, key string, r io.Reader) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name := putDir + "/" + strconv.FormatInt(b.staged.Add(1), 36)
	var file *os.File
	w, err := b.bodies.NewWriter(ctx, name, &gocloud.WriterOptions{
		ContentType: defaultType,
		BeforeWrite: func(as func(any) bool) error { as(&file); return nil },
	})
	if err != nil {
		return "", b.wrote(key, err)
	}
	source := &source{r: r}
	_, err = io.Copy(w, source)
	if err == nil {
		err = file.Sync()
	}
	if err != nil {
		cancel() // makes Close throw the file away
		w.Close()
		if source.err != nil {
			return "", fmt.Errorf("read what is to be stored as %q: %w", key, source.err)
		}
		return "", b.wrote(key, err)
	}
	if err := w.Close(); err != nil {
		return "", b.wrote(key, err)
	}
	path, stamp := b.path(name), b.stamp()
	if err := os.Chtimes(path, stamp, stamp); err != nil {
		os.Remove(path)
		return "", b.wrote(key, err)
	}
	return path, nil
}

// source remembers what went wrong with a reader, so that it is not taken for a fault of the disk.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// stamp is the present time, later than any stamp before.
func (b *Bucket) stamp() time.Time {
	for {
		last, now := b.stamped.Load(), time.Now().UnixMicro()
		next := max(now, last+1)
		if b.stamped.CompareAndSwap(last, next) {
			return time.UnixMicro(next)
		}
	}
}

// commit makes a staged file the object. Readers see it with its metadata or not at all: the metadata goes first, in a file named for
// the version that the rename brings.
func (b *Bucket) commit(key, name, staged string, attrs attributes, ifNoneMatch bool) (trainyard.BlobInfo, error) {
	s := b.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	path := b.path(name)
	if ifNoneMatch && isFile(path) {
		return trainyard.BlobInfo{}, exists(key)
	}
	s.drop(key)
	fi, err := os.Stat(staged)
	if err != nil {
		return trainyard.BlobInfo{}, b.wrote(key, err)
	}
	if err := b.writeAttributes(name, etag(fi), attrs); err != nil {
		return trainyard.BlobInfo{}, b.wrote(key, err)
	}
	old, _ := os.Lstat(path)
	if err := b.place(key, name, func() error { return os.Rename(staged, path) }); err != nil {
		b.removeAttributes(name, etag(fi))
		return trainyard.BlobInfo{}, err
	}
	if old != nil && etag(old) != etag(fi) {
		b.removeAttributes(name, etag(old))
	}
	return infoOf(key, fi, attrs), nil
}

// place does what brings a file to an object's path, and makes the folders above it when they are missing. Folders are not kept for
// their own sake, so one may vanish at any time and an empty one may be in the way.
func (b *Bucket) place(key, name string, do func() error) error {
	path := b.path(name)
	var err error
	for range 10 {
		if err = do(); err == nil {
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil || errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		if isDir(path) && removeEmptyDirs(path) {
			continue
		}
		break
	}
	if clash := b.clash(key, name); clash != nil {
		return clash
	}
	return b.wrote(key, err)
}

// clash says whether the key cannot be stored because of another: a folder of files cannot have a file's name.
func (b *Bucket) clash(key, name string) error {
	if isDir(b.path(name)) {
		return trainyard.Conflict("blob %q cannot be stored: there are blobs under %q; delete them or choose another name", key, key+"/")
	}
	for i := strings.IndexByte(key, '/'); i >= 0; i = next(key, '/', i) {
		above, err := escapeKey(key[:i])
		if err == nil && isFile(b.path(above)) {
			return trainyard.Conflict("blob %q cannot be stored: %q is a blob itself; delete it or choose another name", key, key[:i])
		}
	}
	return nil
}

func next(s string, c byte, after int) int {
	if i := strings.IndexByte(s[after+1:], c); i >= 0 {
		return after + 1 + i
	}
	return -1
}

// wrote puts an error of writing into words.
func (b *Bucket) wrote(key string, err error) error {
	switch {
	case err == nil:
		return nil
	case isFull(err):
		return trainyard.Errorf(trainyard.CodeInternal, "no room for blob %q: the disk of the blob folder %s is full (%s free); make room there and try again", key, b.dir, free(b.dir))
	case errors.Is(err, fs.ErrPermission), isReadOnly(err):
		return unwritable(b.dir, err)
	}
	return fmt.Errorf("put blob %q: %w", key, err)
}

func (b *Bucket) path(name string) string { return filepath.Join(b.dir, filepath.FromSlash(name)) }

func isFile(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.Mode().IsRegular()
}

func isDir(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

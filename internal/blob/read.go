package blob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	gocloud "gocloud.dev/blob"

	"github.com/trainyard/trainyard"
)

// attributes is what is known of an object besides its bytes. Objects with none have no file for it.
type attributes struct {
	Type     string            `json:"type,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (a attributes) empty() bool {
	return len(a.Metadata) == 0 && (a.Type == "" || a.Type == defaultType)
}

// etag is the version of a file's content: every Put gives a modification time of its own, and an Append changes the size.
func etag(fi fs.FileInfo) string {
	return strconv.FormatInt(fi.ModTime().UnixNano(), 16) + "-" + strconv.FormatInt(fi.Size(), 16)
}

func infoOf(key string, fi fs.FileInfo, attrs attributes) trainyard.BlobInfo {
	info := trainyard.BlobInfo{Key: key, Size: fi.Size(), Modified: fi.ModTime(), ETag: etag(fi), Type: attrs.Type, Metadata: maps.Clone(attrs.Metadata)}
	if info.Type == "" {
		info.Type = defaultType
	}
	return info
}

func (b *Bucket) attributesPath(name, version string) string {
	return filepath.Join(b.dir, metaDir, filepath.FromSlash(name)+"@"+version)
}

// attributes reads what was written for this version. None, or none that can be read, are no attributes.
func (b *Bucket) attributes(name, version string) (a attributes) {
	data, err := os.ReadFile(b.attributesPath(name, version))
	if err != nil || json.Unmarshal(data, &a) != nil {
		return attributes{}
	}
	return a
}

func (b *Bucket) writeAttributes(name, version string, a attributes) error {
	if a.empty() {
		return nil
	}
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	path := b.attributesPath(name, version)
	for range 10 {
		if err = os.WriteFile(path, data, 0o600); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err != nil {
		os.Remove(path) // half of it may be there
	}
	return err
}

func (b *Bucket) removeAttributes(name, version string) {
	path := b.attributesPath(name, version)
	if os.Remove(path) == nil {
		b.prune(filepath.Dir(path))
	}
}

// Open reads the object from a byte offset to the end that it has now. An offset at or past the end reads nothing. The caller closes.
func (b *Bucket) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	return b.OpenRange(ctx, key, offset, -1)
}

// OpenRange reads at most length bytes from a byte offset; a negative length means to the end that the object has now. What is read is
// the version that the BlobInfo tells of, even if the object is replaced or deleted meanwhile. The caller closes.
func (b *Bucket) OpenRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	name, err := diskName(key)
	if err != nil {
		return nil, trainyard.BlobInfo{}, err
	}
	if offset < 0 {
		return nil, trainyard.BlobInfo{}, trainyard.Invalid("blob %q: offset %d is negative", key, offset)
	}
	s := b.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	var file *os.File
	r, err := b.bodies.NewRangeReader(ctx, name, offset, -1, &gocloud.ReaderOptions{
		BeforeRead: func(as func(any) bool) error { as(&file); return nil },
	})
	if err != nil {
		return nil, trainyard.BlobInfo{}, b.unread(key, name, err)
	}
	fi, err := file.Stat()
	if err != nil {
		r.Close()
		return nil, trainyard.BlobInfo{}, fmt.Errorf("open blob %q: %w", key, err)
	}
	rest := max(fi.Size()-offset, 0)
	if length < 0 || length > rest {
		length = rest
	}
	return &limited{io.LimitReader(r, length), r}, infoOf(key, fi, b.attributes(name, etag(fi))), nil
}

// limited ends where the object ended when it was opened, so that a log that grows does not outgrow its announced length.
type limited struct {
	io.Reader
	io.Closer
}

// Stat says what is known of an object.
func (b *Bucket) Stat(_ context.Context, key string) (trainyard.BlobInfo, error) {
	name, err := diskName(key)
	if err != nil {
		return trainyard.BlobInfo{}, err
	}
	s := b.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	fi, err := b.stat(key, name)
	if err != nil {
		return trainyard.BlobInfo{}, err
	}
	return infoOf(key, fi, b.attributes(name, etag(fi))), nil
}

func (b *Bucket) stat(key, name string) (fs.FileInfo, error) {
	fi, err := os.Lstat(b.path(name))
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, b.unread(key, name, err)
	}
	return fi, nil
}

// SetMetadata replaces an object's metadata. The content type stays; the ETag and the time change, as they do in Azure.
func (b *Bucket) SetMetadata(_ context.Context, key string, metadata map[string]string) (trainyard.BlobInfo, error) {
	name, err := diskName(key)
	if err != nil {
		return trainyard.BlobInfo{}, err
	}
	s := b.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	old, err := b.stat(key, name)
	if err != nil {
		return trainyard.BlobInfo{}, err
	}
	attrs := attributes{Type: b.attributes(name, etag(old)).Type, Metadata: metadata}
	stamp := b.stamp()
	coming := strconv.FormatInt(stamp.UnixNano(), 16) + "-" + strconv.FormatInt(old.Size(), 16)
	if err := b.writeAttributes(name, coming, attrs); err != nil {
		return trainyard.BlobInfo{}, b.wrote(key, err)
	}
	if err := os.Chtimes(b.path(name), stamp, stamp); err != nil { // this is the moment at which the new metadata counts
		return trainyard.BlobInfo{}, b.wrote(key, err)
	}
	fi, err := b.stat(key, name)
	if err != nil {
		return trainyard.BlobInfo{}, err
	}
	if now := etag(fi); now != coming { // a file system that keeps coarser times than asked
		b.removeAttributes(name, coming)
		if err := b.writeAttributes(name, now, attrs); err != nil {
			return trainyard.BlobInfo{}, b.wrote(key, err)
		}
	}
	if etag(old) != etag(fi) {
		b.removeAttributes(name, etag(old))
	}
	return infoOf(key, fi, attrs), nil
}

// unread puts an error of reading into words. Whatever stands in an object's way (nothing, a folder, a file above it), it is not there.
func (b *Bucket) unread(key, name string, err error) error {
	fi, statErr := os.Lstat(b.path(name))
	if statErr == nil && !fi.Mode().IsRegular() || errors.Is(statErr, fs.ErrNotExist) || errors.Is(statErr, syscall.ENOTDIR) {
		return trainyard.NotFound("there is no blob %q", key)
	}
	return fmt.Errorf("open blob %q: %w", key, err)
}

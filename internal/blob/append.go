package blob

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"sync"

	"github.com/trainyard/trainyard"
)

// perStripe bounds the files that a stripe keeps open for appending: 256 in all.
const perStripe = 4

// stripe serialises the changes of the keys that fall to it. Bodies are streamed outside the lock; only what makes them visible, and an
// append's one write, is done inside.
type stripe struct {
	mu   sync.Mutex
	open map[string]*handle // by key
	uses int64
}

// handle is a file open for appending, and its size.
type handle struct {
	file *os.File
	size int64
	used int64
}

func (b *Bucket) stripe(key string) *stripe {
	return &b.stripes[maphash.String(b.seed, key)%uint64(len(b.stripes))]
}

// drop closes the key's file, if it is open. The caller holds mu.
func (s *stripe) drop(key string) {
	if h := s.open[key]; h != nil {
		h.file.Close()
		delete(s.open, key)
	}
}

// dropAll closes the files of the keys that match.
func (s *stripe) dropAll(match func(key string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.open {
		if match(key) {
			s.drop(key)
		}
	}
}

// Append writes data at a byte offset of the object, which is made if it is not there, and returns the object's size. It may be repeated:
// bytes before the present size are taken as written already. An offset past the present size writes nothing, and the size returned
// tells from where to send again. With an error, the size is what is there. An object's metadata does not outlive an append.
func (b *Bucket) Append(ctx context.Context, key string, offset int64, data []byte) (int64, error) {
	name, err := diskName(key)
	if err != nil {
		return 0, err
	}
	if offset < 0 {
		return 0, trainyard.Invalid("blob %q: offset %d is negative", key, offset)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s := b.stripe(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := b.handle(s, key, name, offset == 0 && len(data) > 0)
	if err != nil || h == nil {
		return 0, err
	}
	if offset > h.size || offset+int64(len(data)) <= h.size {
		return h.size, nil
	}
	if _, err := h.file.WriteAt(data[h.size-offset:], h.size); err != nil {
		size := h.size
		if fi, err := h.file.Stat(); err == nil {
			size = fi.Size() // what was written before the error is good, and more than WriteAt tells of
		}
		s.drop(key)
		return size, b.wrote(key, err)
	}
	h.size = offset + int64(len(data))
	return h.size, nil
}

// handle returns the key's open file; nil if there is none and it is not to be made. The caller holds the stripe's mu.
func (b *Bucket) handle(s *stripe, key, name string, create bool) (*handle, error) {
	s.uses++
	if h := s.open[key]; h != nil {
		h.used = s.uses
		return h, nil
	}
	var file *os.File
	open := func(flags int) (err error) {
		file, err = os.OpenFile(b.path(name), os.O_WRONLY|flags, 0o600)
		return err
	}
	var err error
	if create {
		err = b.place(key, name, func() error { return open(os.O_CREATE) })
	} else if err = open(0); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, b.wrote(key, err)
	}
	fi, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("append to blob %q: %w", key, err)
	}
	b.removeAttributes(name, etag(fi))
	s.evict()
	h := &handle{file: file, size: fi.Size(), used: s.uses}
	if s.open == nil {
		s.open = map[string]*handle{}
	}
	s.open[key] = h
	return h, nil
}

// evict makes room for one more open file.
func (s *stripe) evict() {
	if len(s.open) < perStripe {
		return
	}
	oldest := ""
	for key, h := range s.open {
		if oldest == "" || h.used < s.open[oldest].used {
			oldest = key
		}
	}
	s.drop(oldest)
}

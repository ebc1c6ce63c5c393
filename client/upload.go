package client

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync/atomic"

	"github.com/trainyard/trainyard"
)

// File is a file on this computer and the name it is to have in a container.
type File struct {
	Name string // with slashes
	Path string
	Size int64
}

// Files above singleSize are sent in blocks.
const (
	singleSize = 64 << 20
	blockSize  = 16 << 20
	mostBlocks = 50000 // of one blob, says the protocol
)

// Upload sends files and then marks the first by name as completed, which is how it and other clients know that all of them are there.
// Finding that mark it sends nothing and already is true: names must therefore hold a hash of what is sent.
func (b *Container) Upload(ctx context.Context, files []File, progress Progress) (already bool, err error) {
	if len(files) == 0 {
		return false, nil
	}
	files = slices.SortedFunc(slices.Values(files), func(x, y File) int { return cmp.Compare(x.Name, y.Name) })
	if done, err := b.completed(ctx, files[0].Name); done || err != nil {
		return done, err
	}
	u := &upload{b: b, progress: progress}
	for _, f := range files {
		u.total += f.Size
	}
	if err := inParallel(ctx, u.pieces(files)); err != nil {
		return false, err
	}
	if progress != nil {
		progress(u.total, u.total)
	}
	res, err := b.do(ctx, http.MethodPut, files[0].Name, url.Values{"comp": {"metadata"}},
		map[string]string{"X-Ms-Meta-Upload_status": "completed"}, nil)
	if err != nil {
		return false, err
	}
	return false, res.Body.Close()
}

func (b *Container) completed(ctx context.Context, name string) (bool, error) {
	res, err := b.do(ctx, http.MethodHead, name, nil, nil, nil)
	if trainyard.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return res.Header.Get("X-Ms-Meta-Upload_status") == "completed", res.Body.Close()
}

// upload is one Upload under way.
type upload struct {
	b        *Container
	progress Progress
	total    int64
	done     atomic.Int64
}

// pieces cuts files into calls that can be made in any order: the last block of a file to be done commits it.
func (u *upload) pieces(files []File) []func(context.Context) error {
	var out []func(context.Context) error
	for _, f := range files {
		if f.Size <= singleSize {
			out = append(out, func(ctx context.Context) error {
				return u.put(ctx, f, 0, f.Size, nil, map[string]string{"X-Ms-Blob-Type": "BlockBlob"})
			})
			continue
		}
		size := max(blockSize, (f.Size+mostBlocks-1)/mostBlocks)
		count := (f.Size + size - 1) / size
		left := new(atomic.Int64)
		left.Store(count)
		for i := range count {
			out = append(out, func(ctx context.Context) error {
				query := url.Values{"comp": {"block"}, "blockid": {blockID(i)}}
				if err := u.put(ctx, f, i*size, min(size, f.Size-i*size), query, nil); err != nil {
					return err
				}
				if left.Add(-1) == 0 {
					return u.b.commit(ctx, f.Name, count)
				}
				return nil
			})
		}
	}
	return out
}

// put sends size bytes of a file from offset.
func (u *upload) put(ctx context.Context, f File, offset, size int64, query url.Values, header map[string]string) error {
	file, err := os.Open(f.Path)
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	defer file.Close()
	var sent *counted
	res, err := u.b.do(ctx, http.MethodPut, f.Name, query, header, func() (io.Reader, int64) {
		if sent != nil {
			u.done.Add(-sent.n.Load()) // what was sent in vain
		}
		sent = &counted{r: io.NewSectionReader(file, offset, size), u: u}
		return sent, size
	})
	if err != nil {
		return fmt.Errorf("upload %s: %w", f.Path, err)
	}
	return res.Body.Close()
}

func blockID(i int64) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "block-%08d", i))
}

func (b *Container) commit(ctx context.Context, name string, blocks int64) error {
	list := struct {
		XMLName xml.Name `xml:"BlockList"`
		Latest  []string `xml:"Latest"`
	}{}
	for i := range blocks {
		list.Latest = append(list.Latest, blockID(i))
	}
	data, err := xml.Marshal(list)
	if err != nil {
		return err
	}
	res, err := b.do(ctx, http.MethodPut, name, url.Values{"comp": {"blocklist"}}, map[string]string{"Content-Type": "application/xml"},
		bytesBody(append([]byte(xml.Header), data...)))
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// counted counts what is read into an upload's progress.
type counted struct {
	r io.Reader
	u *upload
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	done := c.u.done.Add(int64(n))
	if c.u.progress != nil && n > 0 {
		c.u.progress(done, c.u.total)
	}
	return n, err
}

// inParallel makes calls, a few at a time, until all are done or one fails; the others are then cancelled and waited for.
func inParallel(ctx context.Context, calls []func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan func(context.Context) error)
	workers := min(parallel, len(calls))
	failed := make(chan error, workers)
	for range workers {
		go func() {
			var err error
			for call := range queue {
				if err == nil {
					if err = call(ctx); err != nil {
						cancel()
					}
				}
			}
			failed <- err
		}()
	}
	for _, call := range calls {
		if ctx.Err() != nil {
			break
		}
		queue <- call
	}
	close(queue)
	var first error
	for range workers {
		if err := <-failed; err != nil && (first == nil || errors.Is(first, context.Canceled)) {
			first = err
		}
	}
	if first == nil {
		first = ctx.Err()
	}
	return first
}

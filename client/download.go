package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/trainyard/trainyard"
)

// Download brings what a path of the container means into dir, which is made: a blob under its own name, a folder's content below dir. It
// returns how many files came. A name that would leave dir is refused. A transfer that breaks goes on where it stopped, and a file has its
// name only when it is whole.
func (b *Container) Download(ctx context.Context, from, dir string, progress Progress) (int, error) {
	found, err := b.Under(ctx, from)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("download: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, fmt.Errorf("download: %w", err)
	}
	defer root.Close()
	d := &download{b: b, root: root, progress: progress}
	for _, x := range found {
		d.total += x.Size
	}
	folder := strings.TrimRight(from, "/")
	calls := make([]func(context.Context) error, len(found))
	for i, x := range found {
		name := strings.TrimPrefix(strings.TrimPrefix(x.Name, folder), "/")
		if x.Name == folder {
			name = path.Base(folder)
		}
		calls[i] = func(ctx context.Context) error { return d.file(ctx, x, name) }
	}
	return len(found), inParallel(ctx, calls)
}

// download is one Download under way.
type download struct {
	b        *Container
	root     *os.Root
	progress Progress
	total    int64
	done     atomic.Int64
}

func (d *download) file(ctx context.Context, x Blob, name string) error {
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) {
		return trainyard.Invalid("the blob %q would be written outside %s: it was left out, and so was what follows it", x.Name, d.root.Name())
	}
	if err := d.root.MkdirAll(filepath.Dir(local), 0o755); err != nil {
		return fmt.Errorf("download %s: %w", name, err)
	}
	part := local + ".part"
	f, err := d.root.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("download %s: %w", name, err)
	}
	err = errors.Join(d.fetch(ctx, x, f), f.Close())
	if err == nil {
		err = d.root.Rename(part, local)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("download %s: %w", name, err), d.root.Remove(part))
	}
	return nil
}

// fetch writes the blob to w, going on after a break from the byte that is next.
func (d *download) fetch(ctx context.Context, x Blob, w io.Writer) error {
	var offset int64
	return d.b.c.persist(ctx, true, func() error {
		if offset == x.Size && offset > 0 {
			return nil
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.b.blobURL(x.Name, nil), nil)
		if err != nil {
			return err
		}
		req.Header.Set("X-Ms-Version", blobVersion)
		if offset > 0 {
			req.Header.Set("Range", "bytes="+strconv.FormatInt(offset, 10)+"-")
		}
		res, err := d.b.c.send(req, false)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if offset > 0 && res.StatusCode != http.StatusPartialContent {
			return trainyard.Errorf(trainyard.CodeInternal, "the server cannot send a part of %q", x.Name)
		}
		n, err := io.Copy(w, &told{r: res.Body, d: d})
		offset += n
		return err
	})
}

// told tells a download's progress what was read.
type told struct {
	r io.Reader
	d *download
}

func (t *told) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	done := t.d.done.Add(int64(n))
	if t.d.progress != nil && n > 0 {
		t.d.progress(done, t.d.total)
	}
	return n, err
}

func bytesBody(data []byte) func() (io.Reader, int64) {
	return func() (io.Reader, int64) { return bytes.NewReader(data), int64(len(data)) }
}

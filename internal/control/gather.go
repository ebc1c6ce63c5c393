package control

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// Rows of a collection come every second, from every replica and gateway. The first become a file at once; those that follow are gathered,
// and the collection gets one file a minute, or more where that would be too large. What is gathered is in the store already, in a container
// of the workspace that is no datastore, so a killed server loses none of it. A file is put whole, and under one name however often it is
// tried: that makes no row twice, and who reads a file never finds another one under its name. Rows are kept at least once: those of which
// the sender got no answer, as when the server was killed after it had kept them, come again and are there twice, with the same id.
const (
	gatherStore = "_collecting" // a datastore cannot be called so
	gatherEvery = time.Minute
	gatherSize  = 8 << 20
)

// gathered is what is gathered, by the folder of the collection. There is an entry for each that got rows since the server began.
type gathered struct {
	server string // what this one is called among those before and after it

	mu      sync.Mutex
	folders map[string]*gathering
}

type gathering struct {
	mu   sync.Mutex
	last time.Time          // when the folder got a file
	to   trainyard.DataPath // the next; no path: no rows wait
	size int64              // of the rows that wait
	torn bool               // a part of a row may follow them
}

func newGathered() *gathered {
	return &gathered{server: newKey()[:8], folders: map[string]*gathering{}}
}

func (s *gathered) of(folder string) *gathering {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.folders[folder]
	if g == nil {
		g = &gathering{}
		s.folders[folder] = g
	}
	return g
}

// from is the key of what is gathered for a file. It says which file, and has its workspace: who may write the one may write the other.
func (s *gathered) from(to trainyard.DataPath) string {
	return trainyard.DataPath{Scope: to.Scope, Datastore: gatherStore, Path: s.server + "/" + to.Datastore + "/" + to.Path}.Key()
}

// gather keeps rows for a folder's time slice. With an error they are not kept.
func (c *Control) gather(ctx context.Context, folder trainyard.DataPath, slice string, rows []byte) error {
	if len(rows) == 0 {
		return nil
	}
	if !bytes.HasSuffix(rows, []byte("\n")) {
		rows = append(bytes.Clone(rows), '\n')
	}
	name := folder.Key()
	folder.Path = path.Join(folder.Path, slice)
	g := c.gathered.of(name)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.to.Path != "" && (g.torn || path.Dir(g.to.Path) != folder.Path || g.size+int64(len(rows)) > gatherSize) {
		if err := c.makeFile(ctx, g); err != nil {
			return err
		}
	}
	now := c.Now()
	wait := min(gatherEvery, g.last.Add(gatherEvery).Sub(now))
	if g.to.Path == "" {
		folder.Path += "/" + now.UTC().Format("150405.000000") + "-" + newKey()[:6] + ".jsonl"
		if wait <= 0 {
			if err := c.Blobs.Put(ctx, folder.Key(), bytes.NewReader(rows)); err != nil {
				return err
			}
			g.last = now
			return nil
		}
		g.to, g.size = folder, 0
		c.settles.AddAfter(name, wait)
	}
	from := c.gathered.from(g.to)
	size, err := c.Blobs.Append(ctx, from, g.size, rows)
	if err == nil && size != g.size+int64(len(rows)) {
		err = fmt.Errorf("gather rows: %s has %d bytes, want %d", from, size, g.size+int64(len(rows)))
	}
	if err != nil {
		g.torn = true
		return err
	}
	g.size = size
	return nil
}

// makeFile makes a file of what is gathered. The caller holds mu.
func (c *Control) makeFile(ctx context.Context, g *gathering) error {
	if err := c.deliver(ctx, c.gathered.from(g.to), g.to.Key(), g.size); err != nil {
		return err
	}
	g.to, g.size, g.torn, g.last = trainyard.DataPath{}, 0, false, c.Now()
	return nil
}

// deliver makes a file of the whole rows among the first size bytes of what is gathered for it.
func (c *Control) deliver(ctx context.Context, from, key string, size int64) error {
	r, _, err := c.Blobs.Open(ctx, from, 0)
	if trainyard.IsNotFound(err) {
		return nil // none came
	}
	if err != nil {
		return err
	}
	rows, err := io.ReadAll(io.LimitReader(r, size))
	r.Close()
	if err != nil {
		return fmt.Errorf("read gathered rows: %w", err)
	}
	if rows = rows[:bytes.LastIndexByte(rows, '\n')+1]; len(rows) > 0 {
		if err := c.Blobs.Put(ctx, key, bytes.NewReader(rows)); err != nil {
			return err
		}
	}
	return c.Blobs.DeletePrefix(ctx, from)
}

// nextFile makes a folder's next file, if it is time.
func (c *Control) nextFile(ctx context.Context, folder string) (again time.Duration, err error) {
	g := c.gathered.of(folder)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.to.Path == "" {
		return 0, nil
	}
	if wait := min(gatherEvery, g.last.Add(gatherEvery).Sub(c.Now())); wait > 0 {
		return wait, nil
	}
	return 0, c.makeFile(ctx, g)
}

// deliverLeft makes files of what servers before this one had gathered.
func (c *Control) deliverLeft(ctx context.Context) error {
	return eachResource(ctx, c.Store, trainyard.KindWorkspace, func(r *trainyard.Resource) error {
		place := trainyard.DataPath{Scope: r.Scope, Datastore: gatherStore}.Key()
		left, err := c.Blobs.List(ctx, place)
		if err != nil {
			return err
		}
		for _, it := range left {
			part := strings.SplitN(strings.TrimPrefix(it.Key, place), "/", 3)
			if len(part) < 3 || part[0] == c.gathered.server {
				continue
			}
			to := trainyard.DataPath{Scope: r.Scope, Datastore: part[1], Path: part[2]}
			if err := c.deliver(ctx, it.Key, to.Key(), it.Size); err != nil {
				return fmt.Errorf("keep rows that an earlier server gathered: %w", err)
			}
		}
		return nil
	})
}

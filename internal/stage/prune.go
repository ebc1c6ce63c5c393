package stage

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// room makes sure that need bytes fit under path, pruning the cache if they do not. slack is kept free beside them.
func (s *Stager) room(ctx context.Context, path string, need int64) error {
	const slack = 64 << 20
	has, err := s.free(path)
	if err != nil {
		return err
	}
	if has >= need+slack {
		return nil
	}
	s.prune(ctx, path, need+slack)
	if has, err = s.free(path); err != nil {
		return err
	}
	if has < need+slack {
		return s.noRoom(path, need)
	}
	return nil
}

// old is an entry that might go.
type old struct {
	shelf *shelf
	key   string
	used  time.Time
}

// prune takes unused entries out of the cache, the longest unused first, until want bytes are free under path; then the packages that uv
// keeps, which cost only time to have again.
func (s *Stager) prune(ctx context.Context, path string, want int64) {
	enough := func() bool {
		has, err := s.free(path)
		return err != nil || has >= want || ctx.Err() != nil
	}
	for _, o := range s.oldest() {
		if enough() {
			return
		}
		if o.shelf.drop(o.key) {
			s.log.Info("pruned a cache entry to make room", "shelf", filepath.Base(o.shelf.dir), "key", o.key, "lastUsed", o.used)
		}
	}
	if !enough() {
		s.dropUV()
	}
}

// oldest lists every entry, the longest unused first.
func (s *Stager) oldest() []old {
	var out []old
	for _, c := range s.shelves() {
		files, err := os.ReadDir(c.dir)
		if err != nil {
			continue
		}
		for _, f := range files {
			key, ok := strings.CutSuffix(f.Name(), ".json")
			if !ok || strings.HasPrefix(key, ".") {
				continue
			}
			if info, err := f.Info(); err == nil {
				out = append(out, old{c, key, info.ModTime()})
			}
		}
	}
	slices.SortFunc(out, func(a, b old) int { return a.used.Compare(b.used) })
	return out
}

// drop takes an entry away if nobody uses it or is about to.
func (c *shelf) drop(key string) bool {
	f, err := os.OpenFile(c.path(key, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return false
	}
	defer f.Close()
	if ok, err := tryLock(f, true); err != nil || !ok {
		return false
	}
	rec, err := c.read(key)
	if err == nil && c.used(rec.Dir) {
		return false
	}
	if err := os.Remove(c.path(key, ".json")); err != nil {
		return false
	}
	c.sweep(key)
	_ = os.Remove(c.path(key, ".log"))
	_ = os.Remove(c.path(key, ".failed"))
	return true
}

// dropUV empties uv's own cache if no build uses it.
func (s *Stager) dropUV() {
	f, err := os.OpenFile(s.uvLock(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	if ok, err := tryLock(f, true); err == nil && ok {
		if err := removeAll(s.uvCache()); err != nil {
			s.log.Warn("could not empty the package cache", "dir", s.uvCache(), "err", err)
		}
	}
}

func (s *Stager) uvCache() string { return filepath.Join(s.cache, "uv") }
func (s *Stager) uvLock() string  { return filepath.Join(s.cache, "uv.lock") }

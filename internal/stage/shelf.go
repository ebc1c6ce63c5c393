package stage

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// shelf is one part of the cache: entries by key, each built once whoever asks.
type shelf struct {
	dir string
	use string // Cache/use
	log *slog.Logger
}

// record is what KEY.json says of an entry.
type record struct {
	Dir    string        `json:"dir"`  // name of its folder
	What   string        `json:"what"` // for people: "environment sklearn-1.5", a URI
	Bytes  int64         `json:"bytes"`
	Files  []fileRecord  `json:"files,omitempty"` // code and data: what must still be there, unaltered
	Built  time.Time     `json:"built"`
	Took   time.Duration `json:"took"`
	Note   string        `json:"note,omitempty"`
	Python *interpreter  `json:"python,omitempty"` // environments: what runs in it
}

// fileRecord is one file of an entry.
type fileRecord struct {
	Path string `json:"p"` // slashes, relative to the entry
	Size int64  `json:"s"`
	Time int64  `json:"t"` // mtime, nanoseconds
}

// order asks a shelf for an entry.
type order struct {
	key  string
	what string
	task string // folder of the task that will use it
	// good says whether an entry may still be used; nil: it may, if its folder is there.
	good func(dir string, r record) bool
	// wait is called again and again while another builds; it returns at once. nil: nobody wants to know.
	wait func()
	// build fills the folder, which is empty. What, Bytes, Files, Note and Python of its record are kept.
	build func(ctx context.Context, dir string) (record, error)
}

// got is an entry in use by the task.
type got struct {
	dir    string
	rec    record
	built  bool          // by this call
	waited time.Duration // for another's build
	mark   string        // says that the task uses it
}

// keyOf is a cache key for anything that can be told by strings.
func keyOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:20])
}

// get returns the entry of o.key, building it if it is not there, and marks it as used by the task. Of any number of callers, in any
// number of processes, one builds and the others wait; if it fails for good, those who waited fail with it.
func (c *shelf) get(ctx context.Context, o order) (got, error) {
	arrived := time.Now()
	for _, exclusive := range []bool{false, true} {
		lock, err := acquire(ctx, c.path(o.key, ".lock"), exclusive, o.wait)
		if err != nil {
			return got{}, err
		}
		g, err := c.held(ctx, o, arrived, exclusive)
		lock.Close()
		if err != nil || g.dir != "" {
			return g, err
		}
	}
	return got{}, fmt.Errorf("cache entry %s of %s was neither found nor built", o.key, c.dir)
}

// held is get with the lock held. Without the exclusive one it returns nothing for an entry that is not there.
func (c *shelf) held(ctx context.Context, o order, arrived time.Time, exclusive bool) (got, error) {
	g := got{waited: time.Since(arrived)}
	rec, ok := c.lookup(o)
	if !ok && !exclusive {
		return got{}, nil
	}
	if !ok {
		err := c.failedSince(o.key, arrived)
		if err != nil {
			return got{}, err
		}
		if rec, err = c.build(ctx, o); err != nil {
			c.noteFailure(o.key, err)
			return got{}, err
		}
		g.built = true
	}
	mark, err := c.mark(o, rec)
	g.dir, g.rec, g.mark = filepath.Join(c.dir, rec.Dir), rec, mark
	return g, err
}

// lookup finds the entry if it is there and good.
func (c *shelf) lookup(o order) (record, bool) {
	rec, err := c.read(o.key)
	if err != nil {
		return record{}, false
	}
	dir := filepath.Join(c.dir, rec.Dir)
	if o.good != nil && !o.good(dir, rec) {
		c.log.Warn("cache entry was altered and will be rebuilt", "entry", rec.Dir, "what", rec.What)
		return record{}, false
	}
	if o.good == nil {
		if _, err := os.Stat(dir); err != nil {
			return record{}, false
		}
	}
	return rec, true
}

// read reads a key's record.
func (c *shelf) read(key string) (record, error) {
	var rec record
	data, err := os.ReadFile(c.path(key, ".json"))
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	if err == nil && (rec.Dir == "" || !strings.HasPrefix(rec.Dir, key+"-")) {
		err = fmt.Errorf("cache record %s names no folder of its own", key)
	}
	return rec, err
}

// build makes the entry in a folder of its own and then names it.
func (c *shelf) build(ctx context.Context, o order) (record, error) {
	start := time.Now()
	c.sweep(o.key)
	name := o.key + "-" + strings.ToLower(rand.Text()[:8])
	dir := filepath.Join(c.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return record{}, fmt.Errorf("make cache entry: %w", err)
	}
	rec, err := o.build(ctx, dir)
	if err != nil {
		_ = removeAll(dir)
		return record{}, err
	}
	rec.Dir, rec.What, rec.Built, rec.Took = name, o.what, start, time.Since(start)
	data, err := json.Marshal(rec)
	if err != nil {
		return record{}, fmt.Errorf("encode cache record: %w", err)
	}
	if err := replaceFile(c.path(o.key, ".json"), data, 0o644); err != nil {
		_ = removeAll(dir)
		return record{}, fmt.Errorf("write cache record: %w", err)
	}
	return rec, nil
}

// sweep clears away what killed builders of the key left, and old entries that nobody uses any more. It needs the exclusive lock.
func (c *shelf) sweep(key string) {
	current := ""
	if rec, err := c.read(key); err == nil {
		current = rec.Dir
	}
	left, _ := filepath.Glob(filepath.Join(c.dir, key+"-*"))
	for _, dir := range left {
		name := filepath.Base(dir)
		if name == current || c.used(name) {
			continue
		}
		if err := removeAll(dir); err != nil {
			c.log.Warn("could not clear an unfinished cache entry", "dir", dir, "err", err)
		}
	}
}

// failure is KEY.failed: why the last build failed, for those who waited for it.
type failure struct {
	At      time.Time       `json:"at"`
	Class   trainyard.Class `json:"class"`
	Message string          `json:"message"`
}

// noteFailure records an end that others who wait would only meet again.
func (c *shelf) noteFailure(key string, err error) {
	class := trainyard.ClassOf(err)
	if class == "" || errors.Is(err, context.Canceled) {
		return
	}
	data, _ := json.Marshal(failure{At: time.Now(), Class: class, Message: err.Error()})
	_ = replaceFile(c.path(key, ".failed"), data, 0o644)
}

// failedSince is the failure of a build that ended after a time.
func (c *shelf) failedSince(key string, since time.Time) error {
	data, err := os.ReadFile(c.path(key, ".failed"))
	if err != nil {
		return nil
	}
	var f failure
	if json.Unmarshal(data, &f) != nil || f.At.Before(since) {
		return nil
	}
	return fault(f.Class, "%s", f.Message)
}

func (c *shelf) path(key, suffix string) string { return filepath.Join(c.dir, key+suffix) }

// acquire takes a lock, waiting as long as it must. Closing the file lets go.
func acquire(ctx context.Context, path string, exclusive bool, wait func()) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		ok, err := tryLock(f, exclusive)
		if ok {
			return f, nil
		}
		if err == nil {
			if wait != nil && pause > 16*time.Millisecond { // who only looks is gone before
				wait()
			}
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(pause):
				continue
			}
		}
		f.Close()
		return nil, err
	}
}

// mark notes that the task uses the entry, and that the entry was used now. A mark whose task has no folder any more counts for nothing.
func (c *shelf) mark(o order, rec record) (string, error) {
	now := time.Now()
	_ = os.Chtimes(c.path(o.key, ".json"), now, now)
	mark := filepath.Join(c.use, rec.Dir+"."+keyOf(o.task)[:16])
	if err := os.WriteFile(mark, []byte(o.task), 0o644); err != nil {
		return "", fmt.Errorf("mark cache entry as used: %w", err)
	}
	return mark, nil
}

// used says whether a task that still has its folder uses the entry.
func (c *shelf) used(name string) bool {
	marks, err := filepath.Glob(filepath.Join(c.use, name+".*"))
	if err != nil {
		return true
	}
	for _, mark := range marks {
		task, err := os.ReadFile(mark)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return true
		}
		if _, err := os.Stat(string(task)); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
		_ = os.Remove(mark)
	}
	return false
}

// unmark takes marks back.
func unmark(marks []string) error {
	for _, mark := range marks {
		if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("let go of the cache: %w", err)
		}
	}
	return nil
}

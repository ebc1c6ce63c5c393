// Package stage makes a node ready for a task and brings home what the task made: code, inputs and environments are materialised
// content-addressed in a cache that all tasks of the machine share, outputs and logs are uploaded. It starts no task, knows no queue and
// speaks to the server only through Blobs.
//
// On disk:
//
//	Cache/{code,data,env}/KEY-RANDOM/   an entry; never changed once KEY.json names it
//	Cache/{code,data,env}/KEY.json      which folder is the entry of KEY, and what is in it; its time is that of the last use
//	Cache/{code,data,env}/KEY.lock      flock: shared to look and mark, exclusive to build and to prune
//	Cache/use/KEY-RANDOM.TASK           one file a task that uses the entry; an entry in use is never pruned
//	Cache/uv, Cache/tools               packages that uv keeps, and uv itself where the node has none
//	Dir/TASK/work                       working directory: a private copy of the code, with outputs and logs
//	Dir/TASK/{inputs,outputs-named}     private inputs, and named outputs until they are uploaded
//	Dir/TASK/python                     a thin virtual environment on top of the shared one: what the task installs goes here
//	Dir/TASK/restored.json              what came back of an attempt that was preempted, so that it is not uploaded unchanged
//	Dir/TASK/staged.json                written last: Prepare is done. Tasks that need only folders have none
//
// Everything is written aside and then named, so whoever is killed in between leaves only folders that the next one clears away.
package stage

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
)

// Blobs is where the server's bytes are. Keys are "container/path…".
type Blobs interface {
	// Open reads an object from a byte offset. The caller closes.
	Open(ctx context.Context, key string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error)
	// List returns everything under the prefix, recursively, sorted by key.
	List(ctx context.Context, prefix string) ([]trainyard.BlobInfo, error)
	// Put stores a whole object, and replaces what was there.
	Put(ctx context.Context, key string, r io.Reader) error
}

// Config is what a Stager needs.
type Config struct {
	Dir    string       // the node's own folder, for tasks
	Cache  string       // may be shared by all agents of one machine
	Blobs  Blobs        // the server's store
	Python string       // interpreter of the node; "" is the first python3 on PATH
	HTTP   *http.Client // for inputs on the web; nil is a client with the system's proxy and certificates
	Log    *slog.Logger // nil: silent

	// Many, unless it is nil, is called each time before files are brought or stored, which is work for several processors.
	Many func()
}

// Validate says what is wrong with c.
func (c Config) Validate() error {
	switch {
	case c.Dir == "":
		return trainyard.Invalid("staging needs a folder for tasks (Dir)")
	case c.Cache == "":
		return trainyard.Invalid("staging needs a cache folder (Cache)")
	case c.Blobs == nil:
		return trainyard.Invalid("staging needs a store to read from (Blobs)")
	}
	if c.Python != "" {
		if _, err := exec.LookPath(c.Python); err != nil {
			return trainyard.Invalid("Python %q cannot be run (%v); name one that is installed, or leave the setting out", c.Python, err)
		}
	}
	return nil
}

// Stager stages the tasks of one node. Its methods may be called at once for different tasks; calls for one task must not overlap.
//
// An error that carries a trainyard.ClassError is the end of the task. Any other is the server's or the network's, and it is right to
// call again: every method is idempotent.
type Stager struct {
	dir    string
	cache  string
	blobs  Blobs
	web    *http.Client
	log    *slog.Logger
	code   *shelf
	data   *shelf
	env    *shelf
	python *finder
	many   func()
	free   func(path string) (int64, error)
	pauses []time.Duration // between tries of what may fail for a moment
	stall  time.Duration   // how long a tool of a build may do nothing
	lazy   atomic.Value    // string: where the node's Python for tasks is known to be
}

// New makes the folders and returns a Stager on them.
func New(c Config) (*Stager, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.HTTP == nil {
		c.HTTP = webClient()
	}
	if c.Many == nil {
		c.Many = func() {}
	}
	s := &Stager{blobs: c.Blobs, web: c.HTTP, log: c.Log, many: c.Many, free: freeBytes, stall: stallLimit,
		pauses: []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second, 4 * time.Second}}
	var err error
	if s.dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, fmt.Errorf("task folder %s: %w", c.Dir, err)
	}
	if s.cache, err = filepath.Abs(c.Cache); err != nil {
		return nil, fmt.Errorf("cache folder %s: %w", c.Cache, err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make task folder: %w", err)
	}
	use := filepath.Join(s.cache, "use")
	for name, at := range map[string]**shelf{"code": &s.code, "data": &s.data, "env": &s.env} {
		*at = &shelf{dir: filepath.Join(s.cache, name), use: use, log: s.log}
	}
	for _, d := range []string{s.code.dir, s.data.dir, s.env.dir, use, filepath.Join(s.cache, "tools"), filepath.Join(s.cache, "python")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("make cache folder: %w", err)
		}
	}
	s.python = &finder{node: c.Python, memo: filepath.Join(s.cache, "python"), known: map[string]*interpreter{}, picked: map[string]choice{}}
	return s, nil
}

// shelves lists all parts of the cache that hold entries.
func (s *Stager) shelves() []*shelf { return []*shelf{s.code, s.data, s.env} }

// folder is the task's own folder.
func (s *Stager) folder(id trainyard.TaskID) string { return filepath.Join(s.dir, id.Dir()) }

// The parts of a task's folder.
const (
	workPart    = "work"
	inputsPart  = "inputs"
	outputsPart = "outputs-named"
	logsPart    = "user_logs"
	pythonPart  = "python"
	stagedPart  = "staged.json"
)

// Remove takes away the task's folder, whatever the task did to it, and lets go of what it used of the cache. An unknown task is no
// error.
func (s *Stager) Remove(ctx context.Context, id trainyard.TaskID) error {
	folder := s.folder(id)
	f, _, err := readFacts(folder)
	if err == nil {
		err = unmark(f.Marks)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", id.Words(), err)
	}
	if err := removeAll(folder); err != nil {
		return fmt.Errorf("remove the folder of %s: %w", id.Words(), err)
	}
	return nil
}

package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Modes of inputs and outputs.
const (
	modeDirect    = "Direct"
	modeReadOnly  = "ReadOnlyMount"
	modeReadWrite = "ReadWriteMount"
)

const literal = "literal"

// stageInput brings an input's data to this node and returns its path.
func (s *Stager) stageInput(ctx context.Context, w *work, name string, in trainyard.TaskInput) (string, error) {
	if strings.EqualFold(in.Mode, modeReadWrite) && in.Key == "" {
		return "", fault(trainyard.ClassUser, "input %q: %s cannot be mounted for writing, only paths in a datastore can; use ro_mount or download",
			name, shown(in.URI))
	}
	g, whole, err := s.sharedInput(ctx, w, name, in)
	if err != nil {
		return "", err
	}
	w.count(g)
	dir := g.dir
	if !slices.Contains(w.facts.Shared, dir) {
		w.facts.Shared = append(w.facts.Shared, dir)
	}
	if !strings.EqualFold(in.Mode, modeReadOnly) && in.Mode != "" {
		dir = filepath.Join(w.folder, inputsPart, plainName(name))
		if err := s.ownInput(ctx, w, name, in, g, dir); err != nil {
			return "", err
		}
	}
	if whole && len(g.rec.Files) == 1 && !isTableFile(in.Type, g.rec.Files[0].Path) {
		return filepath.Join(dir, filepath.FromSlash(g.rec.Files[0].Path)), nil
	}
	return dir, nil
}

// isTableFile says whether a file is the description of a table, which programs want by its folder.
func isTableFile(kind, path string) bool {
	return strings.EqualFold(kind, "mltable") && path == "MLTable"
}

// ownInput makes the task's private copy. What will be written back is remembered as it was.
func (s *Stager) ownInput(ctx context.Context, w *work, name string, in trainyard.TaskInput, g got, dir string) error {
	if err := s.room(ctx, w.folder, g.rec.Bytes); err != nil {
		return err
	}
	if err := copyTree(ctx, g.dir, dir, g.rec); err != nil {
		return s.local(fmt.Errorf("copy input %q: %w", name, err), trainyard.ClassData, w.folder, g.rec.Bytes)
	}
	if !strings.EqualFold(in.Mode, modeReadWrite) {
		return nil
	}
	files, err := scan(dir)
	if err != nil {
		return fmt.Errorf("list input %q: %w", name, err)
	}
	w.facts.Before[name] = files
	return nil
}

// sharedInput finds or makes the cache entry of an input's data. whole says that it is one file, not a folder.
func (s *Stager) sharedInput(ctx context.Context, w *work, name string, in trainyard.TaskInput) (g got, whole bool, err error) {
	var objects []object
	if in.Key != "" {
		objects, whole, err = s.blobObjects(ctx, in.Key)
		whole = whole || isFile(in.Type) && oneOf(objects, in.Key)
	} else {
		objects, whole, err = s.webObjects(ctx, in.URI)
		if errors.Is(err, errUnreachable) {
			if key, ok := s.remembered(in.URI); ok {
				w.say("using this node's copy of input %s: %v", name, err)
				g, err := s.shelveInput(ctx, w, name, in, key, nil)
				return g, len(g.rec.Files) == 1 && !strings.HasSuffix(in.URI, "/"), err
			}
		}
	}
	if err == nil && len(objects) == 0 {
		if objects = []object{}; !in.Vacant {
			err = trainyard.NotFound("nothing is stored there")
		}
	}
	if err != nil {
		return got{}, false, inputFault(name, in, err)
	}
	key := keyOfObjects("data", objects)
	if in.Key == "" {
		if unversioned(objects) {
			key = keyOf("unversioned", in.URI, fmt.Sprint(time.Now().UnixNano()))
		}
		s.remember(in.URI, key)
	}
	g, err = s.shelveInput(ctx, w, name, in, key, objects)
	return g, whole, err
}

// oneOf says whether a folder of the store is the place of a single file, as an output of type uri_file is.
func oneOf(objects []object, key string) bool {
	return strings.HasSuffix(key, "/") && len(objects) == 1 && !strings.Contains(objects[0].Path, "/")
}

// unversioned says whether objects cannot be told from later ones of the same name.
func unversioned(objects []object) bool {
	for _, o := range objects {
		if o.ETag == "" {
			return true
		}
	}
	return false
}

// shelveInput gets the entry of key; without objects it must be there already.
func (s *Stager) shelveInput(ctx context.Context, w *work, name string, in trainyard.TaskInput, key string, objects []object) (got, error) {
	g, err := s.data.get(ctx, order{
		key: key, what: shown(in.URI), task: w.folder, good: unaltered,
		wait: func() { w.say("waiting for another job's download of input %s", name) },
		build: func(ctx context.Context, dir string) (record, error) {
			if objects == nil {
				return record{}, inputFault(name, in, errUnreachable)
			}
			w.say("downloading input %s", name)
			rec, err := s.fetch(ctx, dir, objects, func(done, total int64) {
				w.say("downloading input %s: %s of %s", name, sized(done), sized(total))
			})
			if err != nil {
				return rec, inputFault(name, in, err)
			}
			return rec, freeze(dir)
		},
	})
	return g, s.local(err, trainyard.ClassData, s.data.dir, 0)
}

// inputFault says which input could not be had, why, and what to do. Errors of the server's connection pass: they may go away.
func inputFault(name string, in trainyard.TaskInput, err error) error {
	if c := trainyard.ClassOf(err); c != "" {
		return &trainyard.ClassError{Class: c, Err: trainyard.Invalid("input %q (%s): %v", name, shown(in.URI), err)}
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), isFull(err):
		return err
	case trainyard.IsNotFound(err):
		return fault(trainyard.ClassData, "input %q: there is nothing at %s (%v); check the path, or upload the data before the job starts", name, shown(in.URI), err)
	case trainyard.CodeOf(err) == trainyard.CodeForbidden:
		return fault(trainyard.ClassData, "input %q: %s may not be read (%v); give an address that this node may read, or copy the data into a datastore",
			name, shown(in.URI), err)
	case errors.Is(err, errUnreachable):
		return fault(trainyard.ClassData, "input %q: %s cannot be had (%v); check this node's network and proxy, or copy the data into a datastore",
			name, shown(in.URI), err)
	case errors.Is(err, errChanged):
		return fault(trainyard.ClassData, "input %q: %s was written to while it was downloaded (%v); submit the job again when it is whole", name, shown(in.URI), err)
	case in.Key == "":
		return fault(trainyard.ClassData, "input %q: %s cannot be had: %v", name, shown(in.URI), err)
	}
	return fmt.Errorf("input %q: %w", name, err)
}

// remember notes which entry a web address was last, so that it can be had again without a network.
func (s *Stager) remember(uri, key string) {
	_ = replaceFile(filepath.Join(s.data.dir, "uri-"+keyOf(uri)+".key"), []byte(key), 0o644)
}

func (s *Stager) remembered(uri string) (key string, ok bool) {
	data, err := os.ReadFile(filepath.Join(s.data.dir, "uri-"+keyOf(uri)+".key"))
	if err != nil {
		return "", false
	}
	_, err = s.data.read(string(data))
	return string(data), err == nil
}

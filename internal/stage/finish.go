package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trainyard/trainyard"
)

// upload is one file on its way home.
type upload struct {
	path string // on this node, links resolved
	key  string
	size int64
}

// Finish brings home what the task wrote: named outputs, inputs mounted for writing, ./outputs and ./logs. Whatever the task's end was,
// what is there is kept. A task without a folder has nothing to bring.
//
// It says how far it is; the time it takes is the caller's to put on the timeline.
//
// Every node of a gang uploads its own ./outputs and ./logs to the same place; where two wrote the same name, the first rank's stays.
//
// A task that was to go on from an attempt before, and did not come as far as starting, brings nothing: what it has is half a copy.
func (s *Stager) Finish(ctx context.Context, t trainyard.Task, r trainyard.Result, p trainyard.Progress) error {
	folder := s.folder(t.ID)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, staged, err := readFacts(folder); t.Restore && !staged {
		return err
	}
	back, err := readRestored(folder)
	if err != nil {
		return err
	}
	g := &gather{home: folder, view: t.Run.View}
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		g.home = real
	}
	if err := s.gatherAll(ctx, t, folder, g, back); err != nil {
		return err
	}
	for _, note := range g.notes() {
		p.Say(note)
		p.Log("system_logs/outputs.txt", []byte(note+"\n"))
	}
	errs, arrived := g.errs, make([]bool, len(g.files))
	if len(g.files) > 0 {
		errs = append(errs, s.putAll(ctx, g.files, arrived, p))
	}
	if mayFollow(r.Class) && t.Artifacts != "" {
		errs = append(errs, s.leave(ctx, t, folder, g.files, arrived, back))
	}
	return errors.Join(errs...)
}

// gatherAll lists what will be uploaded.
func (s *Stager) gatherAll(ctx context.Context, t trainyard.Task, folder string, g *gather, back *restored) error {
	for _, name := range slices.Sorted(maps.Keys(t.Outputs)) {
		out := t.Outputs[name]
		if strings.EqualFold(out.Mode, modeDirect) || out.Key == "" {
			continue
		}
		key := out.Key
		if isFile(out.Type) && strings.HasSuffix(key, "/") {
			key += name
		}
		have := len(g.files)
		g.take(outputPath(folder, name, out), key, isFile(out.Type))
		g.files = back.changed(g.files, have)
	}
	if err := g.takeInputs(t, folder); err != nil {
		return err
	}
	for _, part := range []string{"outputs", "logs"} {
		if t.Artifacts == "" {
			break
		}
		prefix := t.Artifacts + "/" + part
		have := len(g.files)
		g.take(filepath.Join(folder, workPart, part), prefix, false)
		g.files = back.changed(g.files, have)
		if t.Lo > 0 && len(g.files) > have {
			if err := s.yieldTo(ctx, prefix, g, have, back); err != nil {
				return err
			}
		}
	}
	return nil
}

// yieldTo leaves out what another rank has stored already. What the attempt before stored is nobody's but the first's to change it.
func (s *Stager) yieldTo(ctx context.Context, prefix string, g *gather, from int, back *restored) error {
	items, err := s.list(ctx, prefix+"/")
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, it := range items {
		there[it.Key] = back.files[it.Key].ETag != it.ETag || it.ETag == ""
	}
	mine := slices.DeleteFunc(slices.Clone(g.files[from:]), func(u upload) bool {
		if there[u.key] {
			back.kept = append(back.kept, u.key)
		}
		return there[u.key]
	})
	if n := len(g.files) - from - len(mine); n > 0 {
		g.skip(fmt.Sprintf("%s that another node wrote as well", plural(n, "file")), prefix)
	}
	g.files = append(g.files[:from:from], mine...)
	return nil
}

// putAll stores files, a few at a time, marks those that arrived, and says how far it is.
func (s *Stager) putAll(ctx context.Context, files []upload, arrived []bool, p trainyard.Progress) error {
	var done, sent atomic.Int64
	total := int64(0)
	for _, f := range files {
		total += f.size
	}
	tell := throttle(time.Second, func() {
		p.Say(fmt.Sprintf("uploading outputs: %d of %s, %s of %s", done.Load(), plural(len(files), "file"), sized(sent.Load()), sized(total)))
	})
	p.Say(fmt.Sprintf("uploading outputs: %s, %s", plural(len(files), "file"), sized(total)))
	s.many()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(6)
	for i, f := range files {
		group.Go(func() error {
			if err := s.putFile(ctx, f, func(n int64) { sent.Add(n); tell() }); err != nil {
				return err
			}
			arrived[i] = true
			done.Add(1)
			tell()
			return nil
		})
	}
	return group.Wait()
}

// putFile streams one file, as long as it is now: what still grows does not hold the task up.
func (s *Stager) putFile(ctx context.Context, u upload, add func(n int64)) error {
	err := s.again(ctx, func() error {
		f, err := openPlain(u.path)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		return s.blobs.Put(ctx, u.key, counted{io.LimitReader(f, info.Size()), add})
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil // gone since it was listed: something of the task still runs
	case lasting(err) && ctx.Err() == nil:
		return &trainyard.ClassError{Class: trainyard.ClassData, Err: fmt.Errorf("output %s could not be stored: %w", path.Base(u.key), err)}
	}
	return fmt.Errorf("store %s: %w", u.key, err)
}

// takeInputs lists what changed in inputs that are written back.
func (g *gather) takeInputs(t trainyard.Task, folder string) error {
	staged, ok, err := readFacts(folder)
	if err != nil || !ok {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(staged.Before)) {
		in := t.Inputs[name]
		dir := filepath.Join(folder, inputsPart, plainName(name))
		before := map[string]fileRecord{}
		for _, f := range staged.Before[name] {
			before[f.Path] = f
		}
		from := len(g.files)
		key := in.Key
		if staged.Inputs[name] != dir { // one file, given by its path
			key = path.Dir(in.Key)
		}
		g.take(dir, strings.TrimSuffix(key, "/"), false)
		there := map[string]bool{}
		changed := slices.DeleteFunc(slices.Clone(g.files[from:]), func(u upload) bool {
			rel := strings.TrimPrefix(u.key, strings.TrimSuffix(key, "/")+"/")
			there[rel] = true
			info, err := os.Stat(u.path)
			old, known := before[rel]
			return err == nil && known && old == fileRecord{Path: rel, Size: info.Size(), Time: info.ModTime().UnixNano()}
		})
		g.files = append(g.files[:from:from], changed...)
		for _, f := range staged.Before[name] {
			if !there[f.Path] {
				g.skip("files deleted from an input, which stay in the datastore", f.Path)
			}
		}
	}
	return nil
}

// restored is what a task was given back, by key, and what of it needs no upload.
type restored struct {
	files map[string]saved
	kept  []string // keys that hold what the task has, though it does not upload them
}

// readRestored reads what restore noted.
func readRestored(folder string) (*restored, error) {
	r := &restored{files: map[string]saved{}}
	data, err := os.ReadFile(filepath.Join(folder, restoredPart))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	var files []saved
	if err == nil {
		err = json.Unmarshal(data, &files)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was brought back: %w", err)
	}
	for _, f := range files {
		r.files[f.Key] = f
	}
	return r, nil
}

// changed leaves out what is still as it was brought back, from an index on.
func (r *restored) changed(files []upload, from int) []upload {
	mine := slices.DeleteFunc(slices.Clone(files[from:]), func(u upload) bool {
		old, known := r.files[u.key]
		info, err := os.Stat(u.path)
		same := known && err == nil && old.Size == info.Size() && old.Time == info.ModTime().UnixNano()
		if same {
			r.kept = append(r.kept, u.key)
		}
		return same
	})
	return append(files[:from:from], mine...)
}

// mayFollow says whether another attempt may come after one that ended like this.
func mayFollow(c trainyard.Class) bool {
	return c == trainyard.ClassPreempted || c == trainyard.ClassSibling || c == trainyard.ClassNodeLost
}

// leave stores the list for the next attempt: what this one stored in its outputs, and what of the one before is still good.
func (s *Stager) leave(ctx context.Context, t trainyard.Task, folder string, files []upload, arrived []bool, r *restored) error {
	mine := map[string]bool{} // by key: uploaded just now
	for i, u := range files {
		if arrived[i] {
			mine[u.key] = true
		}
	}
	for _, key := range r.kept {
		mine[key] = false
	}
	c := checkpoint{Attempt: t.Attempt, Objects: []saved{}}
	listed := map[string]bool{}
	for _, p := range homes(t, folder) {
		items, err := s.stored(ctx, p)
		if err != nil {
			return err
		}
		for _, it := range items {
			uploaded, ok := mine[it.Key]
			if _, here := p.rel(it.Key); !ok || !here || listed[it.Key] {
				continue
			}
			listed[it.Key] = true
			o := saved{Key: it.Key, ETag: it.ETag, Size: it.Size}
			if old, was := r.files[it.Key]; was && !uploaded { // if it is another's by now, the next attempt does not get it
				o = saved{Key: it.Key, ETag: old.ETag, Size: old.Size}
			}
			c.Objects = append(c.Objects, o)
		}
	}
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode the list of outputs: %w", err)
	}
	err = s.again(ctx, func() error { return s.blobs.Put(ctx, checkpointKey(t), bytes.NewReader(data)) })
	if err != nil && lasting(err) && ctx.Err() == nil {
		return &trainyard.ClassError{Class: trainyard.ClassData, Err: fmt.Errorf("the list of outputs for the next attempt could not be stored: %w", err)}
	}
	return err
}

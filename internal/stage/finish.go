package stage

import (
	"context"
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
func (s *Stager) Finish(ctx context.Context, t trainyard.Task, _ trainyard.Result, p trainyard.Progress) error {
	folder := s.folder(t.ID)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	g := &gather{home: folder}
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		g.home = real
	}
	if err := s.gatherAll(ctx, t, folder, g); err != nil {
		return err
	}
	for _, note := range g.notes() {
		p.Say(note)
		p.Log("system_logs/outputs.txt", []byte(note+"\n"))
	}
	if len(g.files) == 0 {
		return errors.Join(g.errs...)
	}
	return errors.Join(append(g.errs, s.putAll(ctx, g.files, p))...)
}

// gatherAll lists what will be uploaded.
func (s *Stager) gatherAll(ctx context.Context, t trainyard.Task, folder string, g *gather) error {
	for _, name := range slices.Sorted(maps.Keys(t.Outputs)) {
		out := t.Outputs[name]
		if strings.EqualFold(out.Mode, modeDirect) || out.Key == "" {
			continue
		}
		key := out.Key
		if isFile(out.Type) && strings.HasSuffix(key, "/") {
			key += name
		}
		g.take(outputPath(folder, name, out), key, isFile(out.Type))
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
		if t.Lo > 0 && len(g.files) > have {
			if err := s.yieldTo(ctx, prefix, g, have); err != nil {
				return err
			}
		}
	}
	return nil
}

// yieldTo leaves out what another rank has stored already.
func (s *Stager) yieldTo(ctx context.Context, prefix string, g *gather, from int) error {
	items, err := s.list(ctx, prefix+"/")
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, it := range items {
		there[it.Key] = true
	}
	mine := slices.DeleteFunc(slices.Clone(g.files[from:]), func(u upload) bool { return there[u.key] })
	if n := len(g.files) - from - len(mine); n > 0 {
		g.skip(fmt.Sprintf("%s that another node wrote as well", plural(n, "file")), prefix)
	}
	g.files = append(g.files[:from:from], mine...)
	return nil
}

// putAll stores files, a few at a time, and says how far it is.
func (s *Stager) putAll(ctx context.Context, files []upload, p trainyard.Progress) error {
	var done, sent atomic.Int64
	total := int64(0)
	for _, f := range files {
		total += f.size
	}
	tell := throttle(time.Second, func() {
		p.Say(fmt.Sprintf("uploading outputs: %d of %s, %s of %s", done.Load(), plural(len(files), "file"), sized(sent.Load()), sized(total)))
	})
	p.Say(fmt.Sprintf("uploading outputs: %s, %s", plural(len(files), "file"), sized(total)))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(6)
	for _, f := range files {
		group.Go(func() error {
			if err := s.putFile(ctx, f, func(n int64) { sent.Add(n); tell() }); err != nil {
				return err
			}
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

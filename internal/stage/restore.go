package stage

import (
	"cmp"
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
	"time"

	"github.com/trainyard/trainyard"
)

// An attempt that may be followed by another leaves a list of what it stored, and the next one gets exactly that: a named output's place
// may be shared with others, and what they wrote there is none of the job's business. What was brought back and did not change is not
// stored again, so that it never replaces what somebody else wrote meanwhile.

// restoredPart is what was brought back, in the task's folder.
const restoredPart = "restored.json"

// maxCheckpoint bounds a list that is read: some hundred thousand files.
const maxCheckpoint = 64 << 20

// saved is one stored object: the version of it, and the time of its file on this node.
type saved struct {
	Key  string `json:"key"`
	ETag string `json:"etag,omitempty"`
	Size int64  `json:"size"`
	Time int64  `json:"time,omitempty"` // mtime, nanoseconds
}

// checkpoint is the list as it is stored. Every node of a gang leaves its own.
type checkpoint struct {
	Attempt int     `json:"attempt"`
	Objects []saved `json:"objects"`
}

// checkpointKey is where a node's list goes.
func checkpointKey(t trainyard.Task) string {
	if t.Lo > 0 {
		return fmt.Sprintf("%s/system_logs/checkpoint.%d.json", t.Artifacts, t.Lo)
	}
	return t.Artifacts + "/system_logs/checkpoint.json"
}

// isCheckpoint says whether a key is that of a list, of any of the job's nodes.
func isCheckpoint(key string) bool {
	ok, _ := path.Match("checkpoint*.json", path.Base(key))
	return ok
}

// home is where outputs are: on this node and in the store.
type home struct {
	key  string // what all keys begin with, up to a slash; of a file, its key
	dir  string
	file string // name of the one file in dir; "": all below key
	own  bool   // nobody but the job writes there
}

// rel is where an object of the place goes below dir.
func (p home) rel(key string) (string, bool) {
	if p.file != "" {
		return p.file, key == p.key
	}
	rel, ok := strings.CutPrefix(key, p.key)
	return rel, ok && rel != "" && !strings.HasSuffix(rel, "/")
}

// homes lists ./outputs and the named outputs. Of two places that hold a key, the one that says more of it comes first.
func homes(t trainyard.Task, folder string) []home {
	var out []home
	if t.Artifacts != "" {
		out = append(out, home{key: t.Artifacts + "/outputs/", dir: filepath.Join(folder, workPart, "outputs"), own: true})
	}
	for _, name := range slices.Sorted(maps.Keys(t.Outputs)) {
		o := t.Outputs[name]
		if strings.EqualFold(o.Mode, modeDirect) || o.Key == "" {
			continue
		}
		at := outputPath(folder, name, o)
		if !isFile(o.Type) {
			out = append(out, home{key: strings.TrimSuffix(o.Key, "/") + "/", dir: at})
			continue
		}
		key := o.Key
		if strings.HasSuffix(key, "/") {
			key += name
		}
		out = append(out, home{key: key, dir: filepath.Dir(at), file: filepath.Base(at)})
	}
	slices.SortStableFunc(out, func(a, b home) int { return cmp.Compare(len(b.key), len(a.key)) })
	return out
}

// stored lists what is in the store at a place now, whoever wrote it.
func (s *Stager) stored(ctx context.Context, p home) ([]trainyard.BlobInfo, error) {
	if p.file == "" {
		return s.list(ctx, p.key)
	}
	info, err := s.stat(ctx, p.key)
	if trainyard.IsNotFound(err) {
		return nil, nil
	}
	info.Key = p.key
	return []trainyard.BlobInfo{info}, err
}

// restore brings back what an attempt that was preempted left: ./outputs, and the named outputs. A job that keeps its checkpoints there
// goes on from them. A job that never stored anything gets nothing, and one that left no list gets ./outputs, which are its own.
func (s *Stager) restore(ctx context.Context, t trainyard.Task, w *work) error {
	if !t.Restore {
		return nil
	}
	return w.span(trainyard.SpanData, func() (string, error) {
		w.say("bringing back what the attempt before left")
		left, err := s.checkpoints(ctx, t)
		if err != nil {
			return "", fmt.Errorf("outputs of the attempt before: %w", err)
		}
		var back []saved
		taken := map[string]bool{}
		for _, p := range homes(t, w.folder) {
			items, err := s.stored(ctx, p)
			if err != nil {
				return "", fmt.Errorf("outputs of the attempt before: %w", err)
			}
			items = slices.DeleteFunc(items, func(it trainyard.BlobInfo) bool {
				_, here := p.rel(it.Key)
				skip := !here || taken[it.Key] || !wanted(left, p, it)
				taken[it.Key] = taken[it.Key] || here
				return skip
			})
			files, err := s.bring(ctx, w.folder, p, items)
			if err != nil {
				return "", s.local(fmt.Errorf("outputs of the attempt before: %w", err), trainyard.ClassData, p.dir, 0)
			}
			back = append(back, files...)
		}
		data, err := json.Marshal(back)
		if err != nil {
			return "", fmt.Errorf("encode what was brought back: %w", err)
		}
		bytes := int64(0)
		for _, f := range back {
			bytes += f.Size
		}
		return fmt.Sprintf("%s, %s of the attempt before", plural(len(back), "file"), sized(bytes)),
			os.WriteFile(filepath.Join(w.folder, restoredPart), data, 0o600)
	})
}

// wanted says whether an object is what the job itself left there.
func wanted(left map[string][]string, p home, it trainyard.BlobInfo) bool {
	versions, listed := left[it.Key]
	if p.own {
		return listed || left == nil
	}
	return slices.Contains(versions, it.ETag)
}

// checkpoints reads the lists of all nodes of the job: versions by key; nil if there is no list. One that cannot be read as a list
// counts as none.
func (s *Stager) checkpoints(ctx context.Context, t trainyard.Task) (map[string][]string, error) {
	if t.Artifacts == "" {
		return nil, nil
	}
	items, err := s.list(ctx, t.Artifacts+"/system_logs/")
	if err != nil {
		return nil, err
	}
	var left map[string][]string
	for _, it := range items {
		if !isCheckpoint(it.Key) || it.Size > maxCheckpoint {
			continue
		}
		var c checkpoint
		err := s.again(ctx, func() error {
			body, _, err := s.blobs.Open(ctx, it.Key, 0)
			if err != nil {
				return fmt.Errorf("open %s: %w", it.Key, err)
			}
			defer body.Close()
			data, err := io.ReadAll(io.LimitReader(body, maxCheckpoint))
			if err == nil && json.Unmarshal(data, &c) != nil {
				c = checkpoint{}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if left == nil && c.Objects != nil {
			left = map[string][]string{}
		}
		for _, o := range c.Objects {
			left[o.Key] = append(left[o.Key], o.ETag)
		}
	}
	return left, nil
}

// bring downloads a place's objects over what is there, such as files that came with the code.
func (s *Stager) bring(ctx context.Context, folder string, p home, items []trainyard.BlobInfo) ([]saved, error) {
	var objects []object
	for _, it := range items {
		rel, _ := p.rel(it.Key)
		objects = append(objects, s.blobObject(it, rel))
	}
	if objects = withoutMarkers(objects); len(objects) == 0 {
		return nil, nil
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, err := filepath.Rel(folder, p.dir)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if local := filepath.FromSlash(o.Path); filepath.IsLocal(local) { // fetch refuses the others
			if err := makeWay(root, filepath.Join(dir, local)); err != nil {
				return nil, err
			}
		}
	}
	if err := root.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if _, err := s.fetch(ctx, p.dir, objects, func(int64, int64) {}); err != nil {
		return nil, err
	}
	return noteBack(root, dir, p, objects)
}

// makeWay removes what is where a file must go: another file of that name, or one in the place of a folder above it. No link is followed.
func makeWay(root *os.Root, name string) error {
	parts, at := strings.Split(filepath.ToSlash(name), "/"), ""
	for i, part := range parts {
		at = filepath.Join(at, part)
		info, err := root.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if i == len(parts)-1 || !info.IsDir() {
			return root.RemoveAll(at)
		}
	}
	return nil
}

// noteBack notes files as they were brought back. Each gets a time of its own: a file that is renamed over another of the same size must
// not look like that one.
func noteBack(root *os.Root, dir string, p home, objects []object) ([]saved, error) {
	var out []saved
	from := time.Now().Add(-time.Duration(len(objects)) * time.Microsecond)
	for i, o := range objects {
		name, at := filepath.Join(dir, filepath.FromSlash(o.Path)), from.Add(time.Duration(i)*time.Microsecond)
		if err := root.Chtimes(name, at, at); err != nil {
			return nil, err
		}
		info, err := root.Lstat(name)
		if err != nil {
			return nil, err
		}
		key := p.key
		if p.file == "" {
			key += o.Path
		}
		out = append(out, saved{Key: key, ETag: o.ETag, Size: info.Size(), Time: info.ModTime().UnixNano()})
	}
	return out, nil
}

package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// facts is staged.json: what a prepared task got, without anything secret. It is written last.
type facts struct {
	Inputs  map[string]string       `json:"inputs,omitempty"`  // paths of data
	Shared  []string                `json:"shared,omitempty"`  // of what it reads in the cache
	Context string                  `json:"context,omitempty"` // folder of the build context of its image
	Before  map[string][]fileRecord `json:"before,omitempty"`  // inputs that will be written back, as they were
	Layer   *layer                  `json:"layer,omitempty"`   // nil: the node's own Python
	Vars    map[string]string       `json:"vars,omitempty"`    // variables of the environment's file
	Marks   []string                `json:"marks,omitempty"`   // on the cache, taken back by Remove
	Spans   []trainyard.Span        `json:"spans,omitempty"`
}

// work is one Prepare under way.
type work struct {
	folder string
	p      trainyard.Progress
	facts  facts
	files  int   // of inputs downloaded
	bytes  int64 // of inputs downloaded

	mu   sync.Mutex
	last string // what was said last
}

// say tells the user what is being done, once.
func (w *work) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.mu.Lock()
	known := text == w.last
	w.last = text
	w.mu.Unlock()
	if !known {
		w.p.Say(text)
	}
}

// count notes an input that is there.
func (w *work) count(g got) {
	w.facts.Marks = append(w.facts.Marks, g.mark)
	if g.built {
		w.bytes += g.rec.Bytes
		w.files += len(g.rec.Files)
	}
}

// span does one part and puts it on the timeline.
func (w *work) span(name string, do func() (note string, err error)) error {
	start := time.Now()
	w.p.Span(name, start, time.Time{}, "")
	note, err := do()
	if err != nil {
		note = "failed"
	}
	end := time.Now()
	w.p.Span(name, start, end, note)
	w.facts.Spans = append(w.facts.Spans, trainyard.Span{Name: name, Start: start, End: end, Note: note})
	return err
}

// Prepare brings what the task needs to this node, and returns the task with Run filled in. A task that was prepared before, by this
// process or one that died, is not touched again.
func (s *Stager) Prepare(ctx context.Context, t trainyard.Task, p trainyard.Progress) (trainyard.Task, error) {
	folder := s.folder(t.ID)
	f, err := s.prepared(ctx, t, folder, p)
	if err == nil {
		t.Run, err = s.run(ctx, t, folder, f)
	}
	return t, s.local(err, trainyard.ClassStart, s.dir, 0)
}

// prepared makes the task's folder, or finds it made.
func (s *Stager) prepared(ctx context.Context, t trainyard.Task, folder string, p trainyard.Progress) (facts, error) {
	if isPlain(t) {
		return facts{}, makeFolders(folder, t)
	}
	f, ok, err := readFacts(folder)
	if err != nil {
		return f, err
	}
	if ok {
		for _, sp := range f.Spans {
			p.Span(sp.Name, sp.Start, sp.End, sp.Note)
		}
		return f, nil
	}
	w := &work{folder: folder, p: p, facts: facts{Inputs: map[string]string{}, Before: map[string][]fileRecord{}}}
	if err := s.prepare(ctx, t, w); err != nil {
		return w.facts, errors.Join(err, unmark(w.facts.Marks))
	}
	return w.facts, nil
}

// isPlain says whether the task needs nothing but folders. Those are made without a note of it: to make them again harms nothing.
func isPlain(t trainyard.Task) bool {
	return t.CodeKey == "" && !t.Restore && !isBuilt(t) && (t.Environment == nil || t.Environment.Context == "") && !slices.ContainsFunc(slices.Collect(maps.Values(t.Inputs)), isData)
}

// isData says whether an input is bytes that this node must have.
func isData(in trainyard.TaskInput) bool {
	return in.Type != literal && !in.Missing && !strings.EqualFold(in.Mode, modeDirect)
}

// isBuilt says whether the task's environment names packages, and is built here. Else it is the node's Python as it is, or the driver's.
func isBuilt(t trainyard.Task) bool {
	return t.Environment != nil && !t.Contained && strings.TrimSpace(t.Environment.CondaFile) != ""
}

// isContext says whether the driver builds the task's image from files that it must have here.
func isContext(t trainyard.Task) bool {
	return t.Environment != nil && t.Contained && t.Environment.Context != ""
}

// makeFolders makes the folders that every task has. Those that are there stay as they are.
func makeFolders(folder string, t trainyard.Task) error {
	work := filepath.Join(folder, workPart)
	dirs := []string{folder, work, filepath.Join(work, "outputs"), filepath.Join(work, "logs")}
	if t.Processes > 1 || t.Hi-t.Lo > 1 {
		dirs = append(dirs, filepath.Join(folder, logsPart))
	}
	for i, dir := range dirs {
		mode := fs.FileMode(0o755)
		if i == 0 {
			mode = 0o700
		}
		if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the task's folder: %w", err)
		}
	}
	return makeOutputs(folder, t.Outputs)
}

// readFacts reads what an earlier Prepare left; ok is false if none came to its end.
func readFacts(folder string) (f facts, ok bool, err error) {
	data, err := os.ReadFile(filepath.Join(folder, stagedPart))
	if errors.Is(err, fs.ErrNotExist) {
		return f, false, nil
	}
	if err != nil {
		return f, false, fmt.Errorf("read what was staged: %w", err)
	}
	return f, json.Unmarshal(data, &f) == nil, nil
}

// prepare makes the task's folder from nothing. What a Prepare that died left there was never started, so it may go.
func (s *Stager) prepare(ctx context.Context, t trainyard.Task, w *work) error {
	if err := s.Remove(ctx, t.ID); err != nil {
		return err
	}
	if err := os.Mkdir(w.folder, 0o700); err != nil {
		return fmt.Errorf("make the task's folder: %w", err)
	}
	if t.CodeKey != "" {
		dir := filepath.Join(w.folder, workPart)
		if err := w.span(trainyard.SpanCode, func() (string, error) { return s.copyCode(ctx, t, w, dir) }); err != nil {
			return err
		}
	}
	if err := makeFolders(w.folder, t); err != nil {
		return err
	}
	if err := s.restore(ctx, t, w); err != nil {
		return err
	}
	if err := s.stageInputs(ctx, t, w); err != nil {
		return err
	}
	if err := s.stageEnvironment(ctx, t, w); err != nil {
		return err
	}
	data, err := json.Marshal(w.facts)
	if err != nil {
		return fmt.Errorf("encode what was staged: %w", err)
	}
	return os.WriteFile(filepath.Join(w.folder, stagedPart), data, 0o600) // half of it is not JSON, and counts as nothing
}

// copyCode makes the working directory: a private copy of the code snapshot.
func (s *Stager) copyCode(ctx context.Context, t trainyard.Task, w *work, dir string) (note string, err error) {
	name := t.CodeHash
	if name == "" {
		name = t.CodeKey
	}
	g, err := s.code.get(ctx, order{
		key: keyOf("code", name), what: "code " + t.CodeKey, task: w.folder, good: unaltered,
		wait:  func() { w.say("waiting for another job's download of the code") },
		build: func(ctx context.Context, dir string) (record, error) { return s.fetchCode(ctx, t, w, dir) },
	})
	if err != nil {
		return "", s.local(err, trainyard.ClassData, s.code.dir, 0)
	}
	w.facts.Marks = append(w.facts.Marks, g.mark)
	if err := s.room(ctx, w.folder, g.rec.Bytes); err != nil {
		return "", err
	}
	if err := copyTree(ctx, g.dir, dir, g.rec); err != nil {
		return "", s.local(fmt.Errorf("copy the code: %w", err), trainyard.ClassData, w.folder, g.rec.Bytes)
	}
	return noteOf(g, fmt.Sprintf("%s, %s", plural(len(g.rec.Files), "file"), sized(g.rec.Bytes))), nil
}

// noteOf is a timeline's word on an entry.
func noteOf(g got, what string) string {
	switch {
	case g.built:
		return what
	case g.waited >= time.Second:
		return fmt.Sprintf("waited %.1f s for another job's", g.waited.Seconds())
	}
	return "cached"
}

// plural is "1 file" or "3 files".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// fetchCode downloads a snapshot. Blobs carry no right to execute, so what begins as a script gets it.
func (s *Stager) fetchCode(ctx context.Context, t trainyard.Task, w *work, dir string) (record, error) {
	w.say("downloading code")
	objects, _, err := s.blobObjects(ctx, t.CodeKey)
	if err != nil {
		return record{}, fmt.Errorf("code: %w", err)
	}
	if len(objects) == 0 {
		return record{}, fault(trainyard.ClassData, "the code snapshot %s is not in the server's store; submit the job again, so that it is uploaded", t.CodeKey)
	}
	rec, err := s.fetch(ctx, dir, objects, func(done, total int64) { w.say("downloading code: %s of %s", sized(done), sized(total)) })
	if err != nil {
		return rec, fmt.Errorf("code: %w", err)
	}
	for _, f := range rec.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		if isScript(path) {
			if err := os.Chmod(path, 0o755); err != nil {
				return rec, fmt.Errorf("code: %w", err)
			}
		}
	}
	return rec, nil
}

func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [2]byte
	n, _ := f.Read(head[:])
	return n == 2 && string(head[:]) == "#!"
}

// stageInputs makes every input that is data ready, in order of name.
func (s *Stager) stageInputs(ctx context.Context, t trainyard.Task, w *work) error {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(t.Inputs)), func(name string) bool { return !isData(t.Inputs[name]) })
	if len(names) == 0 {
		return nil
	}
	return w.span(trainyard.SpanData, func() (string, error) {
		for _, name := range names {
			path, err := s.stageInput(ctx, w, name, t.Inputs[name])
			if err != nil {
				return "", err
			}
			w.facts.Inputs[name] = path
		}
		if w.files == 0 {
			return "cached", nil
		}
		return fmt.Sprintf("%s, %s", plural(w.files, "file"), sized(w.bytes)), nil
	})
}

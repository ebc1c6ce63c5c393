package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// store is a server's store on disk. What it is asked, it counts.
type store struct {
	dir    string
	opens  atomic.Int64 // from offset 0
	cut    atomic.Int64 // > 0: that many reads break off in the middle
	refuse func(key string) error
	hold   chan struct{} // not nil: reads wait until it is closed
}

func newStore(t *testing.T) *store { return &store{dir: t.TempDir()} }

func (s *store) put(t *testing.T, files map[string]string) {
	t.Helper()
	for key, text := range files {
		if err := s.Put(t.Context(), key, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *store) info(key string) (trainyard.BlobInfo, error) {
	st, err := os.Stat(filepath.Join(s.dir, key))
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.IsDir() {
		return trainyard.BlobInfo{}, trainyard.NotFound("there is no blob %s", key)
	}
	if err != nil {
		return trainyard.BlobInfo{}, err
	}
	return trainyard.BlobInfo{Key: key, Size: st.Size(), Modified: st.ModTime(), ETag: fmt.Sprintf("%x", st.ModTime().UnixNano())}, nil
}

func (s *store) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	if s.refuse != nil {
		if err := s.refuse(key); err != nil {
			return nil, trainyard.BlobInfo{}, err
		}
	}
	info, err := s.info(key)
	if err != nil {
		return nil, info, err
	}
	if offset == 0 {
		s.opens.Add(1)
	}
	f, err := os.Open(filepath.Join(s.dir, key))
	if err != nil {
		return nil, info, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, info, err
	}
	return &storeBody{File: f, ctx: ctx, s: s}, info, nil
}

type storeBody struct {
	*os.File
	ctx context.Context
	s   *store
}

func (b *storeBody) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{b}) }

func (b *storeBody) Read(p []byte) (int, error) {
	if b.s.hold != nil {
		select {
		case <-b.s.hold:
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	if b.s.cut.Load() > 0 {
		b.s.cut.Add(-1)
		n, _ := b.File.Read(p[:min(len(p), 3)])
		return n, io.ErrUnexpectedEOF
	}
	return b.File.Read(p)
}

func (s *store) List(ctx context.Context, prefix string) ([]trainyard.BlobInfo, error) {
	var out []trainyard.BlobInfo
	err := filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(s.dir, path)
		if key := filepath.ToSlash(rel); strings.HasPrefix(key, prefix) {
			info, err := s.info(key)
			out = append(out, info)
			return err
		}
		return nil
	})
	slices.SortFunc(out, func(a, b trainyard.BlobInfo) int { return strings.Compare(a.Key, b.Key) })
	return out, err
}

func (s *store) Put(ctx context.Context, key string, r io.Reader) error {
	if s.refuse != nil {
		if err := s.refuse(key); err != nil {
			return err
		}
	}
	path := filepath.Join(s.dir, key)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// keys lists what is stored below a prefix.
func (s *store) keys(t *testing.T, prefix string) []string {
	t.Helper()
	items, err := s.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, it := range items {
		out = append(out, it.Key)
	}
	return out
}

// teller remembers what it was told.
type teller struct {
	mu    sync.Mutex
	said  []string
	spans map[string]string // note of each that ended
	logs  map[string]*bytes.Buffer
	tell  chan string // every Say, if not nil
}

func (p *teller) Say(text string) {
	p.mu.Lock()
	p.said = append(p.said, text)
	p.mu.Unlock()
	if p.tell != nil {
		p.tell <- text
	}
}

func (p *teller) Span(name string, start, end time.Time, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spans == nil {
		p.spans = map[string]string{}
	}
	if !end.IsZero() {
		p.spans[name] = note
	}
}

func (p *teller) Log(name string, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.logs == nil {
		p.logs = map[string]*bytes.Buffer{}
	}
	if p.logs[name] == nil {
		p.logs[name] = &bytes.Buffer{}
	}
	p.logs[name].Write(data)
}

func (p *teller) log(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.logs[name]; b != nil {
		return b.String()
	}
	return ""
}

func (p *teller) all() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.said, "\n")
}

// stager makes a Stager on fresh folders, or on the cache of another.
func stager(t testing.TB, blobs Blobs, change ...func(*Config)) *Stager {
	t.Helper()
	c := Config{Dir: t.TempDir(), Cache: filepath.Join(t.TempDir(), "cache"), Blobs: blobs}
	for _, f := range change {
		f(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.pauses = []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}
	t.Cleanup(func() { _ = removeAll(s.cache); _ = removeAll(s.dir) })
	return s
}

func sameCache(s *Stager) func(*Config) { return func(c *Config) { c.Cache = s.cache } }

func task(name string) trainyard.Task {
	return trainyard.Task{ID: trainyard.TaskID("s/g/w/" + name + ".1.0"), JobName: name, Command: "true", Artifacts: "artifacts/" + name}
}

func prepare(t testing.TB, s *Stager, tk trainyard.Task) (trainyard.Task, *teller) {
	t.Helper()
	p := &teller{}
	got, err := s.Prepare(t.Context(), tk, p)
	if err != nil {
		t.Fatalf("Prepare: %v\nsaid: %s\nlog: %s", err, p.all(), p.log(environmentLog))
	}
	return got, p
}

// shell runs a prepared task's command as a driver would, and returns what it printed.
func shell(t testing.TB, tk trainyard.Task) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", tk.Run.Command)
	cmd.Dir = tk.Run.Dir
	cmd.Env = []string{"HOME=" + t.TempDir()}
	for _, name := range []string{"PIP_CERT", "SSL_CERT_FILE", "PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_CONFIG_FILE"} {
		if v := os.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	for k, v := range tk.Run.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustShell(t testing.TB, tk trainyard.Task, command string) string {
	t.Helper()
	tk.Run.Command = command
	out, err := shell(t, tk)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return strings.TrimSpace(out)
}

// wantFault checks that err ends a task with a class and says all of the words.
func wantFault(t *testing.T, err error, class trainyard.Class, words ...string) {
	t.Helper()
	if trainyard.ClassOf(err) != class {
		t.Fatalf("error is of class %q, want %q: %v", trainyard.ClassOf(err), class, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error does not say %q: %v", w, err)
		}
	}
}

// tree reads all files below dir.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[filepath.ToSlash(rel)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTaskWithNothingGetsFoldersAndPython(t *testing.T) {
	s := stager(t, newStore(t))
	tk := task("plain")
	tk.Env = map[string]string{"GREETING": "hello"}
	got, _ := prepare(t, s, tk)
	out := mustShell(t, got, `ls; echo $GREETING; python -c 'import sys; print(sys.version_info[0], sys.prefix)'; command -v python3`)
	overlay := filepath.Join(s.folder(tk.ID), pythonPart)
	want := fmt.Sprintf("logs\noutputs\nhello\n3 %s\n%s/bin/python3", overlay, overlay)
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if err := s.Remove(t.Context(), tk.ID); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(s.dir); len(left) > 0 {
		t.Errorf("Remove left %v", left)
	}
	if err := s.Remove(t.Context(), tk.ID); err != nil {
		t.Errorf("Remove of an unknown task: %v", err)
	}
}

func TestCodeIsCachedOnceAndCopiedForEveryTask(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"codes/abc/train.py": "print('hi')", "codes/abc/src/run.sh": "#!/bin/sh\necho ran", "codes/abcd/not.mine": ""})
	s := stager(t, st)
	tk := task("first")
	tk.CodeKey, tk.CodeHash = "codes/abc", "sha"
	got, p := prepare(t, s, tk)
	if want := (map[string]string{"train.py": "print('hi')", "src/run.sh": "#!/bin/sh\necho ran"}); !maps.Equal(tree(t, got.Run.Dir), want) {
		t.Errorf("working directory holds %v", tree(t, got.Run.Dir))
	}
	if p.spans[trainyard.SpanCode] != "2 files, 29 B" {
		t.Errorf("span says %q", p.spans[trainyard.SpanCode])
	}
	if out := mustShell(t, got, "./src/run.sh; echo spoilt > train.py; rm -r src"); out != "ran" {
		t.Errorf("script printed %q", out)
	}
	opens := st.opens.Load()
	tk2 := task("second")
	tk2.CodeKey, tk2.CodeHash = tk.CodeKey, tk.CodeHash
	got2, p := prepare(t, s, tk2)
	if tree(t, got2.Run.Dir)["train.py"] != "print('hi')" {
		t.Error("one task's change reached another's copy")
	}
	if st.opens.Load() != opens || p.spans[trainyard.SpanCode] != "cached" {
		t.Errorf("second task read the store again, span %q", p.spans[trainyard.SpanCode])
	}
}

func TestMissingCodeIsSaid(t *testing.T) {
	tk := task("nocode")
	tk.CodeKey = "codes/gone"
	_, err := stager(t, newStore(t)).Prepare(t.Context(), tk, &teller{})
	wantFault(t, err, trainyard.ClassData, "codes/gone", "submit the job again")
}

func TestPrepareTwiceTouchesNothing(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"codes/abc/a.txt": "a"})
	s := stager(t, st)
	tk := task("twice")
	tk.CodeKey = "codes/abc"
	got, _ := prepare(t, s, tk)
	if err := os.WriteFile(filepath.Join(got.Run.Dir, "a.txt"), []byte("the job's"), 0o644); err != nil {
		t.Fatal(err)
	}
	again, p := prepare(t, stager(t, st, sameCache(s), func(c *Config) { c.Dir = s.dir }), tk)
	if tree(t, again.Run.Dir)["a.txt"] != "the job's" || !maps.Equal(got.Run.Env, again.Run.Env) {
		t.Error("a second Prepare changed a task that may be running")
	}
	if p.spans[trainyard.SpanCode] == "" {
		t.Error("the second Prepare forgot the timeline of the first")
	}
}

func TestUnfinishedPrepareIsDoneAnew(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"codes/abc/a.txt": "a"})
	s := stager(t, st)
	tk := task("died")
	tk.CodeKey = "codes/abc"
	folder := s.folder(tk.ID)
	if err := os.MkdirAll(filepath.Join(folder, workPart, "half"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(folder, workPart), 0o555); err != nil {
		t.Fatal(err)
	}
	got, _ := prepare(t, s, tk)
	if _, err := os.Stat(filepath.Join(got.Run.Dir, "half")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("half of the first try is still there: %v", err)
	}
}

func TestCommandIsFilledIn(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"data/iris.csv": "x"})
	tk := task("render")
	tk.Inputs = map[string]trainyard.TaskInput{
		"lr":   {Type: "literal", Value: "1e-05"},
		"iris": {Type: "uri_file", Key: "data/iris.csv", URI: "azureml://datastores/d/paths/iris.csv", Mode: "ReadOnlyMount"},
		"raw":  {Type: "uri_folder", Key: "data/", URI: "azureml://datastores/d/paths/", Mode: "Direct"},
		"opt":  {Type: "literal", Missing: true},
	}
	tk.Outputs = map[string]trainyard.TaskOutput{
		"model": {Type: "uri_folder", Key: "out/model", Mode: "ReadWriteMount"},
		"score": {Type: "uri_file", Key: "out/score.txt", Mode: "Upload"},
		"raw":   {Type: "uri_folder", URI: "azureml://datastores/d/paths/raw", Mode: "Direct"},
	}
	tk.Command = "echo ${{inputs.lr}} $[[--opt ${{inputs.opt}}]] ${{inputs.raw}} ${{outputs.raw}}; cat ${{ inputs.iris }}; ls -d ${{outputs.model}}; echo 1 > ${{outputs.score}}; basename ${{outputs.score}}"
	s := stager(t, st)
	got, _ := prepare(t, s, tk)
	out, err := shell(t, got)
	folder := s.folder(tk.ID)
	want := "1e-05 azureml://datastores/d/paths/ azureml://datastores/d/paths/raw\nx" + folder + "/outputs-named/model\nscore.txt\n"
	if err != nil || out != want {
		t.Errorf("got %q, %v; want %q", out, err, want)
	}
	env := got.Run.Env
	if env["AZURE_ML_INPUT_lr"] != "1e-05" || env["AZURE_ML_OUTPUT_model"] != folder+"/outputs-named/model" ||
		env["AZUREML_DATAREFERENCE_iris"] != env["AZURE_ML_INPUT_iris"] || env["AZUREML_SCRIPT_DIRECTORY_NAME"] != got.Run.Dir {
		t.Errorf("environment is %v", env)
	}
}

func TestUnknownNamesInCommandsAreSaid(t *testing.T) {
	for command, words := range map[string][]string{
		"${{inputs.rl}}":      {"inputs.rl", `no input "rl"`, "batch, lr"},
		"${{outputs.model}}":  {"no outputs", "outputs.model"},
		"${{search_space.a}}": {"search_space.a", "${{inputs.NAME}}"},
		"--x ${{inputs.opt}}": {"optional"},
	} {
		tk := task("unknown")
		tk.Command = command
		tk.Inputs = map[string]trainyard.TaskInput{"lr": {Type: "literal", Value: "1"}, "batch": {Type: "literal", Value: "2"}}
		if strings.Contains(command, "opt") {
			tk.Inputs["opt"] = trainyard.TaskInput{Type: "literal", Missing: true}
		}
		_, err := stager(t, newStore(t)).Prepare(t.Context(), tk, &teller{})
		wantFault(t, err, trainyard.ClassUser, words...)
	}
}

func BenchmarkPrepareAndRemoveOfTaskWithNothing(b *testing.B) {
	s := stager(b, &store{dir: b.TempDir()})
	prepare(b, s, task("warm"))
	i := 0
	for b.Loop() {
		i++
		tk := task(fmt.Sprint("t", i))
		if _, err := s.Prepare(b.Context(), tk, &teller{}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Remove(b.Context(), tk.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkRemoveOfTaskWithNothing(b *testing.B) {
	s := stager(b, &store{dir: b.TempDir()})
	for b.Loop() {
		b.StopTimer()
		prepare(b, s, task("t"))
		b.StartTimer()
		if err := s.Remove(b.Context(), task("t").ID); err != nil {
			b.Fatal(err)
		}
	}
}

package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// withInput is a task with one input called "in".
func withInput(name string, in trainyard.TaskInput) trainyard.Task {
	tk := task(name)
	if in.URI == "" {
		in.URI = "azureml://datastores/workspaceblobstore/paths/" + strings.TrimPrefix(in.Key, "workspaceblobstore/")
	}
	tk.Inputs = map[string]trainyard.TaskInput{"in": in}
	return tk
}

func input(tk trainyard.Task) string { return tk.Run.Env["AZURE_ML_INPUT_in"] }

func TestInputsByTypeAndWhatIsStored(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{
		"c/dir/b.csv": "b", "c/dir/a/x.csv": "x", "c/dir.csv": "d", "c/table/MLTable": "paths", "c/directory/no": "",
		"c/one.csv": "1", "c/made/out": "o", "c/deep/a/out": "o",
	})
	for name, c := range map[string]struct {
		kind, key string
		file      bool
		want      map[string]string
	}{
		"a folder is everything under its prefix":        {"uri_folder", "c/dir/", false, map[string]string{"b.csv": "b", "a/x.csv": "x"}},
		"a folder without a slash is that prefix alone":  {"uri_folder", "c/dir", false, map[string]string{"b.csv": "b", "a/x.csv": "x"}},
		"a file is the object":                           {"uri_file", "c/dir.csv", true, map[string]string{"dir.csv": "d"}},
		"a file that is a folder in the store is one":    {"uri_file", "c/dir", false, map[string]string{"b.csv": "b", "a/x.csv": "x"}},
		"a file that is alone in its folder is that one": {"uri_file", "c/made/", true, map[string]string{"out": "o"}},
		"a file that lies deeper is its folder":          {"uri_file", "c/deep/", false, map[string]string{"a/out": "o"}},
		"a folder with one file is a folder":             {"uri_folder", "c/made/", false, map[string]string{"out": "o"}},
		"a folder that is a file in the store is one":    {"uri_folder", "c/one.csv", true, map[string]string{"one.csv": "1"}},
		"a table named by its description is its folder": {"mltable", "c/table/MLTable", false, map[string]string{"MLTable": "paths"}},
		"a model is a folder":                            {"mlflow_model", "c/dir", false, map[string]string{"b.csv": "b", "a/x.csv": "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []string{"ReadOnlyMount", "Download", "EvalMount", "EvalDownload", ""} {
				s := stager(t, st)
				got, _ := prepare(t, s, withInput("types", trainyard.TaskInput{Type: c.kind, Key: c.key, Mode: mode}))
				path := input(got)
				info, err := os.Stat(path)
				if err != nil || info.IsDir() == c.file {
					t.Fatalf("%s: %v, %v", mode, info, err)
				}
				dir := path
				if c.file {
					dir = filepath.Dir(path)
				}
				if files := tree(t, dir); !maps.Equal(files, c.want) {
					t.Errorf("%s: got %v, want %v", mode, files, c.want)
				}
				private := strings.HasPrefix(path, s.dir)
				if shared := mode == "" || mode == "ReadOnlyMount"; private == shared {
					t.Errorf("mode %q is at %s", mode, path)
				}
				if private {
					if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o644); err != nil {
						t.Errorf("mode %q cannot be written: %v", mode, err)
					}
				} else if info.Mode().Perm()&0o222 != 0 {
					t.Errorf("shared input has mode %v", info.Mode())
				}
			}
		})
	}
}

func TestMissingDataNamesInputURIAndRemedy(t *testing.T) {
	s := stager(t, newStore(t))
	_, err := s.Prepare(t.Context(), withInput("missing", trainyard.TaskInput{Type: "uri_folder", Key: "c/nope/", Mode: "Download"}), &teller{})
	wantFault(t, err, trainyard.ClassData, `"in"`, "azureml://datastores/workspaceblobstore/paths/c/nope/", "upload the data")
}

// A step of a pipeline that wrote nothing hands an empty folder on.
func TestAnInputThatMayBeVacantIsAnEmptyFolder(t *testing.T) {
	s := stager(t, newStore(t))
	for _, mode := range []string{"ReadOnlyMount", "Download", "ReadWriteMount"} {
		got, _ := prepare(t, s, withInput("vacant-"+mode, trainyard.TaskInput{Type: "uri_folder", Key: "c/nope/", Mode: mode, Vacant: true}))
		if info, err := os.Stat(input(got)); err != nil || !info.IsDir() || len(tree(t, input(got))) > 0 {
			t.Errorf("%s: %v, %v", mode, info, err)
		}
	}
}

func TestInputsThatCannotBe(t *testing.T) {
	for uri, words := range map[string][]string{
		"abfss://fs@account.host/x":     {"abfss://", `"in"`, "azureml://"},
		"ftp://host/x":                  {"ftp://"},
		"https://127.0.0.1:1/folder/":   {"names one file"},
		"wasbs://nothing":               {"CONTAINER@ACCOUNT"},
		"https://127.0.0.1:1/x?sig=key": {"127.0.0.1:1", "could not be reached", "proxy"},
		"/home/me/data":                 {"no scheme"},
	} {
		tk := withInput("cannot", trainyard.TaskInput{Type: "uri_file", URI: uri, Mode: "Download"})
		_, err := stager(t, newStore(t)).Prepare(t.Context(), tk, &teller{})
		wantFault(t, err, trainyard.ClassData, words...)
		if strings.Contains(err.Error(), "sig=key") {
			t.Errorf("a signature is in the error: %v", err)
		}
	}
	tk := withInput("cannot", trainyard.TaskInput{Type: "uri_file", URI: "https://host/x", Mode: "ReadWriteMount"})
	_, err := stager(t, newStore(t)).Prepare(t.Context(), tk, &teller{})
	wantFault(t, err, trainyard.ClassUser, `"in"`, "ro_mount")
}

// climbing is a store whose listing holds names that must not become paths.
type climbing struct {
	*store
	key string
}

func (c climbing) List(ctx context.Context, prefix string) ([]trainyard.BlobInfo, error) {
	return []trainyard.BlobInfo{{Key: c.key, Size: 1}}, nil
}

func TestNamesThatClimbOutAreRefused(t *testing.T) {
	for _, key := range []string{"c/in/../../x", "c/in//x", "c/in/a/../b", "c/in/./x", "c/in/.."} {
		s := stager(t, climbing{newStore(t), key})
		_, err := s.Prepare(t.Context(), withInput("climb", trainyard.TaskInput{Type: "uri_folder", Key: "c/in", Mode: "Download"}), &teller{})
		wantFault(t, err, trainyard.ClassData, "rename")
	}
}

func TestBrokenDownloadsGoOn(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"c/in/x": "0123456789"})
	st.cut.Store(2)
	got, _ := prepare(t, stager(t, st), withInput("broken", trainyard.TaskInput{Type: "uri_file", Key: "c/in/x"}))
	if data, err := os.ReadFile(input(got)); err != nil || string(data) != "0123456789" {
		t.Errorf("got %q, %v", data, err)
	}
	if st.opens.Load() != 2 { // one to ask, one from the start; the rest went on in the middle
		t.Errorf("read from the start %d times", st.opens.Load()-1)
	}
}

func TestServerGoneIsNoEndOfTheTask(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"c/in/x": "x"})
	st.refuse = func(string) error { return errors.New("connection refused") }
	_, err := stager(t, st).Prepare(t.Context(), withInput("gone", trainyard.TaskInput{Type: "uri_folder", Key: "c/in"}), &teller{})
	if err == nil || trainyard.ClassOf(err) != "" {
		t.Errorf("error is %v of class %q; the agent must be free to try again", err, trainyard.ClassOf(err))
	}
}

func TestTenTasksShareOneDownload(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"c/in/a": "a", "c/in/b": "b"})
	st.hold = make(chan struct{})
	s := stager(t, st)
	other := stager(t, st, sameCache(s)) // another agent of the machine
	said := make(chan string, 100)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			who := []*Stager{s, other}[i%2]
			p := &teller{tell: said}
			got, err := who.Prepare(t.Context(), withInput(fmt.Sprint("share", i), trainyard.TaskInput{Type: "uri_folder", Key: "c/in"}), p)
			if err != nil || len(tree(t, input(got))) != 2 {
				t.Errorf("task %d: %v", i, err)
			}
		})
	}
	waiting := 0
	for text := range said {
		if strings.HasPrefix(text, "waiting for another job's download") {
			if waiting++; waiting == 9 {
				break
			}
		}
	}
	close(st.hold)
	wg.Wait()
	if st.opens.Load() != 2 {
		t.Errorf("%d objects were read, want 2", st.opens.Load())
	}
}

func TestAlteredSharedInputIsRebuilt(t *testing.T) {
	for name, alter := range map[string]func(dir string) error{
		"a file changed":  func(dir string) error { return os.WriteFile(filepath.Join(dir, "x"), []byte("y"), 0o600) },
		"a file came":     func(dir string) error { return os.WriteFile(filepath.Join(dir, "new"), nil, 0o600) },
		"a file went":     func(dir string) error { return os.Remove(filepath.Join(dir, "x")) },
		"the folder went": removeAll,
		"a link came":     func(dir string) error { return os.Symlink("/", filepath.Join(dir, "link")) },
		"the record broke": func(dir string) error {
			return os.WriteFile(dir[:strings.LastIndex(dir, "-")]+".json", []byte("{"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStore(t)
			st.put(t, map[string]string{"c/in/x": "x"})
			s := stager(t, st)
			first, _ := prepare(t, s, withInput("first", trainyard.TaskInput{Type: "uri_folder", Key: "c/in"}))
			_ = os.Chmod(input(first), 0o755)
			_ = os.Chmod(filepath.Join(input(first), "x"), 0o644)
			if err := alter(input(first)); err != nil {
				t.Fatal(err)
			}
			second, _ := prepare(t, s, withInput("second", trainyard.TaskInput{Type: "uri_folder", Key: "c/in"}))
			if files := tree(t, input(second)); !maps.Equal(files, map[string]string{"x": "x"}) {
				t.Errorf("second task got %v", files)
			}
			if input(first) == input(second) {
				t.Error("the second task shares the altered folder")
			}
		})
	}
}

func TestChangedDataIsADifferentEntry(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"c/in/x": "old"})
	s := stager(t, st)
	first, _ := prepare(t, s, withInput("old", trainyard.TaskInput{Type: "uri_file", Key: "c/in/x"}))
	later := time.Now().Add(time.Minute)
	st.put(t, map[string]string{"c/in/x": "new"})
	if err := os.Chtimes(filepath.Join(st.dir, "c/in/x"), later, later); err != nil {
		t.Fatal(err)
	}
	second, _ := prepare(t, s, withInput("new", trainyard.TaskInput{Type: "uri_file", Key: "c/in/x"}))
	a, _ := os.ReadFile(input(first))
	b, _ := os.ReadFile(input(second))
	if string(a) != "old" || string(b) != "new" {
		t.Errorf("tasks read %q and %q", a, b)
	}
}

func TestFullDiskIsSaid(t *testing.T) {
	st := newStore(t)
	st.put(t, map[string]string{"c/in/x": strings.Repeat("x", 4<<10)})
	s := stager(t, st)
	s.free = func(string) (int64, error) { return 1 << 10, nil }
	_, err := s.Prepare(t.Context(), withInput("full", trainyard.TaskInput{Type: "uri_folder", Key: "c/in"}), &teller{})
	wantFault(t, err, trainyard.ClassDisk, "no room on node: needs 4.0 KiB, has 1.0 KiB at "+s.cache)
	left, _ := filepath.Glob(filepath.Join(s.data.dir, "*-*"))
	if len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestPruneTakesTheLongestUnusedAndNothingInUse(t *testing.T) {
	st := newStore(t)
	for i := range 3 {
		st.put(t, map[string]string{fmt.Sprintf("c/in%d/x", i): fmt.Sprint(i)})
	}
	s := stager(t, st)
	var paths []string
	for i := range 3 {
		tk := withInput(fmt.Sprint("prune", i), trainyard.TaskInput{Type: "uri_folder", Key: fmt.Sprintf("c/in%d", i)})
		got, _ := prepare(t, s, tk)
		paths = append(paths, input(got))
	}
	for _, i := range []int{1, 2} { // 0 stays in use, and is the oldest
		if err := s.Remove(t.Context(), task(fmt.Sprint("prune", i)).ID); err != nil {
			t.Fatal(err)
		}
	}
	calls := 0
	s.free = func(string) (int64, error) { // one entry's worth is missing
		if calls++; isThere(paths[1]) {
			return 0, nil
		}
		return 1 << 40, nil
	}
	if err := s.room(t.Context(), s.cache, 1); err != nil {
		t.Fatal(err)
	}
	if !isThere(paths[0]) || isThere(paths[1]) || !isThere(paths[2]) {
		t.Errorf("after pruning: %v %v %v", isThere(paths[0]), isThere(paths[1]), isThere(paths[2]))
	}
	if err := os.RemoveAll(s.folder(task("prune0").ID)); err != nil { // a node that vanished without Remove
		t.Fatal(err)
	}
	s.free = func(string) (int64, error) { return 0, nil }
	wantFault(t, s.room(t.Context(), s.cache, 1), trainyard.ClassDisk)
	if isThere(paths[0]) {
		t.Error("a mark of a task without a folder holds an entry")
	}
}

// web is a server of files with versions, which breaks off when told to.
type web struct {
	mu    sync.Mutex
	files map[string]string
	tags  map[string]string
	cut   int
	gets  atomic.Int64 // of more than a byte
	down  atomic.Bool
}

func (h *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	text, ok := h.files[r.URL.Path]
	tag := h.tags[r.URL.Path]
	cut := h.cut > 0 && r.Header.Get("Range") != "bytes=0-0"
	if cut {
		h.cut--
	}
	h.mu.Unlock()
	if r.URL.Query().Get("comp") == "list" {
		h.list(w, r)
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", tag)
	if r.Header.Get("Range") != "bytes=0-0" {
		h.gets.Add(1)
	}
	if cut {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		_, _ = w.Write([]byte(text[:len(text)/2]))
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader([]byte(text)))
}

// list answers in pages of one.
func (h *web) list(w http.ResponseWriter, r *http.Request) {
	prefix := r.URL.Path + "/" + r.URL.Query().Get("prefix")
	var names []string
	for name := range h.files {
		if strings.HasPrefix(name, prefix) && name > r.URL.Query().Get("marker") {
			names = append(names, name)
		}
	}
	first, next := "", ""
	for _, n := range names {
		if first == "" || n < first {
			first = n
		}
	}
	if len(names) > 1 {
		next = first
	}
	fmt.Fprint(w, `<?xml version="1.0"?><EnumerationResults><Blobs>`)
	if first != "" {
		fmt.Fprintf(w, "<Blob><Name>%s</Name><Properties><Etag>%s</Etag><Content-Length>%d</Content-Length></Properties></Blob>",
			strings.TrimPrefix(first, r.URL.Path+"/"), strings.Trim(h.tags[first], `"`), len(h.files[first]))
	}
	fmt.Fprintf(w, "</Blobs><NextMarker>%s</NextMarker></EnumerationResults>", next)
}

// webServer starts a server under TLS, and returns a client that reaches it by any name.
func webServer(t *testing.T, h *web) *http.Client {
	t.Helper()
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	client := srv.Client()
	tr := client.Transport.(*http.Transport)
	tr.TLSClientConfig.ServerName = "example.com"
	tr.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		if h.down.Load() {
			return nil, errors.New("network is unreachable")
		}
		return (&net.Dialer{}).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	return client
}

func TestWebInputIsReadOnceAVersion(t *testing.T) {
	h := &web{files: map[string]string{"/data/iris.csv": strings.Repeat("setosa\n", 100)}, tags: map[string]string{"/data/iris.csv": `"v1"`}, cut: 1}
	s := stager(t, newStore(t), func(c *Config) { c.HTTP = webServer(t, h) })
	in := trainyard.TaskInput{Type: "uri_file", URI: "https://data.test/data/iris.csv", Mode: "ReadOnlyMount"}
	read := func(name string) string {
		t.Helper()
		got, _ := prepare(t, s, withInput(name, in))
		if filepath.Base(input(got)) != "iris.csv" {
			t.Errorf("file is called %s", input(got))
		}
		data, err := os.ReadFile(input(got))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if read("one") != h.files["/data/iris.csv"] || read("two") != h.files["/data/iris.csv"] {
		t.Error("wrong data")
	}
	if h.gets.Load() != 2 { // broken off once
		t.Errorf("%d downloads", h.gets.Load())
	}
	h.mu.Lock()
	h.files["/data/iris.csv"], h.tags["/data/iris.csv"] = "new", `"v2"`
	h.mu.Unlock()
	if read("three") != "new" {
		t.Error("a new version was not read")
	}
	h.down.Store(true)
	s.web.CloseIdleConnections()
	if read("four") != "new" {
		t.Error("without network the copy was not used")
	}
}

func TestWasbsInputs(t *testing.T) {
	h := &web{files: map[string]string{"/datasets/iris.csv": "i", "/datasets/taxi/1.csv": "1", "/datasets/taxi/2.csv": "2"},
		tags: map[string]string{"/datasets/iris.csv": `"a"`, "/datasets/taxi/1.csv": `"b"`, "/datasets/taxi/2.csv": `"c"`}}
	client := webServer(t, h)
	for uri, want := range map[string]map[string]string{
		"wasbs://datasets@account.test/iris.csv": {"iris.csv": "i"},
		"wasbs://account.test/datasets/iris.csv": {"iris.csv": "i"},
		"wasbs://datasets@account.test/taxi/":    {"1.csv": "1", "2.csv": "2"},
		"wasbs://datasets@account.test/taxi":     {"1.csv": "1", "2.csv": "2"},
		"wasbs://datasets@account.test/":         {"iris.csv": "i", "taxi/1.csv": "1", "taxi/2.csv": "2"},
	} {
		s := stager(t, newStore(t), func(c *Config) { c.HTTP = client })
		got, _ := prepare(t, s, withInput("wasbs", trainyard.TaskInput{Type: "uri_folder", URI: uri, Mode: "Download"}))
		dir := filepath.Join(s.folder(got.ID), inputsPart, "in")
		if files := tree(t, dir); !maps.Equal(files, want) {
			t.Errorf("%s: got %v", uri, files)
		}
	}
}

func TestFolderMarkersAreNotFiles(t *testing.T) {
	objects := withoutMarkers([]object{{Path: "sub", Size: 0}, {Path: "sub/f", Size: 1}, {Path: "empty", Size: 0}})
	if len(objects) != 2 || objects[0].Path != "sub/f" || objects[1].Path != "empty" {
		t.Errorf("got %v", objects)
	}
}

func TestRemoveTakesLockedFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "task")
	if err := os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"a/b/c", "a/b", "a"} {
		if err := os.Chmod(filepath.Join(dir, d), 0); err != nil {
			t.Fatal(err)
		}
	}
	asNobody(t, dir, func() {
		if err := removeAll(dir); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
	})
}

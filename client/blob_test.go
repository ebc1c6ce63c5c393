package client

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/trainyard/trainyard"
)

// blobs is a blob door in memory: what the client needs of the protocol, and faults on demand.
type blobs struct {
	mu     sync.Mutex
	data   map[string][]byte
	meta   map[string]string
	blocks map[string][]byte
	puts   int
	fault  func(w http.ResponseWriter, r *http.Request) bool // answers itself
}

func newBlobs() *blobs {
	return &blobs{data: map[string][]byte{}, meta: map[string]string{}, blocks: map[string][]byte{}}
}

func (b *blobs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	fault := b.fault
	b.mu.Unlock()
	if r.URL.Query().Get("sig") != "s" {
		w.WriteHeader(403)
		return
	}
	if fault != nil && fault(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/blob/c/")
	q := r.URL.Query()
	switch {
	case r.Method == "GET" && q.Get("comp") == "list":
		b.list(w, q.Get("prefix"), q.Get("marker"))
	case r.Method == "PUT" && q.Get("comp") == "block":
		b.blocks[key+"\x00"+q.Get("blockid")] = body
		b.puts++
		w.WriteHeader(201)
	case r.Method == "PUT" && q.Get("comp") == "blocklist":
		var list struct{ Latest []string }
		if xml.Unmarshal(body, &list) != nil {
			w.WriteHeader(400)
			return
		}
		var whole []byte
		for _, id := range list.Latest {
			whole = append(whole, b.blocks[key+"\x00"+id]...)
		}
		b.data[key] = whole
		w.WriteHeader(201)
	case r.Method == "PUT" && q.Get("comp") == "metadata":
		b.meta[key] = r.Header.Get("X-Ms-Meta-Upload_status")
	case r.Method == "PUT":
		if r.Header.Get("X-Ms-Blob-Type") != "BlockBlob" || r.ContentLength != int64(len(body)) {
			w.WriteHeader(400)
			return
		}
		b.data[key] = body
		b.puts++
		w.WriteHeader(201)
	default:
		b.get(w, r, key)
	}
}

func (b *blobs) get(w http.ResponseWriter, r *http.Request, key string) {
	data, ok := b.data[key]
	if !ok {
		w.Header().Set("X-Ms-Error-Code", "BlobNotFound")
		w.WriteHeader(404)
		return
	}
	w.Header().Set("X-Ms-Meta-Upload_status", b.meta[key])
	http.ServeContent(w, r, "", trainyardEpoch, bytes.NewReader(data))
}

func (b *blobs) list(w http.ResponseWriter, prefix, marker string) {
	names := slices.Sorted(maps.Keys(b.data))
	var out strings.Builder
	next, n := "", 0
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) || name < marker {
			continue
		}
		if n++; n > 2 { // small pages
			next = name
			break
		}
		out.WriteString("<Blob><Name>")
		_ = xml.EscapeText(&out, []byte(name))
		fmt.Fprintf(&out, "</Name><Properties><Content-Length>%d</Content-Length></Properties></Blob>", len(b.data[name]))
	}
	fmt.Fprintf(w, `<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>%s</Blobs><NextMarker>%s</NextMarker></EnumerationResults>`, out.String(), next)
}

func container(t *testing.T, b *blobs) *Container {
	t.Helper()
	c := serve(t, b.ServeHTTP)
	got, err := c.Container("https://another.name/blob/c?sig=s")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func writeFiles(t *testing.T, files map[string]string) (dir string, list []File) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		list = append(list, File{Name: "h/" + name, Path: path, Size: int64(len(text))})
	}
	return dir, list
}

func TestUploadSendsOnceAndMarksTheFirst(t *testing.T) {
	b := newBlobs()
	to := container(t, b)
	_, files := writeFiles(t, map[string]string{"a.txt": "A", "sub/ä #%.txt": "odd name", "empty": "", "z": strings.Repeat("z", 100000)})
	var mu sync.Mutex
	var last, total int64
	already, err := to.Upload(t.Context(), files, func(done, of int64) { mu.Lock(); last, total = done, of; mu.Unlock() })
	if err != nil || already {
		t.Fatalf("already %v, error %v", already, err)
	}
	if last != total || total != 100009 {
		t.Errorf("progress ends at %d of %d", last, total)
	}
	if string(b.data["h/sub/ä #%.txt"]) != "odd name" || len(b.data) != 4 {
		t.Errorf("blobs %v", slices.Sorted(maps.Keys(b.data)))
	}
	if b.meta["h/a.txt"] != "completed" || len(b.meta) != 1 {
		t.Errorf("marks %v, want one on the first by name", b.meta)
	}
	puts := b.puts
	already, err = to.Upload(t.Context(), files, nil)
	if err != nil || !already || b.puts != puts {
		t.Errorf("second time: already %v, error %v, %d more puts", already, err, b.puts-puts)
	}
}

func TestUploadThatBrokeOffIsDoneAnew(t *testing.T) {
	b := newBlobs()
	b.data["h/a.txt"] = []byte("half") // there, and not marked
	to := container(t, b)
	_, files := writeFiles(t, map[string]string{"a.txt": "whole"})
	if _, err := to.Upload(t.Context(), files, nil); err != nil {
		t.Fatal(err)
	}
	if string(b.data["h/a.txt"]) != "whole" {
		t.Errorf("blob is %q", b.data["h/a.txt"])
	}
}

func TestLargeFileGoesInBlocks(t *testing.T) {
	b := newBlobs()
	to := container(t, b)
	path := filepath.Join(t.TempDir(), "big")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const length = singleSize + 12345
	if _, err := f.WriteAt([]byte("start"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("end"), length-3); err != nil {
		t.Fatal(err)
	}
	f.Close()
	failed := false
	b.fault = func(w http.ResponseWriter, r *http.Request) bool { // one block fails once
		if r.URL.Query().Get("comp") != "block" || failed {
			return false
		}
		failed = true
		w.WriteHeader(503)
		return true
	}
	b.fault = locked(&b.mu, b.fault)
	if _, err := to.Upload(t.Context(), []File{{Name: "h/big", Path: path, Size: length}}, nil); err != nil {
		t.Fatal(err)
	}
	got := b.data["h/big"]
	if len(got) != length || !bytes.HasPrefix(got, []byte("start")) || !bytes.HasSuffix(got, []byte("end")) {
		t.Errorf("%d bytes came of %d", len(got), length)
	}
	if want := 5; b.puts != want {
		t.Errorf("%d blocks, want %d", b.puts, want)
	}
	if !failed {
		t.Error("no block failed")
	}
}

func locked(mu *sync.Mutex, f func(http.ResponseWriter, *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		return f(w, r)
	}
}

func TestUploadStopsAtTheFirstRefusal(t *testing.T) {
	b := newBlobs()
	b.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == "PUT" {
			answer(w, 403, map[string]any{"error": map[string]any{"code": "AuthorizationFailed", "message": "read only"}})
			return true
		}
		return false
	}
	to := container(t, b)
	_, files := writeFiles(t, map[string]string{"a": "1", "b": "2"})
	_, err := to.Upload(t.Context(), files, nil)
	if trainyard.CodeOf(err) != trainyard.CodeForbidden || !strings.Contains(err.Error(), "read only") {
		t.Errorf("error %v", err)
	}
	if len(b.meta) != 0 {
		t.Error("an upload that failed is marked as completed")
	}
}

func TestDownloadBringsAFolderAndNotItsNeighbours(t *testing.T) {
	b := newBlobs()
	b.data = map[string][]byte{"j/out/a": []byte("A"), "j/out/sub/b": []byte("B"), "j/out/c": nil, "j/output2/x": []byte("not ours"), "j/out.txt": []byte("nor this")}
	dir := filepath.Join(t.TempDir(), "to")
	n, err := container(t, b).Download(t.Context(), "j/out/", dir, nil)
	if err != nil || n != 3 {
		t.Fatalf("%d files, error %v", n, err)
	}
	var got []string
	err = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			data, _ := os.ReadFile(p)
			rel, _ := filepath.Rel(dir, p)
			got = append(got, filepath.ToSlash(rel)+"="+string(data))
		}
		return err
	})
	if err != nil || !slices.Equal(got, []string{"a=A", "c=", "sub/b=B"}) {
		t.Errorf("came %v (%v)", got, err)
	}
}

func TestDownloadOfOneFileKeepsItsName(t *testing.T) {
	b := newBlobs()
	b.data = map[string][]byte{"x/model.bin": []byte("M")}
	dir := t.TempDir()
	if n, err := container(t, b).Download(t.Context(), "x/model.bin", dir, nil); err != nil || n != 1 {
		t.Fatalf("%d files, error %v", n, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "model.bin")); err != nil || string(data) != "M" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestDownloadGoesOnWhereItBroke(t *testing.T) {
	b := newBlobs()
	whole := bytes.Repeat([]byte("0123456789"), 50000)
	b.data["d/big"] = whole
	var ranges []string
	b.fault = locked(&b.mu, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != "GET" || r.URL.Query().Get("comp") != "" {
			return false
		}
		ranges = append(ranges, r.Header.Get("Range"))
		if len(ranges) > 1 {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(whole)))
		_, _ = w.Write(whole[:len(whole)/2])
		panic(http.ErrAbortHandler)
	})
	dir := t.TempDir()
	if _, err := container(t, b).Download(t.Context(), "d/", dir, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "big")); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("%d bytes came of %d (%v)", len(got), len(whole), err)
	}
	if len(ranges) != 2 || ranges[1] == "" || ranges[1] == "bytes=0-" {
		t.Errorf("asked for %q, want a second part", ranges)
	}
}

func TestDownloadNeverLeavesItsFolder(t *testing.T) {
	for _, name := range []string{"d/../../evil", "d//etc/evil", "d/a/../../../evil"} {
		b := newBlobs()
		b.data[name] = []byte("x")
		dir := filepath.Join(t.TempDir(), "in")
		n, err := container(t, b).Download(t.Context(), "d", dir, nil)
		if _, e := os.Stat(filepath.Join(filepath.Dir(dir), "evil")); e == nil {
			t.Errorf("%s was written outside", name)
		}
		if err == nil && name != "d//etc/evil" {
			t.Errorf("%s: %d files and no error", name, n)
		}
	}
}

func TestDownloadCancelledLeavesNoHalfFile(t *testing.T) {
	b := newBlobs()
	b.data["d/f"] = []byte("x")
	ctx, cancel := context.WithCancel(t.Context())
	b.fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("comp") != "list" {
			cancel()
			<-r.Context().Done()
			return true
		}
		return false
	}
	dir := t.TempDir()
	if _, err := container(t, b).Download(ctx, "d", dir, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestDatastoreThatIsNoContainerIsRefusedByName(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, map[string]any{"properties": map[string]any{"datastoreType": "AzureFile"}})
	})
	if _, err := c.Datastore(t.Context(), "share"); trainyard.CodeOf(err) != trainyard.CodeUnsupported || !strings.Contains(err.Error(), "AzureFile") {
		t.Errorf("error %v", err)
	}
}

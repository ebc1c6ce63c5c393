package agentlink

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
)

// fake is a Server that remembers.
type fake struct {
	mu      sync.Mutex
	err     error // answered to everything
	asked   []any
	blobs   map[string][]byte
	short   bool          // Open breaks off
	hold    time.Duration // of Wanted
	waiting chan struct{} // gets a value when Wanted is called
}

func (f *fake) note(what ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = what
	return f.err
}

func (f *fake) Join(_ context.Context, info trainyard.NodeInfo) (trainyard.NodeLease, error) {
	return trainyard.NodeLease{Epoch: 4, Token: "node-1's", Renew: time.Second, Expires: time.Minute}, f.note("join", info)
}

func (f *fake) Wanted(ctx context.Context, node trainyard.NodeID, epoch, after int64) (trainyard.Wanted, error) {
	if f.waiting != nil {
		f.waiting <- struct{}{}
	}
	select {
	case <-ctx.Done():
	case <-time.After(f.hold):
	}
	return trainyard.Wanted{Epoch: epoch, Rev: 7, Tasks: []trainyard.Task{{ID: "a/b/c/job.1.0", Command: "echo <&>"}}}, f.note("wanted", node, epoch, after)
}

func (f *fake) Report(_ context.Context, r trainyard.Report) error { return f.note("report", r) }

func (f *fake) Append(_ context.Context, node trainyard.NodeID, epoch int64, task trainyard.TaskID, name string, offset int64, data []byte) (int64, error) {
	return offset + int64(len(data)), f.note("append", node, epoch, task, name, offset, string(data))
}

func (f *fake) Open(_ context.Context, key string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	if err := f.note("open", key, offset); err != nil {
		return nil, trainyard.BlobInfo{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.blobs[key]
	if !ok {
		return nil, trainyard.BlobInfo{}, trainyard.NotFound("no blob %q", key)
	}
	var r io.Reader = bytes.NewReader(data[offset:])
	if f.short {
		r = io.MultiReader(bytes.NewReader(data[offset:len(data)/2]), broken{})
	}
	return io.NopCloser(r), trainyard.BlobInfo{Key: key, Size: int64(len(data)), ETag: `"é"`, MD5: []byte{0, 255}}, nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the disk is broken") }

func (f *fake) List(_ context.Context, prefix string) ([]trainyard.BlobInfo, error) {
	return []trainyard.BlobInfo{{Key: prefix + "a", Size: 1}, {Key: prefix + "b", Metadata: map[string]string{"k": "v"}}}, f.note("list", prefix)
}

func (f *fake) Put(_ context.Context, key string, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.blobs[key] = data
	f.mu.Unlock()
	return f.note("put", key)
}

// auth knows the tokens "X's", of node X.
func auth(token string) (trainyard.User, error) {
	node, ok := strings.CutSuffix(token, "'s")
	if !ok {
		return trainyard.User{}, trainyard.Errorf(trainyard.CodeUnknown, "nobody has this token")
	}
	return trainyard.User{Name: node, Role: trainyard.RoleAgent, Node: trainyard.NodeID(node)}, nil
}

// linked is both ends over TLS and HTTP/2, joined.
func linked(t *testing.T) (*fake, *httptest.Server, *Client) {
	t.Helper()
	f := &fake{blobs: map[string][]byte{}}
	srv := httptest.NewUnstartedServer(Handler(Config{Server: f, Auth: auth}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	c := dialTo(t, srv, srv.URL, patience)
	if _, err := c.Join(t.Context(), trainyard.NodeInfo{Node: "node-1"}); err != nil {
		t.Fatal(err)
	}
	return f, srv, c
}

func dialTo(t *testing.T, srv *httptest.Server, url string, limits times) *Client {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := dial(DialConfig{URL: url, CAFile: ca, Node: "node-1", JoinToken: "join"}, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestEveryCallArrivesAsItWasMade(t *testing.T) {
	f, srv, c := linked(t)
	ctx := t.Context()
	want := func(what ...any) {
		t.Helper()
		if d := cmp.Diff(what, f.asked); d != "" {
			t.Error(d)
		}
	}
	f.asked = nil
	lease, err := c.Join(ctx, trainyard.NodeInfo{Node: "node-1", Capacity: trainyard.Resources{CPUs: 2.5}, Holding: []trainyard.TaskID{"x"}})
	want("join", trainyard.NodeInfo{Node: "node-1", Token: "join", Capacity: trainyard.Resources{CPUs: 2.5}, Holding: []trainyard.TaskID{"x"}})
	if err != nil || lease.Epoch != 4 || lease.Expires != time.Minute {
		t.Errorf("%+v, %v", lease, err)
	}
	w, err := c.Wanted(ctx, "node-1", 4, -1)
	want("wanted", trainyard.NodeID("node-1"), int64(4), int64(-1))
	if err != nil || w.Rev != 7 || w.Tasks[0].Command != "echo <&>" {
		t.Errorf("%+v, %v", w, err)
	}
	report := trainyard.Report{Node: "node-1", Epoch: 4, Tasks: []trainyard.TaskReport{{ID: "t", State: trainyard.TaskEnded, Result: &trainyard.Result{ExitCode: -1}}}}
	if err := c.Report(ctx, report); err != nil {
		t.Error(err)
	}
	want("report", report)
	size, err := c.Append(ctx, "node-1", 4, "a/b/c/job.1.0", "user_logs/std_log.txt", 5, []byte("héllo\x00\xff"))
	want("append", trainyard.NodeID("node-1"), int64(4), trainyard.TaskID("a/b/c/job.1.0"), "user_logs/std_log.txt", int64(5), "héllo\x00\xff")
	if err != nil || size != 13 {
		t.Errorf("size %d, %v", size, err)
	}
	if size, err = c.Append(ctx, "node-1", 4, "t", "n", 3, nil); err != nil || size != 3 {
		t.Errorf("size %d of an empty append, %v", size, err)
	}
	infos, err := c.List(ctx, "codes/é b/")
	want("list", "codes/é b/")
	if err != nil || len(infos) != 2 || infos[1].Metadata["k"] != "v" {
		t.Errorf("%+v, %v", infos, err)
	}
	if n := srv.Client().Transport.(*http.Transport).ForceAttemptHTTP2; !n {
		t.Error("the test's server does not speak HTTP/2")
	}
}

func TestOneHTTP2Connection(t *testing.T) {
	f := &fake{blobs: map[string][]byte{}, hold: time.Minute, waiting: make(chan struct{}, 1)}
	var mu sync.Mutex
	protos, conns := map[string]bool{}, map[string]bool{}
	h := Handler(Config{Server: f, Auth: auth})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		protos[r.Proto], conns[r.RemoteAddr] = true, true
		mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	c := dialTo(t, srv, srv.URL, patience)
	if _, err := c.Join(t.Context(), trainyard.NodeInfo{Node: "node-1"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	polled := make(chan error, 1)
	go func() { _, err := c.Wanted(ctx, "node-1", 4, 0); polled <- err }()
	<-f.waiting
	for i := range 20 {
		if err := c.Put(t.Context(), fmt.Sprint("x/", i), strings.NewReader("data")); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-polled; !errors.Is(err, context.Canceled) {
		t.Errorf("a long poll that was given up: %v", err)
	}
	if len(conns) != 1 || !protos["HTTP/2.0"] || len(protos) != 1 {
		t.Errorf("%d connections of %v", len(conns), protos)
	}
}

func TestErrorsKeepTheirCode(t *testing.T) {
	f, _, c := linked(t)
	for code := range map[trainyard.ErrorCode]bool{trainyard.CodeInvalid: true, trainyard.CodeNotFound: true, trainyard.CodeConflict: true,
		trainyard.CodeForbidden: true, trainyard.CodeUnknown: true, trainyard.CodeUnsupported: true, trainyard.CodeBusy: true, trainyard.CodeInternal: true} {
		f.err = fmt.Errorf("wrapped: %w", &trainyard.Error{Code: code, Message: "what is wrong", Target: "x", Details: []trainyard.Error{{Message: "more"}}})
		_, wanted := c.Wanted(t.Context(), "node-1", 1, 1)
		_, append := c.Append(t.Context(), "node-1", 1, "t", "n", 0, nil)
		_, list := c.List(t.Context(), "a/")
		_, _, open := c.Open(t.Context(), "a/b", 0)
		for i, err := range []error{wanted, append, list, open, c.Report(t.Context(), trainyard.Report{Node: "node-1"}), c.Put(t.Context(), "a/b", strings.NewReader("x"))} {
			e, ok := errors.AsType[*trainyard.Error](err)
			if !ok || e.Code != code || e.Error() != "what is wrong\n  more" || e.Target != "x" {
				t.Errorf("%s became %v (call %d)", code, err, i)
			}
		}
	}
	f.err = errors.New("a plain error")
	if err := c.Report(t.Context(), trainyard.Report{Node: "node-1"}); trainyard.CodeOf(err) != trainyard.CodeInternal {
		t.Errorf("%v", err)
	}
}

func TestTokensSpeakForTheirNodeAlone(t *testing.T) {
	_, srv, c := linked(t)
	for name, token := range map[string]string{"another node's": "node-2's", "nobody's": "none"} {
		c.token.Store(&token)
		if err := c.Report(t.Context(), trainyard.Report{Node: "node-1"}); err == nil {
			t.Errorf("%s token was taken", name)
		}
		if _, _, err := c.Open(t.Context(), "a/b", 0); err == nil {
			t.Errorf("%s token opens blobs", name)
		}
	}
	own := "node-1's"
	c.token.Store(&own)
	req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/agent/v1/nodes/node-1/report", strings.NewReader(`{"node":"node-2"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+own)
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("a report for another node: %s", res.Status)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	_, srv, _ := linked(t)
	for path, size := range map[string]int{"report": maxReport, "log?epoch=1&offset=0": maxChunk} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/agent/v1/nodes/node-1/"+path, bytes.NewReader(bytes.Repeat([]byte(" "), size+1)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer node-1's")
		res, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var e trainyard.Error
		err = json.NewDecoder(res.Body).Decode(&e)
		res.Body.Close()
		if err != nil || e.Code != trainyard.CodeInvalid || !strings.Contains(e.Message, "longer than") {
			t.Errorf("%s: %s, %+v, %v", path, res.Status, e, err)
		}
	}
}

func TestBlobs(t *testing.T) {
	f, _, c := linked(t)
	data := make([]byte, 20<<20)
	rand.Read(data)
	if err := c.Put(t.Context(), "outputs/a b/é?&#.bin", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	r, info, err := c.Open(t.Context(), "outputs/a b/é?&#.bin", 3)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	r.Close()
	if err != nil || !bytes.Equal(got, data[3:]) || info.Size != int64(len(data)) || info.ETag != `"é"` || info.MD5[1] != 255 {
		t.Errorf("%d bytes, %+v, %v", len(got), info, err)
	}
	f.short = true
	if r, _, err = c.Open(t.Context(), "outputs/a b/é?&#.bin", 0); err != nil {
		t.Fatal(err)
	}
	got, err = io.ReadAll(r)
	r.Close()
	if trainyard.CodeOf(err) != trainyard.CodeBusy {
		t.Errorf("a blob that broke off after %d of %d bytes: %v", len(got), len(data), err)
	}
	for _, key := range []string{"", "/etc/passwd", "codes/../../x", "..", `a\b`} {
		if err := c.Put(t.Context(), key, strings.NewReader("x")); trainyard.CodeOf(err) != trainyard.CodeInvalid {
			t.Errorf("key %q: %v", key, err)
		}
	}
	if err := c.Put(t.Context(), "a/b", io.MultiReader(strings.NewReader("x"), broken{})); err == nil || !strings.Contains(err.Error(), "the disk is broken") || trainyard.CodeOf(err) == trainyard.CodeBusy {
		t.Errorf("a file that cannot be read: %v", err)
	}
}

func TestServerThatIsNotThere(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	c, err := Dial(DialConfig{URL: "http://" + ln.Addr().String(), Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Join(t.Context(), trainyard.NodeInfo{}); trainyard.CodeOf(err) != trainyard.CodeBusy || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("%v", err)
	}
}

func TestServerThatStops(t *testing.T) {
	f := &fake{blobs: map[string][]byte{}, err: context.Canceled}
	srv := httptest.NewUnstartedServer(Handler(Config{Server: f, Auth: auth}))
	base, stop := context.WithCancel(context.Background())
	srv.Config.BaseContext = func(net.Listener) context.Context { return base }
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	c := dialTo(t, srv, srv.URL, patience)
	token := "node-1's"
	c.token.Store(&token)
	stop()
	for i, err := range []error{c.Report(t.Context(), trainyard.Report{Node: "node-1"}), c.Put(t.Context(), "a/b", strings.NewReader("x"))} {
		if trainyard.CodeOf(err) != trainyard.CodeBusy {
			t.Errorf("call %d of a server that stops: %v", i, err)
		}
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	for _, u := range []string{"", "server:7878", "ftp://server", "http://10.0.0.7:7878", "http://127.0.0.1.evil.example"} {
		if _, err := Dial(DialConfig{URL: u}); trainyard.CodeOf(err) != trainyard.CodeInvalid {
			t.Errorf("%q: %v", u, err)
		}
	}
	if _, err := Dial(DialConfig{URL: "https://localhost", CAFile: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a CA file that is not there")
	}
}

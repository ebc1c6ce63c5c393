package studio

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long a test waits for what must come.
const patience = 40 * time.Second

// server is a Trainyard of the test's own.
type server struct {
	t      *testing.T
	binary string
	dir    string
	addr   string // host:port, the same after a restart
	cmd    *exec.Cmd
}

func startServer(t *testing.T) *server {
	t.Helper()
	binary := os.Getenv("TRAINYARD")
	if binary == "" {
		binary = "../../bin/trainyard"
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "trainyard-studio") // not t.TempDir: its long names make paths too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &server{t: t, binary: binary, dir: dir, addr: "127.0.0.1:0"}
	s.start()
	t.Cleanup(s.stop)
	return s
}

var serving = regexp.MustCompile(`serves https://(\S+)`)

func (s *server) start() {
	s.t.Helper()
	out := &lines{found: make(chan string, 1)}
	s.cmd = exec.Command(s.binary, "server", "--data", filepath.Join(s.dir, "data"), "--listen", s.addr)
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = s.env(), out, out
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start %s: %v; build it with make build", s.binary, err)
	}
	select {
	case s.addr = <-out.found:
	case <-time.After(patience):
		s.t.Fatalf("the server does not start:\n%s", out.text())
	}
}

func (s *server) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) env() []string {
	return append(os.Environ(), "TRAINYARD_CONFIG_DIR="+filepath.Join(s.dir, "config"))
}

// lines keeps what a server says, and finds where it serves.
type lines struct {
	mu    sync.Mutex
	b     bytes.Buffer
	found chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(p)
	if m := serving.FindSubmatch(l.b.Bytes()); m != nil && l.found != nil {
		l.found <- string(m[1])
		l.found = nil
	}
	return len(p), nil
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// run runs a command of the program.
func (s *server) run(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(s.binary, args...)
	cmd.Env = s.env()
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("trainyard %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// submit submits a job that runs a command on this computer.
func (s *server) submit(name, command string) {
	s.t.Helper()
	s.create(name, map[string]any{"command": command, "display_name": "Train " + name, "experiment_name": "studio", "compute": "azureml:local"})
}

// create submits a job.
func (s *server) create(name string, job map[string]any) {
	s.t.Helper()
	file := filepath.Join(s.dir, name+".yml")
	text, err := json.Marshal(job)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil { // JSON is YAML
		s.t.Fatal(err)
	}
	s.run("job", "create", "--file", file, "--name", name, "-o", "none")
}

// ticket is an address that logs a browser in and leads to next.
func (s *server) ticket(next string) string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "config", "profile.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	var profile struct{ Token string }
	if err := json.Unmarshal(data, &profile); err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+s.addr+"/studio/tickets", strings.NewReader(fmt.Sprintf(`{"next": %q}`, next)))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+profile.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var got struct{ URL string }
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("ticket: %s, %v", res.Status, err)
	}
	return got.URL
}

// tab is a page in the browser.
type tab struct {
	t   *testing.T
	s   *server
	ctx context.Context

	mu   sync.Mutex
	said []string // errors on the console
}

// openTab starts Chromium. Where there is none, the test is left out, by name.
func openTab(t *testing.T, s *server) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		if os.Getenv("TRAINYARD_REQUIRE_ENGINES") != "" {
			t.Fatal("there is no Chromium: apt-get install chromium")
		}
		t.Skip("there is no Chromium: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox) // root has no sandbox
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	b := &tab{t: t, s: s, ctx: ctx}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	return b
}

// hear notes what goes wrong in a page: scripts that throw, what the content security policy blocks.
func (b *tab) hear(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		b.said = append(b.said, text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && !strings.Contains(e.Entry.Text, "net::ERR_") { // a server that restarts is no fault of the page
			b.said = append(b.said, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate("http://" + b.s.addr + path))
}

// eval is the value of an expression in the page.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// text is what can be read of an element; "" if it is not there.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q)?.textContent ?? ''", selector))
}

// until waits for something to become true, as a person does who looks again and again.
func (b *tab) until(what string, is func() bool) {
	b.t.Helper()
	b.within(patience, what, is)
}

// within is until with another patience.
func (b *tab) within(most time.Duration, what string, is func() bool) {
	b.t.Helper()
	late := time.After(most)
	for !is() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-late:
			b.t.Fatalf("waited in vain until %s; the page reads:\n%s", what, eval[string](b, "document.body.innerText"))
		}
	}
}

// reads waits until an element can be read so.
func (b *tab) reads(selector, words string) {
	b.t.Helper()
	b.until(selector+" reads "+words, func() bool { return strings.Contains(b.text(selector), words) })
}

// mark leaves something in the page that is gone when it is loaded anew.
func (b *tab) mark() { b.do(chromedp.Evaluate[chromedp.Void]("window.marked = true, undefined")) }

func (b *tab) marked() bool { return eval[bool](b, "window.marked === true") }

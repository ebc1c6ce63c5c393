//go:build unix

package modelserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// uvVersion is what is put into the cache where there is no uv on PATH.
const uvVersion = "0.13.8"

// lab is a real environment of one major version of MLflow, with models made there. It is kept between runs of the tests.
type lab struct {
	dir    string
	python string
	Rows   [][]float64       `json:"rows"`
	Proba  [][]float64       `json:"proba"`
	Split  json.RawMessage   `json:"split"`
	Record []json.RawMessage `json:"records"`
	Price  []float64         `json:"price"`
}

var labs = map[string]func() (*lab, error){
	"2": sync.OnceValues(func() (*lab, error) { return openLab("2", "mlflow==2.22.5", "scikit-learn==1.9.1", "pandas<3") }),
	"3": sync.OnceValues(func() (*lab, error) { return openLab("3", "mlflow==3.17.2", "scikit-learn==1.9.1") }),
}

func useLab(t *testing.T, major string) *lab {
	t.Helper()
	l, err := labs[major]()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// openLab finds a lab or makes it. Other processes that want the same one wait.
func openLab(major string, lines ...string) (*lab, error) {
	home, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	script, err := os.ReadFile("testdata/mlflow/make.py")
	if err != nil {
		return nil, err
	}
	lines = append(lines, serverNeed.line)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n") + string(script)))
	l := &lab{dir: filepath.Join(home, "trainyard-test", "modelserver"+major+"-"+hex.EncodeToString(sum[:5]))}
	l.python = filepath.Join(l.dir, "env", "bin", "python")
	if err := os.MkdirAll(filepath.Dir(l.dir), 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(l.dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(l.dir, "expected.json")); err != nil {
		if err := l.make(lines); err != nil {
			return nil, err
		}
	}
	data, err := os.ReadFile(filepath.Join(l.dir, "expected.json"))
	if err != nil {
		return nil, err
	}
	return l, json.Unmarshal(data, l)
}

func (l *lab) make(lines []string) error {
	if err := os.RemoveAll(l.dir); err != nil {
		return err
	}
	uv, err := findUV()
	if err != nil {
		return err
	}
	base, err := exec.Command("python3", "-c", "import sys; print(getattr(sys, '_base_executable', sys.executable))").Output()
	if err != nil {
		return fmt.Errorf("ask python3 who it is: %w", err)
	}
	for _, args := range [][]string{
		{uv, "venv", "--python", strings.TrimSpace(string(base)), filepath.Join(l.dir, "env")},
		append([]string{uv, "pip", "install", "--python", l.python}, lines...),
		{l.python, "-W", "ignore", "testdata/mlflow/make.py", l.dir},
	} {
		if err := run(args...); err != nil {
			return err
		}
	}
	return nil
}

// install brings what a conda file asks for from pip into the lab: nothing, if it fits what is there.
func (l *lab) install(t *testing.T, conda string) {
	t.Helper()
	uv, err := findUV()
	if err != nil {
		t.Fatal(err)
	}
	_, deps, err := openConda(conda)
	if err != nil {
		t.Fatal(err)
	}
	pip, _ := packages(deps)
	args := []string{uv, "pip", "install", "--python", l.python}
	for _, n := range pip.Content {
		args = append(args, n.Value)
	}
	if err := run(args...); err != nil {
		t.Fatal(err)
	}
}

var findUV = sync.OnceValues(func() (string, error) {
	if path, err := exec.LookPath("uv"); err == nil {
		return path, nil
	}
	home, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, "trainyard-test", "uv-"+uvVersion)
	uv := filepath.Join(dir, "bin", "uv")
	if _, err := os.Stat(uv); err == nil {
		return uv, nil
	}
	return uv, run("python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", dir, "uv=="+uvVersion)
})

func run(args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "UV_COMPILE_BYTECODE=1", "UV_NO_PROGRESS=1", "UV_PYTHON_DOWNLOADS=never")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// replica is a plan's command under way, as a node's process driver starts it.
type replica struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  *safeBuffer
	done chan struct{}
	tmp  string
	url  string
	port string
}

// begin starts a command. path is what PATH begins with; shell is bash or sh.
func begin(t *testing.T, p Plan, code, model, path, shell string) *replica {
	t.Helper()
	dir := t.TempDir()
	r := &replica{t: t, log: &safeBuffer{}, done: make(chan struct{}), tmp: filepath.Join(dir, "t m p")}
	work := filepath.Join(dir, "code")
	if err := os.CopyFS(work, os.DirFS(code)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(r.tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	command, err := trainyard.Render(p.Command, func(expr string) (string, bool, error) { return model, expr == "inputs.model", nil })
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, r.port, _ = net.SplitHostPort(l.Addr().String())
	l.Close()
	r.url = "http://127.0.0.1:" + r.port
	r.cmd = exec.Command(shell, "-c", command)
	r.cmd.Dir, r.cmd.Stdout, r.cmd.Stderr = work, r.log, r.log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.cmd.Env = []string{"PATH=" + path + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "LANG=C.UTF-8", "TMPDIR=" + r.tmp, "SERVER_PORT=" + r.port, "PORT=" + r.port}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		r.cmd.Env = append(r.cmd.Env, name+"="+p.Env[name])
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = r.cmd.Wait(); close(r.done) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		<-r.done
		if t.Failed() {
			t.Logf("log of the replica:\n%s", r.log)
		}
	})
	return r
}

// eventually waits until ok.
func (r *replica) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.After(3 * time.Minute)
	for tick := time.NewTicker(20 * time.Millisecond); !ok(); {
		select {
		case <-tick.C:
		case <-r.done:
			r.t.Fatalf("%s: the replica has ended: %v\n%s", what, r.cmd.ProcessState, r.log)
		case <-deadline:
			r.t.Fatalf("%s: not within three minutes\n%s", what, r.log)
		}
	}
}

// ready waits until the readiness probe is answered.
func (r *replica) ready(p Plan) *replica {
	r.t.Helper()
	r.eventually("ready", func() bool {
		res, err := http.Get(r.url + p.Serve.Readiness.Path)
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return r
}

// ended waits for the end and returns the exit status.
func (r *replica) ended(within time.Duration) int {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(within):
		r.t.Fatalf("it has not ended in %s\n%s", within, r.log)
	}
	return r.cmd.ProcessState.ExitCode()
}

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   string
}

func (r *replica) post(path string, body any, header ...string) answer {
	text, ok := body.(string)
	if !ok {
		data, err := json.Marshal(body)
		if err != nil {
			r.t.Error(err)
			return answer{}
		}
		text = string(data)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, strings.NewReader(text))
	if err != nil {
		r.t.Error(err)
		return answer{}
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Errorf("POST %s: %v", path, err)
		return answer{}
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Error(err)
	}
	return answer{res.StatusCode, res.Header, string(data)}
}

// safeBuffer is written to by a process while a test reads it.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

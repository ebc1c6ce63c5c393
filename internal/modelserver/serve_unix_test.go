//go:build unix

package modelserver

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

const condaOfScript = "dependencies:\n- python=3.11\n- pip:\n  - scikit-learn==1.9.1\n"

// scripted is a plan for one of testdata's scripts with a model file.
func scripted(t *testing.T, script string, env map[string]string) Plan {
	t.Helper()
	p, err := Make(Request{ModelName: "plain", ModelVersion: "3", ModelRoot: "model.joblib", HasModel: true, ScoringScript: script,
		Environment: &trainyard.EnvironmentPlan{Name: "sk", CondaFile: condaOfScript}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (l *lab) bin() string { return filepath.Dir(l.python) }

func TestScriptServesWithTwoWorkers(t *testing.T) {
	l := useLab(t, "3")
	p := scripted(t, "score.py", map[string]string{"WORKER_COUNT": "2"})
	l.install(t, p.Environment.CondaFile)
	r := begin(t, p, "testdata/script", filepath.Join(l.dir, "model.joblib"), l.bin(), "bash").ready(p)

	res := r.post(p.Serve.Scoring, map[string]any{"data": l.Rows}, "x-ms-client-request-id", "mine")
	var got struct {
		Prediction [][]float64
		PID        int
	}
	if err := json.Unmarshal([]byte(res.body), &got); err != nil || res.status != 200 || !reflect.DeepEqual(got.Prediction, l.Proba) {
		t.Errorf("status %d, body %s, %v; the model says %v", res.status, res.body, err, l.Proba)
	}
	if h := res.header; h.Get("x-ms-client-request-id") != "mine" || h.Get("x-request-id") == "" || h.Get("x-ms-run-fn-exec-ms") == "" ||
		!strings.HasPrefix(h.Get("x-ms-server-version"), "azmlinfsrv/") {
		t.Errorf("headers %v", h)
	}
	if res := r.post("/score", map[string]any{"fail": true}); res.status != 500 || res.header.Get("x-ms-run-function-failed") != "True" {
		t.Errorf("an exception in run() is answered with %d %v", res.status, res.header)
	}
	if res := r.post("/swagger.json", ""); res.status != 405 {
		t.Errorf("POST /swagger.json: %d", res.status)
	}

	// Each of two requests ends only when the other has begun.
	other := make(chan answer)
	go func() { other <- r.post("/score", map[string]string{"touch": "a", "wait": "b"}) }()
	one := r.post("/score", map[string]string{"touch": "b", "wait": "a"})
	if two := <-other; one.status != 200 || two.status != 200 || one.body == two.body {
		t.Errorf("two at once: %v and %v", one, two)
	}
	r.eventually("init() twice", func() bool { return inits(r) == 2 })
	if !strings.Contains(r.log.String(), "Listening at: http://127.0.0.1:"+r.port) {
		t.Error("it does not listen on loopback")
	}
	if c, err := net.DialTimeout("tcp", "127.0.0.2:"+r.port, time.Second); err == nil {
		c.Close()
		t.Error("it listens on more than 127.0.0.1")
	}
}

func inits(r *replica) int {
	found, _ := filepath.Glob(filepath.Join(r.tmp, "init-*"))
	return len(found)
}

func TestEndDrainsWhatCameBefore(t *testing.T) {
	l := useLab(t, "3")
	p := scripted(t, "score.py", nil)
	r := begin(t, p, "testdata/script", filepath.Join(l.dir, "model.joblib"), l.bin(), "bash").ready(p)
	answers := make(chan answer, 2)
	go func() { answers <- r.post("/score", map[string]string{"touch": "began", "wait": "go"}) }()
	r.eventually("a request is under way", func() bool { _, err := os.Stat(filepath.Join(r.tmp, "began")); return err == nil })
	waiting, err := net.Dial("tcp", "127.0.0.1:"+r.port) // of which the worker does not know yet
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if _, err := waiting.Write([]byte("POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r.eventually("it knows that it is to end", func() bool { return strings.Contains(r.log.String(), "Handling signal: term") })
	if err := os.WriteFile(filepath.Join(r.tmp, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if a := <-answers; a.status != 200 {
		t.Errorf("the request under way got %v", a)
	}
	buf := make([]byte, 15)
	if n, err := waiting.Read(buf); err != nil || string(buf[:n]) != "HTTP/1.1 200 OK" {
		t.Errorf("the request that waited got %q, %v", buf[:n], err)
	}
	if code := r.ended(time.Minute); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

func TestWhatCannotLoadEndsAtOnce(t *testing.T) {
	l := useLab(t, "3")
	for _, c := range []struct {
		name, script, shell, path string
		env                       map[string]string
		code                      int
		words                     []string
	}{
		{"init raises", "score.py", "bash", l.bin(), map[string]string{"FAIL": "raise", "WORKER_COUNT": "2"}, 3,
			[]string{"Traceback (most recent call last)", "RuntimeError: the weights are not there"}},
		{"init raises in a plain shell", "score.py", "sh", l.bin(), map[string]string{"FAIL": "raise"}, 3, []string{"RuntimeError: the weights are not there"}},
		{"init is killed", "score.py", "bash", l.bin(), map[string]string{"FAIL": "kill"}, 3, []string{"A worker ended before init()"}},
		{"the script is not Python", "helper.txt", "bash", l.bin(), nil, 1, []string{`scoring script 'helper.txt' is not in the code`, "score.py"}},
		{"three workers cannot", "broken.py", "sh", l.bin(), map[string]string{"WORKER_COUNT": "3"}, 3, []string{"No module named 'nowhere'"}},
		{"the script does not import", "broken.py", "bash", l.bin(), nil, 3, []string{"ModuleNotFoundError: No module named 'nowhere'"}},
		{"no server in the environment", "score.py", "bash", "/nowhere", nil, 1, []string{"Add azureml-inference-server-http to the pip list"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			code := t.TempDir()
			if err := os.CopyFS(code, os.DirFS("testdata/script")); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(code, "broken.py"), []byte("import nowhere\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			path := c.path
			if path == "/nowhere" {
				path = bare(t)
			}
			r := begin(t, scripted(t, c.script, c.env), code, filepath.Join(l.dir, "model.joblib"), path, c.shell)
			if got := r.ended(time.Minute); got != c.code {
				t.Errorf("exit status %d, want %d", got, c.code)
			}
			for _, w := range c.words {
				if !strings.Contains(r.log.String(), w) {
					t.Errorf("the log lacks %q", w)
				}
			}
		})
	}
}

// bare is a folder with a python that has no packages.
func bare(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "env")
	if err := run("python3", "-m", "venv", "--without-pip", dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "bin")
}

func TestRawScript(t *testing.T) {
	l := useLab(t, "2")
	p := scripted(t, "raw.py", nil)
	r := begin(t, p, "testdata/script", filepath.Join(l.dir, "model.joblib"), l.bin(), "bash").ready(p)
	if a := r.post("/score", "\x00abc"); a.status != 200 || a.body != "cba\x00" || a.header.Get("x-method") != "POST" ||
		!slices.Equal(a.header.Values("Content-Type"), []string{"application/octet-stream"}) {
		t.Errorf("got %+v", a)
	}
	if a := r.post("/score?status=418", ""); a.status != 418 || a.body != "as asked" {
		t.Errorf("got %+v", a)
	}
}

func TestMLflowModelWithoutScript(t *testing.T) {
	for _, major := range []string{"2", "3"} {
		t.Run(major, func(t *testing.T) {
			t.Parallel()
			l := useLab(t, major)
			root := filepath.Join(l.dir, "price model")
			p, err := Make(Request{ModelRoot: "price model", HasModel: true, ModelType: mlflowModel,
				MLmodel: file(t, root, "MLmodel"), ModelConda: file(t, root, "conda.yaml"), ModelRequirements: file(t, root, "requirements.txt")})
			if err != nil || p.Code != Snapshot {
				t.Fatal(p.Code, err)
			}
			l.install(t, p.Environment.CondaFile)
			code := t.TempDir()
			for name, data := range Files() {
				if err := os.WriteFile(filepath.Join(code, name), data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := run(l.python, "-W", "ignore", "testdata/mlflow/shapes.py", code); err != nil {
				t.Error(err)
			}
			frozen := filepath.Join(t.TempDir(), "0f3a") // as a node's cache keeps it: by another name, not to be written to
			if err := os.CopyFS(frozen, os.DirFS(root)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.WriteFile(filepath.Join(frozen, "large"), make([]byte, 2<<20), 0o444), os.Chmod(frozen, 0o555)); err != nil {
				t.Fatal(err)
			}
			r := begin(t, p, code, frozen, l.bin(), "bash").ready(p)
			scores(t, l, r)
			large := filepath.Join(r.tmp, "azureml-app", "azureml-models", "price_model", "1", "price model", "large")
			if to, err := os.Readlink(large); err != nil || to != filepath.Join(frozen, "large") {
				t.Errorf("a large file is not linked: %q, %v", to, err)
			}
			scriptLoads(t, l, frozen)
		})
	}
}

// scriptLoads has a script load the MLflow model from AZUREML_MODEL_DIR, as most scripts for such models do.
func scriptLoads(t *testing.T, l *lab, model string) {
	p, err := Make(Request{ModelRoot: "price model", HasModel: true, ModelType: mlflowModel, ScoringScript: "pyfunc.py",
		Environment: &trainyard.EnvironmentPlan{Name: "sk", CondaFile: condaOfScript}})
	if err != nil {
		t.Fatal(err)
	}
	r := begin(t, p, "testdata/script", model, l.bin(), "sh").ready(p)
	a := r.post(p.Serve.Scoring, l.Record)
	var got []float64
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || !slices.Equal(got, l.Price) {
		t.Errorf("%d %s, %v; the model says %v", a.status, a.body, err, l.Price)
	}
}

func file(t *testing.T, dir, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// scores sends the price model requests of every shape.
func scores(t *testing.T, l *lab, r *replica) {
	for _, key := range []string{"input_data", "dataframe_split"} {
		a := r.post("/score", map[string]any{key: l.Split})
		var got []float64
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 || !slices.Equal(got, l.Price) {
			t.Errorf("%s: %d %s, %v; the model says %v", key, a.status, a.body, err, l.Price)
		}
		if a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v", key, a.header)
		}
	}
	if a := r.post("/score", map[string]any{"input_data": l.Record, "params": map[string]any{}}); a.status != 200 {
		t.Errorf("records: %+v", a)
	}
	for body, words := range map[string][]string{
		`{"input_data": {"columns": ["rooms", "city"], "data": [[1, "Bern"]]}}`:                    {"'area'"},
		`{"input_data": {"columns": ["rooms", "city", "area"], "data": [[1, "Bern", "big"]]}}`:     {"'area'", "row 0", "big"},
		`{"input_data": {"columns": ["rooms", "city", "area"], "data": [[1.5, "Bern", 2]]}}`:       {"'rooms'", "1.5"},
		`{"input_data": {"columns": ["rooms", "city", "area"], "data": [[1, "Bern", 2], [1, 2]]}}`: {"'city'", "row 1"},
		`{"data": []}`: {"input_data"},
		`nonsense`:     {"not JSON"},
	} {
		a := r.post("/score", body)
		if a.status != 400 || a.header.Get("x-ms-run-function-failed") == "True" {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
		for _, w := range words {
			if !strings.Contains(a.body, w) {
				t.Errorf("%s: %q lacks %q", body, a.body, w)
			}
		}
	}
	if a := r.post("/score", `{"input_data": {"columns": ["rooms", "city", "area"], "data": [[1, "Paris", 2]]}}`); a.status != 500 ||
		a.header.Get("x-ms-run-function-failed") != "True" {
		t.Errorf("an exception in the model is answered with %d %s", a.status, a.body)
	}
}

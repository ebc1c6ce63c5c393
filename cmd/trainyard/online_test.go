package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/arm"
	"github.com/trainyard/trainyard/internal/arm/armtest"
	"github.com/trainyard/trainyard/internal/identity"
)

// yard is the real door with a control in memory behind it, a store of bytes that takes everything, and a gateway that says what it was asked.
type yard struct {
	t     *testing.T
	ctl   *armtest.Control
	dir   string
	score http.HandlerFunc

	mu    sync.Mutex
	blobs map[string]string
	asked func(r *http.Request) // before the door answers
}

func newYard(t *testing.T) *yard {
	y := &yard{t: t, ctl: armtest.New(time.Now), dir: t.TempDir(), blobs: map[string]string{}}
	y.ctl.Quick = true
	admin := trainyard.User{Name: "ann", Role: trainyard.RoleAdmin}
	var srv *httptest.Server
	door := arm.New(arm.Config{Assets: y.ctl, Jobs: y.ctl, Computes: y.ctl, Places: y.ctl, Endpoints: y.ctl, Deployments: y.ctl, Allow: identity.Allow,
		Auth:     func(*http.Request) (trainyard.User, error) { return admin, nil },
		External: func(*http.Request) string { return srv.URL }, Log: slog.New(slog.DiscardHandler)})
	mux := http.NewServeMux()
	mux.HandleFunc("/blob/", y.blob)
	mux.HandleFunc("/endpoints/", func(w http.ResponseWriter, r *http.Request) { y.score(w, r) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if y.asked != nil {
			y.asked(r)
		}
		door.ServeHTTP(w, r)
	})
	srv = httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	y.ctl.Gateway = srv.URL
	t.Setenv("TRAINYARD_CONFIG_DIR", t.TempDir())
	t.Setenv("TRAINYARD_URL", srv.URL)
	t.Setenv("TRAINYARD_TOKEN", "t")
	t.Chdir(y.dir)
	return y
}

func (y *yard) blob(w http.ResponseWriter, r *http.Request) {
	y.mu.Lock()
	defer y.mu.Unlock()
	switch r.Method {
	case http.MethodHead:
		if _, there := y.blobs[r.URL.Path]; !there {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("X-Ms-Meta-Upload_status", "completed")
	case http.MethodPut:
		data, _ := io.ReadAll(r.Body)
		if r.URL.Query().Get("comp") != "metadata" {
			y.blobs[r.URL.Path] = string(data)
		}
		w.WriteHeader(http.StatusCreated)
	}
}

func (y *yard) write(name, text string) {
	y.t.Helper()
	file := filepath.Join(y.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		y.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		y.t.Fatal(err)
	}
}

// run runs a command and wants its exit status.
func (y *yard) run(status int, args ...string) (out, note string) {
	y.t.Helper()
	var o, e bytes.Buffer
	c := &console{in: strings.NewReader(""), out: &o, err: &e, now: time.Now}
	if got := run(y.t.Context(), c, args); got != status {
		y.t.Fatalf("%q ended with %d, want %d:\n%s%s", args, got, status, o.String(), e.String())
	}
	return o.String(), e.String()
}

// is wants a command's output.
func (y *yard) is(want string, args ...string) {
	y.t.Helper()
	if out, _ := y.run(0, args...); strings.TrimSpace(out) != want {
		y.t.Errorf("%q prints %q, want %q", args, out, want)
	}
}

func has(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
}

const blueFile = `$schema: https://azuremlschemas.azureedge.net/latest/managedOnlineDeployment.schema.json
name: blue
model:
  path: model
code_configuration: {code: src, scoring_script: score.py}
environment: {image: "python:3.11", conda_file: {dependencies: [python=3.11]}}
instance_type: Standard_DS3_v2
instance_count: 2
request_settings: {request_timeout_ms: 3000}
liveness_probe: {initial_delay: 10}
`

func (y *yard) files() {
	y.write("blue.yml", blueFile)
	y.write("model/model.pkl", "pickle")
	y.write("src/score.py", "def init(): pass\ndef run(data): return data\n")
}

func TestEndpointsFromTheCommandLine(t *testing.T) {
	y := newYard(t)
	y.is("key", "online-endpoint", "create", "--name", "iris", "--tags", "a=b", "--query", "auth_mode", "-o", "tsv")
	y.write("ep.yml", "name: other\nauth_mode: aml_token\ndescription: flowers\n")
	y.is("aml_token", "ml", "online-endpoint", "create", "-f", "ep.yml", "--local", "--query", "auth_mode", "-o", "tsv")
	y.is("other", "online-endpoint", "list", "--local", "--query", "[].name", "-o", "tsv")
	y.is("iris\nother", "online-endpoint", "list", "--query", "[].name", "-o", "tsv")
	out, _ := y.run(0, "online-endpoint", "list", "-o", "table")
	has(t, out, "Name ", "Compute", "iris", "/endpoints/iris/score")
	y.is("first", "online-endpoint", "get-credentials", "-n", "iris", "--query", "primaryKey", "-o", "tsv")
	y.is("token of other", "online-endpoint", "get-credentials", "-n", "other", "--query", "accessToken", "-o", "tsv")
	y.run(0, "online-endpoint", "regenerate-keys", "-n", "iris", "--key-type", "secondary", "--key-value", "mine")
	y.is("mine", "online-endpoint", "get-credentials", "-n", "iris", "--query", "secondaryKey", "-o", "tsv")
	y.run(2, "online-endpoint", "regenerate-keys", "-n", "iris", "--key-type", "third")

	y.is("90\n10", "online-endpoint", "update", "-n", "iris", "--traffic", "blue=90 green=10", "--query", "[traffic.blue, traffic.green]", "-o", "tsv")
	y.is("1", "online-endpoint", "update", "-n", "iris", "--traffic", "Green=100", "--query", "length(traffic)", "-o", "tsv")
	y.is("20", "online-endpoint", "update", "-n", "iris", "--mirror-traffic", "blue=20", "--query", "mirror_traffic.blue", "-o", "tsv")
	y.is("100\nnew\nb", "online-endpoint", "update", "-n", "iris", "--set", "description=new", "--query", "[traffic.Green, description, tags.a]", "-o", "tsv")
	y.write("iris.yml", "name: iris\ndescription: of the file\n")
	y.is("0", "online-endpoint", "update", "-n", "iris", "--remove", "mirror_traffic", "--query", "length(mirror_traffic)", "-o", "tsv")
	y.is("100\nof the file", "online-endpoint", "update", "-f", "iris.yml", "--query", "[traffic.Green, description]", "-o", "tsv")
	y.is("100\nof the file", "online-endpoint", "create", "-f", "iris.yml", "--query", "[traffic.Green, description]", "-o", "tsv")
	_, note := y.run(0, "online-endpoint", "create", "-n", "iris")
	has(t, note, "iris keeps its traffic: Green 100 %")
	_, note = y.run(1, "online-endpoint", "create", "-n", "iris", "--local", "true")
	has(t, note, `"iris" that is not local: leave --local out`)
	_, note = y.run(1, "online-endpoint", "update", "-n", "iris", "--local", "--traffic", "blue=100")
	has(t, note, "no local online endpoint")
	y.is("100", "online-endpoint", "create", "-n", "iris", "--local", "false", "--query", "traffic.Green", "-o", "tsv")
	y.is("0", "online-endpoint", "create", "-n", "iris", "--traffic", "", "--query", "length(traffic)", "-o", "tsv")
	y.run(0, "online-endpoint", "update", "-n", "iris", "--traffic", "Green=100")
	_, note = y.run(1, "online-endpoint", "update", "-f", "ep.yml", "-n", "nobody")
	has(t, note, `"nobody" does not exist`)
	_, note = y.run(2, "online-endpoint", "create", "another", "-n", "iris")
	has(t, note, "two names are given")
	_, note = y.run(2, "online-endpoint", "update", "-n", "iris", "--traffic", "blue")
	has(t, note, "want DEPLOYMENT=PERCENT")
	y.run(2, "online-endpoint", "update", "-n", "iris")

	_, note = y.run(1, "online-endpoint", "show", "-n", "iris", "--local")
	has(t, note, "no local online endpoint")
	_, note = y.run(2, "online-endpoint", "delete", "-n", "iris")
	has(t, note, "--yes")
	y.run(0, "online-endpoint", "delete", "-n", "other", "--local", "--yes")
	y.is("iris", "online-endpoint", "list", "--query", "[].name", "-o", "tsv")
	_, note = y.run(1, "online-endpoint", "create", "-n", "x")
	has(t, note, "3 to 32 letters", `--name "x": `)
	_, note = y.run(1, "online-endpoint", "create", "-n", "abc", "--set", "auth_mode=none")
	has(t, note, `--set auth_mode=none: `)
}

func TestDeploymentsFromTheCommandLine(t *testing.T) {
	y := newYard(t)
	y.files()
	y.run(0, "online-endpoint", "create", "--name", "iris")
	_, note := y.run(2, "online-deployment", "create", "-f", "blue.yml")
	has(t, note, "has no endpoint")
	_, note = y.run(1, "online-deployment", "create", "-f", "blue.yml", "-e", "none")
	has(t, note, `"none" does not exist`)
	out, note := y.run(0, "online-deployment", "create", "-f", "blue.yml", "--endpoint", "iris", "--all-traffic")
	has(t, note, "blue serves under iris")
	var e map[string]any
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if e["type"] != "managed" || e["endpoint_name"] != "iris" || e["instance_count"] != 2.0 || asMap(e["request_settings"])["request_timeout_ms"] != 3000.0 ||
		asMap(e["liveness_probe"])["initial_delay"] != 10.0 || asMap(e["scale_settings"])["type"] != "default" || text(e, "code_configuration", "scoring_script") != "score.py" {
		t.Errorf("%s", out)
	}
	model := text(e, "model")
	if !strings.HasPrefix(model, "azureml:"+anonymousModel+":") || !strings.HasPrefix(text(e, "environment"), "azureml:"+trainyard.AnonymousEnvironment) {
		t.Errorf("model %s, environment %s", model, text(e, "environment"))
	}
	y.is("100", "online-endpoint", "show", "-n", "iris", "--query", "traffic.blue", "-o", "tsv")
	y.is("", "model", "list", "--query", "[].name", "-o", "tsv") // what has no name is not listed

	y.is("3", "online-deployment", "update", "-n", "blue", "-e", "iris", "--instance-count", "3", "--query", "instance_count", "-o", "tsv")
	y.is("4\n3000\nscore.py", "online-deployment", "update", "-n", "blue", "-e", "iris", "--set", "request_settings.max_concurrent_requests_per_instance=4", "tags.x=y",
		"--query", "[request_settings.max_concurrent_requests_per_instance, request_settings.request_timeout_ms, code_configuration.scoring_script]", "-o", "tsv")
	y.write("src2/main.py", "def run(data): return 2\n")
	y.is("main.py\nmanaged\ny", "online-deployment", "update", "-n", "blue", "-e", "iris", "--set", "code_configuration.code=src2", "code_configuration.scoring_script=main.py",
		"--query", "[code_configuration.scoring_script, type, tags.x]", "-o", "tsv")
	y.is("3", "online-deployment", "show", "-n", "blue", "-e", "iris", "--query", "instance_count", "-o", "tsv")
	y.run(2, "online-deployment", "update", "-n", "blue", "-e", "iris")

	out, _ = y.run(0, "online-deployment", "list", "-e", "iris", "-o", "table")
	has(t, out, "blue", "Succeeded", "0/3")
	out, _ = y.run(0, "online-deployment", "get-logs", "-n", "blue", "-e", "iris", "--lines", "2")
	if out != "loading the model\nserving\n" {
		t.Errorf("logs %q", out)
	}
	y.run(0, "online-deployment", "create", "-f", "blue.yml", "-e", "iris", "-n", "here", "--local")
	y.is("here", "online-deployment", "list", "-e", "iris", "--local", "--query", "[].name", "-o", "tsv")
	y.run(1, "online-deployment", "show", "-n", "blue", "-e", "iris", "--local")
	_, note = y.run(1, "online-deployment", "delete", "-n", "blue", "-e", "iris", "--yes")
	has(t, note, "100 % of the traffic")
	y.run(0, "online-deployment", "delete", "-n", "here", "--endpoint", "iris", "--yes")
	y.is("blue", "online-deployment", "list", "-e", "iris", "--query", "[].name", "-o", "tsv")
}

func TestADeploymentThatFailsSaysWhyWithItsLog(t *testing.T) {
	y := newYard(t)
	y.files()
	y.ctl.Quick = false
	y.run(0, "online-endpoint", "create", "--name", "iris")
	looks := 0
	y.asked = func(r *http.Request) {
		if strings.Contains(r.URL.Path, "mfeOperationsStatus") {
			if looks++; looks > 1 {
				y.ctl.EditDeployment(trainyard.DefaultScope(), "iris", "blue", func(d *trainyard.OnlineDeployment) {
					d.Status.State, d.Status.Reason = trainyard.DeploymentFailed, trainyard.Reason{Code: "ModelNotLoaded", Message: "init() of score.py raised KeyError"}
					d.Status.Warnings = []string{"the image is not used"}
				})
			}
		}
	}
	_, note := y.run(1, "online-deployment", "create", "-f", "blue.yml", "-e", "iris", "--all-traffic")
	at := 0
	for _, want := range []string{"Creating   0 of 1 replicas are ready", "blue does not serve", "warning: the image is not used", "| loading the model", "error: init() of score.py raised KeyError"} {
		i := strings.Index(note[at:], want)
		if i < 0 {
			t.Fatalf("no %q, in its place, in\n%s", want, note)
		}
		at += i
	}
	y.is("0", "online-endpoint", "show", "-n", "iris", "--query", "length(traffic)", "-o", "tsv")
	_, note = y.run(0, "online-deployment", "create", "-f", "blue.yml", "-e", "iris", "--no-wait", "--all-traffic")
	has(t, note, "--all-traffic is not carried out with --no-wait")
}

func TestTheAddressBelowWhichAnEndpointIsAsked(t *testing.T) {
	for uri, want := range map[string]string{"https://h:1/endpoints/iris/score": "https://h:1/endpoints/iris/", "https://h:1/endpoints/vision/": "https://h:1/endpoints/vision/"} {
		if got := address(map[string]any{"scoring_uri": uri}); got != want {
			t.Errorf("of %s: %s", uri, got)
		}
	}
}

func TestInvoke(t *testing.T) {
	y := newYard(t)
	y.files()
	y.run(0, "online-endpoint", "create", "--name", "iris")
	y.write("in.json", `{"data":[1]}`)
	y.score = func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.URL.Path+" "+r.Header.Get("Authorization")+" "+r.Header.Get("azureml-model-deployment")+" "+r.Header.Get("Content-Type")+" "+string(body))
	}
	y.is(`/endpoints/iris/score Bearer first  application/json {"data":[1]}`, "online-endpoint", "invoke", "-n", "iris", "--request-file", "in.json")
	y.is(`/endpoints/iris/score Bearer first green text/csv {"data":[1]}`, "online-endpoint", "invoke", "-n", "iris", "-r", "in.json", "--deployment", "green", "--content-type", "text/csv")
	y.is(`/endpoints/iris/v2/models/a/infer Bearer first  application/json {"data":[1]}`, "online-endpoint", "invoke", "-n", "iris", "-r", "in.json", "--path", "/v2/models/a/infer")
	_, note := y.run(1, "online-endpoint", "invoke", "-n", "iris", "-r", "in.json", "--local")
	has(t, note, "no local deployment")
	y.run(0, "online-deployment", "create", "-f", "blue.yml", "-e", "iris", "--local")
	y.is(`/endpoints/iris/score Bearer first blue application/json {"data":[1]}`, "online-endpoint", "invoke", "-n", "iris", "-r", "in.json", "--local")
	_, note = y.run(2, "online-endpoint", "invoke", "-n", "iris")
	has(t, note, "--request-file FILE")

	y.score = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ms-azureml-model-error-reason", "model_error")
		w.Header().Set("ms-azureml-model-error-statuscode", "500")
		w.WriteHeader(http.StatusFailedDependency)
		_, _ = io.WriteString(w, "KeyError: 'data'")
	}
	out, note := y.run(1, "online-endpoint", "invoke", "-n", "iris", "-r", "in.json")
	has(t, note, "424", "model_error", "KeyError: 'data'")
	if out != "" {
		t.Errorf("standard output has %q", out)
	}
	_, note = y.run(1, "online-endpoint", "invoke", "-n", "iris", "-r", "none.json")
	has(t, note, "there is no file none.json")
	y.score = func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }
	_, note = y.run(1, "online-endpoint", "invoke", "-n", "iris", "-r", "in.json")
	has(t, note, "the gateway does not answer at http://127.0.0.1")
}

func TestModelsFromTheCommandLine(t *testing.T) {
	y := newYard(t)
	y.write("m/MLmodel", "flavors:\n  sklearn: {pickled_model: model.pkl}\n")
	y.write("m/model.pkl", "pickle")
	y.is("1\nmlflow_model\nmodel.pkl", "model", "create", "--name", "iris", "--path", "m", "--type", "mlflow_model", "--tags", "stage=gold",
		"--query", "[version, type, flavors.sklearn.data.pickled_model]", "-o", "tsv")
	if len(y.blobs) != 2 {
		t.Errorf("%d files uploaded", len(y.blobs))
	}
	y.is("2\nruns:/j/model", "model", "create", "-n", "iris", "--path", "runs:/j/model", "--query", "[version, path]", "-o", "tsv")
	y.write("model.yml", "$schema: https://azuremlschemas.azureedge.net/latest/model.schema.json\nname: iris\nversion: 7\npath: azureml://jobs/j/outputs/model/paths/\njob_name: j\n")
	y.is("7\nj", "model", "create", "-f", "model.yml", "--set", "description=third", "--query", "[version, job_name]", "-o", "tsv")
	y.is("7", "model", "show", "iris@latest", "--query", "version", "-o", "tsv")
	y.is("1\n2\n7", "model", "list", "-n", "iris", "--query", "[].version", "-o", "tsv")
	y.is("iris", "model", "list", "--query", "[].name", "-o", "tsv")
	y.run(0, "model", "archive", "-n", "iris", "-v", "2")
	y.is("1\n7", "model", "list", "-n", "iris", "--query", "[].version", "-o", "tsv")
	y.is("2", "model", "list", "-n", "iris", "--archived-only", "--query", "[].version", "-o", "tsv")
	y.run(0, "model", "restore", "-n", "iris", "-v", "2")
	y.is("silver", "model", "update", "iris:1", "--set", "tags.stage=silver", "--query", "tags.stage", "-o", "tsv")
	_, note := y.run(1, "model", "create", "-n", "iris", "--path", "m", "--type", "sklearn")
	has(t, note, "custom_model, mlflow_model, triton_model")
	a, out, _ := people(100)
	a.modelView().detail(map[string]any{"name": "iris", "version": "1", "job_name": "calm_river_7", "flavors": map[string]any{"sklearn": 1}})
	has(t, out.String(), "made by job", "trainyard job show --name calm_river_7", "model: azureml:iris:1")
}

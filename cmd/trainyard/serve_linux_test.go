package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"github.com/trainyard/trainyard/internal/gpu/gputest"
)

// scoreScript answers with what it was made of, so that a test sees which replica of which deployment answered.
const scoreScript = `
import json, os, time

def init():
    global weights, version
    if os.environ.get("BROKEN"):
        raise RuntimeError("the weights are of another shape")
    version = os.environ["VERSION"]
    with open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model.json")) as f:
        weights = json.load(f)
    print("loaded version " + version)

def run(data):
    rows = json.loads(data)["data"]
    return {"version": version, "pid": os.getpid(), "result": [sum(w * x for w, x in zip(weights, row)) for row in rows]}
`

// serveLab is a server with an endpoint, and a second gateway that is a process of its own.
type serveLab struct {
	*lab
	gateway string // URL of the gateway inside the server
	key     string
}

func newServeLab(t *testing.T, vars ...string) *serveLab {
	t.Helper()
	l := &serveLab{lab: newLabWith(t, "", vars...)}
	l.file("src/score.py", scoreScript)
	l.file("model.json", "[1, 2, 3]")
	l.cli("online-endpoint", "create", "-n", "sums", "-o", "none")
	l.gateway = strings.TrimSuffix(l.cli("online-endpoint", "show", "-n", "sums", "--query", "scoring_uri", "-o", "tsv"), "/endpoints/sums/score")
	l.key = l.cli("online-endpoint", "get-credentials", "-n", "sums", "--query", "primaryKey", "-o", "tsv")
	return l
}

// deployment writes a deployment's file; more are lines to add to it.
func (l *serveLab) deployment(name, version string, instances int, more ...string) string {
	l.t.Helper()
	return l.file(name+"-"+version+".yml", fmt.Sprintf(`
$schema: https://azuremlschemas.azureedge.net/latest/managedOnlineDeployment.schema.json
name: %s
endpoint_name: sums
model: {path: model.json}
code_configuration: {code: src, scoring_script: score.py}
environment:
  image: python:3.11
  conda_file: {dependencies: [python, pip, {pip: [azureml-inference-server-http]}]}
instance_type: Standard_F2s_v2
instance_count: %d
request_settings: {max_concurrent_requests_per_instance: 64, request_timeout_ms: 60000, max_queue_wait_ms: 30000}
environment_variables: {VERSION: %q}
%s
`, name, instances, version, strings.Join(more, "\n")))
}

type scored struct {
	Version string    `json:"version"`
	PID     int       `json:"pid"`
	Result  []float64 `json:"result"`
}

// score asks for a prediction and returns the status, the answer and its text.
func (l *serveLab) score(base, deployment string) (int, scored, string) {
	l.t.Helper()
	req, err := http.NewRequest(http.MethodPost, base+"/endpoints/sums/score", strings.NewReader(`{"data": [[1, 1, 1], [0, 0, 2]]}`))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+l.key)
	req.Header.Set("Content-Type", "application/json")
	if deployment != "" {
		req.Header.Set("azureml-model-deployment", deployment)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	var s scored
	_ = json.Unmarshal(text, &s)
	return res.StatusCode, s, string(text)
}

// load is requests at a steady rate until it is stopped.
type load struct {
	t        *testing.T
	attacker *vegeta.Attacker
	metrics  vegeta.Metrics
	versions map[string]int
	bad      []string
	done     chan struct{}
}

func (l *serveLab) load(base string, rate int) *load {
	l.t.Helper()
	target := vegeta.NewStaticTargeter(vegeta.Target{Method: http.MethodPost, URL: base + "/endpoints/sums/score", Body: []byte(`{"data": [[1, 1, 1], [0, 0, 2]]}`),
		Header: http.Header{"Authorization": {"Bearer " + l.key}, "Content-Type": {"application/json"}}})
	a := &load{t: l.t, attacker: vegeta.NewAttacker(vegeta.Timeout(90 * time.Second)), versions: map[string]int{}, done: make(chan struct{})}
	results := a.attacker.Attack(target, vegeta.Rate{Freq: rate, Per: time.Second}, 0, "load")
	go func() {
		defer close(a.done)
		for r := range results {
			a.metrics.Add(r)
			var s scored
			if r.Code != 200 || json.Unmarshal(r.Body, &s) != nil || !slices.Equal(s.Result, []float64{6, 6}) {
				a.bad = append(a.bad, fmt.Sprintf("%d after %s: %s %s", r.Code, r.Latency, r.Error, r.Body))
			}
			a.versions[s.Version]++
		}
	}()
	return a
}

// stop ends the load and fails the test if one request did.
func (a *load) stop() map[string]int {
	a.t.Helper()
	a.attacker.Stop()
	<-a.done
	a.metrics.Close()
	if len(a.bad) > 0 {
		a.t.Errorf("%d of %d requests failed: %s", len(a.bad), a.metrics.Requests, strings.Join(a.bad[:min(5, len(a.bad))], "; "))
	}
	if a.metrics.Requests == 0 {
		a.t.Error("no request was sent")
	}
	a.t.Logf("%d requests, mean %s, p99 %s, answered by %v", a.metrics.Requests, a.metrics.Latencies.Mean, a.metrics.Latencies.P99, a.versions)
	return a.versions
}

// startGateway starts a gateway of its own and returns its URL.
func (l *serveLab) startGateway() string {
	l.t.Helper()
	addr := freeAddr(l.t)
	cmd := exec.Command(l.bin, "gateway", "--listen", addr, "--data", filepath.Join(filepath.Dir(l.data), "gateway"))
	cmd.Env = l.env()
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if l.t.Failed() {
			l.t.Logf("gateway's log:\n%s", tailOf(log.String(), 3000))
		}
	})
	if _, err := out.Read(make([]byte, 512)); err != nil {
		l.t.Fatalf("the gateway did not start: %s", &log)
	}
	l.wait("the gateway knows the endpoint", func() bool {
		status, _, _ := l.score("http://"+addr, "")
		return status == 200
	})
	return "http://" + addr
}

// A model that is served stays served whatever happens to what is around it. The parts share a server because each environment takes a
// while to build.
func TestAModelIsServed(t *testing.T) {
	l := newServeLab(t)
	l.cli("online-deployment", "create", "--all-traffic", "-o", "none", "-f", l.deployment("blue", "one", 2))

	t.Run("to who has a key", func(t *testing.T) {
		l := &serveLab{l.in(t), l.gateway, l.key}
		status, got, text := l.score(l.gateway, "")
		if status != 200 || got.Version != "one" || !slices.Equal(got.Result, []float64{6, 6}) {
			t.Errorf("%d %s", status, text)
		}
		if status, _, text := (&serveLab{l.lab, l.gateway, "wrong"}).score(l.gateway, ""); status != 401 {
			t.Errorf("with a wrong key: %d %s", status, text)
		}
		if status, _, text := l.score(l.gateway, "no-such"); status != 404 {
			t.Errorf("of a deployment that is not there: %d %s", status, text)
		}
		if out := l.cli("online-endpoint", "invoke", "-n", "sums", "--request-file", l.file("request.json", `{"data": [[1, 1, 1]]}`)); !strings.Contains(out, `"result": [6]`) && !strings.Contains(out, `"result":[6]`) {
			t.Errorf("invoke printed %s", out)
		}
		if out := l.cli("online-deployment", "get-logs", "-n", "blue", "--endpoint-name", "sums"); !strings.Contains(out, "loaded version one") {
			t.Errorf("the log is %s", out)
		}
		if out := l.cli("job", "list", "-o", "tsv"); out != "" {
			t.Errorf("replicas stand among jobs: %s", out)
		}
		if out, err := l.try("online-deployment", "delete", "-n", "blue", "--endpoint-name", "sums", "-y"); err == nil || !strings.Contains(out, "100 percent of the traffic") {
			t.Errorf("a deployment with traffic was deleted, or the refusal does not say why: %s", out)
		}
	})

	t.Run("while it is updated, and when the update is broken", func(t *testing.T) {
		l := &serveLab{l.in(t), l.gateway, l.key}
		a := l.load(l.gateway, 30)
		l.cli("online-deployment", "update", "-o", "none", "-f", l.deployment("blue", "two", 2))
		l.wait("version two answers", func() bool { _, got, _ := l.score(l.gateway, ""); return got.Version == "two" })
		out, err := l.try("online-deployment", "update", "-o", "none", "-f", l.deployment("blue", "three", 2, `tags: {broken: "yes"}`, "")+"")
		if err != nil {
			t.Errorf("the third version: %s", out)
		}
		broken := l.file("broken.yml", strings.Replace(readText(t, l.deployment("blue", "four", 2)), "VERSION:", `BROKEN: "1", VERSION:`, 1))
		if out, err = l.try("online-deployment", "update", "-o", "none", "-f", broken); err == nil || !strings.Contains(out, "the weights are of another shape") {
			t.Errorf("a model that does not load is not said to, or not why: %s", out)
		}
		versions := a.stop()
		if versions["one"] == 0 || versions["two"] == 0 || versions["four"] != 0 {
			t.Errorf("answered by %v", versions)
		}
		if _, got, text := l.score(l.gateway, ""); got.Version != "three" {
			t.Errorf("after the broken update: %s", text)
		}
	})

	t.Run("while its replicas are killed", func(t *testing.T) {
		l := &serveLab{l.in(t), l.gateway, l.key}
		a := l.load(l.gateway, 20)
		for i := range 5 {
			var pid int
			l.wait("a replica answers", func() bool { _, got, _ := l.score(l.gateway, ""); pid = got.PID; return pid != 0 })
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil { // a worker; its master starts another, or ends
				t.Fatal(err)
			}
			if parent := l.processes("launch.py"); i%2 == 1 && len(parent) > 0 { // and now and then the whole server
				_ = syscall.Kill(parent[0], syscall.SIGKILL)
			}
			<-time.After(2 * time.Second)
		}
		a.stop()
	})

	t.Run("while the server is away, by a gateway of its own", func(t *testing.T) {
		whole := l
		l := &serveLab{l.in(t), l.gateway, l.key}
		other := l.startGateway()
		a := l.load(other, 20)
		<-time.After(time.Second)
		l.kill()
		<-time.After(2 * time.Second)
		l.start()
		whole.cmd, whole.out, whole.errout = l.cmd, l.out, l.errout
		l.wait("the gateway inside answers again", func() bool { status, _, _ := l.score(l.gateway, ""); return status == 200 })
		<-time.After(time.Second)
		a.stop()
	})
}

// Blue and green share the traffic to the percent, and what is mirrored is seen by nobody.
func TestTrafficIsSplitAndMirrored(t *testing.T) {
	l := newServeLab(t)
	l.cli("online-deployment", "create", "--all-traffic", "--local", "-o", "none", "-f", l.deployment("blue", "blue", 1))
	l.cli("online-deployment", "create", "--local", "-o", "none", "-f", l.deployment("green", "green", 1))
	l.cli("online-endpoint", "update", "-n", "sums", "--traffic", "blue=90 green=10", "-o", "none")
	count := func() map[string]int {
		out := map[string]int{}
		for range 100 {
			status, got, text := l.score(l.gateway, "")
			if status != 200 {
				t.Fatalf("%d %s", status, text)
			}
			out[got.Version]++
		}
		return out
	}
	l.wait("the gateway knows of the split", func() bool { return count()["green"] > 0 })
	if got := count(); got["blue"] != 90 || got["green"] != 10 {
		t.Errorf("of 100 requests %v", got)
	}
	if _, got, _ := l.score(l.gateway, "green"); got.Version != "green" {
		t.Errorf("the header does not choose: %+v", got)
	}
	if out, err := l.try("online-endpoint", "update", "-n", "sums", "--traffic", "blue=90 green=20"); err == nil || !strings.Contains(out, "110 percent") {
		t.Errorf("traffic of 110 percent: %s", out)
	}
	l.cli("online-endpoint", "update", "-n", "sums", "--traffic", "blue=100 green=0", "-o", "none")
	l.cli("online-endpoint", "update", "-n", "sums", "--mirror-traffic", "green=50", "-o", "none")
	mirrored := func() int {
		res, err := http.Get(l.gateway + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		n := 0
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "mirror") && strings.Contains(line, `deployment="green"`) && !strings.HasPrefix(line, "#") && !strings.Contains(line, "dropped") {
				f := strings.Fields(line)
				v, _ := strconv.ParseFloat(f[len(f)-1], 64)
				n = max(n, int(v))
			}
		}
		return n
	}
	l.wait("requests are mirrored", func() bool {
		if got := count(); got["green"] != 0 {
			return false // the gateway does not know yet
		}
		return mirrored() > 0
	})
}

// A deployment that nobody asks has no replica; the request that comes then is held until there is one, and never failed. The number of
// cycles is 3, or what TRAINYARD_TEST_CYCLES says.
func TestADeploymentGoesToZeroAndComesBack(t *testing.T) {
	cycles := 3
	if n, err := strconv.Atoi(os.Getenv("TRAINYARD_TEST_CYCLES")); err == nil {
		cycles = n
	}
	smi := gputest.New(t)
	smi.Set("10", "0")
	l := newServeLab(t, "PATH="+smi.Path())
	l.cli("online-deployment", "create", "--all-traffic", "-o", "none", "-f", l.deployment("blue", "one", 1,
		"scale_settings: {type: target_utilization, min_instances: 0, max_instances: 2, scale_to_zero_after: 1, panic_window: 1, stable_window: 1}"))
	for i := range cycles {
		deadline := time.After(time.Minute)
		for l.cli("online-deployment", "show", "-n", "blue", "--endpoint-name", "sums", "--query", "length(replicas || `[]`)", "-o", "tsv") != "0" {
			select {
			case <-deadline:
				t.Fatalf("cycle %d: it does not go to zero: %s", i, l.cli("online-deployment", "show", "-n", "blue", "--endpoint-name", "sums"))
			case <-time.After(100 * time.Millisecond):
			}
		}
		if status, got, text := l.score(l.gateway, ""); status != 200 || got.Version != "one" {
			t.Fatalf("cycle %d: %d %s", i, status, text)
		}
		if i%10 == 9 {
			t.Logf("%d cycles", i+1)
		}
	}
	t.Run("and another to as many as its GPUs want", func(t *testing.T) { (&serveLab{l.in(t), l.gateway, l.key}).scalesByGPU(smi) })
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// endpoint is the name of the place's endpoint of its model.
func (p *servePlace) endpoint() string {
	return p.model.name + "-" + strings.ReplaceAll(p.name, " ", "-")
}

// title tells places of the same kind apart.
func (p *servePlace) title() string {
	if p.model == wine {
		return p.name
	}
	return p.model.name + " " + p.name
}

// deploy creates or updates the model's deployment.
func (p *servePlace) deploy(verb, endpoint string, more ...string) (string, error) {
	args := append([]string{"online-deployment", verb, "-f", p.model.files + "/deployment.yml", "-e", endpoint, "-o", "none"}, p.args...)
	return p.try(append(args, more...)...)
}

// must deploys what has to work.
func (p *servePlace) must(verb, endpoint string, more ...string) {
	p.t.Helper()
	if out, err := p.deploy(verb, endpoint, more...); err != nil {
		p.t.Fatalf("%s under %s: %v\n%s", verb, endpoint, err, out)
	}
}

// door is where an endpoint's model answers, and its key.
func (p *servePlace) door(endpoint string) (url, key string) {
	p.t.Helper()
	uri := p.cli("online-endpoint", "show", "-n", endpoint, "--query", "scoring_uri", "-o", "tsv")
	return uri[:strings.LastIndexByte(uri, '/')+1] + p.model.path, p.cli("online-endpoint", "get-credentials", "-n", endpoint, "--query", "primaryKey", "-o", "tsv")
}

// post sends a request and returns what came back.
func post(t *testing.T, url, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

// same fails the test if two JSON texts differ in what they say.
func (l *lab) same(got, want string) {
	l.t.Helper()
	var a, b any
	if json.Unmarshal([]byte(got), &a) != nil || json.Unmarshal([]byte(want), &b) != nil || !reflect.DeepEqual(a, b) {
		l.t.Errorf("the answer is %s, want %s", got, want)
	}
}

func (p *servePlace) request() string { return readText(p.t, p.model.request) }

func checkServes(p *servePlace) {
	p.cli("online-endpoint", "create", "-f", servingFiles+"/endpoint.yml", "-n", p.endpoint(), "-o", "none")
	p.must("create", p.endpoint(), "--all-traffic")
	p.same(p.cli("online-endpoint", "invoke", "-n", p.endpoint(), "--request-file", p.model.request), p.plain)
}

func checkLog(p *servePlace) {
	p.wait("the log has the words of the script", func() bool {
		return strings.Contains(p.cli("online-deployment", "get-logs", "-n", p.model.deployment, "-e", p.endpoint(), "--lines", "500"), p.model.says)
	})
}

func checkMLflow(p *servePlace) {
	e := "mlflow-" + strings.ReplaceAll(p.name, " ", "-")
	p.cli("online-endpoint", "create", "-f", servingFiles+"/endpoint.yml", "-n", e, "-o", "none")
	p.must("create", e, "--all-traffic", "--set", "model=azureml:wine-mlflow@latest", "--set", "code_configuration=null", "--set", "environment.conda_file=null")
	var in, want struct {
		Data     any
		Cultivar any
	}
	if err := json.Unmarshal([]byte(p.request()), &in); err != nil {
		p.t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(p.plain), &want); err != nil {
		p.t.Fatal(err)
	}
	body, _ := json.Marshal(map[string]any{"input_data": in.Data})
	answer, _ := json.Marshal(want.Cultivar)
	url, key := p.door(e)
	_, got := post(p.t, url, key, string(body))
	p.same(got, string(answer))
	p.cli("online-endpoint", "delete", "-n", e, "-y", "-o", "none")
}

// second is the model's second version. The demo's has a script that collects what it is asked, with Azure's own package, in the environment
// that its MLflow model was served in.
func (p *servePlace) second() []string {
	p.t.Helper()
	sets := []string{"--set", "environment_variables.VERSION=two"}
	switch p.model {
	case torch:
		return sets
	case triton:
		return append(sets, "--set", "model=azureml:triton-more@latest")
	}
	dir := p.t.TempDir()
	p.cli("model", "download", "-n", "wine-mlflow", "-l", "latest", "-p", dir)
	file := ""
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "conda.yaml" {
			file = path
		}
		return err
	})
	if file == "" {
		p.t.Fatal("the MLflow model has no conda.yaml")
	}
	conda := regexp.MustCompile(`(python=+\d+\.\d+)\.\d+`).ReplaceAllString(readText(p.t, file), "$1") // as it was served
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(conda, "python==", "python=")), 0o644); err != nil {
		p.t.Fatal(err)
	}
	code, err := filepath.Abs("testdata/serving/collecting/src")
	if err != nil {
		p.t.Fatal(err)
	}
	return append(sets, "--set", "code_configuration.code="+code, "--set", "environment.conda_file="+file, "--set", "data_collector.collections.inputs.enabled=true")
}

func checkUpdate(p *servePlace) {
	url, key := p.door(p.endpoint())
	stop, done := make(chan struct{}), make(chan struct{})
	sent, bad := 0, []string(nil)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			sent++
			if status, text := post(p.t, url, key, p.request()); status != http.StatusOK {
				bad = append(bad, fmt.Sprintf("%d %s", status, text))
			}
		}
	}()
	p.must("update", p.endpoint(), p.second()...)
	<-time.After(time.Second)
	close(stop)
	<-done
	if len(bad) > 0 || sent == 0 {
		p.t.Errorf("%d of %d requests failed: %s", len(bad), sent, strings.Join(bad[:min(3, len(bad))], "; "))
	}
	if g := p.cli("online-deployment", "show", "-n", p.model.deployment, "-e", p.endpoint(), "--query", "replicas[?state=='Ready'].generation", "-o", "tsv"); g != "2" {
		p.t.Errorf("replicas of generation %q serve", g)
	}
}

// checkCollected finds the rows of the requests that the second version got while it was asked.
func checkCollected(p *servePlace) {
	var asked struct{ Data [][]float64 }
	if err := json.Unmarshal([]byte(p.request()), &asked); err != nil {
		p.t.Fatal(err)
	}
	var rows []collectedRow
	p.wait("rows are in the datastore", func() bool {
		rows = p.collected(p.endpoint(), p.model.deployment, "inputs")
		return len(rows) > 0
	})
	for _, row := range rows {
		if !strings.HasPrefix(row.Agent, "azureml-ai-monitoring/") || len(row.Data) != len(asked.Data) || row.Data[0]["0"] != asked.Data[0][0] {
			p.t.Fatalf("a row is %+v, want the data of %v", row, asked.Data)
		}
	}
}

func checkBroken(p *servePlace) {
	model, says := "broken", []string{"Traceback", "joblib"}
	if p.model == triton {
		model, says = "triton-broken", []string{"failed to load 'halves' version 1: Internal: JSONDecodeError", "The end of its log:", "model.py(12): initialize"}
	}
	out, err := p.deploy("update", p.endpoint(), "--set", "model=azureml:"+model+"@latest")
	if err == nil || slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(out, s) }) {
		p.t.Errorf("a model that does not load is not said to, or not why: %v %s", err, out)
	}
	url, key := p.door(p.endpoint())
	_, got := post(p.t, url, key, p.request())
	p.same(got, p.plain)
}

func checkScale(p *servePlace) {
	p.must("update", p.endpoint(), "--set", "environment_variables.VERSION=two", "--instance-count", "2")
	if n := len(p.replicas()); n != 2 {
		p.t.Errorf("%d replicas are ready", n)
	}
	p.must("update", p.endpoint(), "--set", "environment_variables.VERSION=two", "--instance-count", "1")
}

// replicas are the names of those that are ready, with their addresses.
func (p *servePlace) replicas() map[string]string {
	p.t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(p.cli("online-deployment", "show", "-n", p.model.deployment, "-e", p.endpoint(), "--query", "replicas[?state=='Ready'].[name, address]", "-o", "tsv")) {
		f := strings.Fields(line)
		out[f[0]] = f[len(f)-1]
	}
	return out
}

// processesOf are those of a replica on this computer, in whichever container or machine they are.
func processesOf(replica string) (out []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != os.Getpid() && slices.Contains(strings.Split(readFile("/proc/"+e.Name()+"/environ"), "\x00"), "AZUREML_RUN_ID="+replica) {
			out = append(out, pid)
		}
	}
	return out
}

func checkKilled(p *servePlace) {
	p.wait("one replica is ready", func() bool { return len(p.replicas()) == 1 })
	var old []int
	for name := range p.replicas() {
		old = processesOf(name)
	}
	if len(old) == 0 {
		p.t.Fatal("the replica has no process")
	}
	for _, pid := range old {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	url, key := p.door(p.endpoint())
	p.wait("another replica answers", func() bool {
		status, text := post(p.t, url, key, p.request())
		if status == http.StatusOK {
			p.same(text, p.plain)
		}
		return status == http.StatusOK
	})
}

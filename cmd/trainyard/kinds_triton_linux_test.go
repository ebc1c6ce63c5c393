package main

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
	"github.com/trainyard/trainyard/internal/modelserver"
)

// tritonFiles is where the third model and its deployment are. Its numbers are halved, so what it answers is known.
const tritonFiles = "testdata/serving/triton"

const tritonPlain = `{"model_name": "halves", "model_version": "1", "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [0.5, 1.0, 1.5, 2.0, 2.5, 3.5]}]}`

// addTriton adds the kinds that serve the third model; each has an engine, as for the second. The managed one names no environment, as
// Azure's example of Triton does; the image that it then gets is the test's own by another name.
func (s *servedLab) addTriton(t *testing.T, kube *servedLab, host, image string) {
	t.Helper()
	usual := modelserver.TritonEnvironment().Image
	docker := func(args ...string) {
		if out, err := exec.Command("docker", append([]string{"--host", host}, args...)...).CombinedOutput(); err != nil {
			t.Errorf("docker %v: %v: %s", args, err, out)
		}
	}
	docker("tag", image, usual)
	t.Cleanup(func() { docker("rmi", usual) })
	s.bringTriton()
	s.add("local", tritonPlain, "--local").model = triton
	s.add("managed", tritonPlain, "--set", "environment=null").model = triton
	if sshtest.Missing() == "" {
		s.addMachine(s.engined(t), tritonPlain).model = triton
	}
	s.add("container instance", tritonPlain, "--set", "type=container_instance").model = triton
	if kube != nil {
		kube.bringTriton()
		kube.addKubernetes(tritonPlain).model = triton
	}
}

// bringTriton registers the third model, what it is updated to, and one that does not load.
func (s *servedLab) bringTriton() {
	l := s.lab
	l.t.Helper()
	dir := filepath.Join(filepath.Dir(l.data), "triton")
	for name, from := range map[string][]string{"triton": {"models"}, "triton-more": {"models", "more"}, "triton-broken": {"models"}} {
		to := filepath.Join(dir, name)
		for _, f := range from {
			if err := os.CopyFS(to, os.DirFS(filepath.Join(tritonFiles, f))); err != nil {
				l.t.Fatal(err)
			}
		}
		if name == "triton-broken" {
			l.file("triton/triton-broken/halves/1/factor.json", "half\n")
		}
		l.cli("model", "create", "-n", name, "--type", "triton_model", "--path", to, "-o", "none")
	}
}

// tritonDoor is where an endpoint answers, below which Triton's paths are, and its key.
type tritonDoor struct{ url, key string }

func (p *servePlace) tritonDoor() tritonDoor {
	p.t.Helper()
	url, key := p.door(p.endpoint())
	return tritonDoor{strings.TrimSuffix(url, p.model.path), key}
}

// call sends a request.
func (d tritonDoor) call(t *testing.T, method, path string, body []byte, header map[string]string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.key)
	for name, value := range header {
		req.Header.Set(name, value)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, text
}

func checkProtocol(p *servePlace) {
	if uri := p.cli("online-endpoint", "show", "-n", p.endpoint(), "--query", "scoring_uri", "-o", "tsv"); !strings.HasSuffix(uri, "/endpoints/"+p.endpoint()+"/") {
		p.t.Errorf("the scoring URI is %s, and Triton's clients add their paths to it", uri)
	}
	p.same(p.cli("online-endpoint", "invoke", "-n", p.endpoint(), "--request-file", p.model.request, "--path", "v2/models/halves/versions/1/infer"), p.plain)
	d := p.tritonDoor()
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "v2/health/ready", "", 200, ""},
		{"GET", "v2/models/halves/ready", "", 200, ""},
		{"GET", "v2", "", 200, `"binary_tensor_data"`},
		{"GET", "v2/models/halves", "", 200, `"inputs":[{"name":"x","datatype":"FP32","shape":[-1,-1]}]`},
		{"POST", "v2/models/halves/infer", `{"inputs": [{"name": "x", "shape": [9, 1], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6, 7, 8, 9]}]}`, 400, "batch-size must be <= 8"},
		{"POST", "v2/models/thirds/infer", "{}", 404, "unknown model"},
	} {
		res, text := d.call(p.t, c.method, c.path, []byte(c.body), nil)
		status := res.StatusCode
		if status == http.StatusFailedDependency { // as of every managed endpoint whose model does not say yes
			status, _ = strconv.Atoi(res.Header.Get("ms-azureml-model-error-statuscode"))
		}
		if status != c.status || !strings.Contains(string(text), c.says) {
			p.t.Errorf("%s: %d %s, want %d", c.path, res.StatusCode, text, c.status)
		}
	}
	d.key = "wrong"
	if res, text := d.call(p.t, "GET", "v2/models/halves", nil, nil); res.StatusCode != http.StatusUnauthorized {
		p.t.Errorf("with a wrong key: %d %s", res.StatusCode, text)
	}
	p.halved(6)
}

func checkLarge(p *servePlace) { p.halved(9 << 20) }

// halved sends so many numbers as bytes and looks at those that come back: Triton's extension for binary data, whose header says how long
// the JSON before them is.
func (p *servePlace) halved(n int) {
	p.t.Helper()
	body := fmt.Appendf(nil, `{"inputs":[{"name":"x","shape":[1,%d],"datatype":"FP32","parameters":{"binary_data_size":%d}}],"outputs":[{"name":"y","parameters":{"binary_data":true}}]}`, n, 4*n)
	header := map[string]string{"Inference-Header-Content-Length": strconv.Itoa(len(body)), "Content-Type": "application/octet-stream"}
	sent := make([]float32, n)
	for i := range sent {
		sent[i] = float32(i % 1000)
	}
	body, err := binary.Append(body, binary.LittleEndian, sent)
	if err != nil {
		p.t.Fatal(err)
	}
	res, text := p.tritonDoor().call(p.t, "POST", p.model.path, body, header)
	head, err := strconv.Atoi(res.Header.Get("Inference-Header-Content-Length"))
	if res.StatusCode != http.StatusOK || err != nil || head > len(text) || !json.Valid(text[:head]) {
		p.t.Fatalf("%d %v %s", res.StatusCode, res.Header, text[:min(len(text), 500)])
	}
	got := make([]float32, n)
	if k, err := binary.Decode(text[head:], binary.LittleEndian, got); err != nil || k != len(text)-head {
		p.t.Fatalf("%d bytes came after %s: %v", len(text)-head, text[:head], err)
	}
	for i := range got {
		if got[i] != sent[i]/2 {
			p.t.Fatalf("number %d is %v, want half of %v", i, got[i], sent[i])
		}
	}
}

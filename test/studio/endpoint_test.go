package studio

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// scoreScript answers with what it is sent, and says hostile words in its log.
const scoreScript = `
import json, os

def init():
    global model
    with open(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model.txt")) as f:
        model = f.read().strip()
    print("loaded <b>the model</b> <script>document.title = 'broken'</script>", flush=True)

def run(data):
    return {"model": model, "data": json.loads(data)["data"]}
`

// deploy makes an endpoint and begins a deployment of it, which becomes a process on this computer.
func (s *server) deploy() {
	s.t.Helper()
	for name, text := range map[string]string{
		"serve/score.py":  scoreScript,
		"serve/model.txt": "petals\n",
		"endpoint.yml":    "name: iris\ndescription: Names <b>flowers</b>\n",
		"deployment.yml": `name: blue
endpoint_name: iris
type: local
model: {path: serve/model.txt}
code_configuration: {code: serve, scoring_script: score.py}
environment:
  image: python:3.11
  conda_file: {dependencies: [python, pip, {pip: [azureml-inference-server-http]}]}
`,
	} {
		file := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	s.t.Cleanup(func() { // replicas outlive their server, and a test that failed must leave none
		cmd := exec.Command(s.binary, "online-endpoint", "delete", "--name", "iris", "--yes")
		cmd.Env = s.env()
		_ = cmd.Run() // it may be gone
	})
	s.run("online-endpoint", "create", "--file", filepath.Join(s.dir, "endpoint.yml"), "-o", "none")
	s.run("online-deployment", "create", "--file", filepath.Join(s.dir, "deployment.yml"), "--no-wait", "-o", "none")
}

// score calls the endpoint as a stranger does and returns the status and the answer.
func (s *server) score(body string) (int, string) {
	s.t.Helper()
	show := func(args ...string) string {
		return strings.TrimSpace(s.run(append(args, "--name", "iris", "-o", "tsv")...))
	}
	req, err := http.NewRequest(http.MethodPost, show("online-endpoint", "show", "--query", "scoring_uri"), strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+show("online-endpoint", "get-credentials", "--query", "primaryKey"))
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// buildPatience is how long an environment may take to be built: packages come over the network.
const buildPatience = 5 * time.Minute

func TestEndpointInABrowser(t *testing.T) {
	s := startServer(t)
	b := openTab(t, s)
	b.do(chromedp.Navigate(s.ticket("/endpoints")))
	b.reads("main", "This workspace has no online endpoints.")
	b.mark()
	s.deploy()
	b.reads("#endpoints-list", "No traffic")
	if !b.marked() {
		t.Error("the list was loaded anew")
	}
	b.do(chromedp.Click("#endpoint-iris a", chromedp.NodeVisible))
	b.reads("#deployment-blue .state", "Creating")
	b.mark()
	b.within(buildPatience, "the deployment serves", func() bool { return strings.Contains(b.text("#deployment-blue .state"), "Succeeded") })
	b.reads("#deployment-blue .replicas", "Ready")
	b.reads("#endpoint-head", "No deployment has any")
	s.run("online-endpoint", "update", "--name", "iris", "--traffic", "blue=100", "-o", "none")
	b.reads("#endpoint-head .state", "Serving")
	b.reads("#endpoint-head .legend", "blue 100 %")
	t.Run("what a model says is text", func(t *testing.T) {
		b.reads("#endpoint-logs", "loaded <b>the model</b> <script>")
		b.reads("#endpoint-head", "Names <b>flowers</b>")
		if strings.Contains(eval[string](b, "document.title"), "broken") || eval[int](b, "document.querySelectorAll('#endpoint-logs script, #endpoint-logs b').length") > 0 {
			t.Error("a log's markup became part of the page")
		}
	})
	t.Run("what the gateway counts is shown", func(t *testing.T) { watchNumbers(t, b) })
	if !b.marked() {
		t.Error("the page was loaded anew")
	}
	t.Run("the command is copied", func(t *testing.T) { copyCommand(t, b) })
	t.Run("a replica leads to its log", func(t *testing.T) {
		b.do(chromedp.Click("#deployment-blue .replicas a", chromedp.NodeVisible))
		b.reads("#log-text", "loaded")
	})
	t.Run("pages fit a phone", func(t *testing.T) { fitAll(t, b, "/endpoints", "/endpoints/iris", "/models") })
	t.Run("an endpoint that is deleted says so", func(t *testing.T) {
		b.open("/endpoints/iris")
		b.reads("#endpoint-head .state", "Serving")
		s.run("online-endpoint", "delete", "--name", "iris", "--yes")
		b.reads("#endpoint-head .state", "Deleted")
	})
	for _, c := range b.complaints() {
		t.Errorf("the browser complains: %s", c)
	}
}

func watchNumbers(t *testing.T, b *tab) {
	for range 12 {
		if status, answer := b.s.score(`{"data": [1, 2]}`); status != http.StatusOK || !strings.Contains(answer, "petals") {
			t.Fatalf("%d: %s", status, answer)
		}
	}
	if status, _ := b.s.score("no JSON"); status == http.StatusOK {
		t.Error("what is no JSON was answered")
	}
	b.reads("#deployment-blue .codes", "200 × 12")
	b.reads("#deployment-blue .codes", "424 × 1")
	b.reads("#deployment-blue .codes", "13 requests since the gateway started")
	b.reads("#deployment-blue .tiles", "≤ ")
	b.until("requests a second are told", func() bool {
		rate := b.text("#deployment-blue .tiles dd")
		return rate != "" && rate != "–"
	})
	b.until("memory is told", func() bool { return strings.Contains(b.text("#deployment-blue .replicas"), "MB") })
}

func copyCommand(t *testing.T, b *tab) {
	b.do(chromedp.Click("button[data-copy=call]", chromedp.NodeVisible))
	marked := eval[string](b, "getSelection().toString()")
	if !strings.Contains(marked, "get-credentials --name iris") || !strings.Contains(marked, "curl http://") || strings.Contains(marked, "Copy") {
		t.Errorf("what is marked to be copied: %q", marked)
	}
}

func TestModelsInABrowser(t *testing.T) {
	s := startServer(t)
	b := openTab(t, s)
	b.do(chromedp.Navigate(s.ticket("/models")))
	b.reads("main", "No model is registered in this workspace.")
	b.mark()
	s.submit("makes", "mkdir -p outputs; echo w > outputs/weights.txt")
	s.run("job", "stream", "--name", "makes")
	s.run("model", "create", "--name", "iris", "--path", "azureml://jobs/makes/outputs/artifacts/paths/outputs/weights.txt", "-o", "none")
	b.reads("#model-iris-1", "custom_model")
	if !b.marked() {
		t.Error("the page was loaded anew")
	}
	b.do(chromedp.Click("#model-iris-1 a", chromedp.NodeVisible))
	b.reads("main", "outputs/weights.txt")
	b.do(chromedp.Click("#models-list a", chromedp.NodeVisible))
	b.reads("#job-head", "Train makes")
	fitAll(t, b, "/models", "/models/iris")
	for _, c := range b.complaints() {
		t.Errorf("the browser complains: %s", c)
	}
}

// fitAll looks whether pages have to be moved sideways, on a wide screen and on a phone.
func fitAll(t *testing.T, b *tab, paths ...string) {
	t.Helper()
	for _, width := range []int64{1280, 390} {
		b.do(chromedp.EmulateViewport(width, 844))
		for _, path := range paths {
			b.open(path)
			if got := eval[int64](b, "document.documentElement.scrollWidth"); got > width {
				t.Errorf("%s is %d wide on a screen of %d", path, got, width)
			}
		}
	}
	b.do(chromedp.ResetViewport())
}

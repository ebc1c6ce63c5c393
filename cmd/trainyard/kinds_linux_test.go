package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
)

// One suite for every kind of serving and three models: the files in examples/serve, and those in testdata/serving/torch and
// testdata/serving/triton, deployed as they are, with nothing set but where they run (and, where replicas of the first are containers, the
// image). The first one's second version has another script, and the last one's another model beside it. docs/serving.md holds what came of it: see servingVar.

// servingVar names the page whose table is to be written. It is what turns the engines on, as tableVar does for targets.
const servingVar = "TRAINYARD_SERVING_TABLE"

// servingFiles is where the demo's endpoint and deployment are.
const servingFiles = "../../examples/serve"

// servedModel is a model that a job of the suite makes, or that is there as files.
type servedModel struct {
	name       string // that it is registered by
	files      string // where its deployment is
	request    string // the file of what it is asked
	path       string // where it answers, below the address of an endpoint or a replica
	deployment string // the deployment's name
	says       string // what its script prints
}

var (
	wine   = &servedModel{name: "wine", files: servingFiles, request: servingFiles + "/request.json", path: "score", deployment: "forest", says: "the forest has 200 trees"}
	torch  = &servedModel{name: "torch", files: "testdata/serving/torch", request: servingFiles + "/request.json", path: "score", deployment: "network", says: "the network has 275 weights"}
	triton = &servedModel{name: "triton", files: tritonFiles, request: tritonFiles + "/request.json", path: "v2/models/halves/infer", deployment: "server", says: "the factor is 0.5"}
)

// servePlace is a kind of serving as the suite sees it.
type servePlace struct {
	*lab
	name  string       // for people
	model *servedModel // that it is to serve
	plain string       // what the model answers without a server
	args  []string     // that online-deployment create and update get, beside the file
	ask   func(l *lab, address, body string) string
}

// servedLab is a server with the models that its places serve.
type servedLab struct {
	lab     *lab
	places  []*servePlace
	machine *sshtest.Machine // that is attached
}

type serveCheck struct {
	name, doc string
	hold      func(p *servePlace)
}

// checks are what a model must do on every kind.
func (m *servedModel) checks() []serveCheck {
	if m == triton {
		return []serveCheck{
			{"serve", "a model repository of one Python model, a registered folder, answers what is sent to the scoring URI, and at /v2/models/NAME/infer", checkServes},
			{"protocol", "readiness, metadata, an error, and numbers as bytes both ways, with the endpoint's key alone", checkProtocol},
			{"large", "36 MiB each way, which is more than 64 MB of shared memory can hold", checkLarge},
			{"log", "what the model prints is there to read", checkLog},
			{"update", "a second model, an ensemble without a version of its own, beside it, under load, and no request fails", checkUpdate},
			{"broken", "a model that does not load: refused with Triton's words, and the old one serves", checkBroken},
			{"killed", "a replica killed with -9 is replaced", checkKilled},
		}
	}
	if m == torch {
		return []serveCheck{
			{"serve", "a PyTorch model, trained by a job in an image and served from that image, answers as it does in plain Python", checkServes},
			{"log", "what a replica prints is there to read", checkLog},
			{"update", "another version under load, and no request fails", checkUpdate},
			{"killed", "a replica killed with -9 is replaced", checkKilled},
		}
	}
	return []serveCheck{
		{"serve", "the model of the demo's job answers as it does in plain Python", checkServes},
		{"log", "what a replica prints is there to read", checkLog},
		{"mlflow", "an MLflow model without code", checkMLflow},
		{"update", "another version under load, and no request fails", checkUpdate},
		{"collected", "what the script logs with azureml-ai-monitoring is in the datastore", checkCollected},
		{"broken", "a model that does not load: refused with its log, and the old one serves", checkBroken},
		{"scale", "from one replica to two", checkScale},
		{"killed", "a replica killed with -9 is replaced", checkKilled},
	}
}

func TestTheSameModelOnEveryKind(t *testing.T) {
	var mu sync.Mutex
	results := map[string]map[string]string{}
	note := func(p *servePlace, check, what string) {
		mu.Lock()
		defer mu.Unlock()
		if results[p.name] == nil {
			results[p.name] = map[string]string{}
		}
		results[p.name][p.model.name+" "+check] = what
	}
	labs := servingLabs(t)
	t.Run("kinds", func(t *testing.T) {
		for _, s := range labs {
			for _, p := range s.places {
				t.Run(p.title(), func(t *testing.T) {
					t.Parallel()
					for _, c := range p.model.checks() {
						good := t.Run(c.name, func(t *testing.T) {
							note(p, c.name, "fails")
							in := *p
							in.lab = p.in(t)
							c.hold(&in)
							if !t.Failed() {
								note(p, c.name, "✓")
							}
						})
						if !good && c.name == "serve" {
							return // the rest is of what serves
						}
					}
				})
			}
		}
	})
	for _, s := range labs {
		for _, p := range s.places {
			note(p, "away", "fails")
		}
		s.away(t, func(p *servePlace) { note(p, "away", "✓") })
	}
	if path := os.Getenv(servingVar); path != "" {
		writeServing(t, path, labs, results)
	}
}

// servingLabs are the kinds that can be had here: those of this machine, and an engine for each variable that leads to one. The first
// server trains; the others get the model as files.
func servingLabs(t *testing.T) (labs []*servedLab) {
	here := &servedLab{lab: newLab(t)}
	plain := here.train()
	here.add("local", plain, "--local")
	here.add("managed", plain)
	if why := sshtest.Missing(); why == "" {
		m := sshtest.New(t, sshtest.Options{})
		offline(t, m, "scikit-learn==1.5.2", "joblib==1.4.2", "azureml-inference-server-http", "mlflow-skinny==3.6.0", "pandas", "azureml-ai-monitoring")
		here.addMachine(m, plain)
	} else {
		leftOut(t, "SSH machine ("+why+")", sshtest.Install)
	}
	labs = append(labs, here)
	host := servingEngine("TRAINYARD_TEST_DOCKER_HOST")
	var engine *servedLab
	if host != "" {
		engine = &servedLab{lab: newLabWith(t, "locations: [{name: local}]\n", "DOCKER_HOST="+host)}
		engine.bring(here)
		engine.add("container instance", plain, "--set", "type=container_instance", "--set", "environment.image="+os.Getenv("TRAINYARD_TEST_DOCKER_IMAGE"))
		labs = append(labs, engine)
	} else {
		leftOut(t, "Docker engine", `eval "$(test/engines/docker/up.sh DIR)"`)
	}
	var kube *servedLab
	if file := servingEngine("TRAINYARD_TEST_KUBECONFIG"); file != "" {
		kube = &servedLab{lab: kubePlace(t, file).lab}
		kube.bring(here)
		kube.addKubernetes(plain, "--set", "environment.image=trainyard.test/base:1")
		labs = append(labs, kube)
	} else {
		leftOut(t, "Kubernetes", `eval "$(test/engines/kube/up.sh DIR)"`)
	}
	if image := servingEngine("TRAINYARD_TEST_TORCH_IMAGE"); image != "" && engine != nil {
		engine.addTorch(t, kube)
	} else {
		leftOut(t, "PyTorch", `eval "$(test/engines/torch.sh)"`)
	}
	if image := servingEngine("TRAINYARD_TEST_TRITON_IMAGE"); image != "" && engine != nil {
		engine.addTriton(t, kube, host, image)
	} else {
		leftOut(t, "Triton", `eval "$(test/engines/triton.sh)"`)
	}
	return labs
}

func servingEngine(variable string) string {
	if os.Getenv(servingVar) == "" {
		return ""
	}
	return os.Getenv(variable)
}

// train runs the demo's job, registers what it made, and has plain Python score the request.
func (s *servedLab) train() (plain string) {
	l := s.lab
	l.t.Helper()
	l.cli("job", "create", "-f", "../../examples/train/job.yml", "-n", "wine", "-o", "none")
	l.until("wine", trainyard.JobCompleted)
	l.cli("model", "create", "-n", "wine", "--path", "azureml://jobs/wine/outputs/model", "-o", "none")
	l.cli("job", "create", "-f", "testdata/serving/plain.yml", "-n", "plain", "-o", "none")
	l.until("plain", trainyard.JobCompleted)
	l.cli("model", "create", "-n", "wine-mlflow", "--type", "mlflow_model", "--path", "azureml://jobs/plain/outputs/mlflow", "-o", "none")
	s.broken()
	return s.plain("plain")
}

// plain is what a job printed as the answer to the request.
func (s *servedLab) plain(job string) string {
	l := s.lab
	l.t.Helper()
	_, log := l.files(job)
	for line := range strings.Lines(log) {
		if answer, ok := strings.CutPrefix(line, "plain "); ok {
			return answer
		}
	}
	l.t.Fatalf("plain Python said %s", log)
	return ""
}

// bring registers the models of another server here.
func (s *servedLab) bring(from *servedLab) {
	l := s.lab
	l.t.Helper()
	s.bringModel(from, "wine", "custom_model")
	s.bringModel(from, "wine-mlflow", "mlflow_model")
	s.broken()
}

func (s *servedLab) bringModel(from *servedLab, name, typ string) {
	l := s.lab
	l.t.Helper()
	dir := filepath.Join(filepath.Dir(l.data), "models", name)
	from.lab.cli("model", "download", "-n", name, "-l", "latest", "-p", dir)
	folder := filepath.Join(dir, "model") // as the job's output is called
	if err := os.Rename(filepath.Join(dir, name), folder); err != nil {
		l.t.Fatal(err)
	}
	l.cli("model", "create", "-n", name, "--type", typ, "--path", folder, "-o", "none")
}

// broken registers a model that does not load.
func (s *servedLab) broken() {
	s.lab.file("bad/model/model.joblib", "this is no forest\n")
	s.lab.cli("model", "create", "-n", "broken", "--path", filepath.Join(filepath.Dir(s.lab.data), "bad", "model"), "-o", "none")
}

// add is another kind of the demo's model.
func (s *servedLab) add(name, plain string, args ...string) *servePlace {
	p := &servePlace{lab: s.lab, name: name, model: wine, plain: plain, args: args}
	p.ask = func(l *lab, address, body string) string {
		status, text := post(l.t, "http://"+address+"/"+p.model.path, "", body)
		return after(status, text)
	}
	s.places = append(s.places, p)
	return p
}

// addMachine attaches a machine, unless it is attached already. What serves there is asked on it.
func (s *servedLab) addMachine(m *sshtest.Machine, plain string) *servePlace {
	if s.machine != m {
		key := s.lab.file("id_machine", m.Key)
		s.lab.cli("compute", "attach", "-n", "edge", "--type", "virtualmachine", "--address", m.Address, "--ssh-port", strconv.Itoa(m.Port), "--admin-username", m.User,
			"--ssh-private-key-file", key, "-o", "none")
		s.machine = m
	}
	p := s.add("attached machine", plain, "--set", "type=attached", "--set", "compute=azureml:edge")
	p.ask = func(l *lab, address, body string) string {
		return m.Run(l.t, fmt.Sprintf("python3 -c 'import sys, urllib.request as u; print(u.urlopen(u.Request(sys.argv[1], sys.argv[2].encode(), {\"Content-Type\": \"application/json\"})).read().decode())' http://%s/%s '%s'", address, p.model.path, body))
	}
	return p
}

// addKubernetes is the lab's cluster. Nothing is asked at its replicas' addresses, which are the cluster's own.
func (s *servedLab) addKubernetes(plain string, more ...string) *servePlace {
	p := s.add("kubernetes", plain, append([]string{"--set", "type=kubernetes", "--set", "compute=azureml:k8s", "--set", "instance_type=defaultinstancetype"}, more...)...)
	p.ask = func(*lab, string, string) string { return "" }
	return p
}

func after(status int, text string) string {
	if status != http.StatusOK {
		return fmt.Sprintf("%d %s", status, text)
	}
	return text
}

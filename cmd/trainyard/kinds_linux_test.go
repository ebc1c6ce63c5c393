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

// One suite for every kind of serving: the files in examples/serve, deployed as they are, with nothing set but where they run (and, where
// replicas are containers, the image). docs/serving.md holds what came of it: see servingVar.

// servingVar names the page whose table is to be written. It is what turns the engines on, as tableVar does for targets.
const servingVar = "TRAINYARD_SERVING_TABLE"

// servingFiles is where the demo's endpoint and deployment are.
const servingFiles = "../../examples/serve"

// servePlace is a kind of serving as the suite sees it.
type servePlace struct {
	*lab
	name  string            // for people
	args  []string          // that online-deployment create and update get, beside the file
	lacks map[string]string // what it cannot have, and why
	ask   func(l *lab, address, body string) string
}

// servedLab is a server with the models that its places serve.
type servedLab struct {
	lab    *lab
	places []*servePlace
}

var serveChecks = []struct {
	name, doc string
	hold      func(p *servePlace, plain string)
}{
	{"serve", "the model of the demo's job answers as it does in plain Python", checkServes},
	{"log", "what a replica prints is there to read", checkLog},
	{"mlflow", "an MLflow model without code", checkMLflow},
	{"update", "another version under load, and no request fails", checkUpdate},
	{"broken", "a model that does not load: refused with its log, and the old one serves", checkBroken},
	{"scale", "from one replica to two", checkScale},
	{"killed", "a replica killed with -9 is replaced", checkKilled},
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
		results[p.name][check] = what
	}
	labs, plain := servingLabs(t)
	t.Run("kinds", func(t *testing.T) {
		for _, s := range labs {
			for _, p := range s.places {
				t.Run(p.name, func(t *testing.T) {
					t.Parallel()
					for _, c := range serveChecks {
						if why := p.lacks[c.name]; why != "" {
							note(p, c.name, why)
							continue
						}
						t.Run(c.name, func(t *testing.T) {
							note(p, c.name, "fails")
							in := *p
							in.lab = p.in(t)
							c.hold(&in, plain)
							note(p, c.name, "✓")
						})
					}
				})
			}
		}
	})
	for _, s := range labs {
		for _, p := range s.places {
			note(p, "away", "fails")
		}
		s.away(t, plain, func(p *servePlace) { note(p, "away", "✓") })
	}
	if path := os.Getenv(servingVar); path != "" {
		writeServing(t, path, labs, results)
	}
}

// servingLabs are the kinds that can be had here: those of this machine, and an engine for each variable that leads to one. The first
// server trains; the others get the model as files.
func servingLabs(t *testing.T) (labs []*servedLab, plain string) {
	here := &servedLab{lab: newLab(t)}
	plain = here.train()
	here.add("local", nil, "--local")
	here.add("managed", nil)
	if why := sshtest.Missing(); why == "" {
		m := sshtest.New(t, sshtest.Options{})
		key := here.lab.file("id_machine", m.Key)
		offline(t, m, "scikit-learn==1.5.2", "joblib==1.4.2", "azureml-inference-server-http", "mlflow-skinny==3.6.0", "pandas")
		here.lab.cli("compute", "attach", "-n", "edge", "--type", "virtualmachine", "--address", m.Address, "--ssh-port", strconv.Itoa(m.Port), "--admin-username", m.User,
			"--ssh-private-key-file", key, "-o", "none")
		p := here.add("attached machine", nil, "--set", "type=attached", "--set", "compute=azureml:edge")
		p.ask = func(l *lab, address, body string) string {
			return m.Run(l.t, fmt.Sprintf("python3 -c 'import sys, urllib.request as u; print(u.urlopen(u.Request(sys.argv[1], sys.argv[2].encode(), {\"Content-Type\": \"application/json\"})).read().decode())' http://%s/score '%s'", address, body))
		}
	} else {
		leftOut(t, "SSH machine ("+why+")", sshtest.Install)
	}
	labs = append(labs, here)
	if host := servingEngine("TRAINYARD_TEST_DOCKER_HOST"); host != "" {
		s := &servedLab{lab: newLabWith(t, "locations: [{name: local}]\n", "DOCKER_HOST="+host)}
		s.bring(here)
		s.add("container instance", map[string]string{}, "--set", "type=container_instance", "--set", "environment.image="+os.Getenv("TRAINYARD_TEST_DOCKER_IMAGE"))
		labs = append(labs, s)
	} else {
		leftOut(t, "Docker engine", `eval "$(test/engines/docker/up.sh DIR)"`)
	}
	if file := servingEngine("TRAINYARD_TEST_KUBECONFIG"); file != "" {
		s := &servedLab{lab: kubePlace(t, file).lab}
		s.bring(here)
		p := s.add("kubernetes", nil, "--set", "type=kubernetes", "--set", "compute=azureml:k8s", "--set", "instance_type=defaultinstancetype", "--set", "environment.image=trainyard.test/base:1")
		p.ask = func(*lab, string, string) string { return "" } // its address is the cluster's own
		labs = append(labs, s)
	} else {
		leftOut(t, "Kubernetes", `eval "$(test/engines/kube/up.sh DIR)"`)
	}
	return labs, plain
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
	_, log := l.files("plain")
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
	for name, typ := range map[string]string{"wine": "custom_model", "wine-mlflow": "mlflow_model"} {
		dir := filepath.Join(filepath.Dir(l.data), "models", typ)
		from.lab.cli("model", "download", "-n", name, "-l", "latest", "-p", dir)
		folder := filepath.Join(dir, "model") // as the job's output is called
		if err := os.Rename(filepath.Join(dir, name), folder); err != nil {
			l.t.Fatal(err)
		}
		l.cli("model", "create", "-n", name, "--type", typ, "--path", folder, "-o", "none")
	}
	s.broken()
}

// broken registers a model that does not load.
func (s *servedLab) broken() {
	s.lab.file("bad/model/model.joblib", "this is no forest\n")
	s.lab.cli("model", "create", "-n", "broken", "--path", filepath.Join(filepath.Dir(s.lab.data), "bad", "model"), "-o", "none")
}

func (s *servedLab) add(name string, lacks map[string]string, args ...string) *servePlace {
	p := &servePlace{lab: s.lab, name: name, args: args, lacks: lacks}
	p.ask = func(l *lab, address, body string) string {
		status, text := post(l.t, "http://"+address+"/score", "", body)
		return after(status, text)
	}
	s.places = append(s.places, p)
	return p
}

func after(status int, text string) string {
	if status != http.StatusOK {
		return fmt.Sprintf("%d %s", status, text)
	}
	return text
}

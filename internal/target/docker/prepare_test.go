//go:build !windows

package docker

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// teller keeps what a preparation says.
type teller struct {
	mu   sync.Mutex
	says []string
	logs strings.Builder
}

func (p *teller) Say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.says = append(p.says, text)
}

func (p *teller) Span(string, time.Time, time.Time, string) {}

func (p *teller) Log(name string, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == buildLog {
		p.logs.Write(data)
	}
}

func (p *teller) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.says, "\n")
}

func (p *teller) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs.String()
}

// in makes a task of an environment.
func in(t *testing.T, command string, e trainyard.EnvironmentPlan) trainyard.Task {
	t.Helper()
	task := newTestTask(t, command)
	if e.Hash == "" {
		e.Hash = fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), names.Add(1))
	}
	if e.Name == "" {
		e.Name = "env"
	}
	task.Environment = &e
	return task
}

// wantFault prepares a task, which must end it with these words.
func wantFault(t *testing.T, d *Driver, task trainyard.Task, words ...string) {
	t.Helper()
	p := &teller{}
	err := d.Prepare(t.Context(), task, p)
	if trainyard.ClassOf(err) != trainyard.ClassEnvironment {
		t.Errorf("error is %v (class %q), want %s\nlog: %s", err, trainyard.ClassOf(err), trainyard.ClassEnvironment, p.log())
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error is %q, want %q in it\nlog: %s", err, w, p.log())
		}
	}
}

func prepare(t *testing.T, d *Driver, task trainyard.Task) *teller {
	t.Helper()
	p := &teller{}
	if err := d.Prepare(t.Context(), task, p); err != nil {
		t.Fatalf("prepare: %v\nlog: %s", err, p.log())
	}
	return p
}

func TestContains(t *testing.T) {
	d := &Driver{}
	for want, all := range map[bool][]*trainyard.EnvironmentPlan{
		true:  {{Image: "x"}, {Context: "y"}, {Image: "x", CondaFile: "z"}},
		false: {nil, {}, {CondaFile: "z"}},
	} {
		for _, e := range all {
			if got := d.Contains(trainyard.Task{Environment: e}); got != want {
				t.Errorf("Contains %+v is %v", e, got)
			}
		}
	}
}

func TestImageOnTheNodeIsUsed(t *testing.T) {
	c := needEngine(t)
	image := c.Image
	c.Image = ""
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	task := in(t, "cat /etc/os-release | head -1", trainyard.EnvironmentPlan{Image: image})
	if err := d.Start(t.Context(), task); err == nil || !strings.Contains(err.Error(), "not been prepared") {
		t.Errorf("start before it is prepared: %v", err)
	}
	if p := prepare(t, d, task); p.said() != "" || p.log() != "" {
		t.Errorf("it said %q and logged %q", p.said(), p.log())
	}
	if got, _ := run(t, d, task); !strings.Contains(got, "Debian") {
		t.Errorf("it wrote %q", got)
	}
	if err := d.Start(t.Context(), newTestTask(t, "true")); trainyard.ClassOf(err) != trainyard.ClassEnvironment || !strings.Contains(err.Error(), "names no image") {
		t.Errorf("a task without an image: %v", err)
	}
}

func TestImageIsPulled(t *testing.T) {
	c := needEngine(t)
	name := os.Getenv(registryVar) + "/small:" + fmt.Sprint(os.Getpid())
	if err := buildImage(c, name, map[string]string{"Dockerfile": "FROM scratch\nCOPY file /file\n", "file": strings.Repeat("x", 1000)}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"push", "-q", name}, {"rmi", name}} {
		if err := dockerCLI(c, args...); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = dockerCLI(c, "rmi", name) }()
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	task := in(t, "true", trainyard.EnvironmentPlan{Image: name})
	p := prepare(t, d, task)
	if p.said() != "pulling image "+name || !strings.Contains(p.log(), "Pull complete") {
		t.Errorf("it said %q and logged %q", p.said(), p.log())
	}
	if err := d.Start(t.Context(), task); trainyard.ClassOf(err) != trainyard.ClassEnvironment || !strings.Contains(err.Error(), "has no /bin/sh") {
		t.Errorf("start in an image without a shell: %v", err)
	}
	if find(t, d, task.ID) != nil {
		t.Error("a task that did not start is listed")
	}
}

func TestImageThatCannotBeHadIsSaid(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	from := time.Now()
	for image, words := range map[string][]string{
		os.Getenv(registryVar) + "/nothing:1":            {`environment "env": image "` + os.Getenv(registryVar) + `/nothing:1" is not on this node and could not be pulled`, "check its name"},
		"127.0.0.1:1/unreachable:1":                      {"127.0.0.1:1/unreachable:1", "connection refused", "docker load", "TRAINYARD_CONTAINERS=off"},
		"Not A Name":                                     {"Not A Name", "registry/name:tag"},
		refusing(t, 401, "") + "/private:1":              {"no basic auth credentials", `"docker login" on the node as the user of the agent`},
		refusing(t, 429, "TOOMANYREQUESTS") + "/often:1": {"toomanyrequests", "allows more to those whom it knows", "try again later"},
	} {
		wantFault(t, d, in(t, "true", trainyard.EnvironmentPlan{Image: image}), words...)
	}
	if took := time.Since(from); took > patience/2 {
		t.Errorf("it took %v", took)
	}
}

// refusing is a registry that answers every question with a status and an error of that code.
func refusing(t *testing.T, status int, code string) (host string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Www-Authenticate", `Basic realm="lab"`)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"errors": [{"code": %q, "message": "you have reached your rate limit"}]}`, code)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestARegistryThatWantsToKnowWhoAsksIsCertain(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	for image, certain := range map[string]bool{refusing(t, 401, "") + "/private:1": true, refusing(t, 429, "TOOMANYREQUESTS") + "/often:1": false} {
		if w, err := d.CheckImage(t.Context(), image); err != nil || !w.Missing || w.Certain != certain {
			t.Errorf("%s: %+v, %v", image, w, err)
		}
	}
}

// buildImage builds an image with the docker command.
func buildImage(c Config, name string, files map[string]string, dir string) error {
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return dockerCLI(c, "image", "build", "-q", "-t", name, dir)
}

func TestImageThatCannotRunIsSaid(t *testing.T) {
	c := needEngine(t)
	name := fmt.Sprintf("trainyard-test/broken:%d", os.Getpid())
	if err := buildImage(c, name, map[string]string{"Dockerfile": "FROM scratch\nCOPY sh /bin/sh\n", "sh": "\x7fELFnonsense"}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dockerCLI(c, "rmi", name) }()
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	task := in(t, "true", trainyard.EnvironmentPlan{Image: name})
	prepare(t, d, task)
	if err := d.Start(t.Context(), task); trainyard.ClassOf(err) != trainyard.ClassEnvironment || !strings.Contains(err.Error(), "exec format error") {
		t.Errorf("start: %v", err)
	}
}

// context makes a build context.
func contextOf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestContextIsBuiltOnce(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	plan := trainyard.EnvironmentPlan{Context: "key", Dockerfile: "docker/Dockerfile", Hash: fmt.Sprintf("%s-%d", t.Name(), os.Getpid())}
	folder := contextOf(t, map[string]string{
		"docker/Dockerfile": "FROM " + c.Image + "\nCOPY . /app\nRUN echo \"this is built\" && ls -R /app # " + time.Now().String() + "\n",
		"a/kept":            "kept", "secret/key": "x", ".dockerignore": "secret\ndocker\n",
	})
	var tasks []trainyard.Task
	var tellers [4]teller
	var wg sync.WaitGroup
	for i := range tellers {
		task := in(t, "cd /app; find . -type f", plan)
		task.Run.Context = folder
		tasks = append(tasks, task)
		wg.Go(func() {
			if err := d.Prepare(context.Background(), task, &tellers[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	defer func() { _ = dockerCLI(c, "rmi", repository+":"+key(plan.Hash)) }()
	all := 0
	for i := range tellers {
		if log := tellers[i].log(); log != "" && (strings.Count(log, "Building the image") != 1 || !strings.Contains(log, "\nthis is built\n")) {
			t.Errorf("it logged %q", log)
		} else if log != "" {
			all++
		}
	}
	if all == 0 {
		t.Error("nobody was told of the build")
	}
	if got, _ := run(t, d, tasks[0]); !strings.Contains(got, "./a/kept") || strings.Contains(got, "secret") {
		t.Errorf("the image has %q", got)
	}
	if p := prepare(t, d, tasks[1]); p.log() != "" {
		t.Errorf("it was built again: %q", p.log())
	}
	image, err := d.engine.ImageInspect(t.Context(), repository+":"+key(plan.Hash))
	if err != nil || image.Config.Labels[labelEnvironment] != "env" {
		t.Errorf("the image has labels %v (%v), none to be pruned by", image.Config.Labels, err)
	}
}

func TestBuildThatFailsIsSaid(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	for _, b := range []struct {
		file, dockerfile string
		words            []string
	}{
		{"FROM " + c.Image + "\nRUN echo before && exit 3\n", "", []string{"could not be built", "exit 3", "returned a non-zero code: 3: before; the whole build log is shown by job logs --file " + buildLog}},
		{"FROM " + c.Image + "\nRUN python3 -c 'import torch'\n", "", []string{"returned a non-zero code: 1: ModuleNotFoundError: No module named 'torch'; the whole"}},
		{"FROM " + c.Image + "\nRUNN true\n", "", []string{"unknown instruction: RUNN", "Check how it is written"}},
		{"FROM 127.0.0.1:1/x:1\n", "", []string{"127.0.0.1:1/x:1", "connection refused", "docker load"}},
		{"FROM " + c.Image + "\nRUN --mount=type=cache,target=/c true\n", "", []string{"BuildKit"}},
		{"FROM " + c.Image + "\n", "other/Dockerfile", []string{"has no other/Dockerfile"}},
		{"FROM " + c.Image + "\n", "../Dockerfile", []string{"outside its build context"}},
	} {
		task := in(t, "true", trainyard.EnvironmentPlan{Context: "key", Dockerfile: b.dockerfile})
		task.Run.Context = contextOf(t, map[string]string{"Dockerfile": b.file})
		wantFault(t, d, task, b.words...)
	}
}

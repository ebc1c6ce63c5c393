//go:build !windows

package docker

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trainyard/trainyard"
)

// index is a Python package index of small packages. asked counts downloads; while hold is not nil, they wait for it.
func index(t *testing.T, asked *atomic.Int64, hold chan struct{}, packages ...string) string {
	t.Helper()
	mux := http.NewServeMux()
	for _, name := range packages {
		file := name + "-1.0-py3-none-any.whl"
		mux.HandleFunc("/simple/"+name+"/", func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `<a href="/files/%s">%s</a>`, file, file)
		})
		mux.HandleFunc("/files/"+file, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			if hold != nil {
				select {
				case <-hold:
				case <-r.Context().Done():
				}
			}
			w.Write(wheel(t, name))
		})
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL + "/simple"
}

// wheel is a package with one module, which says its name.
func wheel(t *testing.T, name string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := name + "-1.0.dist-info/"
	files := [][2]string{{name + ".py", "word = 'I am " + name + "'\n"}, {info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}, {info + "RECORD", ""}}
	for _, f := range files {
		w, err := z.Create(f[0])
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}
		if err != nil {
			t.Error(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Error(err)
	}
	return b.Bytes()
}

func conda(url, more string, packages ...string) string {
	return "dependencies:\n- python>=3.8\n- pip\n" + more + "- pip:\n  - --index-url " + url + "\n  - " + strings.Join(packages, "\n  - ") + "\n"
}

func TestPackagesAreInstalledOnTopOfAnImageOnce(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	var asked atomic.Int64
	url := index(t, &asked, nil, "tiny", "later")
	plan := trainyard.EnvironmentPlan{Image: c.Image, CondaFile: conda(url, "", "tiny==1.0"), Hash: "one"}
	command := `python -c 'import tiny; print(tiny.word)'; command -v python
		pip install -q --root-user-action=ignore --disable-pip-version-check --index-url ` + url + ` later && python -c 'import later; print(later.word)'`
	first, second := in(t, command, plan), in(t, command, plan)
	var wg sync.WaitGroup
	for _, task := range []trainyard.Task{first, second, first, second} {
		wg.Go(func() {
			if err := d.Prepare(context.Background(), task, &teller{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the package was fetched %d times", n)
	}
	want := "I am tiny\n/.trainyard/layer/env/bin/python\nI am later\n"
	for _, task := range []trainyard.Task{first, second} {
		if got, _ := run(t, d, task); got != want {
			t.Errorf("it wrote %q, want %q", got, want)
		}
	}
	if p := prepare(t, d, first); p.log() != "" || p.said() != "" {
		t.Errorf("it was installed again: %q", p.log())
	}
	left, err := d.engine.list(t.Context(), groupName(t), labelBuild)
	if err != nil || len(left) > 0 {
		t.Errorf("builders %v are left (%v)", left, err)
	}
}

func TestPackagesThatCannotBeInstalledAreSaid(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	var asked atomic.Int64
	url := index(t, &asked, nil, "tiny")
	for file, words := range map[string][]string{
		conda(url, "", "missing"):                      {`environment "env": its packages could not be installed on top of image`, "No matching distribution found for missing", buildLog},
		conda(crashing(t), "", "tiny"):                 {"could not be reached (ProtocolError: (\"Connection broken: InvalidChunkLength(", "check the node's network", buildLog},
		conda(url, "- cudatoolkit=11.8\n", "tiny"):     {"cudatoolkit", "has no conda", "micromamba"},
		conda(url, "- python=3.1\n", "tiny"):           {"asks for Python ==3.1.*", "has Python 3.11"},
		conda("http://127.0.0.1:1/simple", "", "tiny"): {"the package index 127.0.0.1:1 could not be reached (NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused')", buildLog},
		"dependencies: [":                              {"conda file is not what conda reads"},
	} {
		wantFault(t, d, in(t, "true", trainyard.EnvironmentPlan{Image: c.Image, CondaFile: file}), words...)
	}
	bare := fmt.Sprintf("trainyard-test/bare:%d", os.Getpid())
	if err := buildImage(c, bare, map[string]string{"Dockerfile": "FROM " + c.Image + "\nRUN rm /usr/bin/python3*\n"}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dockerCLI(c, "rmi", bare) }()
	wantFault(t, d, in(t, "true", trainyard.EnvironmentPlan{Image: bare, CondaFile: conda(url, "", "tiny")}), bare, "has no Python")
	entries, _ := os.ReadDir(filepath.Join(d.env.Dir, layersDir))
	if len(entries) > 0 {
		t.Errorf("builds that failed left %v", entries)
	}
}

// crashing is an index whose only package, tiny, breaks off in the middle, which pip is not made for.
func crashing(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".whl") {
			fmt.Fprint(w, `<a href="/tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a>`)
			return
		}
		fmt.Fprint(w, "PK")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/simple"
}

func TestALogHasAllOfACrashAndItsReasonOneLine(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	p := &teller{}
	err := d.Prepare(t.Context(), in(t, "true", trainyard.EnvironmentPlan{Image: c.Image, CondaFile: conda(crashing(t), "", "tiny")}), p)
	if err == nil || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "Exception:") {
		t.Errorf("the error is %v", err)
	}
	for _, words := range []string{"ERROR: Exception:", "Traceback (most recent call last):", "During handling of the above exception", "ProtocolError: "} {
		if !strings.Contains(p.log(), words) {
			t.Errorf("%q is not in the log: %s", words, p.log())
		}
	}
}

func TestPreparationEndsWhenNobodyWaits(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	var asked atomic.Int64
	hold := make(chan struct{})
	task := in(t, "true", trainyard.EnvironmentPlan{Image: c.Image, CondaFile: conda(index(t, &asked, hold, "tiny"), "", "tiny"), Hash: "held"})
	one, leave := context.WithCancel(t.Context())
	two, leaveToo := context.WithCancel(t.Context())
	ends := make(chan error, 2)
	go func() { ends <- d.Prepare(one, task, &teller{}) }()
	until(t, "the build runs", func() bool { return asked.Load() == 1 })
	go func() { ends <- d.Prepare(two, task, &teller{}) }()
	until(t, "both wait", func() bool {
		d.builds.mu.Lock()
		defer d.builds.mu.Unlock()
		f := d.builds.flights["held"]
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.asking) == 2
	})
	leave()
	if err := <-ends; err != context.Canceled {
		t.Errorf("the first ends with %v", err)
	}
	builders := func() int {
		left, err := d.engine.list(t.Context(), groupName(t), labelBuild)
		if err != nil {
			t.Fatal(err)
		}
		return len(left)
	}
	if n := builders(); n != 1 {
		t.Errorf("there are %d builders while one waits", n)
	}
	leaveToo()
	if err := <-ends; err != context.Canceled {
		t.Errorf("the second ends with %v", err)
	}
	until(t, "the builder is gone", func() bool { return builders() == 0 })
	close(hold)
	prepare(t, d, task)
}

func TestAgentKilledWhileItPrepares(t *testing.T) {
	c := needEngine(t)
	dir := t.TempDir()
	var asked atomic.Int64
	hold := make(chan struct{})
	file := conda(index(t, &asked, hold, "tiny"), "", "tiny")
	t.Setenv(condaVar, file)
	cmd, _ := startAgent(t, dir, "prepare")
	until(t, "the build runs", func() bool { return asked.Load() == 1 })
	cmd.Process.Kill()
	cmd.Wait()
	close(hold)
	d := open(t, c, filepath.Join(dir, "driver"), trainyard.Resources{})
	left, err := d.engine.list(t.Context(), groupName(t), labelBuild)
	entries, _ := os.ReadDir(filepath.Join(d.env.Dir, layersDir))
	if err != nil || len(left) > 0 || len(entries) > 0 {
		t.Errorf("builders %v and folders %v are left (%v)", left, entries, err)
	}
	task := crashTask(dir)
	task.Environment = &trainyard.EnvironmentPlan{Name: "env", Hash: "h", Image: c.Image, CondaFile: file}
	prepare(t, d, task)
	task.Run.Command = "python -c 'import tiny; print(tiny.word)'"
	if got, r := run(t, d, task); got != "I am tiny\n" {
		t.Errorf("it wrote %q (%+v)", got, r)
	}
}

// What only conda has is left to the image's own conda. No registry that tests reach has a conda, so a script stands in for it: it makes a
// Python in the environment, as conda would, and says how it was called.
func TestTheImagesCondaMakesWhatOnlyCondaHas(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	const tool = "#!/bin/sh\nset -e\necho \"$0 $*\"\nwhile [ \"$1\" != -p ]; do shift; done\nenv=$2\nshift 2\n[ \"$1\" = -f ]\ngrep -q 'cudatoolkit=11.8' \"$2\" || { echo 'cannot solve it' >&2; exit 1; }\n" +
		"mkdir -p \"$env/bin\" \"$CONDA_PKGS_DIRS\"\nln -s /usr/bin/python3 \"$env/bin/python\"\n"
	for path, called := range map[string]string{
		"/usr/local/bin/micromamba": "create -y -p /.trainyard/layer/env -f /.trainyard/layer/conda.yaml",
		"/opt/conda/bin/conda":      "env create -p /.trainyard/layer/env -f /.trainyard/layer/conda.yaml",
	} {
		image := fmt.Sprintf("trainyard-test/%s:%d", filepath.Base(path), os.Getpid())
		if err := buildImage(c, image, map[string]string{"tool": tool, "Dockerfile": "FROM " + c.Image + "\nCOPY tool " + path + "\nRUN chmod 755 " + path + "\n"}, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = dockerCLI(c, "rmi", image) }()
		task := in(t, "command -v python; ls /.trainyard/layer", trainyard.EnvironmentPlan{Image: image, CondaFile: "dependencies:\n- python=3.8\n- cudatoolkit=11.8\n", Hash: image})
		if said := prepare(t, d, task).log(); !strings.Contains(said, path+" "+called+"\n") {
			t.Errorf("the log of the build is %q", said)
		}
		if got, r := run(t, d, task); !strings.HasPrefix(got, "/.trainyard/layer/env/bin/python\n") || strings.Contains(got, "packages") {
			t.Errorf("it wrote %q (%+v)", got, r)
		}
		wantFault(t, d, in(t, "true", trainyard.EnvironmentPlan{Image: image, CondaFile: "dependencies:\n- python=3.8\n- nothing\n", Hash: image + "-2"}),
			"could not be installed on top of image", "cannot solve it", buildLog)
	}
}

package stage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

const small = "channels: [conda-forge]\ndependencies:\n- python\n- pip\n- six=1.16\n- pip:\n  - idna==3.7\n"

func withEnvironment(name, conda string) trainyard.Task {
	tk := task(name)
	tk.Environment = &trainyard.EnvironmentPlan{Name: "small-1", CondaFile: conda}
	return tk
}

var tools struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	if dir := os.Getenv("STAGE_TEST_CHILD"); dir != "" {
		os.Exit(buildAsChild(dir))
	}
	code := m.Run()
	if tools.dir != "" {
		_ = removeAll(tools.dir)
	}
	os.Exit(code)
}

// withTools gives a Stager the uv that one test of this run installed, so that not every test has to.
func withTools(t *testing.T, s *Stager) *Stager {
	t.Helper()
	tools.once.Do(func() {
		if tools.dir, tools.err = os.MkdirTemp("", "stage-tools-"); tools.err != nil {
			return
		}
		var first *Stager
		if first, tools.err = New(Config{Dir: t.TempDir(), Cache: tools.dir, Blobs: newStore(t)}); tools.err != nil {
			return
		}
		_, tools.err = first.Prepare(t.Context(), withEnvironment("tools", "dependencies: [python]"), &teller{})
	})
	if tools.err != nil {
		t.Fatal(tools.err)
	}
	found, _ := filepath.Glob(filepath.Join(tools.dir, "tools", "uv-*"))
	for _, dir := range found {
		if err := os.Symlink(dir, filepath.Join(s.cache, "tools", filepath.Base(dir))); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// noNetwork sends whatever looks for an index to a port where nobody is.
func noNetwork(t *testing.T) {
	t.Helper()
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "ALL_PROXY", "PIP_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:9")
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
}

func TestEnvironmentIsBuiltOnceAndThenNeedsNoNetwork(t *testing.T) {
	s := withTools(t, stager(t, newStore(t)))
	got, p := prepare(t, s, withEnvironment("builds", small+"variables:\n  FROM_FILE: yes it is\n"))
	out := mustShell(t, got, `python -c 'import six, idna; print(six.__version__, idna.__version__)'; echo $FROM_FILE; pip --version | cut -d" " -f1`)
	if out != "1.16.0 3.7\nyes it is\npip" {
		t.Errorf("job printed %q", out)
	}
	if !regexp.MustCompile(`^built in \d+\.\d s$`).MatchString(p.spans[trainyard.SpanEnvironment]) || !strings.Contains(p.all(), `building environment "small-1"`) {
		t.Errorf("span %q, said %s", p.spans[trainyard.SpanEnvironment], p.all())
	}
	for _, words := range []string{`Building environment "small-1"`, "+ six==1.16.0", "Built in"} {
		if !strings.Contains(p.log(environmentLog), words) {
			t.Errorf("log lacks %q:\n%s", words, p.log(environmentLog))
		}
	}
	noNetwork(t)
	got, p = prepare(t, stager(t, newStore(t), sameCache(s)), withEnvironment("cached", small))
	if p.spans[trainyard.SpanEnvironment] != "cached" || p.log(environmentLog) != "" {
		t.Errorf("second job: span %q, log %q", p.spans[trainyard.SpanEnvironment], p.log(environmentLog))
	}
	if out := mustShell(t, got, "python -c 'import six; print(six.__version__)'"); out != "1.16.0" {
		t.Errorf("second job printed %q", out)
	}
	// Another environment from packages that were here before: uv has kept them.
	got, p = prepare(t, s, withEnvironment("kept", "dependencies: [python, pip: [idna==3.7]]"))
	if out := mustShell(t, got, "python -c 'import idna; print(idna.__version__)'"); out != "3.7" {
		t.Errorf("built without network: %q\n%s", out, p.log(environmentLog))
	}
}

func TestJobsOwnInstallsStayItsOwn(t *testing.T) {
	s := withTools(t, stager(t, newStore(t)))
	one, _ := prepare(t, s, withEnvironment("one", small))
	two, _ := prepare(t, s, withEnvironment("two", small))
	shared := one.Run.Env["PATH"]
	shared = strings.Split(shared, ":")[1]
	before, err := scan(filepath.Dir(shared))
	if err != nil {
		t.Fatal(err)
	}
	mustShell(t, one, "pip install -q six==1.15.0 && python -m pip install -q toolz && pip uninstall -q -y idna; pip3 --version")
	out := mustShell(t, one, "python -c 'import six, toolz, idna; print(six.__version__, idna.__version__)'")
	if out != "1.15.0 3.7" {
		t.Errorf("the job sees %q", out)
	}
	out = mustShell(t, two, "python -c 'import six; print(six.__version__)'; python -c 'import toolz' 2>&1 | tail -1")
	if out != "1.16.0\nModuleNotFoundError: No module named 'toolz'" {
		t.Errorf("another job sees %q", out)
	}
	after, err := scan(filepath.Dir(shared))
	if err != nil || len(before) == 0 || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the shared environment changed (%d files, then %d): %v", len(before), len(after), err)
	}
}

func TestScriptsOfAnEnvironmentSeeWhatTheJobInstalls(t *testing.T) {
	s := withTools(t, stager(t, newStore(t)))
	got, _ := prepare(t, s, withEnvironment("script", "dependencies: [python, pip: [pytest==8.3.4]]"))
	out := mustShell(t, got, `pip install -q six==1.15.0; echo "def test(): import six; assert six.__version__ == '1.15.0'" > test_it.py; pytest -q test_it.py | tail -1; . activate; command -v python`)
	if !strings.HasPrefix(out, "1 passed") || !strings.HasSuffix(out, s.folder(got.ID)+"/python/bin/python") {
		t.Errorf("got %q", out)
	}
}

func TestPipOfAJobWithoutEnvironmentDoesNotReachTheNode(t *testing.T) {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		s := stager(t, newStore(t), func(c *Config) { c.Python = python })
		one, _ := prepare(t, s, task("one"))
		two, _ := prepare(t, s, task("two"))
		if isThere(filepath.Join(s.folder(one.ID), pythonPart)) {
			t.Error("the task's own Python is made before it is used")
		}
		if exec.Command(python, "-m", "pip", "--version").Run() != nil {
			out := mustShell(t, one, "pip install six 2>&1 | tail -1; true")
			if !strings.Contains(out, "No module named pip") {
				t.Errorf("%s has no pip, and the job's says %q", python, out)
			}
			continue
		}
		mustShell(t, one, "pip install -q toolz==0.12.0 && pip install -q --user tinydb==4.8.0")
		if out := mustShell(t, one, "python3 -c 'import toolz, tinydb; print(toolz.__version__)'"); out != "0.12.0" {
			t.Errorf("%s: the job sees %q", python, out)
		}
		for _, py := range []string{"python3", "python"} {
			if out := mustShell(t, two, py+" -c 'import toolz, sys; print(toolz.__version__)' 2>&1 | tail -1"); strings.Contains(out, "0.12.0") {
				t.Errorf("%s: another job sees what the first installed", python)
			}
		}
		mustShell(t, one, "pip uninstall -q -y toolz; pip uninstall -q -y pip setuptools; true")
		mustShell(t, two, "pip --version")
	}
}

func TestManyFirstPythonsAtOnce(t *testing.T) {
	s := stager(t, newStore(t))
	got, _ := prepare(t, s, task("ranks"))
	out := mustShell(t, got, "for i in 1 2 3 4 5 6 7 8; do python -c 'import sys; print(sys.prefix)' & done; wait")
	want := strings.TrimSpace(strings.Repeat(filepath.Join(s.folder(got.ID), pythonPart)+"\n", 8))
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

func TestTenJobsBuildAnEnvironmentOnce(t *testing.T) {
	s := withTools(t, stager(t, newStore(t)))
	other := stager(t, newStore(t), sameCache(s))
	var wg sync.WaitGroup
	tellers := make([]*teller, 10)
	for i := range tellers {
		tellers[i] = &teller{}
		wg.Go(func() {
			who := []*Stager{s, other}[i%2]
			if _, err := who.Prepare(t.Context(), withEnvironment(fmt.Sprint("ten", i), small), tellers[i]); err != nil {
				t.Errorf("task %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	built := 0
	for i, p := range tellers {
		switch note := p.spans[trainyard.SpanEnvironment]; {
		case strings.HasPrefix(note, "built in"):
			built++
		case !strings.Contains(p.all(), "waiting for another job's build of environment \"small-1\""):
			t.Errorf("task %d neither built nor said that it waits: %s", i, p.all())
		}
		if !strings.Contains(p.log(environmentLog), "+ six==1.16.0") {
			t.Errorf("task %d did not see the build's output:\n%s", i, p.log(environmentLog))
		}
	}
	if built != 1 {
		t.Errorf("%d jobs built", built)
	}
}

// buildAsChild is the process that TestKilledBuilder kills.
func buildAsChild(dir string) int {
	s, err := New(Config{Dir: filepath.Join(dir, "tasks"), Cache: filepath.Join(dir, "cache"), Blobs: &store{dir: dir}})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, err = s.Prepare(context.Background(), withEnvironment("child", small), printer{})
	fmt.Println("ended", err)
	return 0
}

// printer prints what it is told to log.
type printer struct{}

func (printer) Say(string)                                {}
func (printer) Span(string, time.Time, time.Time, string) {}
func (printer) Log(_ string, data []byte)                 { fmt.Print(string(data)) }

func TestKilledBuilderLeavesNothingHalf(t *testing.T) {
	dir := t.TempDir()
	s := withTools(t, stager(t, newStore(t), func(c *Config) { c.Cache = filepath.Join(dir, "cache") }))
	for _, at := range []string{"uv --version", "uv venv", "Prepared", "Installed"} {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "STAGE_TEST_CHILD="+dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		var seen strings.Builder
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			seen.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), at) {
				break
			}
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		if strings.Contains(seen.String(), "ended") {
			t.Fatalf("the child came to its end before it was killed at %q:\n%s", at, seen.String())
		}
		if got, _ := filepath.Glob(filepath.Join(s.env.dir, "*.json")); len(got) > 0 {
			t.Fatalf("killed at %q, it left %v", at, got)
		}
	}
	got, p := prepare(t, s, withEnvironment("after", small))
	if out := mustShell(t, got, "python -c 'import six, idna; print(six.__version__)'"); out != "1.16.0" {
		t.Errorf("the rebuilt environment prints %q", out)
	}
	if !strings.HasPrefix(p.spans[trainyard.SpanEnvironment], "built") {
		t.Errorf("span %q", p.spans[trainyard.SpanEnvironment])
	}
	if left, _ := filepath.Glob(filepath.Join(s.env.dir, "*-*")); len(left) != 1 {
		t.Errorf("entries: %v", left)
	}
}

func TestWithoutNetworkANewEnvironmentFailsInWords(t *testing.T) {
	noNetwork(t)
	for name, s := range map[string]*Stager{"uv is there": withTools(t, stager(t, newStore(t))), "uv is not there": stager(t, newStore(t))} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			p := &teller{}
			_, err := s.Prepare(t.Context(), withEnvironment("offline", small), p)
			wantFault(t, err, trainyard.ClassEnvironment, `"small-1"`, "package index", "could not be reached", "proxy", "job logs --file "+environmentLog)
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %v", took)
			}
			if !strings.Contains(p.log(environmentLog), "Failed after") {
				t.Errorf("log:\n%s", p.log(environmentLog))
			}
		})
	}
}

func TestSilentNetworkFailsWithinAMinute(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never says a word
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := withTools(t, stager(t, newStore(t)))
	noNetwork(t)
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "ALL_PROXY", "PIP_PROXY"} {
		t.Setenv(name, "http://"+l.Addr().String())
	}
	start := time.Now()
	_, err = s.Prepare(t.Context(), withEnvironment("silent", small), &teller{})
	wantFault(t, err, trainyard.ClassEnvironment, "could not be reached")
	if took := time.Since(start); took > time.Minute {
		t.Errorf("took %v", took)
	}
}

func TestEnvironmentsThatCannotBe(t *testing.T) {
	s := withTools(t, stager(t, newStore(t)))
	t.Setenv("PATH", pathWithout(t, "micromamba", "mamba", "conda"))
	for name, c := range map[string]struct {
		conda string
		words []string
	}{
		"packages that only conda has": {"dependencies: [python=3.10, cudatoolkit=11.8, r-base, numpy]", []string{"cudatoolkit, r-base", "micromamba", `"small-1"`}},
		"no such version":              {"dependencies: [python, pip: [six==99]]", []string{"six==99", `"small-1"`, environmentLog}},
		"Python 2":                     {"dependencies: [python=2.7]", []string{"2.7", "only Python 3", `"small-1"`}},
		"a file that is not sent":      {"dependencies: [pip: [-r requirements.txt]]", []string{"requirements.txt", "not sent"}},
		"not YAML":                     {"dependencies: [", []string{"conda file", `"small-1"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Prepare(t.Context(), withEnvironment("cannot", c.conda), &teller{})
			wantFault(t, err, trainyard.ClassEnvironment, c.words...)
		})
	}
}

// pathWithout is PATH without the folders that hold programs.
func pathWithout(t *testing.T, programs ...string) string {
	t.Helper()
	var keep []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		has := false
		for _, p := range programs {
			has = has || isThere(filepath.Join(dir, p))
		}
		if !has {
			keep = append(keep, dir)
		}
	}
	return strings.Join(keep, string(os.PathListSeparator))
}

// fakeConda stands for micromamba, whose channels cannot be reached from everywhere: it makes an environment that is a copy of the
// node's Python by name, and keeps what it was asked.
const fakeConda = `#!/bin/sh
[ "$1 $2 $3" = "create -y -p" ] || exit 9
python3 -m venv --without-pip "$4" && cp "$6" "$4/asked" && echo "installed cudatoolkit" && printf '#!/bin/sh\necho tool of conda\n' > "$4/bin/nvcc" && chmod +x "$4/bin/nvcc"
`

func TestCondaIsUsedWhereOnlyItCan(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "micromamba"), []byte(fakeConda), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	s := stager(t, newStore(t))
	got, p := prepare(t, s, withEnvironment("conda", "channels: [conda-forge]\ndependencies: [python=3.10, cudatoolkit]\n"))
	out := mustShell(t, got, `nvcc; cat $CONDA_PREFIX/asked; python -c 'import sys; print(sys.prefix)'`)
	want := "tool of conda\nchannels: [conda-forge]\ndependencies: [python=3.10, cudatoolkit]\n" + filepath.Join(s.folder(got.ID), pythonPart)
	if out != want || !strings.Contains(p.log(environmentLog), "installed cudatoolkit") {
		t.Errorf("got\n%s\nwant\n%s\nlog\n%s", out, want, p.log(environmentLog))
	}
}

func TestPipDoesWhatUVCannot(t *testing.T) {
	wheels := t.TempDir()
	if out, err := exec.Command("python3", "-m", "pip", "download", "-q", "--no-deps", "-d", wheels, "six==1.16.0", "idna==3.7").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("PATH", pathWithout(t, "uv"))
	t.Setenv("PIP_NO_INDEX", "1") // an index that has these two packages and no uv
	t.Setenv("PIP_FIND_LINKS", wheels)
	s := stager(t, newStore(t))
	got, p := prepare(t, s, withEnvironment("pip", "dependencies: [python, six=1.16, pip: [idna==3.7]]"))
	if out := mustShell(t, got, "python -c 'import six, idna; print(six.__version__)'; pip --version"); !strings.HasPrefix(out, "1.16.0\npip") {
		t.Errorf("got %q", out)
	}
	if !strings.Contains(p.log(environmentLog), "using venv and pip") {
		t.Errorf("log:\n%s", p.log(environmentLog))
	}
}

// A package may be too much for the memory that there is to compile it in: uv's worker is killed, at whatever it does.
func TestModulesThatCannotBeCompiledAhead(t *testing.T) {
	dir := t.TempDir()
	killed := "import os, sys; any('pip_compileall' in a for a in sys.orig_argv) and (print(flush=True), os._exit(9))\n" // in every Python of the environment, at its start
	write := exec.Command("python3", "-c", `import sys, zipfile
w = zipfile.ZipFile("heavy-1.0-py3-none-any.whl", "w")
w.writestr("heavy.pth", sys.argv[1])
w.writestr("heavy.py", "weight = 7")
w.writestr("heavy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: heavy\nVersion: 1.0\n")
w.writestr("heavy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
w.writestr("heavy-1.0.dist-info/RECORD", "heavy.pth,,\nheavy.py,,\nheavy-1.0.dist-info/METADATA,,\nheavy-1.0.dist-info/WHEEL,,\nheavy-1.0.dist-info/RECORD,,\n")
w.close()`, killed)
	write.Dir = dir
	if out, err := write.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := withTools(t, stager(t, newStore(t)))
	got, p := prepare(t, s, withEnvironment("heavy", "dependencies: [python, pip: [heavy @ file://"+dir+"/heavy-1.0-py3-none-any.whl]]"))
	if out := mustShell(t, got, "python -c 'import heavy; print(heavy.weight)'"); out != "7" {
		t.Errorf("got %q", out)
	}
	if out := mustShell(t, got, "python -c 'import heavy, os; print(os.path.exists(heavy.__cached__))'"); out != "True" {
		t.Errorf("it was not compiled: %s", out)
	}
	if log := p.log(environmentLog); !strings.Contains(log, "bytecode-compile") || !strings.Contains(log, "one by one") {
		t.Errorf("log:\n%s", log)
	}
}

func TestWorkersFitTheMemory(t *testing.T) {
	for limit, want := range map[int64]int{0: 4, 200: 1, 1023: 1, 1024: 2, 64 << 10: 4} {
		if got := installers(limit); got != want {
			t.Errorf("%d MB: %d workers, want %d", limit, got, want)
		}
	}
}

// bare is a Python as some systems have it: with neither pip nor what makes virtual environments.
const bare = `#!/bin/sh
[ "$1" = -m ] && { echo "No module named $2" >&2; exit 1; }
exec python3 "$@"
`

func TestPythonWithoutPipIsSaid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(path, []byte(bare), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", pathWithout(t, "uv"))
	s := stager(t, newStore(t), func(c *Config) { c.Python = path })
	s.python.known[path] = &interpreter{Exe: path, Base: path, Version: "3.11.2"}
	_, err := s.Prepare(t.Context(), withEnvironment("bare", small), &teller{})
	wantFault(t, err, trainyard.ClassEnvironment, "no uv", "No module named venv", "python3-pip")
}

func TestOtherPythonIsSaid(t *testing.T) {
	s := withTools(t, stager(t, newStore(t)))
	_, p := prepare(t, s, withEnvironment("other", "dependencies: [python=3.5]"))
	if note := p.spans[trainyard.SpanEnvironment]; !strings.Contains(note, "Python 3.5 is asked for and not on this node") {
		t.Errorf("span says %q", note)
	}
}

func TestToolThatDoesNothingIsStopped(t *testing.T) {
	s := stager(t, newStore(t))
	s.stall = 200 * time.Millisecond
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	b := &builder{stager: s, dir: t.TempDir(), log: log, env: os.Environ()}
	err = b.run(t.Context(), "sleep", "3600")
	if !errors.Is(err, errStalled) {
		t.Errorf("got %v", err)
	}
}

func TestFullDiskWhileBuildingIsSaid(t *testing.T) {
	s := stager(t, newStore(t))
	s.free = func(string) (int64, error) { return 1 << 20, nil }
	_, err := s.Prepare(t.Context(), withEnvironment("full", small), &teller{})
	wantFault(t, err, trainyard.ClassDisk, "no room on node", s.cache)
}

func TestPipsFilesCountWhereThereIsNoPip(t *testing.T) {
	home := t.TempDir()
	for path, text := range map[string]string{".pip/pip.conf": "[global]\nindex-url = https://old.example/simple\n", ".config/pip/pip.conf": "[global]\n# a comment\nno-index = true\nfind-links = " + home + "\n"} {
		full := filepath.Join(home, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"HOME=" + home}
	got := uvEnv(pipConfig(pipFiles(env), env), env)
	for _, want := range []string{"UV_NO_INDEX=1", "UV_FIND_LINKS=" + home} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not among %q", want, got)
		}
	}
}

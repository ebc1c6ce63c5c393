package stage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
)

func TestCondaFilesAreReadForPip(t *testing.T) {
	for name, c := range map[string]struct {
		deps   string
		python string
		lines  []string
		conda  []string
	}{
		"names and versions": {
			`[python=3.10, numpy, "pandas=1.5", scipy==1.10.1, "scikit-learn>=1.1,<1.6", "joblib ~=1.2", "dask =2023.1.*", "tqdm 4.60.0", 'attrs!=21.1']`, "3.10",
			[]string{"numpy", "pandas==1.5.*", "scipy==1.10.1", "scikit-learn>=1.1,<1.6", "joblib~=1.2", "dask==2023.1.*", "tqdm==4.60.0", "attrs!=21.1", "numpy<2"}, nil},
		"builds and channels": {
			`["conda-forge::xgboost=1.7", "numpy=1.23.5=py310h53a5b5f_0", "pillow=9.4.0=py310_0", "scipy[version='>=1.7,<2',build=py*]", "pandas 1.5.3 py310_1"]`, "",
			[]string{"xgboost==1.7.*", "numpy==1.23.5.*", "pillow==9.4.0.*", "scipy>=1.7,<2", "pandas==1.5.3"}, nil},
		"other names": {
			`[pytorch=2.1, matplotlib-base, msgpack-python, python-dateutil, opencv]`, "",
			[]string{"torch==2.1.*", "matplotlib", "msgpack", "python-dateutil", "opencv-python-headless"}, nil},
		"only conda": {
			`[cudatoolkit=11.8, mkl, r-ggplot2, openmpi, gcc, "nvidia::cuda-nvcc", numpy]`, "",
			[]string{"numpy"}, []string{"cudatoolkit", "mkl", "r-ggplot2", "openmpi", "gcc", "cuda-nvcc"}},
		"parts of Python itself": {`[libgcc-ng=12, openssl, python=3.9.16=h7a1cb2a_2, zlib, pip=23.0]`, "3.9.16", []string{"pip==23.0.*"}, nil},
		"pip list": {
			`[python>=3.8, pip, {pip: [mlflow<3, "azureml-mlflow==1.50", "--extra-index-url https://index.test/simple", "git+https://host.test/x.git", "", "x @ https://host.test/x.whl"]}]`,
			">=3.8", []string{"pip", "mlflow<3", "azureml-mlflow==1.50", "--extra-index-url https://index.test/simple", "git+https://host.test/x.git",
				"x @ https://host.test/x.whl"}, nil},
		"a package of NumPy 1's time":    {`[scikit-learn=1.2.2, numpy, pandas]`, "", []string{"scikit-learn==1.2.2.*", "numpy", "pandas", "numpy<2"}, nil},
		"what may be of either time":     {`[pandas=2.2, {pip: [joblib]}]`, "", []string{"pandas==2.2.*", "joblib"}, nil},
		"a package of NumPy 2's time":    {`[scikit-learn=1.5, numpy]`, "", []string{"scikit-learn==1.5.*", "numpy"}, nil},
		"NumPy's version is said":        {`[scikit-learn=1.2.2, "numpy>=1.20"]`, "", []string{"scikit-learn==1.2.2.*", "numpy>=1.20"}, nil},
		"NumPy's version is said to pip": {`[scikit-learn=1.2.2, {pip: ["numpy==2.0"]}]`, "", []string{"scikit-learn==1.2.2.*", "numpy==2.0"}, nil},
		"nothing":                        {`[]`, "", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parseRecipe("name: x\nchannels: [defaults]\ndependencies: " + c.deps)
			if err != nil {
				t.Fatal(err)
			}
			if r.Python.String() != c.python {
				t.Errorf("Python %q, want %q", r.Python, c.python)
			}
			if d := cmp.Diff(c.lines, r.Lines); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.conda, r.Conda); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestBadCondaFilesAreSaidAllAtOnce(t *testing.T) {
	_, err := parseRecipe(`dependencies: ["numpy=1.2|1.3", "=3", {npm: [x]}, {pip: ["-r a.txt", "-c b.txt", ./wheel.whl, "-e ."]}, [x]]`)
	if err == nil {
		t.Fatal("no error")
	}
	for _, words := range []string{"1.2|1.3", `"=3"`, "npm", "a.txt", "b.txt", "./wheel.whl", `"."`, "line 1"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("error does not say %s: %v", words, err)
		}
	}
}

func FuzzParseRecipe(f *testing.F) {
	f.Add("dependencies: [python=3.10, numpy=1.2, {pip: [six]}]")
	f.Add("dependencies: [\"a[version='>=1']\", \"b =1 c\"]")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRecipe(text)
		if err != nil {
			return
		}
		for _, l := range r.Lines {
			if strings.ContainsAny(l, "\r\n") {
				t.Errorf("a line of requirements is several: %q", l)
			}
		}
	})
}

func FuzzWebAddress(f *testing.F) {
	f.Add("wasbs://c@a.test/p")
	f.Add("https://h/%2e%2e/x?y")
	f.Fuzz(func(t *testing.T, uri string) {
		if u, _, err := webAddress(uri); err == nil {
			if name := webName(u); name == "" || name == ".." || strings.ContainsAny(name, `/\`) {
				t.Errorf("%q is read into a file called %q", uri, name)
			}
		}
	})
}

func TestPythonVersions(t *testing.T) {
	for want, cases := range map[string]struct{ yes, near, no []string }{
		"":            {yes: []string{"3.5.0", "3.11.7"}},
		"3.10":        {yes: []string{"3.10.0", "3.10.13"}, no: []string{"3.11.0", "3.1.0"}},
		"==3.10.4":    {yes: []string{"3.10.4"}, near: []string{"3.10.13"}, no: []string{"3.11.4"}},
		"=3.10.4":     {yes: []string{"3.10.4"}, near: []string{"3.10.13"}, no: []string{"3.9.0"}},
		"==3.9.*":     {yes: []string{"3.9.18"}, no: []string{"3.10.0"}},
		">=3.8,<3.11": {yes: []string{"3.8.0", "3.10.13"}, no: []string{"3.7.9", "3.11.0"}},
		"~=3.9":       {yes: []string{"3.9.0", "3.12.1"}, no: []string{"3.8.9"}},
		">3.9,!=3.11": {yes: []string{"3.10.0", "3.12.0"}, no: []string{"3.8.2"}},
		"<=3.9":       {yes: []string{"3.8.1"}, no: []string{"3.10.0"}},
	} {
		v, err := parseVersions(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range cases.yes {
			if !v.match(version) || !v.near(version) {
				t.Errorf("%q does not match %s", want, version)
			}
		}
		for _, version := range cases.near {
			if v.match(version) || !v.near(version) {
				t.Errorf("%q: match(%s) = %t, near = %t", want, version, v.match(version), v.near(version))
			}
		}
		for _, version := range cases.no {
			if v.match(version) || v.near(version) {
				t.Errorf("%q matches %s", want, version)
			}
		}
		if !v.python3() {
			t.Errorf("%q: no Python 3 can match", want)
		}
	}
	for _, text := range []string{"2.7", "<3"} {
		if v, err := parseVersions(text); err != nil || v.python3() {
			t.Errorf("%q: python3() is true, %v", text, err)
		}
	}
	for _, text := range []string{"abc", "=>3", "3.x"} {
		if v, err := parseVersions(text); err == nil {
			t.Errorf("%q was read as %v", text, v)
		}
	}
}

func TestPipSettingsReachUV(t *testing.T) {
	here := t.TempDir()
	listing := `global.index-url='https://user:secret@global.test/simple'
install.index-url='https://install.test/simple'
global.extra-index-url='https://a.test/simple\nhttps://b.test/simple'
global.cert='/etc/ca.pem'
install.trusted-host='t.test'
download.timeout='5'
:env:.find-links='` + here + ` /is/not/there https://links.test/'
`
	env := []string{"PIP_PROXY=http://proxy.test:3128", "PIP_NO_INDEX=yes", "SSL_CERT_FILE=", "UV_INSECURE_HOST=mine.test", "PATH=/bin"}
	got := uvEnv(pipConfig(listing, env), env)
	want := []string{"UV_DEFAULT_INDEX=https://install.test/simple", "UV_INDEX=https://a.test/simple https://b.test/simple",
		"UV_INDEX_STRATEGY=unsafe-best-match", "UV_FIND_LINKS=" + here + ",https://links.test/", "SSL_CERT_FILE=/etc/ca.pem",
		"HTTPS_PROXY=http://proxy.test:3128", "HTTP_PROXY=http://proxy.test:3128", "UV_NO_INDEX=1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestToolsGetNothingOfOurs(t *testing.T) {
	got := toolEnv([]string{"TRAINYARD_TOKEN=secret", "PYTHONPATH=/x", "PIP_TARGET=/y", "PIP_CERT=/c", "HOME=/h"})
	if !slices.Contains(got, "PIP_CERT=/c") || !slices.Contains(got, "HOME=/h") || strings.Contains(strings.Join(got, " "), "secret") ||
		slices.Contains(got, "PYTHONPATH=/x") || slices.Contains(got, "PIP_TARGET=/y") {
		t.Errorf("got %v", got)
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	for in, want := range map[string]string{
		"https://h.test/x?sig=secret":                "https://h.test/x?…",
		"https://u:secret@h.test/x":                  "https://u:xxxxx@h.test/x",
		"azureml://datastores/d/paths/a b/ü.csv":     "azureml://datastores/d/paths/a b/ü.csv",
		"wasbs://c@account.test/iris.csv":            "wasbs://c@account.test/iris.csv",
		"azureml://datastores/d/paths/x/?y=1&z=#top": "azureml://datastores/d/paths/x/?y=1&z=#top",
	} {
		if got := shown(in); got != want {
			t.Errorf("shown(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLongScriptsAreStartedByAShell(t *testing.T) {
	text := []byte("#!/shared/bin/python\nimport sys\n")
	if got := string(moved(text, "/shared", "/own")); got != "#!/own/bin/python\nimport sys\n" {
		t.Errorf("got %q", got)
	}
	long := "/" + strings.Repeat("x", 150)
	want := "#!/bin/sh\n'''exec' \"" + long + "/bin/python\" \"$0\" \"$@\"\n' '''\nimport sys\n"
	if got := string(moved(text, "/shared", long)); got != want {
		t.Errorf("got %q", got)
	}
	if got := string(moved([]byte("VIRTUAL_ENV='/shared'\n"), "/shared", "/own")); got != "VIRTUAL_ENV='/own'\n" {
		t.Errorf("got %q", got)
	}
}

func TestPlainNamesAreNamesOfFiles(t *testing.T) {
	ok := func(name string) bool {
		got := plainName(name)
		return got != "" && got != "." && got != ".." && !strings.ContainsAny(got, "/\\\x00") && len(got) <= 128
	}
	if err := quick.Check(ok, nil); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "../x", strings.Repeat("x", 300), "con\x00", "C:x", ".hidden"} {
		if !ok(name) {
			t.Errorf("plainName(%q) = %q", name, plainName(name))
		}
	}
	if plainName("iris_csv") != "iris_csv" || plainName("a/b") == plainName("a_b") {
		t.Error("names are changed without need, or fall together")
	}
}

// BenchmarkCuratedEnvironment builds what the commonest curated environment is made of, and then measures a second job's start on it.
func BenchmarkCuratedEnvironment(b *testing.B) {
	const file = "dependencies:\n- python=3.11\n- pandas=1.5\n- numpy>=1.23.5,<1.27\n- scikit-learn=1.5\n- pip:\n  - joblib~=1.2\n"
	s := stager(b, &store{dir: b.TempDir()})
	start := time.Now()
	got, _ := prepare(b, s, withEnvironment("curated", file))
	built := time.Since(start)
	mustShell(b, got, "python -c 'import pandas, sklearn.ensemble'")
	i := 0
	for b.Loop() {
		i++
		tk := withEnvironment("curated", file)
		tk.ID = trainyard.TaskID(fmt.Sprintf("s/g/w/curated.2.%d", i))
		if _, err := s.Prepare(b.Context(), tk, &teller{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(built.Seconds(), "build-s")
}

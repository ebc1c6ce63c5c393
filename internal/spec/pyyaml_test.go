package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const pyyaml = "pyyaml==6.0.3"

// python runs a script with PyYAML at hand, which is fetched once into the user's cache.
func python(t *testing.T, script string, stdin []byte) []byte {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.Command("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
	if err != nil {
		t.Fatalf("this test needs python3: %v", err)
	}
	dir := filepath.Join(cache, "trainyard-test", strings.ReplaceAll(pyyaml, "==", "-")+"-py"+strings.TrimSpace(string(version)))
	if _, err := os.Stat(dir); err != nil {
		install(t, dir)
	}
	cmd := exec.Command("python3", "-c", script)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+dir)
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python3: %v", err)
	}
	return out
}

// install puts PyYAML into dir, whole or not at all: several test runs may do this at once.
func install(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "pyyaml-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	site, venv := filepath.Join(tmp, "site"), filepath.Join(tmp, "venv")
	pip := func(python string) ([]byte, error) {
		return exec.Command(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", site, pyyaml).CombinedOutput()
	}
	out, err := pip("python3")
	if err != nil { // a Python without pip has venv, which brings one
		if made, failed := exec.Command("python3", "-m", "venv", venv).CombinedOutput(); failed != nil {
			t.Fatalf("this test needs %s, and neither pip (%s) nor venv (%s) is here: apt-get install python3-venv", pyyaml, out, made)
		}
		if out, err = pip(filepath.Join(venv, "bin", "python3")); err != nil {
			t.Fatalf("install %s: %v\n%s", pyyaml, err, out)
		}
	}
	if err := os.Rename(site, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			t.Fatal(err)
		}
	}
}

// scalars are plain scalars worth asking about: known traps, and random ones made of the letters that matter.
func scalars() []string {
	all := strings.Fields(`2e-5 1e-3 1e3 1e+3 1.0 1. .5 0.00001 1.5e-7 1.5e7 1.5e+7 1.e+3 .5e+3 1e16 1.0e+16 123456789012345678.0 0.1 1e-5 10.0e-5
		-0.0 +0.0 -0 +1 +1.5 0 00 010 0o10 08 09 0777 0_7 0x1F 0xg 0x_1 0b101 0b102 0b_ 1_000 1_000.5 _1 1_ 12345678901234567890123
		1:30 01:30 1:60 1:2:3 190:20:30 190:20:30.15 -1:30 1:30.5 0:1.5 yes Yes YES yEs no No NO on On ON off Off OFF y Y n N true True TRUE tRue false False
		null Null NULL ~ nUll .inf -.inf +.INF .Inf .iNf .nan .NaN -.nan 1e400 1.0e+400 2024-01-01 2024-1-1 2024-01-01T10:00:00Z 2024-01-01t1:00:00.5+02:00
		12:34:56 1.2.3 3.10 1,000 1e 0x 0b e5 1.0e5 1.0E-5 1.0E+05 9007199254740993.0 5e-324 2.5e-324 1.7976931348623157e+308 None inf nan -1_0 --1 ++1 +-1
		0.1e-6 100000.0 1234567.0 0.0001 0.00012 123e-2 = << 1/2 50% v1 1a 0x1p3 1__0 0b1_0 -0b11 -0x1f -017 +0o7 1:5 1:05 1:059 61:00 -190:20:30 +1:1`)
	random := rand.New(rand.NewPCG(1, 2))
	const letters = "0123456789012345678900..__--++::eExXbontfayNIF~"
	for len(all) < 900 {
		b := make([]byte, 1+random.IntN(9))
		for i := range b {
			b[i] = letters[random.IntN(len(letters))]
		}
		if s := string(b); !strings.HasSuffix(s, ":") && s != "-" && s != "---" {
			all = append(all, s)
		}
	}
	return all
}

func TestScalarsAreWhatPyYAMLMakesOfThem(t *testing.T) {
	const script = `
import json, sys, yaml, datetime
out = []
for text in json.load(sys.stdin):
    try:
        value = yaml.safe_load("- " + text)[0]
        kind = type(value).__name__
        out.append([kind, text if kind in ("date", "datetime") else str(value)])
    except Exception as e:
        out.append(["error", str(e)])
json.dump(out, sys.stdout)
`
	all := scalars()
	stdin, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	var want [][2]string
	if err := json.Unmarshal(python(t, script, stdin), &want); err != nil || len(want) != len(all) {
		t.Fatalf("%d answers for %d scalars, %v", len(want), len(all), err)
	}
	names := map[scalarType]string{isString: "str", isInt: "int", isFloat: "float", isBool: "bool", isNull: "NoneType", isTime: "date"}
	refused := 0
	for i, text := range all {
		p := &problems{}
		root := read(&source{name: "x"}, []byte("- "+text), p)
		if root == nil || len(root.values) != 1 {
			t.Errorf("%q is not read: %v", text, p.list)
			continue
		}
		n := root.values[0]
		kind := strings.Replace(want[i][0], "datetime", "date", 1)
		if kind == "error" { // such as 2024-13-45: no translation reads more into it than the text
			refused++
			if n.value != text {
				t.Errorf("%q is read as %q, and PyYAML says %s", text, n.value, want[i][1])
			}
			continue
		}
		if names[n.typ] != kind || n.value != want[i][1] {
			t.Errorf("%q is %s %q, and for PyYAML %s %q", text, names[n.typ], n.value, kind, want[i][1])
		}
	}
	if refused > len(all)/10 {
		t.Errorf("PyYAML refuses %d of %d scalars: the test tests too little", refused, len(all))
	}
}

// Block scalars, quotes and folding give the same text as in PyYAML, to the last blank.
func TestTextsAreWhatPyYAMLMakesOfThem(t *testing.T) {
	docs := []string{
		"a: >-\n  one\n  two\n\n  three\n", "a: >\n  one\n   two\n  three \n", "a: |\n  one\n    two\n\n\n", "a: |-\n  x\n", "a: |+\n  x\n\n", "a: |2\n   x\n",
		"a: 'it''s'\n", "a: \"x\\ty\\u00e9\\n\"\n", "a: plain\n  over two\n\n  lines\n", "a: >-\n  python train.py \n  --x 1 \n", "a: \"two\n  lines\"\n",
		"a: {b: [1, 'x', 2e-5], c: }\n", "a: &x [1, yes]\nb: *x\n", "a: {<<: {x: 1, y: 2}, y: 3}\n", "a:\r\n  - |\r\n    x\r\n    y\r\n", "\ufeffa: 1\n",
		"a: # comment\n  b # c\n", "? a\n: b\n", "a: !!str 5\nb: !!float 5\nc: !!int '7'\nd: !!bool 'yes'\n", "%YAML 1.1\n---\na: 010\n...\n", "a: x#y\nb: 'c' #d\n",
		"a: [yes, No, 1_0]\nyes: 1\n",
	}
	const script = `
import json, sys, yaml
def plain(v):
    if isinstance(v, dict): return {str(k): plain(x) for k, x in v.items()}
    if isinstance(v, list): return [plain(x) for x in v]
    return str(v)
out = []
for text in json.load(sys.stdin):
    try: out.append(plain(yaml.safe_load(text)))
    except yaml.YAMLError: out.append("error")
json.dump(out, sys.stdout)
`
	stdin, err := json.Marshal(docs)
	if err != nil {
		t.Fatal(err)
	}
	var want []any
	if err := json.Unmarshal(python(t, script, stdin), &want); err != nil {
		t.Fatal(err)
	}
	for i, text := range docs {
		p := &problems{}
		root := read(&source{name: "x"}, []byte(text), p)
		var got any = "error"
		if root != nil && len(p.list) == 0 {
			got = pythonic(root)
		}
		if g, w := fmt.Sprint(got), fmt.Sprint(want[i]); g != w {
			t.Errorf("%q is read as\n%s\nand by PyYAML as\n%s\n%v", text, g, w, p.list)
		}
	}
}

// pythonic is the tree with every scalar as Python's str() writes it.
func pythonic(n *node) any {
	switch n.kind {
	case mapping:
		m := map[string]any{}
		for i, k := range n.keys {
			m[k.value] = pythonic(n.values[i])
		}
		return m
	case list:
		var all []any
		for _, v := range n.values {
			all = append(all, pythonic(v))
		}
		return all
	}
	return n.value
}

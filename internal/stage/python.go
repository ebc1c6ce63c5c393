package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// interpreter is a Python on this node.
type interpreter struct {
	Exe     string   `json:"exe"`     // what it calls itself
	Base    string   `json:"base"`    // the installed one behind it, which a virtual environment is made from
	Version string   `json:"version"` // "3.11.7"
	Venv    bool     `json:"venv,omitempty"`
	Site    []string `json:"site,omitempty"` // folders of packages that a virtual environment on top must be told of
}

// minor is "3.11".
func (p *interpreter) minor() string {
	parts := strings.SplitN(p.Version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// probe prints what interpreter holds. A virtual environment on top sees the folders of an installed Python by itself, but neither those
// of a virtual environment below it nor the user's own, once that has been moved. It is written without the module for JSON, which would
// take as long as all else: in a container it runs before every task.
const probe = `
import os, site, sys
venv = sys.prefix != sys.base_prefix
dirs = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
if not venv:
    dirs = [p for p in dirs if p == site.getusersitepackages()]
about = [sys.executable, getattr(sys, "_base_executable", None) or sys.executable, ".".join(map(str, sys.version_info[:3])), "venv" if venv else ""]
sys.stdout.buffer.write(b"\0".join(map(os.fsencode, about + dirs)))
`

// readProbe reads what probe printed; nil for anything else.
func readProbe(out []byte) *interpreter {
	f := strings.Split(string(out), "\x00")
	if len(f) < 4 || f[2] == "" || strings.Contains(f[0], "\n") {
		return nil
	}
	return &interpreter{Exe: f[0], Base: f[1], Version: f[2], Venv: f[3] != "", Site: f[4:]}
}

// finder finds Pythons and remembers them, on disk too: a version manager's python3 takes a tenth of a second to say who it is.
type finder struct {
	node string // as configured; "" is the first python3 on PATH
	memo string // folder

	mu     sync.Mutex
	known  map[string]*interpreter // by path asked; nil: it does not run
	picked map[string]choice       // by what was wanted
}

// choice is a Python for an environment, and in words how it differs from what was wanted.
type choice struct {
	python  *interpreter
	warning string
}

// main is the node's Python, or nil if it has none.
func (f *finder) main(ctx context.Context) (*interpreter, error) {
	name := f.node
	if name == "" {
		name = "python3"
		if runtime.GOOS == "windows" {
			name = "python"
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, nil
	}
	return f.ask(ctx, path)
}

// ask runs a Python to know it. It returns nil for one that does not run.
func (f *finder) ask(ctx context.Context, path string) (*interpreter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, ok := f.known[path]; ok {
		return p, nil
	}
	memo := filepath.Join(f.memo, keyOf(path, f.stamp(path))+".json")
	if p, ok := recall(memo); ok {
		f.known[path] = p
		return p, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var p *interpreter
	out, err := exec.CommandContext(ctx, path, "-c", probe).Output()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", path, ctx.Err())
	}
	if err == nil {
		p = readProbe(out)
	}
	f.known[path] = p
	if data, err := json.Marshal(p); err == nil {
		_ = replaceFile(memo, data, 0o644)
	}
	return p, nil
}

// recall reads what an earlier process learned. A Python that has gone since is asked again.
func recall(memo string) (*interpreter, bool) {
	data, err := os.ReadFile(memo)
	if err != nil {
		return nil, false
	}
	var p *interpreter
	if json.Unmarshal(data, &p) != nil {
		return nil, false
	}
	if p != nil {
		if _, err := os.Stat(p.Base); err != nil {
			return nil, false
		}
	}
	return p, true
}

// stamp changes when path may mean another Python: the file changed, or it is a version manager's and its setting changed.
func (f *finder) stamp(path string) string {
	parts := []string{os.Getenv("PYENV_VERSION"), os.Getenv("HOME")}
	real, _ := filepath.EvalSymlinks(path)
	for _, p := range []string{path, real, filepath.Join(pyenvRoot(), "version")} {
		if info, err := os.Stat(p); err == nil {
			parts = append(parts, fmt.Sprint(p, info.Size(), info.ModTime().UnixNano()))
		}
	}
	return keyOf(parts...)
}

func pyenvRoot() string {
	if root := os.Getenv("PYENV_ROOT"); root != "" {
		return root
	}
	home, _ := os.UserHomeDir()
	return filepath.Join(home, ".pyenv")
}

// pick finds the Python that an environment asks for, or the nearest there is, and says in words how it differs.
func (f *finder) pick(ctx context.Context, want versions) (choice, error) {
	f.mu.Lock()
	c, ok := f.picked[want.String()]
	f.mu.Unlock()
	if ok && isThere(c.python.Base) {
		return c, nil
	}
	c, err := f.search(ctx, want)
	if err == nil {
		f.mu.Lock()
		f.picked[want.String()] = c
		f.mu.Unlock()
	}
	return c, err
}

func (f *finder) search(ctx context.Context, want versions) (choice, error) {
	if !want.python3() {
		return choice{}, fault(trainyard.ClassEnvironment, "it asks for Python %s, and only Python 3 can be used; change the python line of its conda file", want)
	}
	node, err := f.main(ctx)
	if err != nil {
		return choice{}, err
	}
	var near *interpreter
	for p, err := range f.candidates(ctx, node, want) {
		if err != nil {
			return choice{}, err
		}
		if want.match(p.Version) {
			return choice{python: p}, nil
		}
		if near == nil && want.near(p.Version) {
			near = p
		}
	}
	switch {
	case near != nil:
		return choice{near, fmt.Sprintf("Python %s is asked for and this node has %s, which is used", want, near.Version)}, nil
	case node != nil:
		return choice{node, fmt.Sprintf("Python %s is asked for and not on this node; %s is used. Install python%s on the node to have it",
			want, node.Version, want.minor())}, nil
	}
	return choice{}, fault(trainyard.ClassEnvironment, "it needs Python, and this node has none on its PATH; install python3 on the node")
}

// candidates yields the node's own Python, then those by name on PATH, then those of version managers, which are on no PATH.
func (f *finder) candidates(ctx context.Context, node *interpreter, want versions) func(yield func(*interpreter, error) bool) {
	return func(yield func(*interpreter, error) bool) {
		if node != nil && !yield(node, nil) {
			return
		}
		for _, path := range f.places(want) {
			p, err := f.ask(ctx, path)
			if (p != nil || err != nil) && !yield(p, err) {
				return
			}
		}
	}
}

// places lists where a Python of a wanted minor version might be, newest version first.
func (f *finder) places(want versions) []string {
	home, _ := os.UserHomeDir()
	var out []string
	for minor := 30; minor >= 5; minor-- {
		version := "3." + strconv.Itoa(minor)
		if !want.near(version + ".0") {
			continue
		}
		if path, err := exec.LookPath("python" + version); err == nil {
			out = append(out, path)
		}
		for _, root := range []string{filepath.Join(pyenvRoot(), "versions", version+".*"),
			filepath.Join(home, ".local", "share", "uv", "python", "cpython-"+version+".*")} {
			found, _ := filepath.Glob(filepath.Join(root, "bin", "python"+version))
			slices.Reverse(found)
			out = append(out, found...)
		}
	}
	return out
}

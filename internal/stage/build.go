package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// UVVersion is put on nodes without uv. It is pinned: an installer that changes overnight changes what is built.
const UVVersion = "0.13.8"

// seed is what people expect in every environment: the job's own pip install, and what scripts older than Python 3.12 import.
var seed = []string{"pip", "setuptools<81"}

// builder builds one environment in a folder of its own.
type builder struct {
	stager  *Stager
	w       *work
	name    string
	words   string // name in a sentence
	recipe  recipe
	text    string       // of the conda file
	conda   string       // the tool, if conda does it
	python  *interpreter // else
	warning string       // how python differs from what was asked for

	dir  string // of the entry
	tail *tail
	log  *os.File
	env  []string
}

// build fills b.dir. What it prints goes to the log beside the entry, from which everyone who waits reads.
func (b *builder) build(ctx context.Context) (record, error) {
	s := b.stager
	if err := s.room(ctx, b.dir, 256<<20); err != nil {
		return record{}, err
	}
	log, err := os.OpenFile(b.tail.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o644)
	if err != nil {
		return record{}, fmt.Errorf("make build log: %w", err)
	}
	defer log.Close()
	b.log = log
	defer b.tail.follow()()
	b.print("Building %s", b.words)
	for _, note := range append(b.recipe.Notes, b.warning) {
		if note != "" {
			b.print("Note: %s", note)
		}
	}
	b.env = toolEnv(os.Environ())
	start := time.Now()
	py, err := b.install(ctx)
	if err != nil {
		b.print("Failed after %.1f s: %v", time.Since(start).Seconds(), err)
		return record{}, err
	}
	size, err := b.seal(py)
	if err != nil {
		return record{}, err
	}
	b.print("Built in %.1f s, %s", time.Since(start).Seconds(), sized(size))
	return record{Bytes: size, Note: b.warning, Python: py}, nil
}

// install does the work with what the node has: conda where it must, else uv, else pip.
func (b *builder) install(ctx context.Context) (*interpreter, error) {
	if b.conda != "" {
		return b.withConda(ctx)
	}
	lock, err := acquire(ctx, b.stager.uvLock(), false, nil)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	b.env = append(b.env, b.indexEnv(ctx)...)
	uv, err := b.findUV(ctx)
	if err != nil {
		return nil, err
	}
	if uv == "" || b.run(ctx, uv, "--version") != nil {
		b.print("uv cannot be had; using venv and pip")
		err = b.withPip(ctx)
	} else {
		err = b.withUV(ctx, uv)
	}
	if err != nil {
		return nil, err
	}
	py := *b.python
	py.Venv, py.Site = true, nil
	return &py, nil
}

// root is the environment itself.
func (b *builder) root() string { return filepath.Join(b.dir, installed) }

// rootPython is the environment's interpreter.
func (b *builder) rootPython() string {
	for _, name := range []string{filepath.Join(binDir, "python"), filepath.Join(binDir, "python.exe"), "python.exe"} {
		if path := filepath.Join(b.root(), name); isThere(path) {
			return path
		}
	}
	return filepath.Join(b.root(), binDir, "python")
}

// withUV makes the environment with uv. Without a network, what uv has kept of earlier builds may be enough.
func (b *builder) withUV(ctx context.Context, uv string) error {
	reqs, err := b.requirements()
	if err != nil {
		return err
	}
	b.env = append(b.env, "UV_CACHE_DIR="+b.stager.uvCache(), "UV_LINK_MODE=hardlink", "UV_COMPILE_BYTECODE=1", "UV_NO_PROGRESS=1",
		"UV_PYTHON_DOWNLOADS=never", "UV_HTTP_TIMEOUT=15", "UV_HTTP_CONNECT_TIMEOUT=10", "UV_HTTP_RETRIES=2", "UV_CONCURRENT_INSTALLS="+strconv.Itoa(installers(memoryLimit())))
	if err := b.run(ctx, uv, "venv", "--python", b.python.Base, b.root()); err != nil {
		return b.explain(err)
	}
	pip := []string{uv, "pip", "install", "--python", b.rootPython()}
	if b.offlineIndex() { // uv has no variable for it that all its versions heed
		pip = append(pip, "--no-index")
	}
	var gone error // why the network counts as gone
	for _, args := range [][]string{seed, reqs} {
		if len(args) == 0 {
			continue
		}
		err := gone
		if gone == nil {
			err = b.compiled(ctx, append(slices.Clone(pip), args...))
		}
		if errors.Is(err, errNetwork) {
			b.print("No network; trying what this node has kept of earlier builds")
			gone = err
			if b.run(ctx, append(append(slices.Clone(pip), "--offline"), args...)...) == nil {
				err = nil
			}
		}
		if err != nil {
			return b.explain(err)
		}
	}
	return nil
}

// compiled runs uv, which compiles the modules ahead with some workers at once. Where their memory is not to be had, Python does it alone.
func (b *builder) compiled(ctx context.Context, argv []string) error {
	err := b.run(ctx, argv...)
	e, ok := errors.AsType[*toolError](err)
	if !ok || !strings.Contains(e.output, "bytecode-compile") {
		return err
	}
	with := b.env
	defer func() { b.env = with }()
	b.env = append(slices.Clone(with), "UV_COMPILE_BYTECODE=0")
	if err := b.run(ctx, argv...); err != nil {
		return err
	}
	b.print("The modules could not be compiled so; once more, one by one")
	// Without the largest of them, which nobody imports. What is not compiled in the end, Python compiles at every import.
	if err := b.run(ctx, b.rootPython(), "-m", "compileall", "-q", "-x", `[/\\]site-packages[/\\].*[/\\]tests?[/\\]`, filepath.Join(b.root(), "lib")); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

// withPip makes the environment with what Python itself brings.
func (b *builder) withPip(ctx context.Context) error {
	reqs, err := b.requirements()
	if err != nil {
		return err
	}
	err = b.run(ctx, b.python.Base, "-m", "venv", b.root())
	if e, ok := errors.AsType[*toolError](err); ok {
		return fault(trainyard.ClassEnvironment, "%s could not be built: this node has no uv, and its Python %s has not all that would do instead (%s); "+
			"install uv, or pip and venv (Debian: python3-pip, python3-venv), on the node; the whole build log is shown by job logs --file %s", b.words, b.python.Version, cause(e), environmentLog)
	}
	if err != nil {
		return err
	}
	if len(reqs) == 0 {
		return nil
	}
	args := []string{b.rootPython(), "-m", "pip", "install", "--timeout", "12", "--retries", "2", "--no-input", "--progress-bar", "off"}
	if err := b.run(ctx, append(args, reqs...)...); err != nil {
		return b.explain(err)
	}
	return nil
}

// installers is how many of uv's workers copy and compile at once: a large module takes one of them some 200 MB.
func installers(limitMB int64) int {
	if limitMB == 0 {
		return mostInstallers
	}
	return max(1, min(mostInstallers, int(limitMB/512)))
}

const mostInstallers = 4

// requirements writes the list of packages to a file and returns the arguments that read it; none for an empty list.
func (b *builder) requirements() ([]string, error) {
	if len(b.recipe.Lines) == 0 {
		return nil, nil
	}
	path := filepath.Join(b.dir, "requirements.txt")
	text := strings.Join(b.recipe.Lines, "\n") + "\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return nil, fmt.Errorf("write requirements: %w", err)
	}
	return []string{"-r", path}, nil
}

// withConda gives the file to conda as it is, channels and all.
func (b *builder) withConda(ctx context.Context) (*interpreter, error) {
	path := filepath.Join(b.dir, "conda.yaml")
	if err := os.WriteFile(path, []byte(b.text), 0o644); err != nil {
		return nil, fmt.Errorf("write conda file: %w", err)
	}
	args := []string{b.conda, "env", "create", "-p", b.root(), "-f", path}
	if strings.HasPrefix(filepath.Base(b.conda), "micromamba") {
		args = []string{b.conda, "create", "-y", "-p", b.root(), "-f", path}
	}
	b.env = append(b.env, "CONDA_REMOTE_CONNECT_TIMEOUT_SECS=10", "CONDA_REMOTE_MAX_RETRIES=2", "CONDA_REMOTE_READ_TIMEOUT_SECS=30")
	if err := b.run(ctx, args...); err != nil {
		return nil, b.explain(err)
	}
	p, err := b.stager.python.ask(ctx, b.rootPython())
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, fault(trainyard.ClassEnvironment, "%s has no Python that runs; add python to its conda file", b.words)
	}
	p = &interpreter{Exe: p.Exe, Base: b.rootPython(), Version: p.Version}
	return p, nil
}

// findUV is uv on PATH, or the one that was put into the cache, now if need be; "" if it cannot be had though the network is there.
func (b *builder) findUV(ctx context.Context) (string, error) {
	if path, err := exec.LookPath("uv"); err == nil {
		return path, nil
	}
	tools := filepath.Join(b.stager.cache, "tools")
	home := filepath.Join(tools, "uv-"+UVVersion)
	uv := filepath.Join(home, "bin", "uv"+exeSuffix)
	lock, err := acquire(ctx, filepath.Join(tools, "uv.lock"), true, nil)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if isThere(uv) {
		return uv, nil
	}
	return b.installUV(ctx, tools, home)
}

// installUV puts uv into the cache.
func (b *builder) installUV(ctx context.Context, tools, home string) (string, error) {
	left, _ := filepath.Glob(filepath.Join(tools, "new-uv-*"))
	for _, dir := range left {
		_ = removeAll(dir)
	}
	temp, err := os.MkdirTemp(tools, "new-uv-")
	if err != nil {
		return "", fmt.Errorf("install uv: %w", err)
	}
	defer removeAll(temp)
	b.print("Installing uv %s on this node, once", UVVersion)
	err = b.run(ctx, b.python.Exe, "-m", "pip", "install", "--target", temp, "--no-deps", "--only-binary", ":all:", "--timeout", "12",
		"--retries", "2", "--no-input", "--progress-bar", "off", "uv=="+UVVersion)
	switch {
	case errors.Is(err, errNetwork) && !b.offlineIndex():
		return "", b.explain(err)
	case errors.As(err, new(*toolError)):
		return "", nil
	case err != nil:
		return "", err
	}
	program := filepath.Join("bin", "uv"+exeSuffix)
	if !isThere(filepath.Join(temp, program)) {
		return "", nil
	}
	_ = removeAll(home)
	if err := os.Rename(temp, home); err != nil {
		return "", fmt.Errorf("install uv: %w", err)
	}
	return filepath.Join(home, program), nil
}

// offlineIndex says whether the node is set up to install from its own disk alone.
func (b *builder) offlineIndex() bool { return slices.Contains(b.env, "UV_NO_INDEX=1") }

// seal makes the environment read-only, so that a job cannot change what others use, and returns its size.
func (b *builder) seal(p *interpreter) (int64, error) {
	for _, name := range []string{"activate.bat", "activate.csh", "activate.fish", "activate.nu", "activate.ps1", "Activate.ps1", "activate.xsh",
		"activate_this.py", "deactivate.bat", "pydoc.bat"} {
		if p.Venv && binDir == "bin" {
			_ = os.Remove(filepath.Join(b.root(), binDir, name))
		}
	}
	var size int64
	err := filepath.WalkDir(b.root(), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	if err == nil && p.Venv {
		err = freeze(b.root())
	}
	if err != nil {
		return 0, fmt.Errorf("seal environment: %w", err)
	}
	return size, nil
}

// print writes a line of our own to the build log.
func (b *builder) print(format string, args ...any) { fmt.Fprintf(b.log, format+"\n", args...) }

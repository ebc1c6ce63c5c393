package stage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// layer is what a task's own Python stands on: an interpreter, and folders of packages that it shares with others. The task's own is a
// virtual environment with nothing in it: what the task installs goes there and comes before what is shared, which nobody writes to.
type layer struct {
	Base    string   `json:"base"` // interpreter
	Version string   `json:"version"`
	Shared  string   `json:"shared,omitempty"` // environment's folder; "" for the node's own Python
	Sites   []string `json:"sites,omitempty"`  // shared packages that the virtual environment must be told of
	System  bool     `json:"system,omitempty"` // it sees the interpreter's own packages by itself
	Conda   bool     `json:"conda,omitempty"`
	Lazy    string   `json:"lazy,omitempty"` // programs that make the virtual environment when it is first used; "": it is made
	User    bool     `json:"user,omitempty"` // no virtual environment: pip installs to the task's own user folder
}

func (l *layer) minor() string { return firstTwo(l.Version) }

// enter puts the layer above at dir first in an environment of variables.
func (l *layer) enter(dir string, env map[string]string) {
	path := []string{filepath.Join(dir, binDir)}
	if l.Shared != "" {
		path = append(path, filepath.Join(l.Shared, binDir))
	}
	env["PIP_USER"] = "0"
	if l.User {
		env["PIP_USER"] = "1"
	} else if l.Lazy != "" {
		path = append(path, l.Lazy)
		env[lazyVariable] = dir
	} else {
		env["VIRTUAL_ENV"] = dir
	}
	rest := env["PATH"]
	if rest == "" {
		rest = os.Getenv("PATH")
	}
	if rest != "" {
		path = append(path, rest)
	}
	env["PATH"] = strings.Join(path, string(os.PathListSeparator))
	env["PYTHONUSERBASE"] = filepath.Join(dir, "user") // pip install --user, which would reach the node's own
	if l.Conda {
		env["CONDA_PREFIX"] = l.Shared
	}
}

// lazyVariable tells the programs of Lazy where to make the virtual environment.
const lazyVariable = "TRAINYARD_PYTHON"

// config is pyvenv.cfg, by which an interpreter knows that it is in a virtual environment.
func (l *layer) config() []byte {
	return fmt.Appendf(nil, "home = %s\nimplementation = CPython\nversion_info = %s\ninclude-system-site-packages = %t\n",
		filepath.Dir(l.Base), l.Version, l.System)
}

// links is a .pth file that adds the shared packages with all that their own .pth files do; nil if there are none.
func (l *layer) links() []byte {
	if len(l.Sites) == 0 {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("import site;")
	for _, dir := range l.Sites {
		fmt.Fprintf(&b, " site.addsitedir(%s);", pyQuote(dir))
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// pyQuote is a Python string literal.
func pyQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s) + "'"
}

// copyScripts gives the layer above its own copy of every script that would run in the shared environment, so that it runs here.
func (l *layer) copyScripts(dir string) error {
	if l.Shared == "" {
		return nil
	}
	from, to := filepath.Join(l.Shared, binDir), filepath.Join(dir, binDir)
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	const long = 64 << 10 // no script that an installer writes is
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > long {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 || !bytes.Contains(text, []byte(l.Shared)) {
			continue
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), moved(text, l.Shared, dir), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// moved is a script's text with another folder for its environment's. Kernels cut interpreter lines that are long, and take a blank for
// the end of the path: such a script is started by a shell.
func moved(text []byte, from, to string) []byte {
	text = bytes.ReplaceAll(text, []byte(from), []byte(to))
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	python, ok := strings.CutPrefix(string(line), "#!"+to)
	if !ok || len(line) <= 120 && !strings.Contains(to, " ") {
		return text
	}
	head := fmt.Sprintf("#!/bin/sh\n'''exec' \"%s%s\" \"$0\" \"$@\"\n' '''\n", to, python)
	return append([]byte(head), rest...)
}

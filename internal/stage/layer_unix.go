//go:build unix

package stage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const binDir = "bin"

// pipScript runs the pip of the interpreter beside it, wherever that is.
const pipScript = "#!/bin/sh\nexec \"${0%/*}/python\" -m pip \"$@\"\n"

// make makes the virtual environment at dir: a few files, no process.
func (l *layer) make(_ context.Context, dir string) error {
	site := filepath.Join(dir, "lib", "python"+l.minor(), "site-packages")
	bin := filepath.Join(dir, binDir)
	for _, d := range []string{site, bin} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make the task's Python: %w", err)
		}
	}
	files := map[string][]byte{filepath.Join(dir, "pyvenv.cfg"): l.config()}
	if links := l.links(); links != nil {
		files[filepath.Join(site, "_shared.pth")] = links
	}
	for path, data := range files {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return fmt.Errorf("make the task's Python: %w", err)
		}
	}
	for name, to := range map[string]string{"python": l.Base, "python3": "python", "python" + l.minor(): "python"} {
		if err := os.Symlink(to, filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("make the task's Python: %w", err)
		}
	}
	for _, name := range []string{"pip", "pip3"} {
		if l.Shared != "" && !l.Conda {
			break // its own pip is copied below
		}
		if err := os.WriteFile(filepath.Join(bin, name), []byte(pipScript), 0o755); err != nil {
			return fmt.Errorf("make the task's Python: %w", err)
		}
	}
	if err := l.copyScripts(dir); err != nil {
		return fmt.Errorf("make the task's Python: %w", err)
	}
	return nil
}

// lazyScript is python, python3, pip and pip3 for tasks that may never need them. The first call copies the virtual environment to
// where the task's own is to be, which comes first on PATH. Of several at once each copies, and one copy takes the name.
const lazyScript = `#!/bin/sh
v=$TRAINYARD_PYTHON
if [ -n "$v" ] && [ ! -x "$v/bin/python" ]; then
  cp -RP TEMPLATE "$v.$$" && mv "$v.$$" "$v"
fi
if [ -n "$v" ] && [ -x "$v/bin/python" ]; then
  VIRTUAL_ENV=$v
  export VIRTUAL_ENV
  exec "$v/bin/${0##*/}" "$@"
fi
case ${0##*/} in
pip*) echo "pip: this job's own Python could not be made at $v" >&2; exit 1 ;;
esac
exec PYTHON "$@"
`

// nodeLayer is the node's own Python as it is; nil if it has none. It costs a task nothing until it is used.
func (s *Stager) nodeLayer(ctx context.Context) (*layer, error) {
	p, err := s.python.main(ctx)
	if err != nil || p == nil {
		return nil, err
	}
	l := &layer{Base: p.Base, Version: p.Version, Sites: p.Site, System: !p.Venv}
	home := filepath.Join(s.cache, "python", "lazy-"+keyOf(append([]string{lazyScript, p.Base, p.Version, fmt.Sprint(p.Venv)}, p.Site...)...))
	l.Lazy = filepath.Join(home, binDir)
	if s.lazy.Load() == home || isThere(home) {
		s.lazy.Store(home)
		return l, nil
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(home), "new-lazy-*"))
	for _, dir := range left { // of processes that were killed; younger ones may be at it
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = removeAll(dir)
		}
	}
	temp, err := os.MkdirTemp(filepath.Dir(home), "new-lazy-")
	if err != nil {
		return nil, fmt.Errorf("make the node's Python for tasks: %w", err)
	}
	defer removeAll(temp)
	if err := l.lazyTo(ctx, temp, filepath.Join(home, "template")); err != nil {
		return nil, fmt.Errorf("make the node's Python for tasks: %w", err)
	}
	if err := os.Rename(temp, home); err != nil && !isThere(home) {
		return nil, fmt.Errorf("make the node's Python for tasks: %w", err)
	}
	return l, nil
}

// lazyTo fills a folder with the template and the programs that copy it from where it will be.
func (l *layer) lazyTo(ctx context.Context, dir, template string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := l.make(ctx, filepath.Join(dir, "template")); err != nil {
		return err
	}
	bin := filepath.Join(dir, binDir)
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	text := strings.NewReplacer("TEMPLATE", shQuote(template), "PYTHON \"$@\"", shQuote(l.Base)+" \"$@\"").Replace(lazyScript)
	for _, name := range []string{"python", "python3", "python" + l.minor(), "pip", "pip3"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func shQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

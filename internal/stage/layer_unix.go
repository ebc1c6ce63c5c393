//go:build unix

package stage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	for name, to := range map[string]string{"python": l.Base, "python3": "python", "python" + l.minor(): "python", "pip3": "pip"} {
		if err := os.Symlink(to, filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("make the task's Python: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "pip"), []byte(pipScript), 0o755); err != nil {
		return fmt.Errorf("make the task's Python: %w", err)
	}
	if err := l.copyScripts(dir); err != nil {
		return fmt.Errorf("make the task's Python: %w", err)
	}
	return nil
}

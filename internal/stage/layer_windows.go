package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const binDir = "Scripts"

// pipScript runs the pip of the interpreter beside it, wherever that is.
const pipScript = "@\"%~dp0python.exe\" -m pip %*\r\n"

// make makes the virtual environment at dir. An interpreter here is more than one file, so Python itself does it.
func (l *layer) make(ctx context.Context, dir string) error {
	if out, err := exec.CommandContext(ctx, l.Base, "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("make the task's Python: %w: %s", err, out)
	}
	files := map[string][]byte{
		filepath.Join(dir, "pyvenv.cfg"):      l.config(),
		filepath.Join(dir, binDir, "pip.bat"): []byte(pipScript),
	}
	if links := l.links(); links != nil {
		files[filepath.Join(dir, "Lib", "site-packages", "_shared.pth")] = links
	}
	for path, data := range files {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return fmt.Errorf("make the task's Python: %w", err)
		}
	}
	return nil
}

// nodeLayer is the node's own Python, which is on PATH already; nil if it has none.
func (s *Stager) nodeLayer(ctx context.Context) (*layer, error) {
	p, err := s.python.main(ctx)
	if err != nil || p == nil {
		return nil, err
	}
	return &layer{Base: p.Base, Version: p.Version, User: true}, nil
}

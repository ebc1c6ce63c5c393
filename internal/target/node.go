package target

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// gpuPatience bounds how long a GPU driver may take to say what there is.
const gpuPatience = 2 * time.Second

// GPUs knows how many GPUs this computer has: nvidia-smi is asked once. The zero value is ready.
type GPUs struct {
	once sync.Once
	n    int
}

// Count is how many there are.
func (g *GPUs) Count(ctx context.Context) int {
	g.once.Do(func() {
		path, err := exec.LookPath("nvidia-smi")
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gpuPatience)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, "-L")
		cmd.WaitDelay = 100 * time.Millisecond
		if out, err := cmd.Output(); err == nil {
			g.n = countGPUs(out)
		}
	})
	return g.n
}

// countGPUs counts lines such as "GPU 0: NVIDIA H200 (UUID: GPU-…)". The MIG slices below them are indented.
func countGPUs(out []byte) int {
	n := 0
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		if strings.HasPrefix(s.Text(), "GPU ") {
			n++
		}
	}
	return n
}

// OutOfMemory says of a task that the system ended for its memory what happened, and what to do.
func OutOfMemory(r trainyard.Result) string {
	if r.LimitMB == 0 {
		return fmt.Sprintf("ran out of memory (peak %d MB)", r.PeakMB)
	}
	return fmt.Sprintf("used all of its limit of %d MB of memory (peak %d MB) and was ended by the system; "+
		"ask for a larger VM size, or use less memory at once", r.LimitMB, r.PeakMB)
}

// WriteJSON writes v in one write, over what was there.
func WriteJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	return os.WriteFile(path, data, 0o600)
}

// ReadJSON reads v; ok is false if the file is not there or was not written whole.
func ReadJSON(path string, v any) (ok bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return json.Unmarshal(data, v) == nil, nil
}

// RemoveAll is os.RemoveAll that also takes away what a task has locked against its own user.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

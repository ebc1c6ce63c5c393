package target

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/trainyard/trainyard"
)

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

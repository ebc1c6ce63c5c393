package slurm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Identity is a name that no other folder in the world has, made when the folder is first asked for it. It tells our jobs from those of
// others of the same user.
func Identity(dir string) (string, error) {
	path := filepath.Join(dir, "id")
	data, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(data)); err == nil && len(id) == 12 {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id := Random(6)
	return id, WriteFile(path, []byte(id+"\n"), 0o600)
}

// Random is n random bytes in hexadecimal.
func Random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// WriteFile replaces a file whole or not at all.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	part := path + ".part"
	if err := os.WriteFile(part, data, mode); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// RemoveAll is os.RemoveAll that also takes away what a job has locked against its own user.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// Tail is the end of a text file for people, in one line; "" if there is none.
func Tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	var last string
	for line := range strings.Lines(string(data[max(0, len(data)-4096):])) {
		if line = strings.TrimSpace(line); line != "" {
			last = line
		}
	}
	return last[:min(len(last), 300)]
}

// Share makes a copy of a file in a folder that nodes see, unless one like it is there, and returns its path.
func Share(path, dir string, mode fs.FileMode) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("%s-%x-%x", filepath.Base(path), info.Size(), info.ModTime().UnixNano())
	to := filepath.Join(dir, name)
	if have, err := os.Stat(to); err == nil && have.Size() == info.Size() {
		return to, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return to, WriteFile(to, data, mode)
}

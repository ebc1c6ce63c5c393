package slurm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
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

// Beside is our folder in one that nodes see, where others' may lie beside it: the one of an identity, or with "*" the pattern of all.
func Beside(folder, id string) string { return filepath.Join(folder, "trainyard-"+id) }

// Random is n random bytes in hexadecimal.
func Random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// WriteFile replaces a file of this computer whole or not at all.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	return Put(disk{}, path, data, mode)
}

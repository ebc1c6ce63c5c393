// Package slim holds the small program that runs tasks where there is no agent (cmd/trainyard-task), packed, and puts it where engines can
// start it or it can be sent from. A build without the tag slimtask holds none: then this program itself is what engines start.
package slim

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

// Unpack puts the programs for Linux into a folder below dir that is named for their content, as trainyard-linux-ARCH, and returns the
// absolute path of the one for this computer; the others are beside it. What is there already stays, and several may do this at once.
// Folders of other versions stay too: jobs that wait in an engine's queue may name them. Without a program for this computer it is self.
func Unpack(dir, self string) (string, error) {
	return unpack(packed(), dir, self)
}

func unpack(packed map[string][]byte, dir, self string) (string, error) {
	if len(packed) == 0 || runtime.GOOS == "linux" && packed[runtime.GOARCH] == nil {
		return self, nil
	}
	arches, sum := make([]string, 0, len(packed)), sha256.New()
	for arch := range packed {
		arches = append(arches, arch)
	}
	slices.Sort(arches)
	for _, arch := range arches {
		sum.Write(packed[arch])
	}
	dir, err := filepath.Abs(filepath.Join(dir, hex.EncodeToString(sum.Sum(nil)[:8])))
	if err != nil {
		return "", fmt.Errorf("unpack the program for tasks: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("unpack the program for tasks: %w", err)
	}
	for _, arch := range arches {
		if err := place(packed[arch], filepath.Join(dir, "trainyard-linux-"+arch)); err != nil {
			return "", fmt.Errorf("unpack the program for tasks: %w", err)
		}
	}
	return filepath.Join(dir, "trainyard-"+runtime.GOOS+"-"+runtime.GOARCH), nil
}

// place unpacks a program to a path, unless it is there. Half of it is never seen, not even after a power cut.
func place(packed []byte, path string) error {
	if len(packed) < 4 {
		return errors.New("it is damaged")
	}
	size := binary.LittleEndian.Uint32(packed[len(packed)-4:]) // as gzip notes it
	if info, err := os.Stat(path); err == nil && info.Size() == int64(size) && info.Mode()&0o100 != 0 {
		return nil
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(path), ".part-")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) // nothing is there once it has its name
	_, err = io.Copy(part, z)
	err = errors.Join(err, part.Chmod(0o755), part.Sync(), part.Close())
	if err != nil {
		return err
	}
	return os.Rename(part.Name(), path)
}

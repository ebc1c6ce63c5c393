package slurm

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files are the files that nodes see, from where this program is: on this computer, or on a login node. An error of theirs that Away says
// yes to says nothing of the files.
type Files interface {
	List(dir string) ([]fs.DirEntry, error)
	Stat(path string) (fs.FileInfo, error)
	Open(path string, from int64) (io.ReadCloser, error)       // up to its present end
	Write(path string, data io.Reader, mode fs.FileMode) error // whole or not at all
	Mkdir(path string) error                                   // and its parents, for their owner alone
	Rename(from, to string) error                              // over what is there
	Remove(path string) error                                  // with all that is below; what is not there is no error
}

// Read reads a whole file.
func Read(f Files, path string) ([]byte, error) {
	r, err := f.Open(path, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Put replaces a file whole or not at all.
func Put(f Files, path string, data []byte, mode fs.FileMode) error {
	return f.Write(path, bytes.NewReader(data), mode)
}

// Tail is the end of a text file for people, in one line; "" if there is none.
func Tail(f Files, path string) string {
	info, err := f.Stat(path)
	if err != nil {
		return ""
	}
	r, err := f.Open(path, max(0, info.Size()-4096))
	if err != nil {
		return ""
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return ""
	}
	var last string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" {
			last = line
		}
	}
	return last[:min(len(last), 300)]
}

// Share makes a copy of a file of this computer in a folder that nodes see, once for what is in it, and returns its path.
func Share(f Files, path, dir string, mode fs.FileMode) (string, error) {
	from, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, from)
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, fmt.Sprintf("%s-%x", filepath.Base(path), hash.Sum(nil)[:8]))
	have, err := f.Stat(to)
	if err == nil && have.Size() == size {
		return to, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	return to, f.Write(to, from, mode)
}

// disk is this computer's files.
type disk struct{}

func (disk) List(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }

func (disk) Stat(path string) (fs.FileInfo, error) { return os.Stat(path) }

func (disk) Open(path string, from int64) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.Seek(min(max(from, 0), info.Size()), io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &section{io.LimitReader(f, max(0, info.Size()-max(from, 0))), f}, nil
}

// section reads a part of a file.
type section struct {
	io.Reader
	io.Closer
}

func (disk) Write(path string, data io.Reader, mode fs.FileMode) error {
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, data)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(part, path)
}

func (disk) Mkdir(path string) error      { return os.MkdirAll(path, 0o700) }
func (disk) Rename(from, to string) error { return os.Rename(from, to) }

// Remove also takes away what a job has locked against its own user.
func (disk) Remove(path string) error {
	err := os.RemoveAll(path)
	if err == nil {
		return nil
	}
	_ = filepath.WalkDir(path, func(path string, e fs.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}

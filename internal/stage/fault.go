package stage

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/dustin/go-humanize"

	"github.com/trainyard/trainyard"
)

// fault is an error that ends a task, in words for its user.
func fault(class trainyard.Class, format string, args ...any) error {
	return &trainyard.ClassError{Class: class, Err: trainyard.Invalid(format, args...)}
}

// sized prints a number of bytes as people read it.
func sized(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// local turns an error of this node's file system into the end it makes of a task. Others pass through.
func (s *Stager) local(err error, class trainyard.Class, path string, need int64) error {
	switch {
	case err == nil, trainyard.ClassOf(err) != "":
		return err
	case isFull(err):
		return s.noRoom(path, need)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrExist), isReadOnly(err):
		return &trainyard.ClassError{Class: class, Err: fmt.Errorf("this node's disk refused: %w", err)}
	}
	return err
}

// noRoom says that the disk at path is full.
func (s *Stager) noRoom(path string, need int64) error {
	has, _ := s.free(path)
	if need <= 0 {
		return fault(trainyard.ClassDisk, "no room on node: the disk was full at %s with %s left; free some space there or use a node with a bigger disk",
			path, sized(has))
	}
	return fault(trainyard.ClassDisk, "no room on node: needs %s, has %s at %s; free some space there or use a node with a bigger disk",
		sized(need), sized(has), path)
}

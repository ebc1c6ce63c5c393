package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
	"github.com/trainyard/trainyard/internal/loop"
	"github.com/trainyard/trainyard/internal/target"
)

// ownerPart is a file in the folder of a hosted node that names the database whose node it is. A data folder that is used with another
// database by mistake keeps what it has.
const ownerPart = "database"

// folders are those that the server keeps for the nodes it hosts. What is left of a node that is gone is taken away aside of everything
// else, for it may be much; what could not be is tried again, more and more seldom, and at the next start.
type folders struct {
	dir   string // of the server's data
	owner string
	gone  *loop.Keyed[trainyard.NodeID]
}

func newFolders(dir string, id *identity.Service, log *slog.Logger) *folders {
	f := &folders{dir: dir, owner: hex.EncodeToString(id.Derive("folders of nodes")[:16])}
	f.gone = loop.NewKeyed(1, loop.Backoff{Min: time.Second, Max: time.Hour}, f.takeAway)
	f.gone.Log = log
	return f
}

func (f *folders) of(id trainyard.NodeID) string { return filepath.Join(f.dir, "nodes", string(id)) }

// make makes the folder of a node.
func (f *folders) make(id trainyard.NodeID) error {
	if err := os.MkdirAll(f.of(id), 0o700); err != nil {
		return err
	}
	path := filepath.Join(f.of(id), ownerPart)
	if owner, err := os.ReadFile(path); err == nil && string(owner) == f.owner {
		return nil
	}
	return writeWhole(path, []byte(f.owner))
}

// sweep takes away what is left of nodes that the database had and does not know any more: their server was killed before it had.
func (f *folders) sweep(known []*trainyard.Node) error {
	entries, err := os.ReadDir(filepath.Join(f.dir, "nodes"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		id := trainyard.NodeID(e.Name())
		if !e.IsDir() || slices.ContainsFunc(known, func(n *trainyard.Node) bool { return n.ID == id }) {
			continue
		}
		if owner, err := os.ReadFile(filepath.Join(f.of(id), ownerPart)); err == nil && string(owner) == f.owner {
			f.gone.Add(id)
		}
	}
	return err
}

// takeAway deletes all that was kept of a node. When the server ends it does not wait for that.
func (f *folders) takeAway(ctx context.Context, id trainyard.NodeID) (time.Duration, error) {
	done := make(chan error, 1)
	go func() { done <- f.remove(id) }()
	select {
	case err := <-done:
		return 0, err
	case <-ctx.Done():
		return 0, nil
	}
}

// remove leaves the word of whose folder it is for last.
func (f *folders) remove(id trainyard.NodeID) error {
	errs := []error{target.RemoveAll(filepath.Join(f.dir, "cache", "work", string(id)))}
	entries, err := os.ReadDir(f.of(id))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	errs = append(errs, err)
	for _, e := range entries {
		if e.Name() != ownerPart {
			errs = append(errs, target.RemoveAll(filepath.Join(f.of(id), e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take away the folder of a node that is gone: %w", err)
	}
	return target.RemoveAll(f.of(id))
}

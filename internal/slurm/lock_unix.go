//go:build unix

package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/trainyard/trainyard"
)

// Lock takes a folder for this process. A file handed on to a child keeps the folder locked while the child lives: who waits for the lock
// waits for submissions that are under way, too.
func Lock(ctx context.Context, dir string, patience time.Duration) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	deadline := time.Now().Add(patience)
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || ctx.Err() != nil || time.Now().After(deadline) {
			f.Close()
			return nil, trainyard.Conflict("%s is in use by another agent (%v); stop that one, or use another folder", dir, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

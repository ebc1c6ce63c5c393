//go:build !windows

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
)

// nonBlock keeps a pipe that a task put in place of a file from holding the agent.
const nonBlock = syscall.O_NONBLOCK

const lockPatience = 2 * time.Second

func signalName(n int) string { return unix.SignalName(syscall.Signal(n)) }

func makePipe(path string) error { return unix.Mkfifo(path, 0o600) }

// lockDir takes the folder for this process. A process that was just killed may hold it for a moment.
func lockDir(ctx context.Context, dir string) (io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open docker target: %w", err)
	}
	deadline := time.Now().Add(lockPatience)
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || ctx.Err() != nil || time.Now().After(deadline) {
			f.Close()
			return nil, trainyard.Conflict("%s is in use by another agent (%v); stop that one, or use another folder", dir, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

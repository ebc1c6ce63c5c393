package docker

import (
	"context"
	"io"
	"syscall"

	"github.com/trainyard/trainyard"
)

const nonBlock = 0

func signalName(n int) string { return syscall.Signal(n).String() }

func makePipe(string) error { return unsupported() }

func lockDir(context.Context, string) (io.Closer, error) { return nil, unsupported() }

func unsupported() error {
	return trainyard.Errorf(trainyard.CodeUnsupported, "tasks in containers need an engine on Linux or macOS")
}

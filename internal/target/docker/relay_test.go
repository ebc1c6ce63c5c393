//go:build !windows

package docker

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// relay makes a socket that everybody may use, in front of the engine's.
func relay(t *testing.T, dir, host string) string {
	t.Helper()
	path := filepath.Join(dir, "engine.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	var goes sync.WaitGroup
	goes.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", strings.TrimPrefix(host, "unix://"))
			if err != nil {
				in.Close()
				continue
			}
			goes.Go(func() { pipe(out, in) })
			goes.Go(func() { pipe(in, out) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		goes.Wait()
	})
	return "unix://" + path
}

func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
	from.Close()
}

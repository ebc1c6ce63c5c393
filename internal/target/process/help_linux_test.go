package process

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// holding lists the processes that have mark, "NAME=value", in their environment.
func holding(mark string) []string {
	var pids []string
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		env, err := os.ReadFile(path)
		if err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+mark+"\x00")) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// waitGone waits until no process has mark, and returns those that stay.
func waitGone(t testing.TB, mark string) []string {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	late := time.After(10 * time.Second)
	for {
		left := holding(mark)
		if len(left) == 0 {
			return nil
		}
		select {
		case <-look.C:
		case <-late:
			return left
		}
	}
}

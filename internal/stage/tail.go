package stage

import (
	"bytes"
	"io"
	"os"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/installer"
)

// environmentLog is where users find what a build printed.
const environmentLog = "system_logs/environment.txt"

// tail copies a build log that grows to a task's own, line by line. The builder writes the file; whoever waits for it reads it too.
type tail struct {
	path string
	to   trainyard.Progress

	mu  sync.Mutex
	off int64
}

// pump copies the lines that are whole now.
func (t *tail) pump() { t.copy(false) }

// finish copies all there is.
func (t *tail) finish() { t.copy(true) }

func (t *tail) copy(all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, err := os.Open(t.path)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() < t.off {
		t.off = 0 // another build began it anew
	}
	const most = 1 << 20
	for {
		data, err := io.ReadAll(io.NewSectionReader(f, t.off, most))
		end := bytes.LastIndexByte(data, '\n') + 1
		if all || len(data) == most && end == 0 {
			end = len(data)
		}
		if end == 0 || err != nil {
			return
		}
		t.off += int64(end)
		t.to.Log(environmentLog, []byte(installer.Redact(string(data[:end]))))
	}
}

// follow pumps until the function it returns is called.
func (t *tail) follow() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				t.finish()
				return
			case <-tick.C:
				t.pump()
			}
		}
	}()
	return func() { close(quit); <-done }
}

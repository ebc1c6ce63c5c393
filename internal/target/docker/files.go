package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/trainyard/trainyard"
)

// openBox opens a file that the task could have put anything in place of: only a plain file in its own folder is one.
func (d *Driver) openBox(id trainyard.TaskID, name string) (*os.File, os.FileInfo, error) {
	root, err := os.OpenRoot(d.path(&task{dir: id.Dir()}, boxDir))
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|nonBlock, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("the task has put %s in place of its %s", info.Mode().Type(), name)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// Logs reads the task's log up to the length it has now.
func (d *Driver) Logs(ctx context.Context, id trainyard.TaskID, from int64) (io.ReadCloser, error) {
	if _, err := os.Stat(d.path(&task{dir: id.Dir()}, boxDir)); errors.Is(err, os.ErrNotExist) {
		return nil, trainyard.NotFound("%s has no log here: it was not started, or it was removed", id.Words())
	}
	f, info, err := d.openBox(id, logFile)
	if errors.Is(err, os.ErrNotExist) {
		return io.NopCloser(bytes.NewReader(nil)), nil // the task has deleted it
	}
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", id.Words(), err)
	}
	from = max(from, 0)
	return &logReader{Reader: io.NewSectionReader(f, from, max(0, info.Size()-from)), file: f}, nil
}

// logReader reads a part of a file.
type logReader struct {
	io.Reader
	file *os.File
}

func (r *logReader) Close() error { return r.file.Close() }

// status is what the status file says.
type status struct {
	ended  bool // the command is over, with code
	code   int
	at     time.Time
	term   bool // the container got SIGTERM before that
	peakMB int64
	ooms   int
	counts bool // ooms was there to be read
}

// readStatus reads what run.sh wrote. A file that is not there, or not whole, says less.
func (d *Driver) readStatus(id trainyard.TaskID) status {
	var s status
	f, info, err := d.openBox(id, statusFile)
	if err != nil {
		return s
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, 4096))
	for line := range bytes.Lines(data) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		switch string(name) {
		case "exit":
			s.ended, s.code, s.at = true, int(n), info.ModTime()
		case "term":
			s.term = true
		case "peak":
			s.peakMB = (n + 1<<20 - 1) >> 20
		case "oom":
			s.ooms, s.counts = int(n), true
		}
	}
	return s
}

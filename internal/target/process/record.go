package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/trainyard/trainyard"
)

// The files of a task; the package comment says what each is for.
const (
	taskFile = "task"
	logFile  = "log"
	stopFile = "stop.json"
	endFile  = "end.json"
	tmpDir   = "tmp"
	longFile = "command" // the command, where it is too long for an argument
)

// record is which process is the task's. It is written in one piece shorter than a page, so it is there whole or not at all.
type record struct {
	ID       trainyard.TaskID `json:"id"`
	Pid      int              `json:"pid"`
	PidStart uint64           `json:"pidStart"` // with Boot it names the process for ever, however often the pid is given out again
	Boot     string           `json:"boot"`
	Place    string           `json:"place,omitempty"` // target.Env.Place
	Started  time.Time        `json:"started"`
	LimitMB  int64            `json:"limitMB,omitempty"` // memory, where it is held
	Note     string           `json:"note,omitempty"`
	GPUs     string           `json:"gpus,omitempty"` // those that it was given, as in gpu.VisibleVariable; "": all
	Lent     bool             `json:"lent,omitempty"` // it asked for them
	Groups   groups           `json:"groups"`
}

// groups are the cgroups of a task, as paths. Empty: none.
type groups struct {
	Tree   string `json:"tree,omitempty"`
	Memory string `json:"memory,omitempty"`
	CPU    string `json:"cpu,omitempty"`
	V2     bool   `json:"v2,omitempty"`    // Tree is of cgroup v2
	MemV2  bool   `json:"memV2,omitempty"` // Memory is
}

// stopRecord is stop.json.
type stopRecord struct {
	At       time.Time `json:"at"`
	Deadline time.Time `json:"deadline"`
}

// statusSize is how long the status is, at the beginning of the task file: "b\n" once the user's command was begun, followed by its exit
// code and a line end when it was over.
const statusSize = 16

// status is what the task file says of the command.
type status struct {
	began bool
	ended bool
	code  int
	at    time.Time // when it was last written
}

var noStatus = append(bytes.Repeat([]byte("-"), statusSize-1), '\n')

func parseStatus(data []byte) status {
	rest, began := bytes.CutPrefix(data[:min(len(data), statusSize-1)], []byte("b\n"))
	if !began {
		return status{}
	}
	line, _, whole := bytes.Cut(rest, []byte("\n"))
	code, err := strconv.Atoi(string(line))
	return status{began: true, ended: whole && err == nil, code: code}
}

// readTask reads a task file. ok is false if no process was recorded in it.
func readTask(folder string) (s status, rec record, ok bool, err error) {
	f, err := os.Open(filepath.Join(folder, taskFile))
	if err != nil {
		return status{}, record{}, false, err
	}
	defer f.Close()
	return readStatus(f)
}

func readStatus(f *os.File) (s status, rec record, ok bool, err error) {
	buf := make([]byte, 4096)
	n, err := f.ReadAt(buf, 0)
	if err != nil && err != io.EOF {
		return status{}, record{}, false, err
	}
	info, err := f.Stat()
	if err != nil {
		return status{}, record{}, false, err
	}
	s = parseStatus(buf[:n])
	s.at = info.ModTime()
	ok = n > statusSize && json.Unmarshal(buf[statusSize:n], &rec) == nil
	return s, rec, ok, nil
}

// said is what the task's shell has written up to now.
func (t *task) said(folder string) (s status, err error) {
	if t.status != nil {
		s, _, _, err = readStatus(t.status)
	} else {
		s, _, _, err = readTask(folder)
	}
	return s, err
}

// writeRecord writes down which process is the task's.
func writeRecord(f *os.File, rec record) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	_, err = f.WriteAt(data, statusSize)
	return err
}

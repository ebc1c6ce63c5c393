package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// stored is what an agent must remember of a task. Everything else can be asked: the driver knows what runs, the server how much of each
// log it has.
type stored struct {
	Task   trainyard.Task   `json:"task"`   // with Run, once staged
	Staged bool             `json:"staged"` // Task.Run is whole; from here on the driver knows whether it has begun
	Spans  []trainyard.Span `json:"spans,omitempty"`
	Stop   trainyard.Class  `json:"stop,omitempty"` // why this agent is ending it
	Since  time.Time        `json:"since,omitzero"` // when it began to
	Why    string           `json:"why,omitempty"`  // the same in words, where Stop does not say it

	Port    int                `json:"port,omitempty"`    // of loopback, that this node chose for a replica
	Serving *trainyard.Serving `json:"serving,omitempty"` // how the replica was last said to be

	Collector    string `json:"collector,omitempty"`    // where the rows are taken that a replica's script collects
	CollectorKey string `json:"collectorKey,omitempty"` // and what tells the script from others who reach that; "" of a replica that is older than keys
}

// Beside each other in the agent's folder lie, for each task, named after it: one file from when it is wanted (if it is staged here), one
// more from when it is staged, and a folder if staging writes logs. No file is replaced on a task's usual way and no folder made: on common
// file systems each of the two takes longer than all else the agent does for a short task.
const (
	wantedFile = ".wanted"
	stagedFile = ".staged"
	logsFolder = ".logs"
)

// base is the path of what is kept of a task, without the ending.
func (a *Agent) base(id trainyard.TaskID) string { return filepath.Join(a.cfg.Dir, id.Dir()) }

// save writes what is stored of a task, whole or not at all.
func save(base string, s stored) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write down %s: %w", s.Task.ID.Words(), err)
	}
	if !s.Staged { // nothing has been done for the task yet: half a file is as good as none
		if err := os.WriteFile(base+wantedFile, data, 0o600); err != nil {
			return fmt.Errorf("write down %s: %w", s.Task.ID.Words(), err)
		}
		return nil
	}
	part := base + ".part"
	if err := os.WriteFile(part, data, 0o600); err != nil {
		return fmt.Errorf("write down %s: %w", s.Task.ID.Words(), err)
	}
	if err := os.Rename(part, base+stagedFile); err != nil {
		return fmt.Errorf("write down %s: %w", s.Task.ID.Words(), err)
	}
	return nil
}

// erase takes away what is kept of a task.
func erase(base string) error {
	if err := os.RemoveAll(base + logsFolder); err != nil {
		return err
	}
	for _, ending := range []string{".part", rowsFile + ".part", rowsFile, stagedFile, wantedFile} {
		if err := os.Remove(base + ending); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// load reads what earlier agents left behind. What is not whole goes: if the server still wants the task it will say so, and if it runs,
// the driver knows.
func (a *Agent) load() ([]stored, error) {
	entries, err := os.ReadDir(a.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("read the agent's folder: %w", err)
	}
	best := map[string]stored{}
	seen := map[string]bool{}
	for _, e := range entries {
		ending := filepath.Ext(e.Name())
		name := strings.TrimSuffix(e.Name(), ending)
		switch ending {
		case wantedFile, stagedFile:
			var s stored
			data, err := os.ReadFile(filepath.Join(a.cfg.Dir, e.Name()))
			if err == nil {
				err = json.Unmarshal(data, &s)
			}
			if err != nil || s.Task.ID.Dir() != name {
				a.log.Warn("a file of a task is not whole", "file", e.Name(), "err", err)
			} else if old, ok := best[name]; !ok || !old.Staged {
				best[name] = s
			}
			seen[name] = true
		case logsFolder, ".part", rowsFile:
			seen[name] = true
		}
	}
	var out []stored
	for name := range seen {
		if s, ok := best[name]; ok {
			out = append(out, s)
		} else if err := erase(filepath.Join(a.cfg.Dir, name)); err != nil {
			return nil, fmt.Errorf("clear the agent's folder: %w", err)
		}
	}
	return out, nil
}

// logFile is the file that holds what Progress.Log was given under a name; "" for a name that would leave the folder.
func logFile(base, name string) string {
	if !filepath.IsLocal(filepath.FromSlash(name)) || strings.Contains(name, "\\") {
		return ""
	}
	return filepath.Join(base+logsFolder, filepath.FromSlash(name))
}

// logNames lists the names under which Progress.Log has written.
func logNames(base string) []string {
	var out []string
	root := base + logsFolder
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error { // none is no error
		if err == nil && d.Type().IsRegular() {
			if rel, err := filepath.Rel(root, path); err == nil {
				out = append(out, filepath.ToSlash(rel))
			}
		}
		return nil
	})
	return out
}

package process

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/trainyard/trainyard"
)

// What lies in a machine's folder, and how folders of machines on their way in and out begin.
const (
	recordFile = "machine.json"
	tokenFile  = "join-token"
	logFile    = "agent.log"
	nodeFolder = "node"
	newFolder  = ".new-"
	goneFolder = ".gone-"

	maxLog = 10 << 20 // bytes
)

// record is what is written down of a machine.
type record struct {
	ID      trainyard.NodeID     `json:"id"`
	Compute trainyard.ComputeKey `json:"compute"`
	Agent   *identity            `json:"agent,omitempty"`  // nil until it was started
	Server  string               `json:"server,omitempty"` // that the agent was told to dial
	GPUs    []string             `json:"gpus,omitempty"`   // the numbers of those of this computer that are the machine's
}

// group is a name for what the agent's driver makes outside the folder: no other machine of this computer has it.
func (d *Driver) group(name string) string {
	sum := sha256.Sum256([]byte(filepath.Join(d.env.Dir, name)))
	return name + "-" + hex.EncodeToString(sum[:4])
}

// read returns what is written down of a machine. A record that is not whole, as after a loss of power, is one of a machine without an
// agent; fs.ErrNotExist means that there is no such machine.
func (d *Driver) read(name string) (record, error) {
	path := filepath.Join(d.env.Dir, name, recordFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if d.isMachine(name) {
			return record{ID: trainyard.NodeID(name)}, nil
		}
	}
	if err != nil {
		return record{}, fmt.Errorf("read the record of machine %s: %w", name, err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil || r.ID == "" {
		d.log.Warn("the record of a machine is not whole", "file", path, "err", err)
		return record{ID: trainyard.NodeID(name)}, nil
	}
	return r, nil
}

func (d *Driver) save(name string, r record) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = write(filepath.Join(d.env.Dir, name, recordFile), data)
	}
	if err != nil {
		return fmt.Errorf("write the record of machine %s: %w", name, err)
	}
	return nil
}

// write replaces a file whole or not at all, for its owner alone.
func write(path string, data []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, data, 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// create makes a machine's folder, whole or not at all.
func (d *Driver) create(name string, r record, token string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	making := filepath.Join(d.env.Dir, newFolder+name)
	if err := os.RemoveAll(making); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(making, nodeFolder), 0o700); err != nil {
		return err
	}
	for file, text := range map[string][]byte{recordFile: data, tokenFile: []byte(token)} {
		if err := os.WriteFile(filepath.Join(making, file), text, 0o600); err != nil {
			return err
		}
	}
	return os.Rename(making, filepath.Join(d.env.Dir, name))
}

// rotate moves what a log holds aside once it is longer than most bytes. The writer keeps its file, so what it writes between the copy
// and the cut is lost; agents write little, and nothing that is not also reported.
func rotate(path string, most int64) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= most {
		return nil
	}
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path+".1", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer to.Close()
	if _, err := from.Seek(max(0, info.Size()-most), io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(to, io.LimitReader(from, 2*most)); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}

// ending says for people how an agent ended: its status where we are its parent, and the last thing it said.
func ending(how, log string) string {
	note := "its agent ended"
	if how != "" {
		note += " with " + how
	}
	f, err := os.Open(log)
	if err != nil {
		return note
	}
	defer f.Close()
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-4096), io.SeekStart)
	}
	var last []byte
	for s := bufio.NewScanner(f); s.Scan(); {
		if line := bytes.TrimSpace(s.Bytes()); len(line) > 0 {
			last = append(last[:0], line...)
		}
	}
	if len(last) > 0 {
		note += ": " + string(last[:min(len(last), 300)])
	}
	return note
}

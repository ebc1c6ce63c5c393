package ssh

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/trainyard/trainyard"
)

const (
	recordFile = "machine.json"
	accessFile = "access"
	markFile   = "mark"
	keyFile    = "key"
)

// record is what is written down of a machine.
type record struct {
	ID      trainyard.NodeID       `json:"id"`
	Compute trainyard.ComputeKey   `json:"compute"`
	State   trainyard.MachineState `json:"state"`             // as last seen
	Note    string                 `json:"note,omitempty"`    // why it is in State
	Where   string                 `json:"where,omitempty"`   // for people
	Touched bool                   `json:"touched,omitempty"` // something of ours may be on the machine
	Boot    string                 `json:"boot,omitempty"`    // of the machine, when its agent was started
	Port    int                    `json:"port,omitempty"`    // of the way home, on the machine
}

// folder is the name of a machine's folder, here and there: its ID, with a hash where an ID would not do as a name, and this fleet's mark.
func (d *Driver) folder(id trainyard.NodeID) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, string(id))
	if clean == string(id) && clean != "" && len(clean) <= 80 && clean[0] != '.' && clean[0] != '-' {
		return clean + "-" + d.mark
	}
	sum := sha256.Sum256([]byte(id))
	return "node-" + strings.TrimLeft(clean[:min(len(clean), 40)], ".-") + "-" + hex.EncodeToString(sum[:6]) + "-" + d.mark
}

// ownMark is what tells this fleet's machines from those of others; made once.
func (d *Driver) ownMark() (string, error) {
	data, err := os.ReadFile(filepath.Join(d.env.Dir, markFile))
	if mark := strings.TrimSpace(string(data)); err == nil && len(mark) == 8 {
		return mark, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the mark of the fleet: %w", err)
	}
	random := make([]byte, 4)
	rand.Read(random)
	mark := hex.EncodeToString(random)
	if err := write(filepath.Join(d.env.Dir, markFile), []byte(mark+"\n")); err != nil {
		return "", fmt.Errorf("write the mark of the fleet: %w", err)
	}
	return mark, nil
}

// readRecord returns what is written down of a machine; fs.ErrNotExist means that there is none. A record that is not whole, as after a
// loss of power, is an error: it names no machine, and to skip it would be to forget one.
func (d *Driver) readRecord(name string) (record, error) {
	path := filepath.Join(d.env.Dir, name, recordFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return record{}, fmt.Errorf("read the record of machine %s: %w", name, err)
	}
	var r record
	if err := json.Unmarshal(data, &r); err != nil || r.ID == "" {
		return record{}, trainyard.Errorf(trainyard.CodeInternal,
			"the record %s of a machine is damaged (%v); delete its folder, and on the machine the folder ~/.trainyard/%s", path, err, name)
	}
	return r, nil
}

func (d *Driver) writeRecord(name string, r record) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(filepath.Join(d.env.Dir, name), 0o700)
	}
	if err == nil {
		err = write(filepath.Join(d.env.Dir, name, recordFile), data)
	}
	if err != nil {
		return fmt.Errorf("write the record of machine %s: %w", name, err)
	}
	return nil
}

// readAccess returns how to log in to a machine; nil if it was never said.
func (d *Driver) readAccess(name string) (*Settings, error) {
	sealed, err := os.ReadFile(filepath.Join(d.env.Dir, name, accessFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := d.seal.open(name, sealed)
	if err != nil {
		return nil, err
	}
	return ParseSettings(data)
}

func (d *Driver) writeAccess(name string, s *Settings) error {
	data, err := json.Marshal(s)
	if err == nil {
		err = write(filepath.Join(d.env.Dir, name, accessFile), d.seal.close(name, data))
	}
	if err != nil {
		return fmt.Errorf("write down how to log in to machine %s: %w", name, err)
	}
	return nil
}

// write replaces a file whole or not at all, for its owner alone. It reaches the disk before it has its name: a record is all that is
// known of what was left on another computer.
func write(path string, data []byte) error {
	f, err := os.OpenFile(path+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

package ssh

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/login"
)

// Settings is how to log in to a machine: what MachineSpec.Settings holds for this fleet. Agents and tasks run as its user. The host key may
// be left out for Probe alone.
type Settings = login.Settings

// ParseSettings reads Settings, and says what is wrong with them.
func ParseSettings(data []byte) (*Settings, error) {
	var s Settings
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&s); err != nil {
		return nil, trainyard.Invalid("how to log in to the machine is not valid JSON: %v", jsonError(err))
	}
	s.Address = strings.TrimSpace(s.Address)
	if in, ok := strings.CutPrefix(s.Address, "["); ok && strings.HasSuffix(in, "]") {
		s.Address = strings.TrimSuffix(in, "]")
	}
	return &s, s.Validate()
}

// jsonError is a JSON error without any of the text, which holds secrets.
func jsonError(err error) string {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return e.Field + " must be a " + e.Type.String()
	}
	return "it cannot be read"
}

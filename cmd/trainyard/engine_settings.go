package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// containersVar, set to off, has a machine's agent leave the container engines alone.
const containersVar = "TRAINYARD_CONTAINERS"

// settingsOf is what the environment of a machine's agent says of how a kind runs tasks there: JSON, or nothing.
func settingsOf(kind target.Kind) json.RawMessage { return json.RawMessage(os.Getenv(kind.Variable())) }

// machineVars are the variables with which whoever owns a machine has a say in how its agent runs tasks.
func machineVars() []string {
	names := []string{containersVar}
	for _, kind := range targets() {
		if !kind.SelfStaged {
			names = append(names, kind.Variable())
		}
	}
	return names
}

// checkSettings says what is wrong with the variables that machineVars names. Unknown settings are: one that is misspelt would be
// missed only when it is needed.
func checkSettings() error {
	for _, kind := range targets() {
		text := settingsOf(kind)
		if kind.SelfStaged || len(text) == 0 {
			continue
		}
		cfg := kind.New()
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		err := dec.Decode(cfg)
		if err == nil {
			if _, rest := dec.Token(); rest != io.EOF {
				err = trainyard.Invalid("there is more behind the first value")
			}
		}
		if err == nil {
			err = cfg.Validate()
		}
		if err != nil {
			return trainyard.Invalid("the environment variable %s cannot be used: %v; it is a JSON object", kind.Variable(), err)
		}
	}
	return nil
}

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestSettingsOfAMachineAreCheckedAtTheStart(t *testing.T) {
	for text, says := range map[string]string{
		"": "",
		`{"allowArgs": ["--ipc", "-v"], "network": "bridge"}`: "",
		`{"allowargs": ["--ipc"]}`:                            "", // as everywhere in JSON that Go reads
		`{"allow": ["--ipc"]}`:                                `unknown field "allow"`,
		`{"allowArgs": ["--pid"]}`:                            `"--pid", which is not an option that can be allowed`,
		`{"allowArgs": "--ipc"}`:                              "cannot unmarshal string",
		`allowArgs: [--ipc]`:                                  "it is a JSON object",
		`{} {"pids": 1}`:                                      "more behind",
		`{"pids": -1}`:                                        "pids is -1",
	} {
		t.Setenv("TRAINYARD_DOCKER", text)
		for what, err := range map[string]error{
			"the settings": checkSettings(),
			"an agent":     runAgent(t.Context(), agentFlags{tokenFile: "/nowhere"}),
		} {
			if what == "an agent" && says == "" {
				continue
			}
			if (err == nil) != (says == "") || err != nil && (trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "TRAINYARD_DOCKER")) {
				t.Errorf("%s with %s: %v, want %q", what, text, err, says)
			}
		}
	}
	if got := machineVars(); !slices.Equal(got, []string{"TRAINYARD_CONTAINERS", "TRAINYARD_PROCESS", "TRAINYARD_DOCKER"}) {
		t.Errorf("variables of a machine: %v", got)
	}
}

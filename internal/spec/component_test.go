package spec_test

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/spec"
)

func component(t *testing.T, files map[string]string, sets ...string) (*spec.Component, error) {
	t.Helper()
	doc, err := spec.Load(inFolder(t, "component.yml", files), spec.Options{Noun: "component", Set: sets})
	if err != nil {
		return nil, err
	}
	return doc.Component(trainyard.DefaultScope())
}

func TestAComponentKeepsItsFilesWordsAndUploadsItsCode(t *testing.T) {
	c, err := component(t, map[string]string{"src/run.py": "", "component.yml": `
name: uci_heart
version: 01
tags: {stage: gold}
inputs: {data: {type: uri_folder}, rate: {type: number, default: 1.0}}
code: src
environment: {image: python, conda_file: {dependencies: [python]}}
command: python run.py $[[--rate ${{inputs.rate}}]]
`})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "uci_heart" || c.Version != "1" || c.Tags["stage"] != "gold" || len(c.Uploads) != 1 || len(c.Environments) != 1 {
		t.Errorf("%+v", c.Asset)
	}
	c.Uploads[0].Set("azureml:code:1")
	s := c.Properties["componentSpec"].(map[string]any)
	if s["type"] != "command" || s["code"] != "azureml:code:1" || s["command"] != "python run.py $[[--rate ${{inputs.rate}}]]" {
		t.Errorf("%v", s)
	}
	if env, _ := s["environment"].(string); !strings.Contains(env, "/environments/") {
		t.Errorf("the environment written in place is %q", env)
	}
}

func TestComponentsThatCannotBeRead(t *testing.T) {
	for text, want := range map[string]string{
		"name: a\ntype: pipeline":                                     "jobs: it is missing",
		"name: a\ntype: spark\nentry: x":                              `type: got "spark", want one of command, pipeline`,
		"command: true":                                               "name: it is missing",
		"name: a\ncommand: x\ncode: gone":                             "gone",
		"name: a\ncommand: x\ncomand: y":                              "comand",
		"name: a\ntype: pipeline\njobs: {b: {component: ./gone.yml}}": "gone.yml",
	} {
		if _, err := component(t, map[string]string{"component.yml": text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
		}
	}
}

package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// collectScript logs what it is asked with Azure's own package.
const collectScript = `
import json, pandas
from azureml.ai.monitoring import Collector

def init():
    global inputs, off
    inputs = Collector(name="model_inputs", on_error=lambda e: print("inputs:", e))
    off = Collector(name="off", on_error=lambda e: print("off:", e))

def run(data):
    frame = pandas.DataFrame(json.loads(data)["data"], columns=["a", "b", "c"])
    off.collect(frame)
    inputs.collect(frame)
    return frame.sum(axis=1).tolist()
`

// What a scoring script logs with azureml-ai-monitoring, under the Azure inference server, is where Azure keeps it.
func TestRowsOfTheScriptAreKeptInTheDatastore(t *testing.T) {
	l := newServeLab(t)
	l.file("src/score.py", collectScript)
	file := readText(t, l.deployment("blue", "one", 1, "data_collector: {collections: {model_inputs: {enabled: 'true'}, off: {enabled: 'false'}}}"))
	file = strings.Replace(file, "azureml-inference-server-http]", "azureml-inference-server-http, azureml-ai-monitoring, pandas]", 1)
	l.cli("online-deployment", "create", "--all-traffic", "--local", "-o", "none", "-f", l.file("collecting.yml", file))
	if status, _, text := l.score(l.gateway, ""); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	place := regexp.MustCompile(`/modelDataCollector/sums/blue/model_inputs/\d{4}/\d\d/\d\d/\d\d/[^/]+\.jsonl$`)
	var rows string
	l.wait("the rows are in the datastore", func() bool {
		rows = ""
		_ = filepath.WalkDir(l.data, func(path string, _ fs.DirEntry, _ error) error {
			if strings.Contains(path, "/modelDataCollector/sums/blue/off") {
				t.Errorf("a collection that is disabled was kept: %s", path)
			}
			if place.MatchString(path) {
				data, err := os.ReadFile(path)
				if err == nil {
					rows += string(data)
				}
			}
			return nil
		})
		return rows != ""
	})
	var row struct {
		Type, Agent, CollectDataType, Source string
		Data                                 []map[string]int
	}
	if err := json.Unmarshal([]byte(rows), &row); err != nil || len(row.Data) != 2 || row.Data[1]["c"] != 2 || row.Type != "azureml.inference.model_inputs" ||
		!strings.HasPrefix(row.Agent, "azureml-ai-monitoring/") || row.CollectDataType != "pandas.DataFrame" && row.CollectDataType != "pandas.core.frame.DataFrame" ||
		!strings.HasSuffix(row.Source, "/onlineEndpoints/sums/deployments/blue") {
		t.Errorf("the row %s: %v", rows, err)
	}
	if log := l.cli("online-deployment", "get-logs", "-n", "blue", "--endpoint-name", "sums"); strings.Contains(log, "failed to send") {
		t.Errorf("the script's sender complains: %s", log)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
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

// collectedRow is a row of a collection as a script logged it.
type collectedRow struct {
	Type, Agent, CollectDataType, Source string
	Data                                 []map[string]float64
}

// collected reads what the files of a collection have.
func (l *lab) collected(endpoint, deployment, collection string) (rows []collectedRow) {
	l.t.Helper()
	place := regexp.MustCompile(`/workspaceblobstore/modelDataCollector/` + endpoint + "/" + deployment + "/" + collection + `/\d{4}/\d\d/\d\d/\d\d/[^/]+\.jsonl$`)
	_ = filepath.WalkDir(l.data, func(path string, _ fs.DirEntry, _ error) error {
		if !place.MatchString(path) || strings.Contains(path, "/_collecting/") {
			return nil
		}
		for line := range strings.Lines(readFile(path)) {
			var row collectedRow
			if err := json.Unmarshal([]byte(line), &row); err != nil || !strings.HasSuffix(line, "\n") {
				l.t.Fatalf("%s has %q: %v", path, line, err)
			}
			rows = append(rows, row)
		}
		return nil
	})
	return rows
}

// refusesStrangers sends a row to the replica's collector as somebody does who has found its port.
func (l *serveLab) refusesStrangers() (key string) {
	l.t.Helper()
	env := map[string]string{}
	for _, pid := range processesOf(l.cli("online-deployment", "show", "-n", "blue", "-e", "sums", "--query", "replicas[0].name", "-o", "tsv")) {
		for _, kv := range strings.Split(readFile(fmt.Sprintf("/proc/%d/environ", pid)), "\x00") {
			name, value, _ := strings.Cut(kv, "=")
			env[name] = value
		}
	}
	known, host, ok := strings.Cut(env["AZUREML_MDC_HOST"], "@")
	if !ok || len(known) < 20 {
		l.t.Fatalf("the script's sender has no key: %q", env["AZUREML_MDC_HOST"])
	}
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, "http://"+host+":"+env["AZUREML_MDC_PORT"]+"/modeldata/log", strings.NewReader("[]"))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("ce-type", "azureml.inference.model_inputs")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		l.t.Errorf("a stranger's row: %s", res.Status)
	}
	_, key, _ = strings.Cut(known, ":")
	return key
}

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
	var rows []collectedRow
	l.wait("the rows are in the datastore", func() bool {
		rows = l.collected("sums", "blue", "model_inputs")
		return len(rows) > 0
	})
	if row := rows[0]; len(rows) != 1 || len(row.Data) != 2 || row.Data[1]["c"] != 2 || row.Type != "azureml.inference.model_inputs" ||
		!strings.HasPrefix(row.Agent, "azureml-ai-monitoring/") || row.CollectDataType != "pandas.DataFrame" && row.CollectDataType != "pandas.core.frame.DataFrame" ||
		!strings.HasSuffix(row.Source, "/onlineEndpoints/sums/deployments/blue") {
		t.Errorf("the rows are %+v", rows)
	}
	if off := l.collected("sums", "blue", "off"); len(off) > 0 {
		t.Errorf("a collection that is disabled was kept: %+v", off)
	}
	key := l.refusesStrangers()
	l.wait("a warning tells of the stranger", func() bool {
		return strings.Contains(l.cli("online-deployment", "show", "-n", "blue", "-e", "sums", "--query", "replicas[0].warnings[0]", "-o", "tsv"), "without its key")
	})
	if log := l.cli("online-deployment", "get-logs", "-n", "blue", "--endpoint-name", "sums"); strings.Contains(log, "failed to send") || strings.Contains(log, key) {
		t.Errorf("the script's sender complains, or tells its key: %s", log)
	}
}

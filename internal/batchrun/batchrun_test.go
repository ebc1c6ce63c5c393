package batchrun

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func deployment() *trainyard.BatchDeployment {
	return &trainyard.BatchDeployment{Scope: trainyard.DefaultScope(), Endpoint: "scoring", Name: "blue", Spec: trainyard.BatchDeploymentSpec{
		CodeConfiguration: &trainyard.CodeConfiguration{CodeID: "code", ScoringScript: "score.py"}}}
}

func TestCompleteFillsInAzuresDefaultsAndRefusesWhatCannotBe(t *testing.T) {
	d := deployment()
	if err := Complete(d); err != nil {
		t.Fatal(err)
	}
	s := d.Spec
	if s.MiniBatchSize != 10 || s.MaxConcurrencyPerInstance != 1 || *s.ErrorThreshold != -1 || *s.RetrySettings.MaxRetries != 3 || s.RetrySettings.Timeout != "PT30S" ||
		s.OutputAction != "AppendRow" || s.OutputFileName != "predictions.csv" || s.LoggingLevel != "Info" || s.Resources.InstanceCount != 1 {
		t.Errorf("defaults %+v", s)
	}
	minusTwo := -2
	for want, change := range map[string]func(*trainyard.BatchDeploymentSpec){
		"error_threshold":        func(s *trainyard.BatchDeploymentSpec) { s.ErrorThreshold = &minusTwo },
		"output_action":          func(s *trainyard.BatchDeploymentSpec) { s.OutputAction = "Print" },
		"mini_batch_size":        func(s *trainyard.BatchDeploymentSpec) { s.MiniBatchSize = -1 },
		"retry_settings.timeout": func(s *trainyard.BatchDeploymentSpec) { s.RetrySettings = &trainyard.BatchRetrySettings{Timeout: "30"} },
		"output_file_name":       func(s *trainyard.BatchDeploymentSpec) { s.OutputFileName = "../rows.csv" },
		"scoring_script":         func(s *trainyard.BatchDeploymentSpec) { s.CodeConfiguration.ScoringScript = "/etc/passwd/../x.py" },
		"logging_level":          func(s *trainyard.BatchDeploymentSpec) { s.LoggingLevel = "Loud" },
	} {
		d := deployment()
		change(&d.Spec)
		if err := Complete(d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is let through: %v", want, err)
		}
	}
}

func TestAnInvocationReplacesWhatTheDeploymentSaysAndLeavesTheDeploymentAlone(t *testing.T) {
	d := deployment()
	if err := Complete(d); err != nil {
		t.Fatal(err)
	}
	two, folder := 2, &trainyard.JobInput{JobInputType: "uri_folder", URI: "azureml://datastores/workspaceblobstore/paths/in"}
	in := &trainyard.BatchInvocation{MiniBatchSize: 3, Instances: 5, ErrorThreshold: &two, Inputs: map[string]*trainyard.JobInput{"b": folder, "a": folder, "v": {JobInputType: "literal", Value: "1"}},
		Outputs: map[string]*trainyard.JobOutput{"score": {JobOutputType: "uri_file", URI: "azureml://datastores/workspaceblobstore/paths/out/rows.csv"}}}
	j, set, err := Job(d, &Model{ID: "model-id", Type: "custom_model", Path: "azureml://datastores/d/paths/x/model/"}, in)
	if err != nil {
		t.Fatal(err)
	}
	if set.MiniBatchSize != 3 || set.ErrorThreshold != 2 || set.OutputFile != "rows.csv" || set.Model != "model" || fmt.Sprint(set.Inputs) != "[a b]" || j.Spec.Resources.InstanceCount != 5 {
		t.Errorf("settings %+v, %+v", set, j.Spec.Resources)
	}
	if out := j.Spec.Outputs["score"]; out.URI != "azureml://datastores/workspaceblobstore/paths/out/" || out.JobOutputType != "uri_folder" {
		t.Errorf("output %+v", out)
	}
	if d.Spec.MiniBatchSize != 10 || d.Spec.Resources.InstanceCount != 1 || *d.Spec.ErrorThreshold != -1 {
		t.Errorf("the deployment changed: %+v", d.Spec)
	}
	in.Inputs["model"] = folder
	if _, _, err := Job(d, nil, in); err == nil {
		t.Error("an input with the model's name is let through")
	}
	if _, _, err := Job(d, nil, &trainyard.BatchInvocation{}); err == nil {
		t.Error("a job with nothing to score is let through")
	}
}

// Two ranks of the runner, as two nodes start them, again and again: both must end each time, whoever is first to go.
func TestRanksOfTheRunnerEndTogether(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "runner.py", Runner())
	write(t, dir, "data/a", "1")
	write(t, dir, "data/b", "2")
	script := "def run(files):\n    return [open(f).read() for f in files]\n"
	for round := range 5 {
		set, err := json.Marshal(Settings{Inputs: []string{"data"}, Script: "score.py", MiniBatchSize: 1, Concurrency: 2, Timeout: 30, ErrorThreshold: 0, Append: true, OutputFile: "rows", LoggingLevel: "Info"})
		if err != nil {
			t.Fatal(err)
		}
		port := freePort(t)
		var ranks []*exec.Cmd
		for rank := range 2 {
			home := fmt.Sprintf("%d-%d", round, rank)
			write(t, dir, home+"/score.py", script)
			write(t, dir, home+"/score/.keep", "")
			cmd := exec.CommandContext(t.Context(), "python3", filepath.Join(dir, "runner.py"))
			cmd.Dir = filepath.Join(dir, home)
			cmd.Env = append(os.Environ(), "AZURE_ML_INPUT_batch_settings="+string(set), "AZURE_ML_INPUT_data="+filepath.Join(dir, "data"), "AZURE_ML_OUTPUT_score="+filepath.Join(cmd.Dir, "score"),
				"MLFLOW_TRACKING_URI=", "TRAINYARD_GANG_TOKEN=secret", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, "WORLD_SIZE=2", fmt.Sprint("RANK=", rank))
			cmd.Stderr = &bytes.Buffer{}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ranks = append(ranks, cmd)
		}
		for rank, cmd := range ranks {
			if err := cmd.Wait(); err != nil {
				t.Fatalf("round %d, rank %d: %v\n%s", round, rank, err, cmd.Stderr)
			}
		}
		if rows, err := os.ReadFile(filepath.Join(ranks[0].Dir, "score", "rows")); err != nil || string(rows) != "1\n2\n" {
			t.Errorf("round %d: rows %q, %v", round, rows, err)
		}
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

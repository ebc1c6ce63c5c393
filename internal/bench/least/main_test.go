package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestATaskLeavesItsEndWhereTrainyardReadsIt(t *testing.T) {
	dir := t.TempDir()
	file, result, proof := filepath.Join(dir, "task.json"), filepath.Join(dir, "end"), filepath.Join(dir, "proof")
	write := func(command string) {
		data, err := json.Marshal(trainyard.Task{Command: command})
		if err == nil {
			err = os.WriteFile(file, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(": >" + proof)
	if err := run([]string{"task", "--file", file, "--result", result, "--hide", "/a", "--hide", "/b"}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	var end trainyard.TaskEnd
	if err := json.Unmarshal(data, &end); err != nil || end.Result != (trainyard.Result{Class: trainyard.ClassOK}) {
		t.Errorf("%s is %+v (%v)", data, end, err)
	}
	if end.Started.IsZero() || end.Ended.IsZero() {
		t.Errorf("%s has not both times", data)
	}
	if _, err := os.Stat(proof); err != nil {
		t.Error(err)
	}

	write("exit 3")
	if err := run([]string{"task", "--file", file, "--result", result + "2"}); err == nil {
		t.Error("a command that failed went well")
	}
	if _, err := os.Stat(result + "2"); err == nil {
		t.Error("a command that failed left word of a good end")
	}
}

func TestWithNoneOfItsWaysItSaysThem(t *testing.T) {
	for _, args := range [][]string{nil, {"true"}, {"task", "--file", "f"}, {"task", "--result", "r", "--file", "f"}, {"task", "--file", "f", "--result", "r", "--rank", "1"}} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), usage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

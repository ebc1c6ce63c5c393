//go:build unix

package modelserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTritonCommand runs the command with a program called tritonserver that tells what it finds, and without one. The real one is asked by
// the suite of every kind of serving.
func TestTritonCommand(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"both/config.pbtxt", "halves/config.pbtxt", "halves/1/model.py", ".ipynb_checkpoints/config.pbtxt", "__MACOSX/halves/x"} {
		path := filepath.Join(dir, "input", f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	tells := "#!/bin/sh\nprintf '%s\\n' \"$@\"\ncd \"${1#--model-repository=}\" && find . -mindepth 1 | sort\n"
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "bin", "tritonserver"), []byte(tells), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := Make(ask(func(r *Request) {
		r.ScoringScript, r.ModelType, r.Contained, r.Environment, r.ModelRoot = "", tritonModel, true, TritonEnvironment(), "repo"
		r.ModelFiles = []string{"both/config.pbtxt", "halves/config.pbtxt", "halves/1/model.py"}
	}))
	if err != nil {
		t.Fatal(err)
	}
	run := func(path string) (string, error) {
		c := exec.Command("sh", "-c", strings.ReplaceAll(p.Command, "${{inputs.model}}", filepath.Join(dir, "input")))
		c.Env = []string{"PATH=" + path, "TMPDIR=" + dir, "SERVER_PORT=4321"}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	for range 2 { // as a replica that is started again
		out, err := run(filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"))
		if err != nil || strings.Contains(out, "ipynb") || strings.Contains(out, "MACOSX") || !strings.Contains(out, "--http-port=4321\n") ||
			!strings.HasSuffix(out, "./both\n./both/1\n./both/config.pbtxt\n./halves\n./halves/1\n./halves/1/model.py\n./halves/config.pbtxt\n") {
			t.Errorf("%v: %s", err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "input", "both", "1")); err == nil {
		t.Error("the model itself was written to")
	}
	if out, err := run(os.Getenv("PATH")); err == nil || !strings.Contains(out, "The environment has no tritonserver in its PATH") {
		t.Errorf("without Triton: %v: %s", err, out)
	}
}

//go:build linux

package kube

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program is received whole with whatever tools an image has, or not at all.
func TestAProgramIsReceivedWithTheToolsThatThereAre(t *testing.T) {
	program := filepath.Join(t.TempDir(), "trainyard")
	text := make([]byte, 3*pieces+1000)
	if _, err := rand.Read(text); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, text, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, way string
		without   map[string]string // tools of the image that are not what they should be
		want      string            // what unpacks
	}{
		{"as it is", "near", map[string]string{"head": "#!/bin/sh\nexit 127\n"}, "cat"}, // by dd alone
		{"by a dd that knows no whole blocks", "near", map[string]string{"dd": "#!/bin/sh\necho 'dd: unknown operand iflag' >&2\nexit 1\n"}, "cat"},
		{"without dd", "near", map[string]string{"dd": "#!/bin/sh\nexit 127\n"}, "cat"},
		{"packed", "far", nil, "gzip"},
		{"without gzip", "far", map[string]string{"gzip": "#!/bin/sh\nexit 127\n"}, "cat"},
	} {
		for _, cut := range []int64{0, 1, pieces + 1} { // bytes of the end that do not come
			dir, tools := t.TempDir(), t.TempDir()
			for name, script := range c.without {
				if err := os.WriteFile(filepath.Join(tools, name), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			in, err := receive(t, dir, tools, c.way, program, cut, "")
			got, _ := os.ReadFile(filepath.Join(dir, "bin", "trainyard"))
			_, mark := os.Stat(filepath.Join(dir, "bin", "sent-ty-this"))
			left, _ := filepath.Glob(filepath.Join(dir, "bin", "trainyard.*"))
			fill := 0
			if c.want == "cat" {
				fill = -len(text) & (pieces - 1)
			}
			switch {
			case !strings.Contains(in, " "+c.want):
				t.Errorf("%s: it says %q", c.name, in)
			case cut > 0 && (err == nil || got != nil || mark == nil || len(left) > 0):
				t.Errorf("%s, %d bytes short: it ends with %v and leaves %d bytes, mark %v, and %v", c.name, cut, err, len(got), mark, left)
			case cut == 0 && (err != nil || mark != nil || !bytes.Equal(got, append(text[:len(text):len(text)], make([]byte, fill)...))):
				t.Errorf("%s: it ends with %v, %d bytes of %d, mark %v", c.name, err, len(got), len(text), mark)
			}
		}
	}
}

// inFolder is a script for pods with dir in the place of a pod's folders. The pod's first process is not signalled; here it looks once a second.
func inFolder(dir, script string) string {
	return strings.NewReplacer("base=/trainyard", "base="+dir, "/dev/shm/trainyard", dir+"/shm", "/tmp/trainyard", dir+"/tmp", " /trainyard/task", " "+dir+"/task",
		" /trainyard/program", " "+dir+"/program", "kill -USR1 1", ":").Replace(script)
}

// receive runs send.sh with dir as the pod's folder and its own tools before those of this computer, sends it what feed does but for the last
// cut bytes, and returns what it said at first. kept is what is said to be there already.
func receive(t *testing.T, dir, tools, way, path string, cut int64, kept string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", inFolder(dir, sendScript), "trainyard", "", "ty-this", way, kept)
	cmd.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := findProgram(path, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	first := make(chan string, 1)
	out := &dialog{feed: func(line string) {
		first <- line
		go func() { _ = feed(w, p, []byte(`{"the": "task"}`), line) }()
	}}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(r)
	if err == nil {
		_, _ = in.Write(all[:int64(len(all))-cut]) // it may have had enough
		err = in.Close()
	}
	return <-first, errors.Join(err, cmd.Wait())
}

// Package gputest is a stand-in for nvidia-smi, for tests on computers without GPUs: a program of that name whose GPUs are as busy as a file
// says. It says nothing of what CUDA does.
package gputest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/internal/gpu"
)

// StandIn is a folder with the program.
type StandIn struct {
	t   testing.TB
	Dir string // to be first in PATH
}

// New makes a program that tells of GPUs as busy as Set says; at first there is one that is idle.
func New(t testing.TB) *StandIn {
	t.Helper()
	s := &StandIn{t, t.TempDir()}
	s.Set("0")
	s.write(gpu.Program, Script(s.file()), 0o755)
	return s
}

// Here makes it, and puts it first in this process's PATH.
func Here(t testing.TB) *StandIn {
	t.Helper()
	s := New(t)
	t.Setenv("PATH", s.Path())
	return s
}

// Path is PATH with the program first.
func (s *StandIn) Path() string { return s.Dir + string(os.PathListSeparator) + os.Getenv("PATH") }

// Script is the program, in the language of /bin/sh. It prints the file, notes in FILE.asked that it was asked, and does not end while there
// is a FILE.hangs. It knows the one question that is put to it.
func Script(file string) string {
	return fmt.Sprintf(`#!/bin/sh
[ "$*" = %q ] || { echo "unknown: $*"; exit 6; }
echo $$ >>%[2]s.asked
while [ -e %[2]s.hangs ]; do sleep 0.1; done
[ -e %[2]s ] || { echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; exit 9; }
cat %[2]s
`, strings.Join(gpu.Query(), " "), file)
}

// Lines are what the program prints of GPUs that are as busy as said: "90", or "[N/A]".
func Lines(busy ...string) string {
	var b strings.Builder
	for i, percent := range busy {
		fmt.Fprintf(&b, "%d, GPU-%08d-aaaa, %s\n", i, i+1, percent)
	}
	return b.String()
}

// Set says how busy each GPU is, in percent.
func (s *StandIn) Set(busy ...string) {
	s.t.Helper()
	s.write("gpus.new", Lines(busy...), 0o644)
	if err := os.Rename(filepath.Join(s.Dir, "gpus.new"), s.file()); err != nil {
		s.t.Fatal(err)
	}
}

// Break takes the GPUs' driver away.
func (s *StandIn) Break() {
	s.t.Helper()
	if err := os.Remove(s.file()); err != nil {
		s.t.Fatal(err)
	}
}

// Hang has the program not end from now on.
func (s *StandIn) Hang() {
	s.t.Helper()
	s.write("gpus.hangs", "", 0o644)
}

// Wake has it go on.
func (s *StandIn) Wake() {
	s.t.Helper()
	if err := os.Remove(s.file() + ".hangs"); err != nil {
		s.t.Fatal(err)
	}
}

// Asked are the processes in which it was asked, one a line.
func (s *StandIn) Asked() []string {
	data, _ := os.ReadFile(s.file() + ".asked") // none: it was not
	return strings.Fields(string(data))
}

func (s *StandIn) file() string { return filepath.Join(s.Dir, "gpus") }

func (s *StandIn) write(name, text string, mode os.FileMode) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.Dir, name), []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
}

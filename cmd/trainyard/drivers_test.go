package main

import (
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/internal/target"
)

// What was opened before an engine that cannot be is let go of: the next try finds its folder free.
func TestAnEngineThatCannotBeOpenedHoldsNoFolder(t *testing.T) {
	t.Setenv("TRAINYARD_PROCESS", `{"cgroupRoot": "none"}`)
	t.Setenv("TRAINYARD_DOCKER", `{"pids": -1}`)
	t.Setenv(containersVar, "")
	env := target.Env{Dir: filepath.Join(t.TempDir(), "tasks"), Log: slog.New(slog.DiscardHandler)}
	if _, _, _, err := openDrivers(t.Context(), env); err == nil || !strings.Contains(err.Error(), "pids is -1") {
		t.Fatalf("with settings that cannot be it says %v", err)
	}
	t.Setenv(containersVar, "off")
	d, _, _, err := openDrivers(t.Context(), env)
	if err != nil {
		t.Fatalf("the next try: %v", err)
	}
	if err := d.(io.Closer).Close(); err != nil {
		t.Error(err)
	}
}

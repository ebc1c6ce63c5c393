package ssh

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
)

// A machine without Python is a machine: it says so.
func TestNoPython(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{Config: []string{"SetEnv PATH=" + sshtest.Without(t, "python")}})
	f, err := Probe(t.Context(), settings(m), self(t))
	if err != nil || f.Python != "" || len(f.Notes) != 1 || !strings.Contains(f.Notes[0], "no python3") {
		t.Errorf("%+v, %v", f, err)
	}
	l := newLocation(t, m)
	d := l.opened(t)
	s := spec(t, "a", "", settings(m))
	grow(t, d, s)
	if note := only(t, d).Note; note != noPython {
		t.Errorf("note %q", note)
	}
	shrunk(t, d, s.ID)
	clean(t, m)
}

// What a login shell prints, and tools that are missing where there is little, do not matter.
func TestOtherShellsAndTools(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]sshtest.Options{
		"bash that greets":        {Shell: "/bin/bash"},
		"no setsid":               {Config: []string{"SetEnv PATH=" + sshtest.Without(t, "setsid")}},
		"nothing that makes sums": {Config: []string{"SetEnv PATH=" + sshtest.Without(t, "sha")}},
	} {
		t.Run(name, func(t *testing.T) {
			m := sshtest.New(t, o)
			if err := os.WriteFile(filepath.Join(m.Home(), ".bashrc"), []byte("echo Welcome, @@ done; echo tip >&2\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			l := newLocation(t, m)
			d := l.opened(t)
			s := spec(t, "a", "talker", settings(m))
			grow(t, d, s)
			until(t, "the agent is heard", func() bool { return l.home.heard(t) > 3 })
			shrunk(t, d, s.ID)
			m.Run(t, "rm "+m.HomeDir+"/.bashrc")
			clean(t, m)
		})
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestAClusterOutlivesTheLocationThatItWasMadeAt(t *testing.T) {
	l := newLab(t)
	l.cluster("with-node", "Standard_F2s_v2", 1, 120)
	l.cluster("without", "Standard_F2s_v2", 1, 1)
	l.submit("before", "with-node", "echo before")
	l.until("before", trainyard.JobCompleted)
	if err := l.terminate(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.data, "config.yml"), []byte("locations:\n  - name: lab\n    capacity: {nodes: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.start()
	for _, compute := range []string{"with-node", "without"} {
		l.submit("on-"+compute, compute, "echo $TRAINYARD_NODE")
		l.until("on-"+compute, trainyard.JobCompleted)
	}
	if out := l.cli("compute", "show", "-n", "without", "-o", "json"); !strings.Contains(out, "its nodes come from lab now") {
		t.Errorf("nothing is said of the move: %s", out)
	}
	l.cli("compute", "delete", "-n", "with-node", "--yes")
	l.wait("no agent of it is left", func() bool { return len(l.processes("with-node")) == 0 })
}

func TestAMachineIsBelievedByTheKeyThatWasPinned(t *testing.T) {
	old := []byte(`{"address":"a","port":22,"user":"u","hostKey":"ssh-ed25519 AAAA"}`)
	for _, tt := range []struct{ name, settings, want string }{
		{"the same machine keeps its key", `{"address":"a","port":22,"user":"v"}`, "AAAA"},
		{"the usual port is one that is not said", `{"address":"a","user":"v"}`, "AAAA"},
		{"another machine has one of its own", `{"address":"b","port":22,"user":"v"}`, ""},
		{"a key that is named counts", `{"address":"a","port":22,"user":"v","hostKey":"ssh-ed25519 BBBB"}`, "BBBB"},
	} {
		got, err := keepHostKey(old, []byte(tt.settings))
		if err != nil || tt.want == "" && strings.Contains(string(got), "hostKey") || !strings.Contains(string(got), tt.want) {
			t.Errorf("%s: %s, %v", tt.name, got, err)
		}
	}
}

func TestWhatIsNotSecretIsThePropertiesToSay(t *testing.T) {
	got, err := whole([]byte(`{"address":"a","administratorAccount":{"username":"new"}}`), []byte(`{"administratorAccount":{"username":"old","password":"p"}}`))
	if err != nil || string(got) != `{"address":"a","administratorAccount":{"password":"p","username":"new"}}` {
		t.Errorf("%s, %v", got, err)
	}
}

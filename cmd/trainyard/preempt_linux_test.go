package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// newLabWith is newLab with a configuration file, and further variables for all its programs.
func newLabWith(t *testing.T, config string, vars ...string) *lab {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l := &lab{t: t, bin: bin, data: filepath.Join(dir, "data"), config: filepath.Join(dir, "config"), addr: freeAddr(t), vars: vars}
	if err := os.MkdirAll(l.data, 0o700); err != nil {
		t.Fatal(err)
	}
	if config != "" {
		if err := os.WriteFile(filepath.Join(l.data, "config.yml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l.start()
	t.Cleanup(l.clean)
	return l
}

func TestLowPriorityWorkGivesWayAndGoesOnFromItsCheckpoint(t *testing.T) {
	l := newLabWith(t, "locations:\n  - name: lab\n    capacity: {nodes: 1}\n")
	l.cli("compute", "create", "-n", "spare", "--type", "amlcompute", "--size", "Standard_DS3_v2", "--tier", "low_priority", "--max-instances", "2", "--idle-time-before-scale-down", "1", "-o", "none")
	l.cluster("paid", "Standard_DS3_v2", 1, 1)
	mark := filepath.Join(t.TempDir(), "mark")
	l.submit("training", "spare", fmt.Sprintf(`from=$(cat outputs/step 2>/dev/null || echo 0); echo "from $from" >> %s; for i in $(seq $((from+1)) 60); do echo $i > outputs/step; sleep 0.1; done; echo "to $i"`, mark))
	l.until("training", trainyard.JobRunning)
	l.wait("it has a checkpoint", func() bool { return strings.Contains(readFile(mark), "from 0") })
	l.wait("some steps are done", func() bool {
		v, err := l.show("training")
		return err == nil && v.Status == string(trainyard.JobRunning)
	})
	l.submit("urgent", "paid", "echo paid for")
	preempted := ""
	l.wait("the urgent job is done", func() bool {
		if v, err := l.show("training"); err == nil && v.Reason.Code == "Preempted" {
			preempted = v.Reason.Message
		}
		v, err := l.show("urgent")
		return err == nil && v.Status == string(trainyard.JobCompleted)
	})
	v := l.until("training", trainyard.JobCompleted)
	if len(v.Attempts) < 2 {
		t.Errorf("%d attempts: it never gave way", len(v.Attempts))
	}
	began := strings.Fields(strings.ReplaceAll(readFile(mark), "from ", ""))
	if len(began) < 2 || began[0] != "0" || began[1] == "0" {
		t.Errorf("attempts began at steps %v: the second did not get the checkpoint of the first", began)
	}
	if got := l.log("training"); !strings.HasSuffix(got, "\n--- attempt 2; attempt 1 ended: Preempted ---\nto 60\n") {
		t.Errorf("log %q", tailOf(got, 200))
	}
	t.Logf("began at steps %v; while it waited: %q", began, preempted)
}

func TestAFullLocationSaysSo(t *testing.T) {
	l := newLabWith(t, "locations:\n  - name: lab\n    capacity: {nodes: 1}\n    sizes: [Standard_DS3_v2, Standard_NC6s_v3]\n")
	l.cluster("first", "Standard_DS3_v2", 1, 1)
	l.cluster("second", "Standard_DS3_v2", 1, 1)
	l.submit("long", "first", "sleep 300")
	l.until("long", trainyard.JobRunning)
	l.submit("waiting", "second", "true")
	l.wait("the reason names the location", func() bool {
		v, err := l.show("waiting")
		return err == nil && strings.Contains(v.Reason.Message, "location lab is full (1 of 1 nodes are taken)")
	})
	l.cli("job", "cancel", "-n", "long")
	l.until("waiting", trainyard.JobCompleted)
	for size, want := range map[string]string{"Standard_NC6s_v3": "needs approval", "Standard_D2_v3": "is not a size of location lab"} {
		out, err := l.try("compute", "create", "-n", "refused", "--type", "amlcompute", "--size", size, "-o", "none")
		if err == nil || !strings.Contains(strings.ReplaceAll(out, "has no approval for it", "needs approval"), want) || !strings.Contains(out, "Standard_DS3_v2") {
			t.Errorf("%s: %v %s", size, err, out)
		}
	}
}

func TestAJobWithoutAComputeGetsANodeThatGoesAfter(t *testing.T) {
	l := newLab(t)
	path := l.file("serverless.yml", "command: echo on $TRAINYARD_NODE\nresources: {instance_type: standard_f2s_v2}\n")
	l.cli("job", "create", "-f", path, "-n", "free", "-o", "none")
	l.until("free", trainyard.JobCompleted)
	if got := l.log("free"); !strings.HasPrefix(got, "on serverless-f2s-v2-") {
		t.Errorf("log %q", got)
	}
	l.wait("its node is gone", func() bool { return len(l.processes(" agent ")) == 0 })
	if out := l.cli("compute", "list", "-o", "json"); strings.Contains(out, "serverless") {
		t.Errorf("compute list shows it: %s", out)
	}
	if out, err := l.try("compute", "create", "-n", "serverless-mine", "--type", "amlcompute", "-o", "none"); err == nil {
		t.Errorf("the name was given away: %s", out)
	}
}

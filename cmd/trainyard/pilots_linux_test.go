package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// A pilot node is Slurm's to take away. The job on it is told, as far as Slurm tells, and what it then leaves in ./outputs the next attempt
// finds; the attempt says what Slurm did.
func TestAPilotThatSlurmTakesAwayCostsAnAttemptAndNoMore(t *testing.T) {
	conf := engineAt("TRAINYARD_TEST_SLURM_CONF")
	if conf == "" {
		leftOut(t, "Slurm", `eval "$(test/engines/slurm/up.sh DIR)"`)
		return
	}
	for name, c := range map[string]struct {
		settings string // of the location, besides
		take     func(s slurmParts, pilot string)
		class    trainyard.Class // of the attempt
		says     string          // %s: the pilot
		told     bool            // the job was told before
	}{
		"canceled": {"", func(s slurmParts, pilot string) { s.run("scancel", pilot) },
			trainyard.ClassNodeLost, "job %s, which its node was, was canceled in Slurm (scancel)", true},
		"preempted": {", partition: low, exclusive: true", func(s slurmParts, _ string) {
			s.run("sbatch", "--partition=main", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 5")
		}, trainyard.ClassPreempted, "Slurm took its node (job %s) for a job that goes before it (preempted)", true},
		"put back": {"", func(s slurmParts, pilot string) {
			s.run("scontrol", "update", "jobid="+pilot, "requeue=1")
			s.run("scontrol", "requeue", pilot)
		}, trainyard.ClassPreempted, "Slurm took its node away and put job %s back in its queue (requeue)", true},
		"its agent and all killed": {"", func(s slurmParts, pilot string) { s.run("scancel", "--signal=KILL", "--batch", pilot) },
			trainyard.ClassNodeLost, "job %s, which its node was, ", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := slurmParts{t, conf, filepath.Dir(filepath.Dir(conf))}
			t.Cleanup(func() { clearSlurm(t, conf) }) // after the server's end: pilots whose server is gone wait for it
			l := newLabWith(t, "locations: [{name: local}, {name: alloc, driver: slurm, settings: {confPath: "+conf+c.settings+"}, capacity: {nodes: 1}}]\n")
			l.cli("compute", "create", "-n", "pilots", "--type", "amlcompute", "--location", "alloc", "--size", "Standard_F2s_v2", "--max-instances", "1",
				"--idle-time-before-scale-down", "1", "-o", "none")
			mark := filepath.Join(t.TempDir(), "mark")
			l.submit("training", "pilots", fmt.Sprintf(`echo begun; echo "from $(cat outputs/step 2>/dev/null || echo 0)" >> %[1]s; [ $(wc -l < %[1]s) = 1 ] || exit 0; `+
				`trap 'echo 7 > outputs/step; exit 0' TERM; echo on > %[1]s.on; while :; do sleep 0.1; done`, mark))
			l.wait("it runs", func() bool { return readFile(mark+".on") != "" })
			pilot := s.run("squeue", "--noheader", "--states=R", "--format=%i")
			c.take(s, pilot)
			v := l.until("training", trainyard.JobCompleted)
			want := "from 0\nfrom 0\n"
			if c.told {
				want = "from 0\nfrom 7\n"
			}
			if got := readFile(mark); got != want || len(v.Attempts) != 2 {
				t.Errorf("its %d attempts began %q, want %q", len(v.Attempts), got, want)
			}
			says := strings.ReplaceAll(c.says, "%s", pilot)
			if out := l.cli("job", "show", "-n", "training", "-o", "json"); !strings.Contains(out, says) {
				t.Errorf("it does not say %q: %s", says, out)
			}
			if log := l.cli("job", "logs", "-n", "training"); !strings.Contains(log, "--- attempt 2; attempt 1 ended: "+string(c.class)+" ---\n") {
				t.Errorf("log %q", log)
			}
		})
	}
}

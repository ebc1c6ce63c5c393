package slurm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
)

// accounted is a Slurm that runs nothing without an account, by the ways in to it.
func accounted(t *testing.T) map[string]slurm.Settings {
	t.Helper()
	lab(t) // skips where there is no Slurm
	dir := t.TempDir()
	script := func(name string) *exec.Cmd {
		return exec.Command(filepath.Join("..", "..", "..", "test", "engines", "slurm", name), dir)
	}
	up := script("up.sh")
	up.Env = append(os.Environ(), "ACCOUNTING=1", "NODES=1")
	said := &strings.Builder{}
	up.Stderr = said
	out, err := up.Output()
	t.Cleanup(func() {
		if out, err := script("down.sh").CombinedOutput(); err != nil {
			t.Errorf("down.sh: %v %s", err, out)
		}
	})
	if err != nil {
		if strings.Contains(said.String(), "apt-get install slurmdbd") && os.Getenv("TRAINYARD_REQUIRE_ENGINES") == "" {
			t.Skip(said)
		}
		t.Fatalf("up.sh: %v %s", err, said)
	}
	ways := map[string]slurm.Settings{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		name, value, _ := strings.Cut(strings.TrimPrefix(line, "export TRAINYARD_TEST_SLURM_"), "=")
		s := slurm.Settings{ConfPath: filepath.Join(dir, "etc", "slurm.conf"), Folder: t.TempDir()}
		way := map[string]string{"CONF": byCommands, "LOGIN": byLogin, "REST": byREST}[name]
		if way != byCommands {
			if err := json.Unmarshal([]byte(strings.Trim(value, "'")), &s); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		ways[way] = s
	}
	return ways
}

// Slurm's own accounting decides by whose account and QOS jobs run, in every way in: what it refuses is said when the compute is attached, a
// job has what the compute names, and one that has to wait for its QOS says so.
func TestAccountsAndQOSAreSlurms(t *testing.T) {
	ways := accounted(t)
	if len(ways) != len(waysIn) && os.Getenv("TRAINYARD_REQUIRE_ENGINES") != "" {
		t.Fatalf("there are %d ways in", len(ways))
	}
	for way, s := range ways {
		t.Run(way, func(t *testing.T) {
			for name, c := range map[string]struct{ account, qos, want string }{
				"an account that is not there": {"nope", "", "Invalid account or account/partition combination specified"},
				"a QOS that is not there":      {"team", "nope", "Invalid qos specification"},
				"a QOS of others":              {"idle", "single", "Invalid qos specification"},
				"what it may have":             {"team", "single", ""},
			} {
				at := s
				at.Account, at.QOS = c.account, c.qos
				_, err := (&Config{Settings: at}).Probe(t.Context())
				if c.want == "" && err != nil {
					t.Errorf("%s is refused: %v", name, err)
				}
				if way != byREST && c.want != "" && (trainyard.CodeOf(err) != trainyard.CodeInvalid || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s: %v", name, err)
				}
				if way == byREST && c.want != "" { // it has no way to ask without a job
					d := open(t, at, t.TempDir())
					if err := d.Start(t.Context(), makeTask(t, "refused", "true", 1)); err == nil || !strings.Contains(err.Error(), c.want) {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
			s.Account, s.QOS = "team", "single"
			d := open(t, s, t.TempDir())
			first, second := makeTask(t, "first", "sleep 600", 1), makeTask(t, "second", "echo mine", 1)
			start(t, d, first)
			running(t, d, first.ID)
			if show := command(t, ways[byCommands], "scontrol", "show", "job", "--oneliner", jobOf(d, first.ID)); !strings.Contains(show, " Account=team ") || !strings.Contains(show, " QOS=single ") {
				t.Errorf("Slurm shows %s", show)
			}
			start(t, d, second)
			seen(t, d, second.ID, "it waits for its QOS", func(o trainyard.Observation) bool {
				return o.State == trainyard.TaskStaging && strings.HasPrefix(o.Progress, "Slurm: (QOSMaxJobsPerUserLimit) ")
			})
			if err := d.Remove(t.Context(), first.ID); err != nil {
				t.Fatal(err)
			}
			if o := ended(t, d, second.ID); o.Result.Class != trainyard.ClassOK || logOf(t, d, second.ID) != "mine\n" {
				t.Errorf("result is %+v", *o.Result)
			}
		})
	}
}

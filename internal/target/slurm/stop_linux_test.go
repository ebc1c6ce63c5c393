package slurm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// deaf does not care about SIGTERM.
const deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done"

// up starts a task and waits until its command has written that it is up.
func up(t *testing.T, d *Driver, task trainyard.Task) {
	t.Helper()
	start(t, d, task)
	running(t, d, task.ID)
	until(t, time.Minute, "it is up", func() bool { return logOf(t, d, task.ID) == "up\n" }, func() string { return logOf(t, d, task.ID) })
}

func stop(t *testing.T, d *Driver, id trainyard.TaskID, grace time.Duration) {
	t.Helper()
	if err := d.Stop(t.Context(), id, grace); err != nil {
		t.Fatal(err)
	}
}

// slurmctld is away when a task is stopped, and for longer than its grace. What it then gets is SIGTERM, and all of its grace, from whichever driver.
func TestGraceBeginsWhenTheControllerIsBack(t *testing.T) {
	for _, by := range []string{"the driver that was asked", "one that comes later"} {
		t.Run(by, func(t *testing.T) {
			s, dir := lab(t), t.TempDir()
			d := reopen(t, s, dir)
			t.Cleanup(func() { d.Close() })
			task := makeTask(t, "cut-off", "trap 'sleep 1; echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done", 1)
			task.Grace = time.Minute
			up(t, d, task)
			saved(t, s, jobOf(d, task.ID))
			back := stopController(t, s)
			stop(t, d, task.ID, 5*time.Second)
			<-time.After(6 * time.Second) // slurmctld is away for longer than the grace
			if by != "the driver that was asked" {
				d.Close()
				d = open(t, s, dir)
				removeLater(t, d, task.ID)
			}
			back()
			o := ended(t, d, task.ID)
			if got := logOf(t, d, task.ID); !strings.HasSuffix(got, "saved\n") || o.Killed != 0 || o.Result.Class != trainyard.ClassCanceled {
				t.Errorf("it wrote %q and ended as %+v, %+v", got, o, *o.Result)
			}
		})
	}
}

// The user's process has its grace, and what it made is stored after that, however long that takes within reason.
func TestResultsAreStoredAfterTheGrace(t *testing.T) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			d := open(t, lab(t), t.TempDir())
			task := makeTask(t, "stores", "trap '' TERM; echo made >made; echo up; while :; do sleep 0.05; done", n)
			task.Run.Env = map[string]string{storeEnv: "sleep 2; cp made stored"}
			up(t, d, task)
			stop(t, d, task.ID, 500*time.Millisecond)
			o := ended(t, d, task.ID)
			if data, err := os.ReadFile(filepath.Join(task.Run.Dir, "stored")); string(data) != "made\n" {
				t.Errorf("what was stored is %q, %v", data, err)
			}
			if said := strings.Join(o.Notes, "; "); o.Killed != 0 || strings.Count(said, "was killed: it had not ended 500ms after") != 1 {
				t.Errorf("it says %q, killed %s", said, o.Killed)
			}
			if o.Result.Class != trainyard.ClassCanceled || o.Result.ExitCode != 137 {
				t.Errorf("result is %+v", *o.Result)
			}
		})
	}
}

// A program that does not come to an end with storing is ended by Slurm.
func TestStoringThatHangsIsEnded(t *testing.T) {
	d := open(t, lab(t), t.TempDir())
	d.finishing = 2 * time.Second
	task := makeTask(t, "hangs", deaf, 1)
	task.Run.Env = map[string]string{storeEnv: "sleep 600"}
	up(t, d, task)
	stop(t, d, task.ID, 500*time.Millisecond)
	o := ended(t, d, task.ID)
	if o.Result.Class != trainyard.ClassCanceled || o.Result.ExitCode != 137 || o.Killed < 2500*time.Millisecond || len(o.Notes) > 0 {
		t.Errorf("it ended as %+v, %+v", o, *o.Result)
	}
	var kept ending
	if ok, err := d.readJSON(d.path(task.ID.Dir(), endFile), &kept); !ok || kept.Killed != o.Killed {
		t.Errorf("written down is %+v, %v", kept, err)
	}
}

// A second Stop with a shorter grace is the program's to hold, too; the results are stored all the same. None is for Slurm, at once.
func TestShorterGraceReachesTheProgram(t *testing.T) {
	for second, stored := range map[time.Duration]bool{300 * time.Millisecond: true, 0: false} {
		t.Run(second.String(), func(t *testing.T) {
			d := open(t, lab(t), t.TempDir())
			task := makeTask(t, "shorter", deaf, 1)
			task.Run.Env = map[string]string{storeEnv: "touch stored"}
			up(t, d, task)
			stop(t, d, task.ID, time.Hour)
			until(t, time.Minute, "it was told", func() bool {
				d.mu.Lock()
				defer d.mu.Unlock()
				return d.tasks[task.ID.Dir()].stop.Told
			}, func() string { return "untold" })
			stop(t, d, task.ID, second)
			o := ended(t, d, task.ID)
			if _, err := os.Stat(filepath.Join(task.Run.Dir, "stored")); (err == nil) != stored || (o.Killed == 0) != stored {
				t.Errorf("stored: %v; it ended as %+v, %+v", err, o, *o.Result)
			}
		})
	}
}

// An earlier version wrote no time at which SIGTERM got through.
func TestStopThatAnEarlierVersionWrote(t *testing.T) {
	for text, atOnce := range map[string]bool{
		`{"at":"2026-01-02T03:04:05Z","deadline":"2026-01-02T03:04:15Z","told":true}`: false,
		`{"at":"2026-01-02T03:04:05Z","deadline":"2026-01-02T03:04:05Z"}`:             true,
	} {
		var s stopRecord
		if err := json.Unmarshal([]byte(text), &s); err != nil || s.atOnce() != atOnce {
			t.Errorf("%s: %+v, %v", text, s, err)
		}
	}
}

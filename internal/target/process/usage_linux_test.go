package process

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

func TestUsageIsOfAllProcessesOfATask(t *testing.T) {
	dir := t.TempDir()
	d, err := (&Config{}).Open(t.Context(), target.Env{Dir: filepath.Join(dir, "driver"), Group: "usage-" + filepath.Base(dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.(target.Closer).Close()
	id := trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), "busy"), 1, 0)
	defer d.Remove(context.Background(), id)
	// Two processes: one that holds 60 MB, and one that is busy.
	task := trainyard.Task{ID: id, Run: trainyard.Run{Dir: t.TempDir()}}
	task.Run.Command = `x=$(head -c 60000000 /dev/zero | tr '\0' x); (while :; do :; done) & sleep 100; echo ${#x}`
	if err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	late := time.After(30 * time.Second)
	var u target.Usage
	for u.MemoryMB < 50 || u.CPU < 500*time.Millisecond {
		select {
		case <-late:
			t.Fatalf("it uses %+v", u)
		case <-time.After(20 * time.Millisecond):
		}
		if u, err = d.(target.Meter).Usage(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if u.MemoryMB > 400 || u.CPU > 40*time.Second || u.PeakMB < u.MemoryMB || u.PeakMB > 800 || u.OOMKills != 0 {
		t.Errorf("it uses %+v", u)
	}
	if err := d.Remove(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := d.(target.Meter).Usage(t.Context(), id); !trainyard.IsNotFound(err) {
		t.Errorf("a task that is gone: %v", err)
	}
}

func TestTheMostMemoryOfAProcess(t *testing.T) {
	for status, want := range map[string]int64{"": 0, "Name:\tx\n": 0, "VmPeak:\t 9 kB\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n": 2 << 20, "VmHWM:": 0, "VmHWM:\n": 0} {
		if got := highWater([]byte(status)); got != want {
			t.Errorf("%q: %d, want %d", status, got, want)
		}
	}
}

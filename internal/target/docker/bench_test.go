//go:build !windows

package docker

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// BenchmarkStart measures from the call of Start to the beginning of the user's command, and to the seen end of a task of "true".
func BenchmarkStart(b *testing.B) {
	d := open(b, needEngine(b), b.TempDir(), trainyard.Resources{})
	var begins, ends []time.Duration
	for b.Loop() {
		task := newTestTask(b, "true")
		from := time.Now()
		start(b, d, task)
		at, _ := d.beganAt(newTask(task.ID.Dir()))
		begins = append(begins, at.Sub(from))
		for o := find(b, d, task.ID); o.State != trainyard.TaskEnded; o = find(b, d, task.ID) {
			<-d.Changed()
		}
		ends = append(ends, time.Since(from))
		if err := d.Remove(b.Context(), task.ID); err != nil {
			b.Fatal(err)
		}
	}
	report(b, begins, "begin")
	report(b, ends, "end")
}

// BenchmarkDockerRun is the same with the docker command, and the same limits: none.
func BenchmarkDockerRun(b *testing.B) {
	c := needEngine(b)
	var ends []time.Duration
	for b.Loop() {
		from := time.Now()
		cmd := exec.Command("docker", "run", "--rm", "--network", "host", c.Image, "true")
		cmd.Env = append(os.Environ(), "DOCKER_HOST="+c.Host)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		ends = append(ends, time.Since(from))
	}
	report(b, ends, "end")
}

func report(b *testing.B, all []time.Duration, what string) {
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms/"+what)
	b.ReportMetric(float64(all[len(all)*95/100].Microseconds())/1000, "p95-ms/"+what)
}

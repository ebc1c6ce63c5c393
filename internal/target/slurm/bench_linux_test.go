package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
)

// BenchmarkHundred takes a hundred jobs of `true` from the first submission to the last end: with sbatch alone, eight at once, and through
// the driver, with what the program leaves behind read and removed.
func BenchmarkHundred(b *testing.B) {
	s := lab(b)
	const jobs = 100
	b.Run("sbatch", func(b *testing.B) {
		dir, c := b.TempDir(), s.Client("")
		script := plainScript(b, dir)
		for b.Loop() {
			parallel(jobs, func(i int) {
				if _, err := c.Submit(b.Context(), plain(script, dir, i)); err != nil {
					b.Error(err)
				}
			})
			for left := jobs; left > 0; <-time.After(20 * time.Millisecond) {
				left = jobs - len(ends(dir))
			}
			clear(dir)
		}
		b.ReportMetric(jobs*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	})
	b.Run("driver", func(b *testing.B) {
		d := open(b, s, b.TempDir())
		d.program = plainProgram(b)
		for b.Loop() {
			parallel(jobs, func(i int) {
				if err := d.Start(b.Context(), trueTask(i)); err != nil {
					b.Error(err)
				}
			})
			for left := jobs; left > 0; {
				select {
				case <-d.Changed():
				case <-time.After(time.Second):
				}
				left = jobs
				all, err := d.Observe(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				for _, o := range all {
					if o.State == trainyard.TaskEnded {
						left--
					}
				}
			}
			for i := range jobs {
				if err := d.Remove(b.Context(), trueTask(i).ID); err != nil {
					b.Error(err)
				}
			}
		}
		b.ReportMetric(jobs*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	})
}

// BenchmarkStart is the time from the wish for a job to its first trace, one job at a time.
func BenchmarkStart(b *testing.B) {
	s := lab(b)
	b.Run("sbatch", func(b *testing.B) {
		dir, c := b.TempDir(), s.Client("")
		script := plainScript(b, dir)
		var took []time.Duration
		for b.Loop() {
			from := time.Now()
			if _, err := c.Submit(b.Context(), plain(script, dir, 0)); err != nil {
				b.Fatal(err)
			}
			for {
				if len(ends(dir)) > 0 {
					break
				}
				<-time.After(2 * time.Millisecond)
			}
			took = append(took, time.Since(from))
			clear(dir)
		}
		report(b, took)
	})
	b.Run("driver", func(b *testing.B) {
		d := open(b, s, b.TempDir())
		d.program = plainProgram(b)
		var took []time.Duration
		for b.Loop() {
			from, task := time.Now(), trueTask(0)
			if err := d.Start(b.Context(), task); err != nil {
				b.Fatal(err)
			}
			for begun := false; !begun; {
				<-d.Changed()
				all, err := d.Observe(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				begun = len(all) == 1 && all[0].State != trainyard.TaskStaging
			}
			took = append(took, time.Since(from))
			ended(b, d, task.ID)
			if err := d.Remove(b.Context(), task.ID); err != nil {
				b.Fatal(err)
			}
		}
		report(b, took)
	})
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
}

func trueTask(i int) trainyard.Task {
	return trainyard.Task{ID: trainyard.TaskID(fmt.Sprintf("s/r/w/true-%d.1.0", i)), Hi: 1, Nodes: 1}
}

// plainProgram stands in for this program as cheaply as a shell can, so that what is measured is the driver.
func plainProgram(b *testing.B) string {
	path := filepath.Join(b.TempDir(), "program")
	text := `#!/bin/sh
echo '{"result":{"class":"OK","exitCode":0}}' >"$5.part" && mv "$5.part" "$5"
`
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		b.Fatal(err)
	}
	return path
}

// plainScript is a batch script that runs the same program.
func plainScript(b *testing.B, dir string) string {
	return "#!/bin/bash\nexec " + plainProgram(b) + " task --file x --result " + slurm.Quote(dir) + "/done.$SLURM_JOB_ID\n"
}

func plain(script, dir string, i int) slurm.Batch {
	return slurm.Batch{Script: script, Name: fmt.Sprintf("plain-%d", i), Dir: dir, Output: filepath.Join(dir, "out"), Nodes: 1}
}

// ends are the files that programs have left.
func ends(dir string) (out []string) {
	files, _ := filepath.Glob(filepath.Join(dir, "done.*"))
	return slices.DeleteFunc(files, func(f string) bool { return filepath.Ext(f) == ".part" })
}

func clear(dir string) {
	for _, f := range ends(dir) {
		_ = os.Remove(f)
	}
}

// parallel calls f n times, as many at once as the driver would.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxSubmits)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

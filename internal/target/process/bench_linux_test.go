package process

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// cpu is the processor time of this process and of the children it has reaped.
func cpu() time.Duration {
	var total time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			total += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return total
}

// BenchmarkTrue takes tasks of `true` from Start to Remove: with nothing limited, as on the local target; with memory limited, as on a
// node of a cluster; with paths hidden; and without cgroups, as for a user who has none.
func BenchmarkTrue(b *testing.B) {
	hide := b.TempDir()
	for _, bb := range []struct {
		name  string
		conf  Config
		limit trainyard.Resources
		hide  []string
		alone bool // Landlock, without mounts
	}{
		{name: "plain"},
		{name: "limited", limit: trainyard.Resources{MemoryMB: 512, CPUs: 1}},
		{name: "hidden", hide: []string{hide}},
		{name: "hidden-by-landlock-alone", hide: []string{hide}, alone: true},
		{name: "sessions", conf: Config{CgroupRoot: "none"}},
	} {
		for _, at := range []int{1, 4} {
			b.Run(fmt.Sprintf("%s/%d-at-once", bb.name, at), func(b *testing.B) {
				d := open(b, &bb.conf, b.TempDir(), bb.limit)
				if bb.alone {
					d.host.fence.mounts = d.host.fence.mayMount() && false
				}
				benchTrue(b, d, at, bb.hide)
			})
		}
	}
}

func benchTrue(b *testing.B, d *Driver, at int, hide []string) {
	dir := b.TempDir()
	var next atomic.Int64
	before := cpu()
	b.ResetTimer()
	var wg sync.WaitGroup
	for range at {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				id := trainyard.TaskID(fmt.Sprintf("s/r/w/true.%d.0", n))
				t := trainyard.Task{ID: id, Run: trainyard.Run{Command: "true", Dir: dir, Hide: hide}}
				if err := d.Start(b.Context(), t); err != nil {
					b.Error(err)
					return
				}
				for e := d.observe1(id); e == nil || e.State != trainyard.TaskEnded; e = d.observe1(id) {
					<-d.doneOf(id)
				}
				if err := d.Remove(b.Context(), id); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(float64((cpu()-before).Microseconds())/float64(b.N)/1000, "cpu-ms/task")
	if _, err := os.ReadDir(dir); err != nil {
		b.Error(err)
	}
}

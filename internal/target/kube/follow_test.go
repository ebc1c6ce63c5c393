package kube

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trainyard/trainyard"
)

// A log that came to its end by itself and is as long as the program says is not read again; any other is.
func TestALogThatIsWholeIsNotReadAgain(t *testing.T) {
	lines := func(texts ...string) string {
		var b strings.Builder
		for i, text := range texts {
			fmt.Fprintf(&b, "2026-01-01T12:00:0%dZ %s\n", i+1, text)
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		first, again string // what is read of the log
		bytes        int64  // how long the program says that it is; below 0: it does not say
		want         string
		reads        int
	}{
		"it is whole":                  {lines("a", "b"), lines("a", "b"), 4, "a\nb\n", 1},
		"nothing was written":          {"", "", 0, "", 1},
		"it was cut where a line ends": {lines("a"), lines("a", "b"), 4, "a\nb\n", 2},
		"others wrote to it as well":   {lines("warned"), lines("warned", "a"), 2, "warned\na\n", 2},
		"nobody says how long it is":   {lines("a"), lines("a", "b"), -1, "a\nb\n", 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reads atomic.Int64
				d := newMemoryDriver(t, func(r *http.Request) (int, string) {
					if reads.Add(1) == 1 {
						return 200, c.first
					}
					return 200, c.again
				})
				k := memoryTask(d, 1)
				a := &tender{Driver: d, task: k}
				a.follow(t.Context(), "p")
				<-time.After(time.Second) // the container has ended, and its status does not tell yet
				end, message := left(trainyard.ClassOK, 0), any("no word")
				if end.LogBytes = c.bytes; c.bytes >= 0 {
					message = end
				}
				p := podJSON(t, "p", terminatedJSON(0, "Completed", message))
				a.log.finish(t.Context(), &sight{pods: []podSight{{pod: p, begun: true}}}, false)
				if got, _ := os.ReadFile(filepath.Join(k.dir, logFile)); string(got) != c.want {
					t.Errorf("the log is %q, want %q", got, c.want)
				}
				if n := int(reads.Load()); n != c.reads {
					t.Errorf("it was read %d times, want %d", n, c.reads)
				}
			})
		})
	}
}

// The container of a replica is started again, and its log goes on soon after.
func TestALogOfAReplicaGoesOnWhenItsContainerIsStartedAgain(t *testing.T) {
	for _, main := range []string{containerName, serveName} {
		synctest.Test(t, func(t *testing.T) {
			var reads atomic.Int64
			d := newMemoryDriver(t, func(*http.Request) (int, string) { reads.Add(1); return 200, "" })
			k := memoryTask(d, 1)
			k.rec.Main = main
			a := &tender{Driver: d, task: k}
			a.follow(t.Context(), "p")
			<-time.After(3*logRetry + time.Millisecond)
			if n := reads.Load(); n != 4 {
				t.Errorf("of container %s it was read %d times, want 4", main, n)
			}
			a.log.stop()
		})
	}
}

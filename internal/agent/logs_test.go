package agent_test

import (
	"context"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestServerThatLostTheEndOfALog(t *testing.T) {
	isolated(t, func(y *yard) {
		y.during(func() {
			job := task("count", "count")
			y.srv.want(job)
			<-time.After(3 * time.Second)
			y.srv.mu.Lock()
			y.srv.logs[job.ID]["user_logs/std_log.txt"] = y.srv.stdLog(job.ID)[:11]
			y.srv.mu.Unlock()
			y.untilEnded(job.ID) // the server checks that the log is whole
		})
	})
}

func TestLogThatTheServerRefuses(t *testing.T) {
	isolated(t, func(y *yard) {
		y.srv.written = nil
		y.srv.refuse = func(call string) error {
			if call == "append" {
				return trainyard.Invalid("logs of this job are at their limit")
			}
			return nil
		}
		y.during(func() {
			job := task("hello", "hello")
			y.srv.want(job)
			y.untilEnded(job.ID)
			if w := strings.Join(y.srv.report(job.ID).Warnings, "; "); !strings.Contains(w, "at their limit") {
				t.Errorf("warnings %q", w)
			}
		})
	})
}

// huge is a server and a driver of a task whose log does not fit into memory.
type huge struct {
	*server
	*machine
	size int64
	got  int64
	sum  hash.Hash
	most uint64
}

func (h *huge) Append(_ context.Context, _ trainyard.NodeID, _ int64, _ trainyard.TaskID, _ string, offset int64, data []byte) (int64, error) {
	if len(data) > 256<<10 {
		return 0, fmt.Errorf("%d bytes at once", len(data))
	}
	if offset == h.got {
		h.sum.Write(data)
		h.got += int64(len(data))
	}
	if h.got>>26 != (h.got-int64(len(data)))>>26 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		h.most = max(h.most, m.HeapInuse)
	}
	return h.got, nil
}

func (h *huge) Logs(_ context.Context, _ trainyard.TaskID, from int64) (io.ReadCloser, error) {
	return io.NopCloser(&pattern{at: from, end: h.size}), nil
}

// pattern is a text of any size.
type pattern struct{ at, end int64 }

const period = "0123456789 a line of a log that goes on and on\n"

func (p *pattern) Read(b []byte) (int, error) {
	b = b[:min(int64(len(b)), p.end-p.at)]
	if len(b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, period[p.at%int64(len(period)):])
	for n < len(b) {
		n += copy(b[n:], period)
	}
	p.at += int64(n)
	return n, nil
}

func TestHugeLogTakesLittleMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // what is in use is what is needed, and not what earlier tests let grow
	isolated(t, func(y *yard) {
		y.srv.written = nil
		h := &huge{server: y.srv, machine: y.mac, size: 2<<30 + 12345, sum: crc32.NewIEEE()}
		y.cfg.Link, y.cfg.Driver = h, h
		y.during(func() {
			job := task("job", "true")
			y.srv.want(job)
			y.untilEnded(job.ID)
		})
		sum := crc32.NewIEEE()
		if _, err := io.Copy(sum, &pattern{end: h.size}); err != nil {
			t.Fatal(err)
		}
		if h.got != h.size || string(h.sum.Sum(nil)) != string(sum.Sum(nil)) {
			t.Errorf("%d of %d bytes arrived, or they are not the same", h.got, h.size)
		}
		if h.most > 64<<20 {
			t.Errorf("%d MB of memory in use", h.most>>20)
		}
	})
}

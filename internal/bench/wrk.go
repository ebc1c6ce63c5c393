package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// wrkScript has wrk send what a client of a model sends, and print its figures so that they can be read.
const wrkScript = `
wrk.method = "POST"
wrk.body = '{"data": [[5.1, 3.5, 1.4, 0.2]]}'
wrk.headers["Content-Type"] = "application/json"
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"requests":%d,"micros":%d,"p50":%d,"p99":%d,"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}\n', summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), e.connect, e.read, e.write, e.status, e.timeout))
end
`

// wrk is the load tool.
type wrk struct{ program, script string }

func newWrk(dir string) (*wrk, error) {
	program, err := exec.LookPath("wrk")
	if err != nil {
		return nil, fmt.Errorf("wrk is not installed (Debian: wrk)")
	}
	w := &wrk{program, filepath.Join(dir, "post.lua")}
	return w, os.WriteFile(w.script, []byte(wrkScript), 0o644)
}

// load is what came of one run of wrk.
type load struct {
	Requests, Micros, P50, P99            int64
	Connect, Read, Write, Status, Timeout int64 // requests that failed
}

func (l *load) rate() float64 { return float64(l.Requests) / (float64(l.Micros) / 1e6) }

// run sends requests from so many connections, the next when the last is answered.
func (w *wrk) run(ctx context.Context, to way, connections int, d time.Duration) (*load, error) {
	seconds := strconv.Itoa(int(d.Round(time.Second) / time.Second))
	args := []string{"--threads", "1", "--connections", strconv.Itoa(connections), "--duration", seconds, "--script", w.script}
	if to.key != "" {
		args = append(args, "--header", "Authorization: Bearer "+to.key)
	}
	out, err := exec.CommandContext(ctx, w.program, append(args, to.url)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("wrk to %s: %w: %s", to.name, err, out)
	}
	l, err := readLoad(string(out))
	if err != nil {
		return nil, fmt.Errorf("wrk to %s: %w", to.name, err)
	}
	return l, nil
}

// readLoad finds what wrkScript printed. A run with requests that failed measures something else.
func readLoad(out string) (*load, error) {
	_, after, found := strings.Cut(out, "{\"requests\"")
	if !found {
		return nil, fmt.Errorf("it printed no figures: %s", out)
	}
	l := &load{}
	if err := json.NewDecoder(strings.NewReader("{\"requests\"" + after)).Decode(l); err != nil {
		return nil, fmt.Errorf("its figures cannot be read: %w: %s", err, out)
	}
	if l.Connect+l.Read+l.Write+l.Status+l.Timeout > 0 || l.Requests == 0 {
		return nil, fmt.Errorf("of %d requests some failed: %d to connect, %d to read, %d to write, %d with a status that is no success, %d took too long",
			l.Requests, l.Connect, l.Read, l.Write, l.Status, l.Timeout)
	}
	return l, nil
}

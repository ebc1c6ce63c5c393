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
	"sync"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/client"
)

// idleMemory is the resident memory of a server that has nothing to do.
func (s *server) idleMemory(ctx context.Context) (row, error) {
	r := row{what: "idle server, resident memory", budget: "≤ 60 MiB", limits: "Go runtime, linked libraries and SQLite's page cache"}
	select { // let start-up garbage go
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
		return r, ctx.Err()
	}
	n, err := residentMemory(s.cmd.Process.Pid)
	r.measured = fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	return r, err
}

// residentMemory is that of a process, in bytes.
func residentMemory(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no VmRSS in /proc/%d/status", pid)
}

// cliStart is how long the smallest command takes.
func (s *server) cliStart(ctx context.Context) (row, error) {
	r := row{what: "CLI start (`trainyard version`)", budget: "≤ 50 ms", limits: "loading the program, package initialisation"}
	var took []time.Duration
	for range 50 {
		at := time.Now()
		if err := exec.CommandContext(ctx, s.binary, "version").Run(); err != nil {
			return r, err
		}
		took = append(took, time.Since(at))
	}
	r.measured = fmt.Sprintf("p50 %s, p99 %s", ms(quantile(took, 0.5)), ms(quantile(took, 0.99)))
	return r, nil
}

func command(text, compute string) map[string]any {
	scope := trainyard.DefaultScope()
	return map[string]any{"properties": map[string]any{"jobType": "Command", "command": text, "computeId": scope.Child("computes", compute), "experimentName": "bench"}}
}

// startLatency is from the moment before the request to what the job's own process reads off the clock as its first act.
func (s *server) startLatency(ctx context.Context, n int) (row, error) {
	r := row{what: fmt.Sprintf("submit → user process starts, warm node, HTTP API, durable (%d jobs, one by one)", n), budget: "p50 ≤ 10 ms, p99 ≤ 50 ms", limits: "two synced commits (submit, placement), then fork and exec of sh and bash"}
	c, err := s.client()
	if err != nil {
		return r, err
	}
	var took []time.Duration
	for i := range n + 5 {
		stamp := filepath.Join(s.stamps(), fmt.Sprintf("stamp-%d", i))
		name := fmt.Sprintf("start-%d", i)
		at := time.Now()
		if _, err := c.Put(ctx, command("echo $EPOCHREALTIME > "+stamp, "local"), "jobs", name); err != nil {
			return r, err
		}
		if err := s.finished(ctx, c, name, 5*time.Millisecond); err != nil {
			return r, err
		}
		data, err := os.ReadFile(stamp)
		if err != nil {
			return r, err
		}
		sec, err := strconv.ParseFloat(strings.TrimSpace(string(data)), 64)
		if err != nil {
			return r, err
		}
		if i >= 5 { // the first few warm the node up
			took = append(took, time.UnixMicro(int64(sec*1e6)).Sub(at))
		}
	}
	r.measured = fmt.Sprintf("p50 %s, p99 %s", ms(quantile(took, 0.5)), ms(quantile(took, 0.99)))
	return r, nil
}

// finished waits until a job is over and was a success, looking with a pause in between.
func (s *server) finished(ctx context.Context, c *client.Client, name string, pause time.Duration) error {
	for {
		data, err := c.Get(ctx, "jobs", name)
		if err != nil {
			return err
		}
		var j struct {
			Properties struct {
				Status trainyard.JobState `json:"status"`
				Reason trainyard.Reason   `json:"reason"`
			} `json:"properties"`
		}
		if err := json.Unmarshal(data, &j); err != nil {
			return err
		}
		if st := j.Properties.Status; st.Terminal() {
			if st != trainyard.JobCompleted {
				return fmt.Errorf("job %s is %s: %s", name, st, j.Properties.Reason.Message)
			}
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// throughput is jobs of `true`, from the first request to the last job's end.
func (s *server) throughput(ctx context.Context, n, clients int) (row, error) {
	r := row{what: fmt.Sprintf("%d jobs of `true` from %d clients, submit to all finished", n, clients), budget: "≥ 300 jobs/s, aim 600", limits: "processor, both cores full: most of it the server with its agent (half of that file system calls for the tasks' folders), then the two shells of each job; short of the budget when anything else runs"}
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, clients)
	var submit []time.Duration
	var mu sync.Mutex
	at := time.Now()
	for range clients {
		wg.Go(func() {
			c, err := s.client()
			if err != nil {
				errs <- err
				return
			}
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				before := time.Now()
				if _, err := c.Put(ctx, command("true", "local"), "jobs", fmt.Sprintf("true-%d", i)); err != nil {
					errs <- err
					return
				}
				mu.Lock()
				submit = append(submit, time.Since(before))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return r, err
	default:
	}
	c, err := s.client()
	if err != nil {
		return r, err
	}
	for i := n; i >= 1; i-- { // the last is the likeliest to be last: one wait, then quick looks
		if err := s.finished(ctx, c, fmt.Sprintf("true-%d", i), 5*time.Millisecond); err != nil {
			return r, err
		}
		if i == n {
			r.measured = fmt.Sprintf("%.0f jobs/s", float64(n)/time.Since(at).Seconds())
		}
	}
	r.measured += fmt.Sprintf(" (%.0f with a look at each at the end); submit p50 %s, p99 %s", float64(n)/time.Since(at).Seconds(), ms(quantile(submit, 0.5)), ms(quantile(submit, 0.99)))
	return r, nil
}

// fromZero is a cluster without nodes, up to its first job's process.
func (s *server) fromZero(ctx context.Context) (row, error) {
	r := row{what: "cluster at 0 nodes → first process starts (process fleet, 10 clusters)", budget: "≤ 300 ms", limits: "start of the agent's program and its join, two synced commits more than on a warm node"}
	c, err := s.client()
	if err != nil {
		return r, err
	}
	var took []time.Duration
	for i := range 10 {
		name := fmt.Sprintf("zero-%d", i)
		body := map[string]any{"location": "local", "properties": map[string]any{"computeType": "AmlCompute", "properties": map[string]any{"vmSize": "STANDARD_DS3_V2",
			"scaleSettings": map[string]any{"minNodeCount": 0, "maxNodeCount": 1, "nodeIdleTimeBeforeScaleDown": "PT1S"}}}}
		if _, err := c.Put(ctx, body, "computes", name); err != nil {
			return r, err
		}
		stamp := filepath.Join(s.stamps(), name)
		at := time.Now()
		if _, err := c.Put(ctx, command("echo $EPOCHREALTIME > "+stamp, name), "jobs", name); err != nil {
			return r, err
		}
		if err := s.finished(ctx, c, name, 5*time.Millisecond); err != nil {
			return r, err
		}
		data, err := os.ReadFile(stamp)
		if err != nil {
			return r, err
		}
		sec, err := strconv.ParseFloat(strings.TrimSpace(string(data)), 64)
		if err != nil {
			return r, err
		}
		took = append(took, time.UnixMicro(int64(sec*1e6)).Sub(at))
	}
	r.measured = fmt.Sprintf("p50 %s, p99 %s", ms(quantile(took, 0.5)), ms(quantile(took, 0.99)))
	return r, nil
}

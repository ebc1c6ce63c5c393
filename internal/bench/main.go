// Command bench measures Trainyard's speed budgets on this machine and writes the table in docs/benchmarks.md. It starts its own server on
// loopback in a fresh folder, with durability on as always, and ends it; nothing is asserted about time.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	binary := flag.String("binary", "bin/trainyard", "program to measure")
	out := flag.String("out", "", "markdown file to write (default: standard output)")
	jobs := flag.Int("jobs", 1000, "jobs of `true` in the throughput run")
	starts := flag.Int("starts", 200, "jobs in the latency run")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if err := run(ctx, *binary, *out, *jobs, *starts); err != nil {
		log.Fatal(err)
	}
}

// row is a line of the table.
type row struct{ what, budget, measured, limits string }

func run(ctx context.Context, binary, out string, jobs, starts int) error {
	s, err := startServer(ctx, binary)
	if err != nil {
		return err
	}
	defer s.stop()
	var rows []row
	for _, measure := range []func(context.Context) (row, error){
		s.idleMemory, s.cliStart,
		func(ctx context.Context) (row, error) { return s.startLatency(ctx, starts) },
		func(ctx context.Context) (row, error) { return s.throughput(ctx, jobs, 8) },
		s.fromZero,
	} {
		r, err := measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w; the server's log: %s", r.what, err, s.tail())
		}
		fmt.Fprintf(os.Stderr, "%-60s %s\n", r.what, r.measured)
		rows = append(rows, r)
	}
	for _, n := range []struct{ nodes, jobs int }{{100, 1000}, {1000, 10000}, {10000, 100000}} {
		r, err := placement(ctx, binary, n.nodes, n.jobs)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%-60s %s\n", r.what, r.measured)
		rows = append(rows, r)
	}
	text := page(rows)
	if out == "" {
		fmt.Print(text)
		return nil
	}
	return os.WriteFile(out, []byte(text), 0o644)
}

// page is docs/benchmarks.md.
func page(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmarks\n\nMade by `make bench` on %s. Do not edit: run it again.\n\n%s, %d CPUs, %s/%s, %s. The client runs on the same machine; every acknowledged write is synced to disk.\n\n",
		time.Now().UTC().Format("2006-01-02"), cpuName(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	b.WriteString("| what | budget | measured | what limits it |\n| --- | --- | --- | --- |\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.what, r.budget, r.measured, r.limits)
	}
	return b.String()
}

func cpuName() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return "unknown processor"
}

// server is a server of the bench's own.
type server struct {
	binary, dir string
	cmd         *exec.Cmd
}

// startServer starts the program on a free port and waits until it has said where it serves.
func startServer(ctx context.Context, binary string) (*server, error) {
	abs, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "trainyard-bench")
	if err != nil {
		return nil, err
	}
	s := &server{binary: abs, dir: dir}
	if err := os.Mkdir(s.stamps(), 0o755); err != nil {
		return nil, err
	}
	logFile, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	s.cmd = exec.CommandContext(ctx, abs, "server", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0")
	s.cmd.Env = append(os.Environ(), "TRAINYARD_CONFIG_DIR="+s.config(), "TRAINYARD_URL=", "TRAINYARD_TOKEN=")
	s.cmd.Stderr = logFile
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	first := make([]byte, 1)
	if _, err := stdout.Read(first); err != nil {
		return nil, fmt.Errorf("the server did not start: %s", s.tail())
	}
	go func() { // keep the pipe empty
		buf := make([]byte, 4096)
		for {
			if _, err := stdout.Read(buf); err != nil {
				return
			}
		}
	}()
	return s, nil
}

// stamps is where the jobs of a run write: beside the server's folders nothing new can be made by a job.
func (s *server) stamps() string { return filepath.Join(s.dir, "stamps") }

func (s *server) config() string { return filepath.Join(s.dir, "config") }

func (s *server) tail() string {
	data, _ := os.ReadFile(filepath.Join(s.dir, "server.log"))
	return string(data[max(0, len(data)-2000):])
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// quantile is the q-quantile of durations.
func quantile(d []time.Duration, q float64) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

// Command bench measures Trainyard's speed budgets on this machine and writes the table in docs/benchmarks.md. It starts its own server on
// loopback in a fresh folder, with durability on as always, and ends it; nothing is asserted about time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if ok, err := child(os.Args); ok {
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	binary := flag.String("binary", "bin/trainyard", "program to measure")
	out := flag.String("out", "", "markdown file to write (default: standard output)")
	jobs := flag.Int("jobs", 1000, "jobs of `true` in the throughput run")
	starts := flag.Int("starts", 200, "jobs in the latency run")
	folder := flag.String("engines", "", "folder of the scripts that start engines, such as test/engines (default: only engines that variables lead to)")
	only := flag.String("only", "", "trainyard: measure it by itself and its serving, and leave the engines' part of -out as it is; engines: measure beside the engines, and leave the rest; docker, slurm or kube: beside those of that kind, and leave the others' rows; or beside one by its name as it is written, such as Slurm or \"Slurm with 16 CPUs in name\"; serving, or starts, gateway or idle of it: only that")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Hour) // most of an hour, and an engine may have to be built first
	err := run(ctx, *binary, *out, *folder, *only, *jobs, *starts)
	cancel()
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// row is a line of the table.
type row struct{ what, budget, measured, limits string }

func run(ctx context.Context, binary, out, folder, only string, jobs, starts int) error {
	there, err := os.ReadFile(out)
	if err == nil && isServing(only) {
		return fmt.Errorf("%s is there, and -only %s would write over the rest of it; leave -out away, or name a new file", out, only)
	} else if err != nil && out != "" && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before, part, found := strings.Cut(string(there), besideHead) // the engines' is the page's last part
	if only == onlyItself && !found {
		return fmt.Errorf("%q has no part of the engines that -only %s could leave as it is", out, only)
	}
	text := ""
	var failed error
	if only == "" || only == onlyItself {
		rows, err := alone(ctx, binary, jobs, starts)
		if err != nil {
			return err
		}
		text = page(rows)
	}
	if only == "" || only == onlyItself || isServing(only) {
		served, err := serve(ctx, binary, only)
		if served == nil {
			return err
		}
		text += served.page()
		failed = err
	}
	if only == onlyItself {
		text += besideHead + part
	} else if !isServing(only) {
		pairs, leftOut, err := beside(ctx, binary, folder, only)
		failed = errors.Join(failed, err)
		if found && only == onlyEngines {
			text = before + besides(pairs, leftOut)
		} else if found && only != "" {
			lines, err := renewed(part, pairs, meant(only)...) // the text as it is written today, too
			if err != nil || len(leftOut) > 0 {
				return fmt.Errorf("%s stays as it was: %w", out, errors.Join(err, failed, leftOutError(leftOut)))
			}
			text = before + lines
		} else {
			text += besides(pairs, leftOut)
		}
	}
	if out == "" {
		fmt.Print(text)
		return failed
	}
	return errors.Join(os.WriteFile(out, []byte(text), 0o644), failed)
}

func leftOutError(leftOut []string) error {
	if len(leftOut) == 0 {
		return nil
	}
	return fmt.Errorf("left out: %s", strings.Join(leftOut, "; "))
}

// Parts of the page, as -only names them.
const (
	onlyItself  = "trainyard" // by itself, with what serves models
	onlyEngines = "engines"   // beside all engines
)

// alone measures Trainyard by itself.
func alone(ctx context.Context, binary string, jobs, starts int) ([]row, error) {
	s, err := startServer(ctx, binary, setup{})
	if err != nil {
		return nil, err
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
			return nil, fmt.Errorf("%s: %w; the server's log: %s", r.what, err, s.tail())
		}
		fmt.Fprintf(os.Stderr, "%-60s %s\n", r.what, r.measured)
		rows = append(rows, r)
	}
	for _, n := range []struct{ nodes, jobs int }{{100, 1000}, {1000, 10000}, {10000, 100000}} {
		r, err := placement(ctx, binary, n.nodes, n.jobs)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(os.Stderr, "%-60s %s\n", r.what, r.measured)
		rows = append(rows, r)
	}
	return rows, nil
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

// quantile is the q-quantile of durations.
func quantile(d []time.Duration, q float64) time.Duration {
	s := slices.Sorted(slices.Values(d))
	return s[min(len(s)-1, int(q*float64(len(s))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

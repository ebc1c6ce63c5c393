package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// sbatch is Slurm by itself: one `sbatch` a job. That a job is over is seen from a file that it makes, which costs Slurm nothing.
type sbatch struct {
	conf, dir string
	program   string // what jobs run in: the path of internal/bench/least, with which they print nothing; "": nothing
}

// pilots is how many pilot nodes there are where Slurm's nodes are crowded: as many as test/engines/slurm has nodes.
const pilots = 4

// pilotSize is that of a pilot node, and pilotCPUs what it has.
const (
	pilotSize = "Standard_F2s_v2"
	pilotCPUs = 2
)

// attachedSlurm is the way through a Slurm that is attached.
const attachedSlurm = "Slurm, attached"

// What limits jobs that Slurm starts.
const (
	startLimit  = "how soon Slurm looks for jobs to start; then the start of Trainyard's program for tasks on the node, which stages the job"
	freeLimit   = "how soon Slurm sees that a CPU is free"
	rateLimit   = "the processors, and where CPUs are fewer than jobs how soon Slurm sees that one is free. As profiled on two, full of jobs that do nothing, with 256 CPUs in name, Slurm takes some 55 ms of them a job and Trainyard's own parts 25 (both with what perf itself takes): 15 for the program for tasks on the node (9 MB, no agent), 7 at the server, two commits and a few files, and 3 for the job's two shells. Of the 25 some 5 are one search: that of ext4 without a journal for the place of a new file, longer the more files were deleted lately; 2 are the program's page faults"
	leastLimit  = "the processors. Nothing of Trainyard is in it: a Go program that starts the job's two shells and leaves a file is all that is added to Slurm's own; the server comes on top"
	servedLimit = "what limits jobs that are attached. Nothing of Trainyard is in it: jobs are posted to a server that syncs a line about each to disk, gives it to `sbatch`, and syncs another when the empty program has left its file, which is the end of the time here. It knows no users, files, logs, limits or reasons, stops nothing, and asks Slurm nothing. So it is about the least that a server which runs one `sbatch` a job can take"
	floorLimit  = "the processors, and how soon the end is seen. It is about what Trainyard would be with a program for tasks that does nothing, and the server as it is: its commits and files, what it asks Slurm, one sbatch a job, and its batch script"
)

// openAttached has Slurm attached, and all of it for jobs.
func openAttached(ctx context.Context, binary string) (*contest, error) {
	return attach(ctx, binary, "", freeLimit)
}

// withPilots has n pilot nodes besides. limit is what limits the rate of jobs that are attached.
func withPilots(n int, limit string) func(ctx context.Context, binary string) (*contest, error) {
	return func(ctx context.Context, binary string) (*contest, error) { return openPilots(ctx, binary, n, limit) }
}

func openPilots(ctx context.Context, binary string, n int, limit string) (*contest, error) {
	c, err := attach(ctx, binary, "  - name: pilots\n    driver: slurm\n    settings: {confPath: "+os.Getenv(slurmConf)+"}\n", limit)
	if err != nil {
		return c, err
	}
	nodes := fmt.Sprint(n)
	if err := c.server.cli(ctx, "compute", "create", "-n", "pilots", "--type", "amlcompute", "--size", pilotSize, "--location", "pilots",
		"--min-instances", nodes, "--max-instances", nodes, "-o", "none"); err != nil {
		return c, err
	}
	held, err := c.server.through(ctx, "pilots", "")
	c.ours = append(c.ours, entrant{held, "Slurm, pilot nodes", "as on any warm node: two synced commits, then a fork, with TLS in between", "as on any warm node, and one job at a time on each pilot"})
	return c, err
}

// openCrowded has what open opens, and besides, to compare, jobs that go through the least server to plain Slurm, which runs them in the least
// program for tasks. With parts there are that program without a server, and Trainyard with it in the place of its own, too.
func openCrowded(open func(context.Context, string) (*contest, error), parts bool) func(ctx context.Context, binary string) (*contest, error) {
	return func(ctx context.Context, binary string) (*contest, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		program := filepath.Join(filepath.Dir(self), "bench-least")
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("the program to compare with is not beside this one (make bench builds it): %w", err)
		}
		c, err := open(ctx, binary)
		if err == nil {
			err = addLeast(ctx, c, self, program, parts)
		}
		return c, err
	}
}

// addLeast adds what openCrowded has besides. self is this program's path, and program that of the least program for tasks.
func addLeast(ctx context.Context, c *contest, self, program string, parts bool) (err error) {
	least := sbatch{conf: os.Getenv(slurmConf), dir: c.server.stamps(), program: program}
	if parts {
		c.ours = append(c.ours, entrant{least, "no Trainyard: `sbatch` of an empty program for tasks", "", leastLimit})
	}
	files := filepath.Join(c.server.dir, "least-server")
	if err := os.Mkdir(files, 0o700); err != nil {
		return err
	}
	if c.beside, err = begin(ctx, os.Environ(), files+".log", self, "least-server", "127.0.0.1:0", least.conf, files, least.program); err != nil {
		return err
	}
	served := newThroughLeast(sbatch{conf: least.conf, dir: files}, c.beside.first, files+".log")
	c.ours = append(c.ours, entrant{served, "no Trainyard: a server that only notes, `sbatch` of an empty program for tasks", "", servedLimit})
	if !parts {
		return nil
	}
	floor, err := attachLeast(ctx, c.server, least.program)
	if err == nil {
		c.ours = append(c.ours, entrant{floor, "Slurm, attached, an empty program for tasks", "", floorLimit})
	}
	return err
}

// attachLeast has Slurm attached a second time, and puts a program in the place of the one for tasks there.
func attachLeast(ctx context.Context, s *server, program string) (side, error) {
	folder := filepath.Join(s.dir, "least")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	if err := s.cli(ctx, "compute", "attach", "-n", "least", "--type", "slurm", "--conf", os.Getenv(slurmConf), "--folder", folder, "-o", "none"); err != nil {
		return nil, err
	}
	floor, err := s.through(ctx, "least", "")
	if err != nil {
		return nil, err
	}
	if _, err := floor.start(ctx, "least-first"); err != nil { // with Trainyard's own, which is there then
		return nil, err
	}
	there, err := filepath.Glob(filepath.Join(folder, "*", "bin", "*"))
	if err != nil || len(there) != 1 {
		return nil, fmt.Errorf("of programs for tasks %s has %q (%v), not one", folder, there, err)
	}
	data, err := os.ReadFile(program)
	if err == nil {
		err = os.WriteFile(there[0]+".least", data, 0o700)
	}
	if err != nil {
		return nil, err
	}
	return floor, os.Rename(there[0]+".least", there[0])
}

func attach(ctx context.Context, binary, locations, limit string) (*contest, error) {
	conf := os.Getenv(slurmConf)
	s, err := startServer(ctx, binary, setup{config: "locations:\n  - name: local\n    approved: [all]\n" + locations})
	if err != nil {
		return nil, err
	}
	c := &contest{plain: sbatch{conf: conf, dir: s.stamps()}, server: s}
	if err := s.cli(ctx, "compute", "attach", "-n", "hpc", "--type", "slurm", "--conf", conf, "-o", "none"); err != nil {
		return c, err
	}
	attached, err := s.through(ctx, "hpc", "")
	c.ours = []entrant{{attached, attachedSlurm, startLimit, limit}}
	return c, err
}

// submit gives a job to Slurm, in whose program a work runs and then leaves the file of that name, and returns its number.
func (b sbatch) submit(ctx context.Context, name, work string) (number string, err error) {
	text := work + "; : >" + b.file(name)
	if b.program != "" {
		text = fmt.Sprintf("exec %s '%s' %s", b.program, work, b.file(name))
	}
	cmd := exec.CommandContext(ctx, "sbatch", "--parsable", "--nodes=1", "--ntasks=1", "--job-name="+name, "--chdir="+b.dir, "--output="+b.file(name)+".log")
	cmd.Env = append(os.Environ(), "SLURM_CONF="+b.conf)
	cmd.Stdin = strings.NewReader("#!/bin/bash\n" + text + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("sbatch: %w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func (b sbatch) file(name string) string { return filepath.Join(b.dir, name) }

func (b sbatch) start(ctx context.Context, name string) (time.Duration, error) {
	at := time.Now()
	if _, err := b.submit(ctx, name, sayTime); err != nil {
		return 0, err
	}
	if err := until(ctx, lookEvery, func() bool { _, err := os.Stat(b.file(name)); return err == nil }); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(b.file(name) + ".log")
	if err != nil {
		return 0, err
	}
	began, err := stamp(string(text))
	return began.Sub(at), err
}

func (b sbatch) many(ctx context.Context, name, work string, n int) (time.Duration, error) {
	return b.all(ctx, name, n, func(one string) error {
		_, err := b.submit(ctx, one, work)
		return err
	})
}

// all has n jobs submitted at once, and returns how long it took until the last of their files was made.
func (b sbatch) all(ctx context.Context, name string, n int, submit func(one string) error) (time.Duration, error) {
	at := time.Now()
	err := atOnce(n, func(i int) error { return submit(fmt.Sprintf("%s-%d", name, i)) })
	if err != nil {
		return 0, err
	}
	var last time.Time
	for i := n - 1; i >= 0; i-- {
		seen := func() bool {
			made, err := os.Stat(b.file(fmt.Sprintf("%s-%d", name, i)))
			if err == nil && made.ModTime().After(last) {
				last = made.ModTime()
			}
			return err == nil
		}
		if err := until(ctx, lookSeldom, seen); err != nil {
			return 0, err
		}
	}
	return last.Sub(at), nil
}

// until looks until something is so.
func until(ctx context.Context, every time.Duration, so func() bool) error {
	for !so() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// engine is one that is given the same work by its own command and through Trainyard.
type engine struct {
	name  string   // for people
	dir   string   // of its up.sh and down.sh, below test/engines
	env   string   // the variable that leads to it, as up.sh prints it
	tune  []string // NAME=VALUE for up.sh
	where string   // what is special about it, for the table's first column; it is then only measured as up.sh has started it
	named int      // CPUs that jobs of it may have by its configuration, or 0: those that there are
	plain string   // what Trainyard is measured beside

	starts, jobs, rounds int           // processes whose start is timed, or 0; jobs at once, and how often: more often where rounds differ more
	work                 string        // of each of the jobs at once
	rest                 time.Duration // after each, for what is cleared away to be gone
	spread               time.Duration // how long is waited besides at most, so that all sides begin at the same times of this computer's clock; about the period of an engine that goes by one
	open                 func(ctx context.Context, binary string) (*contest, error)
	elsewhere            func(ctx context.Context, binary string) (*contest, error) // open for one that was not started here; nil: the same
}

// Slurm's nodes may have more CPUs in name than this computer has. On a cluster nodes, controller and server have processors of their own, so this
// is to see what Trainyard takes of them.
const (
	fewCPUs  = ", 8 CPUs in name"
	someCPUs = ", 16 CPUs in name"
	manyCPUs = ", 256 CPUs in name"
)

// crowded says whether jobs of the engine may be as many at once as this computer has not the processors for.
func (e *engine) crowded() bool { return e.named > runtime.NumCPU() }

// slurmTuned is the quickest of four settings that were tried for Slurm by itself with 8 CPUs (jobs/s: none 11 to 20, the delay alone 15 to 17,
// with steps of a second 7 to 8, of 0.1 s 20 to 21); with 256 CPUs the settings were alike.
const slurmTuned = "SCHEDULER=batch_sched_delay=0,sched_min_interval=100000" // µs

// slurmPeriod is how often slurmctld 22.05 has jobs started that wait, as its log tells. It does so besides when a node says that a job's epilog is
// over, which most nodes here leave unsaid of jobs that do nothing.
const slurmPeriod = time.Second

// The variables that lead to engines.
const (
	dockerHost = "TRAINYARD_TEST_DOCKER_HOST"
	slurmConf  = "TRAINYARD_TEST_SLURM_CONF"
	kubeConfig = "TRAINYARD_TEST_KUBECONFIG"
)

func engines() []engine {
	return []engine{
		{name: "Docker", dir: "docker", env: dockerHost, plain: "`docker run --rm --network host`",
			starts: 20, jobs: 20, work: nothing, rounds: 11, rest: time.Second, spread: time.Second, open: openDocker},
		{name: "Slurm", dir: "slurm", env: slurmConf, tune: []string{slurmTuned, "NODES=1", fmt.Sprintf("CPUS=%d", runtime.NumCPU()+pilotCPUs)}, plain: "`sbatch`",
			starts: 100, jobs: 40, work: nothing, rounds: 7, rest: 500 * time.Millisecond, spread: slurmPeriod, open: withPilots(1, freeLimit), elsewhere: openAttached},
		{name: "Slurm with 8 CPUs in name", dir: "slurm", env: slurmConf, tune: []string{slurmTuned, "NODES=2", "CPUS=4"}, where: fewCPUs, named: 8, plain: "`sbatch`",
			jobs: 80, work: aSecond, rounds: 11, rest: 500 * time.Millisecond, spread: slurmPeriod, open: openCrowded(openAttached, false)},
		{name: "Slurm with 16 CPUs in name", dir: "slurm", env: slurmConf, tune: []string{slurmTuned, "CPUS=4"}, where: someCPUs, named: 16, plain: "`sbatch`",
			starts: 100, jobs: 200, work: nothing, rounds: 15, rest: 500 * time.Millisecond, spread: slurmPeriod, open: openCrowded(withPilots(pilots, rateLimit), false)},
		{name: "Slurm with 256 CPUs in name", dir: "slurm", env: slurmConf, tune: []string{slurmTuned, "CPUS=64"}, where: manyCPUs, named: 256, plain: "`sbatch`",
			jobs: 200, work: nothing, rounds: 15, rest: 500 * time.Millisecond, spread: slurmPeriod, open: openCrowded(withPilots(pilots, rateLimit), true)},
		{name: "Kubernetes", dir: "kube", env: kubeConfig, plain: "a Job made through the API and watched until it is complete",
			starts: 10, jobs: 20, work: nothing, rounds: 5, rest: 2 * time.Second, spread: 2 * time.Second, open: openKube},
	}
}

// contest is an engine's own side and those that go through a server of Trainyard's.
type contest struct {
	server *server
	plain  side
	ours   []entrant
	beside *process // that a side needs besides, or nil
}

func (c *contest) end() {
	if c.beside != nil {
		c.beside.end()
	}
	c.server.stop()
}

// entrant is a way through Trainyard. startLimit and rateLimit say what its figures depend on; without startLimit starts are not measured.
type entrant struct {
	side
	name, startLimit, rateLimit string
}

// beside measures the engines that a variable leads to, and those that can be started with the scripts in folder, one after the other, so
// that none slows another down. Engines that are not there are told by name. only, if not empty, is the one to measure.
func beside(ctx context.Context, binary, folder, only string) (rows []pair, leftOut []string, failed error) {
	for _, e := range engines() {
		if !e.meant(only) {
			continue
		}
		if e.elsewhere != nil && os.Getenv(e.env) != "" {
			e.open = e.elsewhere
		}
		down, err := e.up(ctx, folder)
		if err != nil {
			leftOut = append(leftOut, e.name+leftOutWhy+oneLine(err))
			continue
		}
		all, err := e.measure(ctx, binary)
		down()
		rows = append(rows, all...)
		if err != nil {
			leftOut = append(leftOut, e.name+brokenOffWhy+oneLine(err))
			failed = errors.Join(failed, fmt.Errorf("%s: %w", e.name, err))
		}
	}
	return rows, leftOut, failed
}

// meant names the engines that only, of the command line, asks for.
func meant(only string) (names []string) {
	for _, e := range engines() {
		if e.meant(only) {
			names = append(names, e.name)
		}
	}
	return names
}

// oneLine is an error for a list: it may hold the end of a server's log.
func oneLine(err error) string {
	words := []rune(strings.Join(strings.Fields(err.Error()), " "))
	if most := 300; len(words) > most {
		return string(words[:most]) + "…"
	}
	return string(words)
}

// meant says whether only, of the command line, asks for the engine: by its name as it is written, or as one of a kind.
func (e *engine) meant(only string) bool {
	switch {
	case only == "" || only == onlyEngines || only == e.name:
		return true
	case slices.ContainsFunc(engines(), func(o engine) bool { return only == o.name }):
		return false
	}
	return strings.EqualFold(only, e.dir)
}

// up has the engine be there, and returns what ends it if it was not.
func (e *engine) up(ctx context.Context, folder string) (down func(), err error) {
	if os.Getenv(e.env) != "" {
		if e.where != "" {
			return nil, fmt.Errorf("%s leads to another", e.env)
		}
		return func() {}, nil
	}
	lacking := fmt.Errorf("no %s is set (`eval \"$(test/engines/%s/up.sh DIR)\"` starts one and sets it)", e.env, e.dir)
	if folder == "" {
		return nil, lacking
	}
	scripts, err := filepath.Abs(filepath.Join(folder, e.dir))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-"+e.dir+"-")
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "starting %s in %s\n", e.name, dir)
	var set []string
	down = func() {
		out, err := exec.Command(filepath.Join(scripts, "down.sh"), dir).CombinedOutput() // not ctx: it must go
		if err != nil {
			fmt.Fprintf(os.Stderr, "end %s in %s: %v: %s\n", e.name, dir, err, out)
		}
		_ = os.RemoveAll(dir)
		for _, name := range set {
			_ = os.Unsetenv(name)
		}
	}
	var words strings.Builder
	cmd := exec.CommandContext(ctx, filepath.Join(scripts, "up.sh"), dir)
	cmd.Env, cmd.Stderr = append(os.Environ(), e.tune...), &words
	out, err := cmd.Output()
	if err != nil {
		down()
		return nil, fmt.Errorf("it could not be started here (%v): %s", err, lastLine(words.String()))
	}
	if set, err = export(string(out)); err != nil {
		down()
		return nil, err
	}
	return down, nil
}

// export sets the variables that a script printed for a shell to set, and returns their names.
func export(text string) (names []string, err error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "export "); ok {
			name, value, _ := strings.Cut(rest, "=")
			if err := os.Setenv(name, value); err != nil {
				return names, err
			}
			names = append(names, name)
		}
	}
	return names, nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// pair is a row of the table: the engine by itself, and through Trainyard.
type pair struct {
	through, what string
	plain, ours   string
	more          string // of the engine's own time that Trainyard takes, 1.00 being as much
	limits        string
	crowded       bool // on an engine that is: see engine.crowded
}

// measure gives the work to all sides in turn, so that what else goes on at the computer goes on for all.
func (e *engine) measure(ctx context.Context, binary string) ([]pair, error) {
	c, err := e.open(ctx, binary)
	if c != nil {
		defer c.end()
	}
	if err != nil {
		return nil, err
	}
	all, starting := []side{c.plain}, []side{c.plain}
	for _, o := range c.ours {
		all = append(all, o)
		if o.startLimit != "" {
			starting = append(starting, o)
		}
	}
	var starts [][]cost
	if e.starts > 0 {
		starts, err = e.inTurn(ctx, starting, "start", e.starts+1, func(s side, name string) (time.Duration, error) { return s.start(ctx, name) })
	}
	if err != nil {
		return nil, fmt.Errorf("%w; the server's log: %s", err, c.server.tail())
	}
	rates, err := e.inTurn(ctx, all, "many", e.rounds, func(s side, name string) (time.Duration, error) { return s.many(ctx, name, e.work, e.jobs) })
	if err != nil {
		return nil, fmt.Errorf("%w; the server's log: %s", err, c.server.tail())
	}
	rows := e.rows(c.ours, starts, rates)
	for _, r := range rows {
		fmt.Fprintf(os.Stderr, "%-28s %-60s %s beside %s: × %s\n", r.through, r.what, r.ours, r.plain, r.more)
	}
	return rows, nil
}

// rows are those of the table. starts are of the engine by itself and of those of ours whose starts are measured, and rates of it and all of ours.
func (e *engine) rows(ours []entrant, starts, rates [][]cost) (rows []pair) {
	started := 0
	for i, o := range ours {
		o.name += e.where
		if len(starts) > 0 && o.startLimit != "" {
			started++
			a, b := times(starts[0]), times(starts[started])
			rows = append(rows, pair{through: o.name, what: fmt.Sprintf("submit → the user's process starts, p50 and slowest of %d", e.starts), plain: spread(a), ours: spread(b),
				more: fmt.Sprintf("%.2f", ratio(quantile(b, 0.5), quantile(a, 0.5))), limits: o.startLimit})
		}
		a, b := rates[0], rates[i+1]
		rows = append(rows, pair{through: o.name, what: fmt.Sprintf("%d jobs of `%s` at once until all are over, median of %d rounds", e.jobs, e.work, e.rounds),
			plain: rate(e.jobs, a), ours: rate(e.jobs, b), more: byRound(b, a), limits: o.rateLimit})
	}
	for i := range rows {
		rows[i].crowded = e.crowded()
	}
	return rows
}

// inTurn has each side do something n times, one after the other, so that none always comes after the same. What is done first is for
// warming up, and does not count.
func (e *engine) inTurn(ctx context.Context, sides []side, what string, n int, do func(s side, name string) (time.Duration, error)) ([][]cost, error) {
	costs := make([][]cost, len(sides))
	if err := wait(ctx, e.pause(0, time.Now())); err != nil {
		return nil, err
	}
	for round := range n {
		for turn := range sides {
			i, next := turn, round
			if round%2 == 1 {
				i = len(sides) - 1 - turn
			}
			if turn == len(sides)-1 {
				next++
			}
			at := (i + round/2) % len(sides)
			before, err := allProcessors()
			if err != nil {
				return nil, err
			}
			d, err := do(sides[at], fmt.Sprintf("%s-%s-%d-%d", e.dir, what, at, round))
			if err != nil {
				return nil, fmt.Errorf("%s, side %d, round %d: %w", what, at, round, err)
			}
			if err := wait(ctx, e.rest); err != nil {
				return nil, err
			}
			after, err := allProcessors()
			if err != nil {
				return nil, err
			}
			if err := wait(ctx, e.pause(next, time.Now())); err != nil {
				return nil, err
			}
			if round > 0 || what != "start" {
				costs[at] = append(costs[at], cost{d, after - before})
			}
		}
	}
	return costs, nil
}

// pause is how long a side waits before what it is to do in a round: until a clock of this computer's, which goes round once in e.spread, shows the
// time at which all of that round is to begin; the rounds' are spread evenly over it, as the multiples of the golden ratio are. An engine's own
// clock is not quite in step with it: slurmctld's second is a little longer, and longer yet when it has much to do.
func (e *engine) pause(round int, now time.Time) time.Duration {
	if e.spread <= 0 {
		return 0
	}
	_, part := math.Modf(float64(round) * math.Phi)
	begin := time.Duration(part * float64(e.spread))
	soonest := time.Duration(now.UnixNano() % int64(e.spread))
	return (begin - soonest + e.spread) % e.spread
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// cost is what work took, and what this computer's processors did from its begin until what it left had been cleared away.
type cost struct{ took, processors time.Duration }

func times(c []cost) (d []time.Duration) {
	for _, one := range c {
		d = append(d, one.took)
	}
	return d
}

// byRound is what one side took as a part of what another did in the same round: the median, and in brackets where the middle half of the rounds
// lie, or a little more.
func byRound(ours, plain []cost) string {
	var parts []float64
	for i := range ours {
		parts = append(parts, ratio(ours[i].took, plain[i].took))
	}
	slices.Sort(parts)
	n := len(parts)
	return fmt.Sprintf("%.2f (%.2f to %.2f)", parts[n/2], parts[n/4], parts[n-1-n/4])
}

// allProcessors is how long the processors of this computer have been at work since it was started.
func allProcessors() (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	words := strings.Fields(line) // cpu, then user nice system idle iowait irq softirq steal … in hundredths of a second, see proc(5)
	var sum time.Duration
	for i, word := range words[1:min(8, len(words))] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/stat: %w", err)
		}
		if i != 3 && i != 4 {
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum, nil
}

func spread(d []time.Duration) string { return ms(quantile(d, 0.5)) + ", " + ms(slices.Max(d)) }

// rate is how many jobs there were a second, and what a job took of the processors.
func rate(n int, c []cost) string {
	var busy []time.Duration
	for _, one := range c {
		busy = append(busy, one.processors/time.Duration(n))
	}
	return fmt.Sprintf("%.1f jobs/s, %d ms of processors each", float64(n)/quantile(times(c), 0.5).Seconds(), quantile(busy, 0.5).Milliseconds())
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// besideHead begins the last part of the page.
const besideHead = "\n## Beside the engines"

// What begins parts of that: what is said of crowded engines, and of one that was not there.
const (
	crowdedHead = "\n### Where jobs are more than processors"
	leftOutHead = "- Left out: "

	leftOutWhy, brokenOffWhy = ": ", ", broken off: " // behind the engine's name
)

// besides is the part of the page that is about engines.
func besides(rows []pair, leftOut []string) string {
	var b strings.Builder
	b.WriteString(besideHead + "\n\n")
	b.WriteString("The same work on the same engine, by its own command and through Trainyard's HTTP API, in turn: the same image, the same resources, eight submitting\n" +
		"at once. The last column but one is Trainyard's time as a part of the engine's own: up to 1.10 is what is aimed at. Of jobs at once it is the\n" +
		"median of what each round has, which need not be what the median rates have, and in brackets is where the middle half of the rounds lie. What\n" +
		"processors did is counted for the whole computer, until some seconds after the last job. " + measuredToday() + "\n\n")
	for _, e := range engines() {
		if e.where == "" {
			fmt.Fprintf(&b, "- %s by itself: %s.\n", e.name, e.plain)
		}
	}
	if os.Getenv(slurmConf) == "" && slices.ContainsFunc(rows, func(r pair) bool { return r.through == attachedSlurm }) { // it was started here
		fmt.Fprintf(&b, "- Slurm's jobs may have the %d CPUs that this computer has. A pilot node holds %d more in name, and does nothing while the others are measured.\n"+
			"  Slurm looks once in %s for jobs to start, and besides when a node tells that a job has gone for good. What is submitted one by one is spread evenly\n"+
			"  over that time, half of which a job waits that Slurm starts; of jobs at once few start at each look, and what they take of the processors until the\n"+
			"  next is hidden.\n", runtime.NumCPU(), pilotCPUs, slurmPeriod)
	}
	for _, words := range leftOut {
		fmt.Fprintf(&b, "%s%s.\n", leftOutHead, words)
	}
	table(&b, rows, false)
	if slices.ContainsFunc(rows, func(r pair) bool { return r.crowded }) {
		fmt.Fprintf(&b, "%s\n\n"+
			"The same where Slurm's nodes have more CPUs in name than this computer has: the jobs that run at once, Slurm's controller and nodes, and Trainyard's\n"+
			"server share %d processors. On a cluster they have their own, so this is no figure of one, and there is no aim for it. It shows what Trainyard takes of the\n"+
			"processors for each job where nothing hides that; rows with an empty program, how much of it any program for tasks would take, and\n"+
			"any server that runs one `sbatch` a job. Pilot nodes, where there are any, hold %d of the CPUs in name while any side is measured.\n", crowdedHead, runtime.NumCPU(), pilots*pilotCPUs)
		table(&b, rows, true)
	}
	return b.String()
}

// table writes the rows that are of crowded engines, or the others.
func table(b *strings.Builder, rows []pair, crowded bool) {
	b.WriteString("\n| through | what | the engine by itself | Trainyard | time, Trainyard ÷ engine | what limits it |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		if r.crowded == crowded {
			b.WriteString(r.line())
		}
	}
}

func measuredToday() string {
	return fmt.Sprintf("Measured on %s with %d CPUs, %s.", time.Now().Format(time.DateOnly), runtime.NumCPU(), cpuName())
}

func (r pair) line() string {
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", r.through, r.what, r.plain, r.ours, r.more, r.limits)
}

// renewed is the part of the page about engines with rows in the place of those that go through the same; those that the page has not yet come after
// the one that they come after in rows, and those of an engine that was left out, and is named now, behind all.
func renewed(part string, rows []pair, named ...string) (string, error) {
	if !strings.Contains(part, measuredToday()) {
		return "", errors.New("the other rows were measured on another day, or computer: measure all with -only engines")
	}
	if len(rows) == 0 {
		return "", errors.New("nothing was measured")
	}
	there, leftOut, err := readBesides(part)
	if err != nil {
		return "", err
	}
	still := slices.DeleteFunc(slices.Clone(leftOut), func(words string) bool {
		return slices.ContainsFunc(named, func(name string) bool {
			return strings.HasPrefix(words, name+leftOutWhy) || strings.HasPrefix(words, name+brokenOffWhy)
		})
	})
	back := len(still) < len(leftOut)
	leftOut = still
	known := func(r pair) bool { return slices.ContainsFunc(there, r.same) }
	for i, r := range rows {
		if !known(r) && !back && (i == 0 || len(leftOut) > 0) { // what was left out may be just this
			return "", fmt.Errorf("the page has no row %q: measure all with -only engines", r.through)
		}
	}
	var all []pair
	put := map[string]bool{} // by through
	for _, old := range there {
		if !slices.ContainsFunc(rows, old.same) {
			all = append(all, old)
			continue
		}
		if put[old.through] {
			continue
		}
		put[old.through] = true
		here := false
		for _, r := range rows {
			if known(r) {
				here = r.same(old)
			}
			if here {
				all = append(all, r)
			}
		}
	}
	placed := len(all)
	for _, r := range rows {
		if !slices.ContainsFunc(all[:placed], r.same) {
			all = append(all, r)
		}
	}
	return besides(all, leftOut), nil
}

// same says whether both rows go through the same.
func (r pair) same(o pair) bool { return r.through == o.through }

// readBesides reads what besides has written.
func readBesides(part string) (rows []pair, leftOut []string, err error) {
	crowded := false
	for line := range strings.Lines(part) {
		crowded = crowded || strings.HasPrefix("\n"+line, crowdedHead)
		if words, ok := strings.CutPrefix(line, leftOutHead); ok {
			leftOut = append(leftOut, strings.TrimSuffix(words, ".\n"))
		}
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == "---" || cells[0] == "through" {
			continue
		}
		if len(cells) != 6 {
			return nil, nil, fmt.Errorf("the page has a row of %d columns: measure all with -only engines", len(cells))
		}
		times, _, _ := strings.Cut(cells[4], " ")
		if _, err := strconv.ParseFloat(times, 64); err != nil {
			return nil, nil, fmt.Errorf("read the page's row %q: %w", cells[0], err)
		}
		rows = append(rows, pair{through: cells[0], what: cells[1], plain: cells[2], ours: cells[3], more: cells[4], limits: cells[5], crowded: crowded})
	}
	return rows, leftOut, nil
}

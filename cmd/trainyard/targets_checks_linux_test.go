package main

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/trainyard/trainyard"
)

// The checks of the suite, in the order of its table.

func checkHello(l *lab, p *place, job string) {
	l.run(p, "hello", p.compute, job)
	l.until(job, trainyard.JobCompleted)
	if files, log := l.files(job); log != "hello from "+job+"\n" || files["kept.txt"] != "kept\n" {
		l.t.Errorf("log %q, kept %q", log, files["kept.txt"])
	}
}

func checkEnvironment(l *lab, p *place, job string) {
	l.run(p, "environment", p.compute, job)
	l.until(job, trainyard.JobCompleted)
	if _, log := l.files(job); log != "six 1.16.0\n" {
		l.t.Errorf("log %q", log)
	}
}

// checkBuild has an image built from a folder, for an environment in the job's file and then for a registered one. It is built anew for each
// run of the suite: an engine may have that of the last.
func checkBuild(l *lab, p *place, job string) {
	mark := rand.Text() + "\n"
	path := l.file(filepath.Join(job, "mark.txt"), mark)
	dockerfile, err := os.ReadFile(filepath.Join("testdata", "targets", "context", "Dockerfile"))
	if err != nil {
		l.t.Fatal(err)
	}
	l.file(filepath.Join(job, "Dockerfile"), string(dockerfile))
	l.run(&place{}, "build", p.compute, job, "environment.build.path="+filepath.Dir(path))
	l.wait("the build tells of itself while it goes on", func() bool { // its last step takes a while
		log, err := l.try("job", "logs", "-n", job, "--file", environmentLog)
		v, failed := l.show(job)
		if trainyard.JobState(v.Status).Terminal() {
			l.t.Fatalf("it was not told before the job is %s", v.Status)
		}
		return err == nil && failed == nil && strings.Contains(log, "\nbuilt\n") && v.Status == string(trainyard.JobPreparing)
	})
	l.until(job, trainyard.JobCompleted)
	files, first := l.files(job)
	if !strings.HasPrefix(first, mark) || !strings.Contains(files["environment.txt"], "RUN date") {
		l.t.Errorf("log %q, build log %q", first, files["environment.txt"])
	}
	l.cli("environment", "create", "-n", job, "-v", "1", "--build-context", filepath.Dir(path), "-o", "none")
	l.run(&place{}, "build", p.compute, job+"-2", "environment=azureml:"+job+":1")
	l.until(job+"-2", trainyard.JobCompleted)
	if files, log := l.files(job + "-2"); log != first || files["environment.txt"] != "" {
		l.t.Errorf("the second job's log %q, not %q; its build log %q", log, first, files["environment.txt"])
	}
}

func checkGang(l *lab, p *place, job string) {
	l.run(p, "gang", p.compute, job)
	l.until(job, trainyard.JobCompleted)
	_, log := l.files(job)
	for rank := range 2 {
		if want := fmt.Sprintf("rank %d of 2, node %d, master ", rank, rank); !strings.Contains(log, want) {
			l.t.Errorf("log %q lacks %q", log, want)
		}
	}
	canceled := job + "-canceled"
	l.run(p, "gang", p.compute, canceled, `command=exec 3>&1; sh -c "trap 'sleep 1; echo rank $RANK saved >&3; exit 0' TERM; echo rank $RANK begun; while :; do sleep 0.1; done" | cat`)
	for rank := range 2 {
		l.wait("both have begun", func() bool {
			log, err := l.try("job", "logs", "-n", canceled, "--file", fmt.Sprintf("user_logs/std_log_process_%d.txt", rank))
			return err == nil && strings.Contains(log, fmt.Sprintf("rank %d begun\n", rank))
		})
	}
	l.cli("job", "cancel", "-n", canceled)
	l.until(canceled, trainyard.JobCanceled)
	_, log = l.files(canceled)
	for rank := range 2 { // its shell was gone at once
		if want := fmt.Sprintf("rank %d saved\n", rank); !strings.Contains(log, want) {
			l.t.Errorf("log %q lacks %q", log, want)
		}
	}
}

func checkTimeout(l *lab, p *place, job string) {
	l.run(p, "timeout", p.compute, job)
	v := l.until(job, trainyard.JobCanceled)
	if v.Failure == nil || v.Failure.Class != trainyard.ClassTimeout || !strings.Contains(v.Failure.Message, "limits.timeout") {
		l.t.Errorf("failure %+v", v.Failure)
	}
	if _, log := l.files(job); log != "begun\n" && !strings.HasPrefix(log, "begun\n") {
		l.t.Errorf("log %q", log)
	}
}

func checkCancel(l *lab, p *place, job string) {
	l.run(p, "cancel", p.compute, job)
	l.until(job, trainyard.JobRunning)
	l.cli("job", "cancel", "-n", job)
	l.until(job, trainyard.JobCanceled)
	deaf, killed := job+"-deaf", "the process was killed: it had not ended 10s after"
	l.run(p, "deaf", p.compute, deaf)
	l.begun(deaf, "begun\n")
	l.cli("job", "cancel", "-n", deaf)
	l.until(deaf, trainyard.JobCanceled)
	for name, said := range map[string]bool{job: false, deaf: true} {
		if s := l.story(name); strings.Contains(strings.Join(s.Warnings, "; "), killed) != said {
			l.t.Errorf("%s warns %q", name, s.Warnings)
		}
	}
	if files, _ := l.files(deaf); files["kept.txt"] != "kept\n" {
		l.t.Errorf("of its outputs are kept %q", files)
	}
}

func checkFailure(l *lab, p *place, job string) {
	l.run(p, "failure", p.compute, job)
	v := l.until(job, trainyard.JobFailed)
	if v.ExitCode == nil || *v.ExitCode != 3 || v.Failure == nil || v.Failure.Class != trainyard.ClassUser {
		l.t.Errorf("exit code %v, failure %+v", v.ExitCode, v.Failure)
	}
	if _, log := l.files(job); log != "wrong\n" {
		l.t.Errorf("log %q", log)
	}
}

func checkMemory(l *lab, p *place, job string) {
	compute := p.limited
	if compute == "" {
		compute = p.compute
	}
	var sets []string
	if p.name == "kubernetes" {
		sets = append(sets, "resources.instance_type=tight")
	}
	l.run(p, "memory", compute, job, sets...)
	v := l.until(job, trainyard.JobFailed)
	if v.Failure == nil || v.Failure.Class != trainyard.ClassOutOfMemory || !strings.Contains(v.Failure.Message, "memory") {
		l.t.Errorf("failure %+v", v.Failure)
	}
}

func checkPreemption(l *lab, p *place, job string) {
	low := p.low
	if p.compute == "serverless" {
		l.run(p, "preemption", "serverless", job, "queue_settings.job_tier=Spot", "resources.locations[0]=narrow")
	} else {
		l.run(p, "preemption", low, job, p.crowds...)
	}
	l.begun(job, counts)
	if p.take != nil {
		p.take(l)
	} else {
		l.run(&place{}, "hello", p.paid, job+"-paid")
		l.until(job+"-paid", trainyard.JobCompleted)
	}
	l.wentOn(job)
}

// begun waits until the job has written the words.
func (l *lab) begun(job, words string) {
	l.t.Helper()
	l.until(job, trainyard.JobRunning)
	l.wait(job+" writes", func() bool {
		log, err := l.try("job", "logs", "-n", job)
		return err == nil && strings.Contains(log, words)
	})
}

// counts is what the job of preemption.yml says when it is about to count for the first time.
const counts = "from 0, saved \n"

// gaveWay is what it says when it is given back what it had written before, and what it wrote in its grace.
var gaveWay = regexp.MustCompile(`\nfrom [1-9]\d*, saved \d+\n`)

// wentOn waits for the end of preemption.yml after it gave way.
func (l *lab) wentOn(job string) {
	l.t.Helper()
	v := l.until(job, trainyard.JobCompleted)
	_, log := l.files(job)
	if len(v.Attempts) < 2 || strings.Count(log, "from 0, saved \n") != 1 || !gaveWay.MatchString(log) || !strings.HasSuffix(log, "\nto 120\n") {
		l.t.Errorf("%d attempts, log %q", len(v.Attempts), log)
	}
}

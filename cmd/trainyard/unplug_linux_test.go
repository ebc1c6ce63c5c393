package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
)

// Every engine is unplugged in the middle of a job, and in some of these the server is killed as well. A job whose processes live through
// it completes once, with every line of its log and all that it made; a job whose node has died becomes another attempt. While the engine
// is away the job says so, and afterwards what happened is still to be read.
func TestUnpluggingAnEngineLosesNothing(t *testing.T) {
	t.Run("docker", unplugDocker)
	t.Run("slurm", unplugSlurm)
	t.Run("kubernetes", unplugKubernetes)
	t.Run("ssh machine", func(t *testing.T) {
		t.Run("cut off", func(t *testing.T) { cutOffMachine(t, false) })
		t.Run("cut off and the server killed", func(t *testing.T) { cutOffMachine(t, true) })
		t.Run("killed", killMachine)
	})
}

// spoken is how many lines the job of testdata/targets/unplug.yml writes.
const spoken = 100

// story is what a job tells of itself.
type story struct {
	jobView
	Warnings []string         `json:"warnings"`
	Timeline []trainyard.Span `json:"timeline"`
}

func (l *lab) story(job string) (s story) {
	l.t.Helper()
	out, err := l.try("job", "show", "-n", job, "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		l.t.Logf("show %s: %v %s", job, err, out)
	}
	return s
}

// talks submits the job and waits until its first lines are here.
func (l *lab) talks(p *place, job string, sets ...string) {
	l.t.Helper()
	l.run(p, "unplug", p.compute, job, sets...)
	l.wait(job+" writes", func() bool {
		if v, err := l.show(job); err != nil || v.Status != string(trainyard.JobRunning) {
			return false
		}
		log, err := l.try("job", "logs", "-n", job)
		return err == nil && strings.Contains(log, "line 3\n")
	})
}

// says waits until a job's reason and its timeline have the words.
func (l *lab) says(job string, words ...string) {
	l.t.Helper()
	var s story
	defer func() {
		if l.t.Failed() {
			l.t.Logf("it says %q", s.Reason.Message)
		}
	}()
	l.wait(fmt.Sprintf("job %s says %q", job, words), func() bool {
		s = l.story(job)
		if trainyard.JobState(s.Status).Terminal() {
			l.t.Fatalf("job %s is %s before it said anything: %+v", job, s.Status, s)
		}
		for _, w := range words {
			if !strings.Contains(s.Reason.Message, w) {
				return false
			}
		}
		return true
	})
	l.t.Logf("while it is away: %s", s.Reason.Message)
	if l.t.Failed() {
		return
	}
	if n := len(s.Timeline); n == 0 || !strings.Contains(s.Timeline[n-1].Note, words[0]) {
		l.t.Errorf("its timeline does not say so: %+v", s.Timeline)
	}
}

// once waits for the end of a job that lived through it: one attempt, every line once, its outputs, and its word of what happened.
func (l *lab) once(job, word string) {
	l.t.Helper()
	l.until(job, trainyard.JobCompleted)
	s := l.story(job)
	if len(s.Attempts) != 1 {
		l.t.Errorf("%s: %d attempts", job, len(s.Attempts))
	}
	files, log := l.files(job)
	if log != lines(spoken) || files["last"] != strconv.Itoa(spoken)+"\n" || files["whole.txt"] != "whole\n" {
		l.t.Errorf("%s: last %q, whole %q, log %q", job, files["last"], files["whole.txt"], log)
	}
	if word != "" && !strings.Contains(strings.Join(s.Warnings, "\n"), word) {
		l.t.Errorf("%s: nothing of %q in its warnings %q", job, word, s.Warnings)
	}
}

// again waits for the end of a job whose node died under its first attempt: a second one is whole, and the first one's lines are kept.
func (l *lab) again(job, word string) {
	l.t.Helper()
	l.until(job, trainyard.JobCompleted)
	s := l.story(job)
	if len(s.Attempts) != 2 {
		l.t.Errorf("%s: %d attempts", job, len(s.Attempts))
	}
	files, log := l.files(job)
	first, second, ok := strings.Cut(log, "\n--- attempt 2; attempt 1 ended: ")
	_, second, _ = strings.Cut(second, " ---\n")
	first += "\n"
	n := strings.Count(strings.TrimSpace(first), "\n") + 1
	if !ok || n < 3 || strings.TrimSpace(first) != strings.TrimSpace(lines(n)) || second != lines(spoken) {
		l.t.Errorf("%s: log %q", job, log)
	}
	if files["last"] != strconv.Itoa(spoken)+"\n" || files["whole.txt"] != "whole\n" {
		l.t.Errorf("%s: last %q, whole %q", job, files["last"], files["whole.txt"])
	}
	if out := l.cli("job", "show", "-n", job, "-o", "json"); !strings.Contains(out, word) {
		l.t.Errorf("%s does not say %q: %s", job, word, out)
	}
}

// script runs one of the scripts of an engine.
func script(t *testing.T, vars []string, path string, args ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join("..", "..", "test", "engines", path), args...)
	cmd.Env = append(os.Environ(), vars...)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(err.Error(), "WaitDelay") {
		t.Fatalf("%s %q: %v\n%s", path, args, err, out)
	}
}

// unplugDocker stops dockerd, first one that takes its containers along, then one that leaves them alone.
func unplugDocker(t *testing.T) {
	t.Parallel()
	host, dir := engineAt("TRAINYARD_TEST_DOCKER_HOST"), engineAt("TRAINYARD_TEST_DOCKER_DIR")
	if host == "" {
		leftOut(t, "Docker engine", `eval "$(test/engines/docker/up.sh DIR)"`)
		return
	}
	dockerd := func(verb string, vars ...string) {
		t.Helper()
		script(t, vars, "docker/engine.sh", verb, dir, "dockerd")
	}
	l := newLabWith(t, "locations: [{name: local}]\n", "DOCKER_HOST="+host)
	l.cluster("cpu-cluster", "Standard_F2s_v2", 1, 60)
	image := []string{"environment.image=" + os.Getenv("TRAINYARD_TEST_DOCKER_IMAGE")}
	t.Cleanup(func() { dockerd("stop"); dockerd("start") })

	p := &place{lab: l, compute: "cpu-cluster", sets: image}
	l.talks(p, "shut-down")
	dockerd("stop")
	l.says("shut-down", "the Docker engine does not answer")
	dockerd("start")
	l.again("shut-down", "the Docker engine was shut down or restarted")

	dockerd("stop")
	dockerd("start", "DOCKERD_ARGS=--live-restore")
	l.wait("dockerd answers", func() bool { return exec.Command("docker", "-H", host, "version").Run() == nil })
	p.compute = "local"
	l.talks(p, "live-restore")
	dockerd("kill")
	l.says("live-restore", "the Docker engine does not answer")
	l.kill()
	l.start()
	l.says("live-restore", "the Docker engine does not answer")
	dockerd("start", "DOCKERD_ARGS=--live-restore")
	l.once("live-restore", "the Docker engine does not answer")
	hangDocker(l, p, dockerd)
	lateDocker(t, host, image, dockerd)
}

// hangDocker has dockerd hang under one job that goes on and one that is canceled meanwhile, beside a process that has nothing to do with it.
func hangDocker(l *lab, p *place, dockerd func(verb string, vars ...string)) {
	l.t.Helper()
	l.talks(p, "hung", "environment_variables.PACE=0.3")
	l.talks(p, "called-off", "command=trap 'echo saved; exit 0' TERM; for i in 1 2 3; do echo line $i; done; while :; do sleep 0.2; done")
	dockerd("freeze")
	l.t.Cleanup(func() { dockerd("thaw") })
	l.run(&place{lab: l, compute: "local"}, "hello", "local", "beside-it")
	l.cli("job", "cancel", "-n", "called-off", "--no-wait")
	l.until("beside-it", trainyard.JobCompleted)
	l.says("called-off", "the process cannot be reached: ", "has not answered since", "it ends when that answers")
	l.says("hung", "has not answered since")
	if s := l.story("called-off"); s.Status != string(trainyard.JobCancelRequested) {
		l.t.Errorf("while dockerd hangs the canceled job is %s", s.Status)
	}
	dockerd("thaw")
	l.until("called-off", trainyard.JobCanceled)
	if _, log := l.files("called-off"); !strings.HasSuffix(log, "saved\n") { // its grace began when it could be told
		l.t.Errorf("the canceled job's log is %q", log)
	}
	if s := l.story("called-off"); strings.Contains(strings.Join(s.Warnings, "; "), "was killed") {
		l.t.Errorf("it warns %q", s.Warnings)
	}
	l.once("hung", "has not answered since")
	l.wait("their containers are gone", func() bool {
		out, err := exec.Command("docker", "-H", os.Getenv("TRAINYARD_TEST_DOCKER_HOST"), "ps", "-a", "--format", "{{.Labels}}").Output()
		return err == nil && !strings.Contains(string(out), "/called-off.") && !strings.Contains(string(out), "/hung.")
	})
}

// lateDocker starts dockerd when the server's node is at work already: the node hears of it, and what runs there does not.
func lateDocker(t *testing.T, host string, image []string, dockerd func(verb string, vars ...string)) {
	t.Helper()
	dockerd("stop")
	l := newLabWith(t, "locations: [{name: local}]\n", "DOCKER_HOST="+host)
	l.talks(&place{lab: l, compute: "local"}, "before-it", "environment_variables.PACE=0.2")
	dockerd("start")
	l.wait("the node says that it has an engine", func() bool {
		return l.cli("compute", "list-nodes", "-n", "local", "--query", "[].engines[]", "-o", "tsv") == "docker"
	})
	l.run(&place{lab: l, compute: "local", sets: image}, "hello", "local", "contained", "command=test -e /.dockerenv && test -e /.trainyard")
	l.until("contained", trainyard.JobCompleted)
	l.once("before-it", "")
}

// machine attaches an SSH machine to a server of its own.
func machine(t *testing.T) (*lab, *sshtest.Machine, *place) {
	t.Helper()
	m := sshtest.New(t, sshtest.Options{})
	l := newLab(t)
	l.cli(attachArgs(l, m, "lab-pc")...)
	return l, m, &place{lab: l, compute: "lab-pc"}
}

// cutOffMachine ends the sessions of sshd and pulls the cable, until the node is given up.
func cutOffMachine(t *testing.T, killed bool) {
	t.Parallel()
	if os.Getenv(tableVar) == "" {
		t.Log("make targets runs it: it takes a while")
		return
	}
	l, m, p := machine(t)
	l.talks(p, "cut-off")
	m.Run(t, `for p in /proc/[0-9]*; do [ "$p" = /proc/1 ] || { tr '\0' ' ' <$p/cmdline | grep -q ^sshd: && kill -KILL ${p#/proc/}; } 2>/dev/null; done; true`)
	m.Cut(t)
	l.says("cut-off", "nothing was heard of node", "since ", "cut off")
	if out := l.cli("compute", "list"); !strings.Contains(out, "cut off") {
		t.Errorf("the list of computes does not say it: %s", out)
	}
	if killed {
		l.kill()
		l.start()
	}
	m.Mend(t)
	l.once("cut-off", "")
	l.run(p, "hello", p.compute, "after")
	l.until("after", trainyard.JobCompleted)
}

// killMachine takes the power from a machine, and gives it back.
func killMachine(t *testing.T) {
	t.Parallel()
	if os.Getenv(tableVar) == "" {
		t.Log("make targets runs it: it takes a while")
		return
	}
	l, m, p := machine(t)
	l.talks(p, "power-cut")
	m.Off()
	l.says("power-cut", "nothing was heard of node", "cut off")
	m.On(t)
	l.again("power-cut", "node")
}

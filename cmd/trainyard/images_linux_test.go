package main

import (
	"os"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// A job that waits hears at once that its image cannot be had, and not when it is its turn.
func TestAMissingImageIsSaidWhileTheJobWaits(t *testing.T) {
	host := engineAt("TRAINYARD_TEST_DOCKER_HOST")
	if host == "" {
		leftOut(t, "Docker engine", `eval "$(test/engines/docker/up.sh DIR)"`)
		return
	}
	l := newLabWith(t, "locations: [{name: local}]\n", "DOCKER_HOST="+host)
	l.cluster("cpu-cluster", "Standard_F2s_v2", 1, 60)
	l.submit("long", "cpu-cluster", "sleep 300")
	l.until("long", trainyard.JobRunning)
	submit := func(job, image string) {
		t.Helper()
		l.run(&place{sets: []string{"environment.image=" + image}}, "hello", "cpu-cluster", job)
	}

	submit("misspelt", os.Getenv("TRAINYARD_TEST_DOCKER_REGISTRY")+"/none:1")
	v := l.until("misspelt", trainyard.JobFailed)
	if v.Failure == nil || v.Failure.Class != trainyard.ClassEnvironment || !strings.Contains(v.Failure.Message, "check its name") || len(v.Attempts) > 0 {
		t.Errorf("an image that its registry does not know: %+v, %d attempts", v.Failure, len(v.Attempts))
	}

	submit("unreachable", "127.0.0.1:9/none:1")
	l.wait("it is said that the registry cannot be reached", func() bool {
		s := l.story("unreachable")
		return s.Status == string(trainyard.JobQueued) && strings.Contains(s.Reason.Message, "job long is there; and the image cannot be had at the moment: node cpu-cluster-") &&
			strings.Contains(s.Reason.Message, `image "127.0.0.1:9/none:1" is not on this node and could not be pulled`)
	})
	if s := l.story("unreachable"); len(s.Warnings) > 0 || strings.Contains(s.Reason.Message, "another node") {
		t.Errorf("of the only node of its cluster: %q, %q", s.Reason.Message, s.Warnings)
	}

	submit("there", os.Getenv("TRAINYARD_TEST_DOCKER_IMAGE"))
	l.cli("job", "cancel", "-n", "long")
	l.until("there", trainyard.JobCompleted)
	l.until("unreachable", trainyard.JobFailed)
}

// What is said of an engine in the server's environment holds on its own node, and on those of clusters that it starts on this machine.
func TestSettingsOfAnEngineHoldOnEveryNodeOfTheMachine(t *testing.T) {
	host := engineAt("TRAINYARD_TEST_DOCKER_HOST")
	if host == "" {
		leftOut(t, "Docker engine", `eval "$(test/engines/docker/up.sh DIR)"`)
		return
	}
	l := newLabWith(t, "locations: [{name: local}]\n", "DOCKER_HOST="+host, `TRAINYARD_DOCKER={"allowArgs": ["--ipc"], "shmSize": "48m"}`)
	l.cluster("cpu-cluster", "Standard_F2s_v2", 1, 60)
	image := "environment.image=" + os.Getenv("TRAINYARD_TEST_DOCKER_IMAGE")
	size := "command=stat -f -c %b:%S /dev/shm"
	for _, compute := range []string{"local", "cpu-cluster"} {
		p := &place{sets: []string{image}}
		l.run(p, "hello", compute, "shm-"+compute, size)
		l.run(p, "hello", compute, "ipc-"+compute, "resources.docker_args=--ipc=host")
		l.run(p, "hello", compute, "volume-"+compute, "resources.docker_args=-v /:/host")
		l.until("shm-"+compute, trainyard.JobCompleted)
		if log := l.log("shm-" + compute); log != "12288:4096\n" {
			t.Errorf("on %s /dev/shm has %q, want 48 MiB", compute, log)
		}
		l.until("ipc-"+compute, trainyard.JobCompleted)
		v := l.until("volume-"+compute, trainyard.JobFailed)
		if v.Failure == nil || v.Failure.Class != trainyard.ClassUser || !strings.Contains(v.Failure.Message, `TRAINYARD_DOCKER='{"allowArgs": ["--volume"]}'`) || len(v.Attempts) != 1 {
			t.Errorf("on %s a folder of the computer: %+v, %d attempts", compute, v.Failure, len(v.Attempts))
		}
	}
}

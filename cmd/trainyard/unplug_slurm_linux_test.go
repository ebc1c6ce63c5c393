package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm/slurmtest"
)

// unplugSlurm kills slurmctld, then the slurmd of a job's node, then such a node whole.
func unplugSlurm(t *testing.T) {
	t.Parallel()
	conf := engineAt("TRAINYARD_TEST_SLURM_CONF")
	if conf == "" {
		leftOut(t, "Slurm", `eval "$(test/engines/slurm/up.sh DIR)"`)
		return
	}
	s := slurmParts{t, conf, filepath.Dir(filepath.Dir(conf))}
	l := newLabWith(t, "locations: [{name: local}, {name: alloc, driver: slurm, settings: {confPath: "+conf+"}, capacity: {nodes: 1}}]\n")
	l.cli("compute", "attach", "-n", "hpc", "--type", "slurm", "--conf", conf, "-o", "none")
	for _, name := range []string{"pilots", "more-pilots"} {
		l.cli("compute", "create", "-n", name, "--type", "amlcompute", "--location", "alloc", "--size", "Standard_F2s_v2", "--max-instances", "1",
			"--idle-time-before-scale-down", "1", "-o", "none")
	}
	p := &place{lab: l, compute: "hpc"}
	t.Cleanup(func() {
		s.begin("slurmctld", "-D", "-f", conf) // one that finds another in its place ends
		s.resume()
	})

	s.run("scontrol", "update", "nodename="+s.run("sinfo", "-h", "-p", "main", "-o", "%N"), "state=drain", "reason=test")
	l.run(p, "hello", p.compute, "wants-a-node")
	l.says("wants-a-node", "Slurm: (", "nodes that it needs are down, drained")
	s.resume()
	l.until("wants-a-node", trainyard.JobCompleted)

	l.talks(p, "controller", "environment_variables.PACE=0.5") // its end is seen without the controller, and its reason must be seen before
	s.saved(l, "controller")                                   // what it has not it forgets, and begins such a job once more
	s.end("slurmctld")
	l.says("controller", "Unable to contact slurm controller")
	l.kill()
	l.start()
	s.begin("slurmctld", "-D", "-f", conf)
	l.once("controller", "Unable to contact slurm controller")
	unplugPilots(l, s)

	l.talks(p, "node-daemon")
	node := s.nodeOf(l, "node-daemon")
	s.end("slurmd." + node)
	l.kill()
	l.start()
	s.begin("slurmd", "-D", "-N", node, "-f", conf)
	l.once("node-daemon", "")

	l.talks(p, "node")
	node = s.nodeOf(l, "node")
	s.endNode(node)
	s.run("scontrol", "update", "nodename="+node, "state=down", "reason=power") // as Slurm does by itself after SlurmdTimeout
	s.begin("slurmd", "-D", "-N", node, "-f", conf)
	s.run("scontrol", "update", "nodename="+node, "state=resume")
	l.again("node", "node")
	newToken(l)
}

// newToken has the token of slurmrestd run out in the middle of a job. What is asked of it meanwhile waits for another, with which the compute
// is attached again.
func newToken(l *lab) {
	l.t.Helper()
	if os.Getenv("TRAINYARD_TEST_SLURM_REST") == "" {
		leftOut(l.t, "slurmrestd", "apt-get install slurmrestd")
		return
	}
	var at struct{ REST struct{ URL string } }
	if err := json.Unmarshal([]byte(os.Getenv("TRAINYARD_TEST_SLURM_REST")), &at); err != nil {
		l.t.Fatalf("TRAINYARD_TEST_SLURM_REST: %v", err)
	}
	site := slurmtest.New(l.t, at.REST.URL, "root", "of today", false)
	file := l.file("hpc-rest.yml", "name: hpc-rest\ntype: slurm\nfolder: "+l.t.TempDir()+"\nrest: {url: "+site.URL+", username: root}\n")
	attach := func() (string, error) {
		return l.try("compute", "attach", "-o", "none", "--file", file, "--set", "rest.token="+site.Token())
	}
	if out, err := attach(); err != nil {
		l.t.Fatalf("attach: %v %s", err, out)
	}
	p := &place{lab: l, compute: "hpc-rest"}
	l.talks(p, "old-token")
	site.Give("of tomorrow")
	l.run(p, "hello", p.compute, "new-token")
	l.says("new-token", "does not let user root in", "scontrol token", "attach the compute again")
	if out, err := attach(); err != nil {
		l.t.Fatalf("attach again: %v %s", err, out)
	}
	l.until("new-token", trainyard.JobCompleted)
	l.once("old-token", "")
	if out := l.cli("compute", "show", "-n", "hpc-rest", "-o", "json"); strings.Contains(out, "of to") {
		l.t.Errorf("the token is shown: %s", out)
	}
}

// unplugPilots kills slurmctld while a pilot node works: what runs there goes on, and what needs a node says why there is none.
func unplugPilots(l *lab, s slurmParts) {
	l.t.Helper()
	pilots, more := &place{lab: l, compute: "pilots"}, &place{lab: l, compute: "more-pilots"}
	l.talks(pilots, "on-a-pilot", "environment_variables.PACE=0.2")
	s.end("slurmctld")
	l.run(more, "hello", more.compute, "wants-a-pilot")
	l.says("wants-a-pilot", "location alloc", "Unable to contact slurm controller")
	if out := l.cli("location", "list", "-o", "json"); !strings.Contains(out, "Unable to contact slurm controller") {
		l.t.Errorf("the locations do not say it: %s", out)
	}
	l.once("on-a-pilot", "") // nobody needs Slurm for that
	s.begin("slurmctld", "-D", "-f", s.conf)
	l.until("wants-a-pilot", trainyard.JobCompleted)
	l.wait("nothing is said of it any more", func() bool {
		return !strings.Contains(l.cli("location", "list", "-o", "json"), "away") && !strings.Contains(l.cli("compute", "list", "-o", "json"), "slurm controller")
	})
}

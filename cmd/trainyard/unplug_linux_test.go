package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
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
// is attached again. Debian's slurmrestd knows no tokens: one stands before it who does.
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
	var token atomic.Value
	token.Store("of today")
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "slurmrestd"}) },
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(at.REST.URL, "unix:"))
		}},
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-SLURM-USER-NAME") != "root" || r.Header.Get("X-SLURM-USER-TOKEN") != token.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.Header.Del("X-SLURM-USER-TOKEN")
		proxy.ServeHTTP(w, r)
	}))
	l.t.Cleanup(site.Close)
	file := l.file("hpc-rest.yml", "name: hpc-rest\ntype: slurm\nfolder: "+l.t.TempDir()+"\nrest: {url: "+site.URL+", username: root}\n")
	attach := func() (string, error) {
		return l.try("compute", "attach", "-o", "none", "--file", file, "--set", "rest.token="+token.Load().(string))
	}
	if out, err := attach(); err != nil {
		l.t.Fatalf("attach: %v %s", err, out)
	}
	p := &place{lab: l, compute: "hpc-rest"}
	l.talks(p, "old-token")
	token.Store("of tomorrow")
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

// podOf is the path of the pod that a job of preemption.yml or unplug.yml runs in.
func (c *cluster) podOf(l *lab, namespace, job string) (path, name string) {
	l.t.Helper()
	type listed struct {
		Items []struct {
			Metadata struct {
				Name        string
				Annotations map[string]string
			}
		}
	}
	var jobs, pods listed
	c.do(l.t, http.MethodGet, "/apis/batch/v1/namespaces/"+namespace+"/jobs", nil, &jobs)
	for _, one := range jobs.Items {
		if strings.Contains(one.Metadata.Annotations["trainyard.io/task-id"], "/"+job+".") {
			c.do(l.t, http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods?labelSelector=job-name="+one.Metadata.Name, nil, &pods)
		}
	}
	if len(pods.Items) != 1 {
		l.t.Fatalf("the pods of job %s are %+v", job, pods)
	}
	name = pods.Items[0].Metadata.Name
	return "/api/v1/namespaces/" + namespace + "/pods/" + name, name
}

// drain evicts the pod of a job of preemption.yml, as kubectl drain does: what it wrote in its grace is the next attempt's.
func drain(l *lab, p *place, c *cluster, namespace string) {
	l.t.Helper()
	l.run(p, "preemption", p.compute, "drained")
	l.begun("drained", counts)
	pod, name := c.podOf(l, namespace, "drained")
	c.do(l.t, http.MethodPost, pod+"/eviction",
		map[string]any{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]string{"name": name, "namespace": namespace}}, nil)
	l.wentOn("drained")
	if s := l.story("drained"); s.Attempts[0].Class != trainyard.ClassPreempted {
		l.t.Errorf("its first attempt ended as %s", s.Attempts[0].Class)
	}
}

// killNode takes the power from the node that a job runs on, and gives it back when the job's next attempt waits for a node.
func killNode(l *lab, p *place, c *cluster, namespace string, part func(do, name string)) {
	l.t.Helper()
	l.talks(p, "power-cut")
	pod, _ := c.podOf(l, namespace, "power-cut")
	part("off", "node")
	l.says("power-cut", "Kubernetes has not heard of its node test-node since before ")
	c.do(l.t, http.MethodDelete, pod, map[string]any{"gracePeriodSeconds": 1}, nil) // as Kubernetes does after five minutes, if other nodes are well
	l.says("power-cut", "no node has room: 0/1 nodes are available")
	part("start", "kubelet")
	l.again("power-cut", "the node does not answer")
}

// unplugKubernetes stops the API server, then the kubelet of a job's node, drains the node, and kills it.
func unplugKubernetes(t *testing.T) {
	t.Parallel()
	file := engineAt("TRAINYARD_TEST_KUBECONFIG")
	if file == "" {
		leftOut(t, "Kubernetes", `eval "$(test/engines/kube/up.sh DIR)"`)
		return
	}
	part := func(do, name string) { t.Helper(); script(t, nil, "kube/part.sh", filepath.Dir(file), do, name) }
	p := kubePlace(t, file)
	l := p.lab
	t.Cleanup(func() { part("start", "apiserver"); part("start", "kubelet") }) // before the namespace is taken away

	l.talks(p, "api-server")
	part("stop", "apiserver")
	l.says("api-server", "the Kubernetes API")
	l.wait("the node says so", func() bool {
		out, err := l.try("compute", "list-nodes", "-n", p.compute, "-o", "json")
		return err == nil && strings.Contains(out, "the Kubernetes API has not answered since ")
	})
	l.kill()
	l.start()
	part("start", "apiserver")
	l.once("api-server", "the Kubernetes API")

	l.talks(p, "kubelet")
	part("stop", "kubelet")
	l.kill()
	l.start()
	part("start", "kubelet")
	l.once("kubelet", "")

	namespace := l.cli("compute", "show", "-n", p.compute, "--query", "namespace", "-o", "tsv")
	drain(l, p, newCluster(t, file), namespace)
	killNode(l, p, newCluster(t, file), namespace, part)
	kept := func() int {
		var all struct{ Items []struct{} }
		newCluster(t, file).do(t, http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps?labelSelector=trainyard.io/program", nil, &all)
		return len(all.Items)
	}
	if n := kept(); n != 0 {
		t.Errorf("for one job at a time the cluster keeps %d pieces of the program", n)
	}
	// asks says whether the pod of a job is to ask what to run, once its Job is there.
	asks := func(name string) (asks, there bool) {
		var all struct {
			Items []struct {
				Metadata struct{ Annotations map[string]string }
			}
		}
		newCluster(t, file).do(t, http.MethodGet, "/apis/batch/v1/namespaces/"+namespace+"/jobs", nil, &all)
		for _, one := range all.Items {
			if a := one.Metadata.Annotations; strings.Contains(a["trainyard.io/task-id"], "/"+name+".") {
				return a["trainyard.io/asks"] != "", true
			}
		}
		return false, false
	}
	part("stop", "kubelet") // until there is a crowd
	var names []string
	for asked := false; !asked && len(names) < 20; { // the first are sent the program while the cluster does not keep it
		name := fmt.Sprintf("crowd-%d", len(names))
		names = append(names, name)
		l.run(p, "hello", p.compute, name)
		l.wait(name+" has its Job", func() (there bool) { asked, there = asks(name); return there })
		if len(names) >= 3 {
			<-time.After(time.Second) // it is being made
		}
	}
	if n := kept(); n == 0 || len(names) == 20 {
		t.Errorf("for %d jobs at once the cluster keeps %d pieces of the program", len(names), n)
	}
	part("start", "kubelet")
	for _, name := range names {
		l.until(name, trainyard.JobCompleted)
	}
	l.cli("compute", "detach", "-n", p.compute, "--yes")
	if n := kept(); n != 0 {
		t.Errorf("the compute is detached, and %d pieces of the program are left", n)
	}
	if err := l.terminate(); err != nil {
		t.Errorf("the server ends with %v", err)
	}
	if log := l.errout.String(); strings.Contains(log, "was to ask") {
		t.Errorf("the pod was sent its task: %s", tailOf(log, 2000))
	}
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

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The engines as those who look after them see them: what takes a job's room from outside, and what stops a part of them.

// takeSlurm has a job of the higher partition take every node for a moment.
func takeSlurm(l *lab, conf string) {
	l.t.Helper()
	run := func(name string, args ...string) string {
		l.t.Helper()
		ctx, cancel := context.WithTimeout(l.t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
		out, err := cmd.CombinedOutput()
		if err != nil {
			l.t.Fatalf("%s %q: %v %s", name, args, err, out)
		}
		return string(out)
	}
	up := len(strings.Fields(run("sinfo", "-h", "-N", "-p", "main", "-t", "idle,mix,alloc", "-o", "%N")))
	run("sbatch", "--wait", "--partition=main", "--nodes="+strconv.Itoa(up), "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
}

// clearSlurm ends all jobs that are left in the tests' own Slurm, which would keep its nodes from other tests.
func clearSlurm(t *testing.T, conf string) {
	t.Helper()
	cmd := exec.Command("scancel", "--user=root")
	cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("scancel: %v %s", err, out)
	}
}

// cluster is a Kubernetes as its administrator sees it.
type cluster struct{ server, token string }

var (
	serverOf = regexp.MustCompile(`server: "([^"]+)"`)
	tokenOf  = regexp.MustCompile(`token: ([0-9a-f]+)`)
)

// newCluster reads the kubeconfig that test/engines/kube/up.sh writes.
func newCluster(t *testing.T, kubeconfig string) *cluster {
	t.Helper()
	text := readFile(kubeconfig)
	server, token := serverOf.FindStringSubmatch(text), tokenOf.FindStringSubmatch(text)
	if server == nil || token == nil {
		t.Fatalf("%s is not as up.sh writes it", filepath.Base(kubeconfig))
	}
	return &cluster{server[1], token[1]}
}

// do makes a request that must be granted and decodes the answer into out, if that is not nil. What is there already is left as it is.
func (c *cluster) do(t *testing.T, method, path string, in, out any) {
	t.Helper()
	status, data := c.ask(t, method, path, in)
	if status >= 300 && status != http.StatusConflict {
		t.Fatalf("%s %s: %d %s", method, path, status, data)
	}
	if out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			t.Fatal(err)
		}
	}
}

// ask makes a request. It goes through after the test's end as well, for what the test clears away.
func (c *cluster) ask(t *testing.T, method, path string, in any) (status int, answer []byte) {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.server+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	ans, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer ans.Body.Close()
	answer, _ = io.ReadAll(ans.Body)
	return ans.StatusCode, answer
}

// namespace makes one for the test, and takes it away with all that is in it at the test's end: a pod of a server that is gone would wait for
// it, and keep the node's room from other tests.
func (c *cluster) namespace(t *testing.T) string {
	t.Helper()
	var made struct{ Metadata struct{ Name string } }
	c.do(t, http.MethodPost, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"generateName": "lab-"}}, &made)
	path := "/api/v1/namespaces/" + made.Metadata.Name
	t.Cleanup(func() { c.do(t, http.MethodDelete, path, nil, nil) })
	deadline := time.After(time.Minute)
	for { // without it no pod may be made
		if status, _ := c.ask(t, http.MethodGet, path+"/serviceaccounts/default", nil); status == http.StatusOK {
			return made.Metadata.Name
		}
		select {
		case <-deadline:
			t.Fatalf("namespace %s has no service account", made.Metadata.Name)
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// wide is a request for CPUs of which the node has room for one.
func (c *cluster) wide(t *testing.T) string {
	t.Helper()
	var nodes struct {
		Items []struct {
			Status struct{ Allocatable struct{ CPU string } }
		}
	}
	c.do(t, http.MethodGet, "/api/v1/nodes", nil, &nodes)
	cpus, err := strconv.Atoi(nodes.Items[0].Status.Allocatable.CPU)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%dm", cpus*600)
}

// takeKubernetes has a pod of a higher priority take the node for a moment.
func takeKubernetes(l *lab, c *cluster, cpu string) {
	l.t.Helper()
	const pods, name = "/api/v1/namespaces/default/pods", "urgent"
	type m = map[string]any
	c.do(l.t, http.MethodPost, "/apis/scheduling.k8s.io/v1/priorityclasses", m{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
		"metadata": m{"name": name}, "value": 1000}, nil)
	l.wait("the API server knows the priority class", func() (made bool) { // it refuses the pod as long as it does not
		status, said := c.ask(l.t, http.MethodPost, pods, m{"apiVersion": "v1", "kind": "Pod", "metadata": m{"name": name}, "spec": m{
			"priorityClassName": name, "terminationGracePeriodSeconds": 0, "containers": []any{m{
				"name": "pause", "image": "trainyard.test/pause:1", "command": []string{"/pause"}, "resources": m{"requests": m{"cpu": cpu}}}}}})
		if status >= 300 && status != http.StatusForbidden {
			l.t.Fatalf("make pod %s: %d %s", name, status, said)
		}
		return status < 300
	})
	defer c.do(l.t, http.MethodDelete, pods+"/"+name, nil, nil)
	l.wait("the urgent pod runs", func() bool {
		var p struct{ Status struct{ Phase string } }
		c.do(l.t, http.MethodGet, pods+"/"+name, nil, &p)
		return p.Status.Phase == "Running"
	})
}

// slurmParts are the daemons of a Slurm that test/engines/slurm/up.sh made.
type slurmParts struct {
	t         *testing.T
	conf, dir string
}

func (s slurmParts) run(name string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+s.conf)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %q: %v %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// end kills a daemon by the name of its pid file.
func (s slurmParts) end(daemon string) {
	s.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(readFile(filepath.Join(s.dir, "run", daemon+".pid"))))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
}

// endNode kills a node's slurmd and all that it runs, as a power cut would.
func (s slurmParts) endNode(node string) {
	s.t.Helper()
	s.end("slurmd." + node)
	entries, _ := os.ReadDir("/proc")
	for range 3 { // who is killed while he forks has had a child
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || pid == os.Getpid() {
				continue
			}
			env, cmdline := readFile("/proc/"+e.Name()+"/environ"), readFile("/proc/"+e.Name()+"/cmdline")
			if strings.Contains(env, "SLURMD_NODENAME="+node+"\x00") || strings.Contains(cmdline, "slurmstepd") && strings.Contains(readFile("/proc/"+e.Name()+"/cgroup"), "slurm_"+node) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		entries, _ = os.ReadDir("/proc")
	}
}

// begin starts a daemon again. It stays for who comes after, and for down.sh to end.
func (s slurmParts) begin(name string, args ...string) {
	s.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path = "/usr/sbin/" + name
	}
	out, err := os.OpenFile(filepath.Join(s.dir, "log", name+".out"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, append(os.Environ(), "SLURM_CONF="+s.conf)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
}

// resume lets nodes be used again that Slurm has put aside, as it does with one on which it finds a job that it does not know of: the tests
// that come after would wait for it.
func (s slurmParts) resume() {
	for name := range strings.Lines(s.run("sinfo", "-h", "-N", "-p", "main", "-t", "drain,drng,down", "-o", "%N")) {
		s.run("scontrol", "update", "nodename="+strings.TrimSpace(name), "state=resume")
	}
}

// nodeOf is the node of Slurm that a job runs on.
func (s slurmParts) nodeOf(l *lab, job string) string {
	s.t.Helper()
	return s.running(l, job, "%N")
}

// running waits until Slurm has a job run, and returns what it then says in a format of squeue.
func (s slurmParts) running(l *lab, job, format string) (said string) {
	s.t.Helper()
	l.wait("Slurm has "+job+" run", func() bool {
		for line := range strings.Lines(s.run("squeue", "-h", "-t", "running", "-o", format+" %j")) {
			if first, name, _ := strings.Cut(strings.TrimSpace(line), " "); strings.Contains(name, job) {
				said = first
			}
		}
		return said != ""
	})
	return said
}

// saved waits until slurmctld has saved that a job runs. It saves after every change, one time after the other: the first that is seen may
// have begun before the job did, and the second began after the first.
func (s slurmParts) saved(l *lab, job string) {
	s.t.Helper()
	id, file := s.running(l, job, "%i"), filepath.Join(s.dir, "state", "job_state")
	for _, change := range []string{"once", "twice"} {
		before, _ := os.Stat(file) // there is none before the first
		s.run("scontrol", "update", "jobid="+id, "comment="+change)
		l.wait("slurmctld saves its state "+change, func() bool {
			now, err := os.Stat(file)
			return err == nil && (before == nil || now.ModTime().After(before.ModTime()))
		})
	}
}

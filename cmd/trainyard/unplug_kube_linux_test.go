package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

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

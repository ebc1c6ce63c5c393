//go:build linux && kueue

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// The suite's job files on two computes whose jobs wait in one queue of Kueue, which has room for two of them, or for one of instance type
// "all". Those of "urgent" go first. "make kueue" runs it.
func TestTheSameJobFilesInAQueueOfKueue(t *testing.T) {
	namespace, queue, ok := strings.Cut(os.Getenv("TRAINYARD_TEST_KUEUE"), "/")
	if !ok {
		t.Fatal("no Kueue: test/engines/kube/kueue.sh FOLDER starts it in the cluster of up.sh, and prints what to set TRAINYARD_TEST_KUEUE to")
	}
	kubeconfig := os.Getenv("TRAINYARD_TEST_KUBECONFIG")
	p := kubePlace(t, kubeconfig)
	_, port, _ := strings.Cut(p.lab.addr, ":")
	attach := func(name string, more ...string) (string, error) {
		args := []string{"compute", "attach", "-n", name, "--type", "kubernetes", "--kubeconfig", kubeconfig, "--namespace", namespace, "-o", "none",
			"--server-url", "https://198.18.0.1:" + port, "--set", "image=trainyard.test/base:1", "--set", "default_instance_type=small",
			"--set", "instance_types.small.resources.requests.cpu=10m", "--set", "instance_types.all.resources.requests.cpu=20m"}
		return p.lab.try(append(args, more...)...)
	}
	for name, more := range map[string][]string{"queued": nil, "urgent": {"--set", "priority_class=urgent"}} {
		if out, err := attach(name, append(more, "--set", "queue="+queue)...); err != nil {
			t.Fatalf("attach %s: %v %s", name, err, out)
		}
	}
	if out, err := attach("wrong", "--set", "queue=nobodys"); err == nil || !strings.Contains(out+err.Error(), `no LocalQueue "nobodys" of Kueue`) {
		t.Errorf("a queue that is not there is attached: %v %s", err, out)
	}
	p.name, p.compute, p.low, p.paid, p.take = "kueue", "queued", "queued", "urgent", nil
	p.crowds = []string{"resources.instance_type=all"}
	for _, c := range checks {
		switch c.name {
		case "hello", "data", "gang", "cancel", "failure", "preemption":
			t.Run(c.name, func(t *testing.T) { c.hold(p.lab.in(t), p, c.name+"-kueue") })
		}
	}
	t.Run("what took it back is said", func(t *testing.T) {
		l := p.lab.in(t)
		if out := l.cli("job", "show", "-n", "preemption-kueue", "-o", "json"); !strings.Contains(out, "Kueue took its Job back into queue "+queue+": Preempted to accommodate") {
			t.Errorf("it says %s", out)
		}
	})
	t.Run("what waits says why, and is canceled", func(t *testing.T) {
		l := p.lab.in(t)
		l.run(p, "preemption", "queued", "fills", p.crowds...)
		l.until("fills", trainyard.JobRunning)
		l.run(p, "hello", "queued", "waits")
		l.says("waits", "waiting in queue "+queue+" of Kueue", "insufficient unused quota for cpu in flavor any, 10m more needed")
		l.run(p, "hello", "queued", "unwanted")
		l.says("unwanted", "waiting in queue "+queue+" of Kueue")
		l.cli("job", "cancel", "-n", "unwanted")
		l.until("unwanted", trainyard.JobCanceled)
		if v := l.until("fills", trainyard.JobCompleted); len(v.Attempts) != 1 {
			t.Errorf("what ran had %d attempts", len(v.Attempts))
		}
		l.until("waits", trainyard.JobCompleted)
		if _, log := l.files("waits"); log != "hello from waits\n" {
			t.Errorf("log %q", log)
		}
	})
	t.Run("while Kueue is away what is new waits", func(t *testing.T) {
		l, dir := p.lab.in(t), filepath.Dir(kubeconfig)
		script(t, nil, "kube/part.sh", dir, "stop", "kueue")
		l.run(p, "hello", "queued", "patient")
		l.says("patient", "trying again: ", "failed calling webhook")
		script(t, nil, "kube/part.sh", dir, "start", "kueue")
		if v := l.until("patient", trainyard.JobCompleted); len(v.Attempts) != 1 {
			t.Errorf("it took %d attempts", len(v.Attempts))
		}
	})
}

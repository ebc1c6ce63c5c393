//go:build linux

package kube

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/trainyard/trainyard"
)

// plain is a cluster of which pods see no folder of this computer's, so that they have no volume.
func plain(c *Config) { c.shared = "" }

// here is a task for a pod that sees no folder of this computer's.
func (b *bench) here(command string) trainyard.Task {
	k := b.task(1, "")
	k.Run.Command, k.Run.Dir = command, "/"
	return k
}

// startAs starts a task as Start does, with a Job whose containers a policy of the cluster has changed.
func (b *bench) startAs(t trainyard.Task, security object) {
	b.Helper()
	p, err := b.newPlan(t)
	b.must(err)
	k, err := b.claim(p)
	b.must(err)
	defer k.op.Unlock()
	b.must(b.note(k, p))
	b.must(b.save(k, nil))
	o := p.job()
	pod := o["spec"].(object)["template"].(object)["spec"].(object)
	if volumes := pod["volumes"].([]object); len(volumes) > 0 {
		b.Fatalf("the pod has volumes: %v", volumes)
	}
	pod["containers"].([]object)[0]["securityContext"] = security
	j := &job{}
	b.must(b.api.create(b.Context(), b.api.path(jobs), o, j))
	b.must(b.made(k, j))
}

func TestWhereAPodMayWrite(t *testing.T) {
	t.Run("a user who is not root has the folder for temporary files", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, plain)
		k := b.here("id -u; echo $TMPDIR")
		b.startAs(k, object{"runAsUser": 1234})
		b.ends(k, trainyard.ClassOK, "")
		if got := b.log(k); len(got) < 25 || got[:25] != "1234\n/tmp/trainyard/work/" {
			t.Errorf("log is %q", got)
		}
	})
	t.Run("a container whose disk is read-only gets a volume, and so do all after it", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, plain)
		k := b.here("echo $TMPDIR")
		b.startAs(k, object{"readOnlyRootFilesystem": true})
		b.ends(k, trainyard.ClassOK, "")
		if got := b.log(k); len(got) < 16 || got[:16] != "/trainyard/work/" {
			t.Errorf("log is %q", got)
		}
		if p, err := b.newPlan(k); err != nil || !p.disk {
			t.Errorf("the next task's pod has no volume (%v)", err)
		}
	})
}

func TestATaskThatNobodyKnowsAnyMoreIsLost(t *testing.T) {
	b := newBench(t, plain)
	k := b.here("true")
	b.start(k)
	b.must(os.Remove(filepath.Join(b.dir, k.ID.Dir(), orderFile)))
	b.ends(k, trainyard.ClassNodeLost, "lost the folder of this compute before the task began")
	b.must(b.Remove(t.Context(), k.ID))
	b.start(k)
	b.ends(k, trainyard.ClassOK, "")
}

//go:build linux && kueue

package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// These tests are on Kueue itself: test/engines/kube/kueue.sh starts it in the cluster of up.sh, and "make kueue" runs them. The queue has
// room for two small tasks, or for one of instance type "all".

// newQueued is a bench whose tasks wait in the queue, with the rights of the manifest and no others.
func newQueued(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	namespace, queue, ok := strings.Cut(os.Getenv("TRAINYARD_TEST_KUEUE"), "/")
	if !ok {
		t.Fatal("no Kueue: test/engines/kube/kueue.sh FOLDER starts it in the cluster of up.sh, and prints what to set TRAINYARD_TEST_KUEUE to")
	}
	admin := newBench(t, nil)
	admin.grant(namespace)
	text := admin.account(namespace)
	return newBench(t, func(c *Config) {
		c.Kubeconfig, c.Namespace, c.Queue = text, namespace, queue
		c.InstanceTypes["all"] = InstanceType{Resources: PodResources{Requests: map[string]string{"cpu": "20m", "memory": "16Mi"}}}
		if change != nil {
			change(c)
		}
	})
}

// newUrgent is one of another compute, whose tasks go before the others in the same queue.
func newUrgent(t *testing.T) *bench {
	t.Helper()
	b := newQueued(t, func(c *Config) { c.PriorityClass = "urgent" })
	b.must(b.Close())
	env := environment(t, b.dir)
	env.Group += "-urgent"
	d, err := b.cfg.Open(t.Context(), env)
	b.must(err)
	b.Driver = d.(*Driver)
	eventually(t, "the cluster answers", func() bool { _, err := b.Observe(t.Context()); return err == nil })
	return b
}

// held is a task that runs until it is released. It notes in the file "twice" if another of the same folder runs at the same time.
func (b *bench) held(attempt, ranks int, shape string) trainyard.Task {
	k := b.task(ranks, `mkdir alone.$RANK || echo twice >>twice; trap 'rmdir alone.$RANK; exit 1' TERM; echo $RANK begins
		until test -e go; do sleep 0.05; done; rmdir alone.$RANK; echo $RANK ends`)
	k.ID, k.InstanceType = trainyard.MakeTaskID(k.ID.Job(), attempt, 0), shape
	return k
}

func (b *bench) release(t trainyard.Task) {
	b.Helper()
	b.must(os.WriteFile(filepath.Join(t.Run.Dir, "go"), nil, 0o600))
}

func (b *bench) neverTwice(t trainyard.Task) {
	b.Helper()
	if _, err := os.Stat(filepath.Join(t.Run.Dir, "twice")); err == nil {
		b.Errorf("task %s ran twice at the same time", t.ID)
	}
}

// uid is that of a task's Job.
func (b *bench) uid(t trainyard.Task) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tasks[b.nameOf(t.ID)].rec.UID
}

const fullQueue = "waiting in queue team-a of Kueue: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor any"

func TestKueueHoldsATaskUntilThereIsRoom(t *testing.T) {
	b := newQueued(t, nil)
	first, second, third := b.held(1, 1, "all"), b.held(2, 1, ""), b.held(3, 1, "all")
	b.start(first)
	b.reaches(first, trainyard.TaskRunning)
	b.start(second)
	b.says(second, fullQueue+", 10m more needed")
	b.start(third)
	b.says(third, fullQueue+", 20m more needed")
	b.must(b.Stop(t.Context(), third.ID, time.Minute))
	b.ends(third, trainyard.ClassCanceled, "ended before it began")
	b.must(b.Remove(t.Context(), third.ID))
	if n := b.known(third, jobs); n != 0 {
		t.Errorf("%d Jobs are left of a task that was removed", n)
	}
	if o, _ := b.find(second.ID); o.State != trainyard.TaskStaging || b.known(second, pods) != 0 {
		t.Errorf("while there is no room it is %+v, with %d pods", o, b.known(second, pods))
	}
	b.release(second)
	b.ran(second, 0)
	b.release(first)
	b.ends(first, trainyard.ClassOK, "")
	b.ends(second, trainyard.ClassOK, "")
	if got := b.log(second); got != "0 begins\n0 ends\n" {
		t.Errorf("log is %q", got)
	}
	b.ran(first, 1)
	b.ran(second, 1)
	b.ran(third, 0)
}

func TestKueueLetsAGangGoAsAWhole(t *testing.T) {
	b := newQueued(t, nil)
	small, gang := b.held(1, 1, ""), b.held(2, 2, "")
	b.start(small)
	b.reaches(small, trainyard.TaskRunning)
	b.start(gang)
	b.says(gang, fullQueue+", 10m more needed")
	if n := b.known(gang, pods); n != 0 {
		t.Errorf("there is room for one of its ranks, and it has %d pods", n)
	}
	b.release(small)
	b.ends(small, trainyard.ClassOK, "")
	b.reaches(gang, trainyard.TaskRunning)
	eventually(t, "both ranks run", func() bool {
		runs, _ := os.ReadFile(filepath.Join(gang.Run.Dir, "runs"))
		return string(runs) == "ran\nran\n"
	})
	b.release(gang)
	b.ends(gang, trainyard.ClassOK, "")
	b.neverTwice(gang)
	b.ran(gang, 2)
}

// The server removes a task that was preempted, and starts another attempt.
func TestKueueTakesATaskBackForOneThatGoesBefore(t *testing.T) {
	b, u := newQueued(t, nil), newUrgent(t)
	for _, shape := range []string{"all", ""} {
		ranks := 1
		if shape == "" {
			ranks = 2
		}
		t.Run(fmt.Sprintf("of %d ranks", ranks), func(t *testing.T) {
			b.T, u.T = t, t
			low, high := b.held(1, ranks, shape), u.held(7, 1, "")
			b.start(low)
			b.reaches(low, trainyard.TaskRunning)
			u.start(high)
			o := b.ends(low, trainyard.ClassPreempted, "Kueue took its Job back into queue team-a: Preempted to accommodate a workload")
			t.Log(o.Result.Message)
			b.ran(low, ranks)
			b.must(b.Remove(t.Context(), low.ID))
			again := low
			again.ID = trainyard.MakeTaskID(low.ID.Job(), 2, 0)
			b.start(again)
			b.says(again, fullQueue)
			u.reaches(high, trainyard.TaskRunning)
			b.ran(low, ranks)
			u.release(high)
			u.ends(high, trainyard.ClassOK, "")
			b.reaches(again, trainyard.TaskRunning)
			b.release(again)
			b.ends(again, trainyard.ClassOK, "")
			b.neverTwice(again)
			b.ran(again, 2*ranks)
			u.ran(high, 1)
			b.must(b.Remove(t.Context(), again.ID))
			u.must(u.Remove(t.Context(), high.ID))
		})
	}
}

// Whoever looks after the queue may stop a task there, as "kueuectl stop workload" does: that is no reason to try again.
func TestATaskThatIsStoppedInKueueIsCanceled(t *testing.T) {
	b := newQueued(t, nil)
	k := b.held(1, 1, "")
	b.start(k)
	b.reaches(k, trainyard.TaskRunning)
	other := newBench(t, nil).api
	admin := &client{rest: other.rest, http: other.http, base: other.base, namespace: b.api.namespace}
	all, err := admin.workloads(t.Context())
	b.must(err)
	for _, w := range all {
		if w.Meta.Labels[kueueJobLabel] == b.uid(k) {
			path, err := admin.kueuePath(t.Context(), workloads, w.Meta.Name)
			b.must(err)
			b.must(admin.patch(t.Context(), path, object{"spec": object{"active": false}}))
		}
	}
	b.ends(k, trainyard.ClassCanceled, "its Workload in queue team-a of Kueue was stopped, not by trainyard: The workload is deactivated")
	b.ran(k, 1)
}

// Kueue lets a Job that it took back go again when there is room. What it was told of as ended must not run then.
func TestATaskThatKueueTookBackDoesNotBeginAgainByItself(t *testing.T) {
	b, u := newQueued(t, nil), newUrgent(t)
	low, high := b.held(1, 1, "all"), u.held(7, 1, "all")
	b.start(low)
	b.reaches(low, trainyard.TaskRunning)
	u.start(high)
	b.ends(low, trainyard.ClassPreempted, "Kueue took its Job back")
	u.reaches(high, trainyard.TaskRunning)
	u.release(high)
	u.ends(high, trainyard.ClassOK, "")
	eventually(t, "Kueue lets it go again, and its pod waits for the program", func() bool {
		var p page[pod]
		b.must(b.api.get(t.Context(), b.api.path(pods), map[string][]string{"labelSelector": {taskLabel + "=" + b.nameOf(low.ID)}}, &p))
		for _, one := range p.Items {
			if c := one.container(); c != nil && c.State.Running != nil && time.Since(c.State.Running.Started) > 4*time.Second {
				return true
			}
		}
		return false
	})
	b.ran(low, 1)
	b.reopen() // nor does somebody new send it
	if o := b.reaches(low, trainyard.TaskEnded); o.Result.Class != trainyard.ClassPreempted {
		t.Errorf("afterwards it is %+v", o.Result)
	}
	b.ran(low, 1)
	b.must(b.Remove(t.Context(), low.ID))
	next := b.held(2, 1, "all")
	b.start(next)
	b.release(next)
	b.ends(next, trainyard.ClassOK, "")
}

// A task that was let go and has not begun is none that was preempted: it waits in its place again.
func TestKueueTakesATaskBackBeforeItBegan(t *testing.T) {
	b, u := newQueued(t, func(c *Config) {
		c.InstanceTypes["nowhere"] = InstanceType{NodeSelector: map[string]string{"no": "where"}, Resources: c.InstanceTypes["all"].Resources}
	}), newUrgent(t)
	low, high := b.held(1, 1, "nowhere"), u.held(7, 1, "")
	b.start(low)
	b.says(low, "no node has room")
	u.start(high)
	u.reaches(high, trainyard.TaskRunning)
	b.says(low, fullQueue)
	u.release(high)
	u.ends(high, trainyard.ClassOK, "")
	b.says(low, "no node has room")
	b.must(b.Stop(t.Context(), low.ID, time.Minute))
	b.ends(low, trainyard.ClassCanceled, "ended before it began")
	b.ran(low, 0)
}

// Every Job that is made is shown to Kueue first; while Kueue is away none can be.
func TestWhileKueueIsAwayATaskIsToComeLater(t *testing.T) {
	b := newQueued(t, nil)
	before, k := b.held(1, 1, ""), b.held(2, 1, "")
	b.start(before)
	b.reaches(before, trainyard.TaskRunning)
	part(t, "stop", "kueue")
	err := b.Start(t.Context(), k)
	part(t, "start", "kueue")
	if trainyard.CodeOf(err) != trainyard.CodeBusy || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("start says %v", err)
	}
	if _, ok := b.find(k.ID); ok {
		t.Error("a task that was not started is seen")
	}
	eventually(t, "Kueue is back, and the task is started", func() bool { return b.Start(t.Context(), k) == nil })
	b.release(k)
	b.ends(k, trainyard.ClassOK, "")
	b.release(before)
	b.ends(before, trainyard.ClassOK, "")
	b.ran(before, 1)
	b.ran(k, 1)
}

func TestAQueueOfKueueThatIsNotThereIsSaid(t *testing.T) {
	b := newQueued(t, nil)
	if f, err := Probe(t.Context(), b.cfg); err != nil || len(f.Warnings) > 0 {
		t.Errorf("of a queue that is there probe says %+v (%v)", f, err)
	}
	wrong := newQueued(t, func(c *Config) { c.Queue = "team-z" })
	if _, err := Probe(t.Context(), wrong.cfg); err == nil || !strings.Contains(err.Error(), `namespace queued has no LocalQueue "team-z" of Kueue`) {
		t.Errorf("of a queue that is not there probe says %v", err)
	}
	k := wrong.task(1, "true")
	wrong.start(k)
	wrong.says(k, "waiting in queue team-z of Kueue: LocalQueue team-z doesn't exist")
	wrong.must(wrong.Stop(t.Context(), k.ID, time.Minute))
	wrong.ends(k, trainyard.ClassCanceled, "")
}

func TestWithoutTheRightToLookAtKueueTasksWaitAndSayLess(t *testing.T) {
	admin := newBench(t, nil)
	admin.grantBut("poor", workloads, localQueues)
	text := admin.account("poor")
	b := newBench(t, func(c *Config) { c.Kubeconfig, c.Namespace, c.Queue = text, "poor", "team-a" })
	f, err := Probe(t.Context(), b.cfg)
	if err != nil || len(f.Warnings) != 2 || !strings.Contains(f.Warnings[0], "list workloads.kueue.x-k8s.io") || !strings.Contains(f.Warnings[1], "get localqueues.kueue.x-k8s.io") {
		t.Errorf("probe says %q (%v)", f.Warnings, err)
	}
	k := b.task(1, "true")
	b.start(k)
	b.says(k, "waiting in queue team-a of Kueue")
	eventually(t, "the queue was looked at", func() bool {
		b.line.mu.Lock()
		defer b.line.mu.Unlock()
		return !b.line.begun.IsZero()
	})
	if o, _ := b.find(k.ID); o.Progress != "waiting in queue team-a of Kueue" {
		t.Errorf("it says %q", o.Progress)
	}
	b.must(b.Stop(t.Context(), k.ID, time.Minute))
	b.ends(k, trainyard.ClassCanceled, "")
}

//go:build linux

package kube

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestAGangRunsTogetherAndItsRanksKnowEachOther(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(3, `echo "$RANK $HOSTS" >>ranks; for h in ${HOSTS//,/ }; do getent ahostsv4 $h >>found || echo "no $h" >>found; done; echo rank $RANK`)
	b.start(k)
	b.ends(k, trainyard.ClassOK, "")
	b.ran(k, 3)
	name := b.nameOf(k.ID)
	hosts := fmt.Sprintf("%s-0.%s,%s-1.%s,%s-2.%s", name, name, name, name, name, name)
	ranks, _ := os.ReadFile(filepath.Join(k.Run.Dir, "ranks"))
	for rank := range 3 {
		if want := fmt.Sprintf("%d %s\n", rank, hosts); !strings.Contains(string(ranks), want) {
			t.Errorf("ranks saw %q, want a line %q", ranks, want)
		}
	}
	if found, _ := os.ReadFile(filepath.Join(k.Run.Dir, "found")); strings.Contains(string(found), "no ") || strings.Count(string(found), " STREAM ") != 9 {
		t.Errorf("names were looked up as %q", found)
	}
	if got := b.log(k); got != "rank 0\n" {
		t.Errorf("the log is %q, want that of rank 0", got)
	}
}

func TestARankThatFailsEndsTheGang(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(2, `if [ $RANK = 1 ]; then sleep 0.5; exit 3; fi; trap 'exit 9' TERM; while :; do sleep 0.05; done`)
	b.start(k)
	if o := b.ends(k, trainyard.ClassUser, "3"); o.Result.ExitCode != 3 {
		t.Errorf("exit code is %d, want 3", o.Result.ExitCode)
	}
	b.ran(k, 2)
}

func TestAPodDeletedByHandIsALostNode(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(1, "echo started; echo >echoed; sleep 600")
	b.start(k)
	b.begins(k, "echoed")
	p := b.onlyPod(k)
	b.must(b.api.remove(t.Context(), b.api.path(pods, p.Meta.Name), object{"gracePeriodSeconds": 2}))
	b.ends(k, trainyard.ClassNodeLost, "pod "+p.Meta.Name+" on node test-node was deleted, not by trainyard")
	if got := b.log(k); got != "started\n" {
		t.Errorf("log is %q", got)
	}
	b.start(k)
	b.reopen()
	b.ends(k, trainyard.ClassNodeLost, "was deleted, not by trainyard")
	b.ran(k, 1)
}

func TestAJobDeletedByHandIsALostNode(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(1, "sleep 600")
	b.start(k)
	b.begins(k, "runs")
	b.must(b.api.remove(t.Context(), b.api.path(jobs, b.nameOf(k.ID)), object{"propagationPolicy": "Background"}))
	b.ends(k, trainyard.ClassNodeLost, "deleted from the cluster, not by trainyard")
	b.ran(k, 1)
}

func TestAJobDeletedByHandWhileNobodyLooked(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(1, "sleep 600")
	b.start(k)
	b.begins(k, "runs")
	b.must(b.Close())
	other := openDriver(t, b.cfg, t.TempDir())
	b.must(other.Remove(t.Context(), k.ID))
	b.must(other.Close())
	b.Driver = openDriver(t, b.cfg, b.dir)
	b.ends(k, trainyard.ClassNodeLost, "was deleted from the cluster, not by trainyard")
}

// As Kueue does when others are to have the room, and when they have had it.
func TestAJobSuspendedWhileNobodyLookedDoesNotRunTwice(t *testing.T) {
	for name, again := range map[string]bool{"and let go": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			k := b.task(1, "echo started; echo >echoed; sleep 600")
			b.start(k)
			b.begins(k, "echoed")
			eventually(t, "its log is here", func() bool { return b.log(k) == "started\n" })
			first := b.onlyPod(k)
			path := b.api.path(jobs, b.nameOf(k.ID))
			b.must(b.Close())
			b.must(b.api.patch(t.Context(), path, object{"spec": object{"suspend": true}}))
			eventually(t, "its pod is gone", func() bool { return b.known(k, pods) == 0 })
			if again {
				b.must(b.api.patch(t.Context(), path, object{"spec": object{"suspend": false}}))
				eventually(t, "it has another, which runs", func() bool {
					if b.known(k, pods) != 1 {
						return false
					}
					c := b.onlyPod(k).container()
					return c != nil && c.State.Running != nil
				})
				if b.onlyPod(k).Meta.UID == first.Meta.UID {
					t.Fatal("it is the same pod")
				}
			}
			b.Driver = openDriver(t, b.cfg, b.dir)
			o := b.ends(k, trainyard.ClassPreempted, "its pod was gone when the server looked again: its Job was suspended, as Kueue does to give room to others")
			if !strings.Contains(strings.Join(o.Notes, "; "), "its pod is gone") {
				t.Errorf("that the end of the log is missing is not said: %q", o.Notes)
			}
			b.ran(k, 1)
			if got := b.log(k); got != "started\n" {
				t.Errorf("log is %q", got)
			}
			b.must(b.Remove(t.Context(), k.ID))
			eventually(t, "nothing is left", func() bool { return b.known(k, jobs)+b.known(k, pods) == 0 })
		})
	}
}

// Whoever drains a node has it give way: that is no attempt of the job's.
func TestADrainedNodePreempts(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(1, "trap 'echo saved; exit 0' TERM; echo started; while :; do sleep 0.05; done")
	b.start(k)
	b.begins(k, "runs")
	p := b.onlyPod(k)
	b.must(b.api.create(t.Context(), b.api.path(pods, p.Meta.Name, "eviction"), object{"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata": object{"name": p.Meta.Name, "namespace": b.api.namespace}}, nil))
	b.ends(k, trainyard.ClassPreempted, "was ended because its node was drained (Eviction API: evicting)")
	b.ran(k, 1)
}

func TestAnAPIServerThatIsAwayCostsNothing(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(1, "echo before; until test -e go; do sleep 0.05; done; echo after; exit 7")
	b.start(k)
	b.reaches(k, trainyard.TaskRunning)
	part(t, "stop", "apiserver")
	stopped := true
	defer func() {
		if stopped {
			part(t, "start", "apiserver")
		}
	}()
	other := k
	other.ID = trainyard.MakeTaskID(k.ID.Job(), 2, 0)
	if err := b.Start(t.Context(), other); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("start says %v", err)
	}
	b.must(os.WriteFile(filepath.Join(k.Run.Dir, "go"), nil, 0o600))
	eventually(t, "a view that is old is none", func() bool { _, err := b.Observe(t.Context()); return err != nil })
	part(t, "start", "apiserver")
	stopped = false
	if o := b.ends(k, trainyard.ClassUser, ""); o.Result.ExitCode != 7 {
		t.Errorf("exit code is %d, want 7", o.Result.ExitCode)
	}
	if got := b.log(k); got != "before\nafter\n" {
		t.Errorf("log is %q", got)
	}
	b.ran(k, 1)
	b.must(b.Start(t.Context(), other))
	// When it runs depends on how soon the cluster's own controllers come back: minutes, on a busy machine. The next tests need them.
	late := time.After(5 * time.Minute)
	for {
		if o, _ := b.find(other.ID); o.State == trainyard.TaskRunning || o.State == trainyard.TaskEnded {
			return
		}
		select {
		case <-late:
			t.Fatal("the cluster's controllers did not come back")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// What is asked to end while the API server is away has its grace when that is back, whoever tells it then, and is not deleted meanwhile.
func TestWhatCouldNotBeToldToEndHasItsGraceWhenItIs(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"by the same driver":               func(*bench) {},
		"by one that was opened meanwhile": func(b *bench) { b.must(b.Close()); b.Driver = b.openUnheard() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var g *gate
			b := newBench(t, func(c *Config) { g, c.spare = gated(t, c), 2*time.Second })
			k := b.task(2, `trap 'sleep 3; echo saved; echo $RANK >>kept; exit 0' TERM; echo ready; echo $RANK >>ready; while :; do sleep 0.05; done`)
			b.start(k)
			eventually(t, "both ranks are ready", func() bool {
				data, _ := os.ReadFile(filepath.Join(k.Run.Dir, "ready"))
				return len(data) == 4
			})
			g.away(true)
			const grace = 8 * time.Second
			if err := b.Stop(t.Context(), k.ID, grace); err == nil {
				t.Error("that nobody could be told is not said")
			}
			change(b)
			<-time.After(grace + b.cfg.spare + 2*time.Second) // it would be deleted, if that were counted from here
			g.away(false)
			o := b.ends(k, trainyard.ClassCanceled, "")
			if o.Killed != 0 || o.Result.ExitCode != 0 {
				t.Errorf("it ended as %+v, %+v", o, *o.Result)
			}
			if kept, _ := os.ReadFile(filepath.Join(k.Run.Dir, "kept")); len(kept) != 4 || !strings.HasSuffix(b.log(k), "\nsaved\n") { // bash says before it what became of its child
				t.Errorf("ranks %q saved, and the log is %q", kept, b.log(k))
			}
			b.ran(k, 2)
		})
	}
}

// What does not end although it was told is ended, and that is said once.
func TestAPodWhoseProgramDoesNotEndIsKilledInTheEnd(t *testing.T) {
	b := newBench(t, func(c *Config) { c.spare = time.Second })
	k := b.task(1, "sleep 600")
	k.Run.Env = map[string]string{"DEAF": "yes"} // to the program
	b.start(k)
	b.begins(k, "runs")
	b.must(b.Stop(t.Context(), k.ID, time.Second))
	o := b.ends(k, trainyard.ClassCanceled, "")
	if o.Killed < 2*time.Second || o.Result.ExitCode != 137 {
		t.Errorf("it ended as %+v, %+v", o, *o.Result)
	}
}

func TestANodeThatDoesNotAnswerIsLost(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(1, "sleep 600")
	b.start(k)
	b.reaches(k, trainyard.TaskRunning)
	p := b.onlyPod(k)
	part(t, "stop", "kubelet")
	b.must(b.api.patch(t.Context(), "/api/v1/nodes/"+p.Spec.Node+"/status", object{"status": object{"conditions": []object{
		{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}}}})) // as Kubernetes does after 50 seconds
	b.must(b.api.remove(t.Context(), b.api.path(pods, p.Meta.Name), object{"gracePeriodSeconds": 1})) // and this after five minutes more
	o := b.ends(k, trainyard.ClassNodeLost, "the node does not answer")
	part(t, "start", "kubelet")
	if o.Result == nil || o.Result.ExitCode != -1 {
		t.Errorf("it looks as %+v", o)
	}
	b.must(b.Remove(t.Context(), k.ID))
	b.ran(k, 1)
}

func TestALongLogIsWholeThoughTheNodeThrowsItAway(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	k := b.task(1, "for i in $(seq 10); do head -c 6000000 /dev/zero | tr '\\0' $((i%10)) | fold -w 99; done; echo end") // a kubelet keeps 10 MiB
	const size = 10*(6_000_000+6_000_000/99) + len("end\n")
	b.start(k)
	o := b.ends(k, trainyard.ClassOK, "")
	got := b.log(k)
	// The runtime itself loses lines that are written while its log is changed for a new one; what must not be is that nobody knows.
	if missing := size - len(got); missing != 0 && !slices.Equal(o.Notes, []string{fmt.Sprintf("%d bytes of the log are missing: node test-node threw them away before they were read", missing)}) ||
		missing > size/100 || !strings.HasSuffix(got, "end\n") {
		t.Errorf("the log has %d bytes, want %d (%s)", len(got), size, o.Notes)
	}
}

func TestAnImageThatCannotBePulledIsSaidAndNotWaitedForForever(t *testing.T) {
	b := newBench(t, func(c *Config) { c.ImagePullGrace = 4 })
	k := b.task(1, "true")
	k.Environment = &trainyard.EnvironmentPlan{Name: "gone", Image: "127.0.0.1:1/there/is:none"}
	b.start(k)
	b.says(k, "image 127.0.0.1:1/there/is:none cannot be pulled on node test-node (ErrImagePull)")
	o := b.ends(k, trainyard.ClassEnvironment, "image 127.0.0.1:1/there/is:none cannot be pulled")
	if !strings.Contains(o.Result.Message, "connection refused") {
		t.Errorf("the registry's words are not in %q", o.Result.Message)
	}
	b.ran(k, 0)
	k.ID, k.Environment.Image = trainyard.MakeTaskID(k.ID.Job(), 2, 0), "No Name"
	b.start(k)
	b.ends(k, trainyard.ClassEnvironment, "InvalidImageName")
}

func TestAnImageWithoutAShellIsSaid(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(1, "true")
	k.Environment = &trainyard.EnvironmentPlan{Name: "tiny", Image: "trainyard.test/pause:1"}
	b.start(k)
	b.ends(k, trainyard.ClassEnvironment, "image trainyard.test/pause:1 cannot run a shell")
}

func TestATaskWithoutRoomSaysSoAndCanBeStopped(t *testing.T) {
	b := newBench(t, func(c *Config) {
		c.InstanceTypes["huge"] = InstanceType{Resources: PodResources{Requests: map[string]string{"cpu": "1000"}}}
	})
	k := b.task(1, "true")
	k.InstanceType = "huge"
	b.start(k)
	b.says(k, "Insufficient cpu")
	b.must(b.Stop(t.Context(), k.ID, time.Minute))
	b.ends(k, trainyard.ClassCanceled, "before it began")
	b.ran(k, 0)
	k.InstanceType = "none"
	if err := b.Start(t.Context(), k); trainyard.ClassOf(err) != trainyard.ClassEnvironment || !strings.Contains(err.Error(), "defaultinstancetype, huge") {
		t.Errorf("start says %v", err)
	}
}

func TestASuspendedJobIsWaitedFor(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Queue = "team-a" })
	k := b.task(1, "sleep 600")
	b.start(k)
	b.says(k, "waiting in queue team-a of Kueue: the cluster has no Kueue that could let it go")
	suspend := func(yes bool) {
		b.must(b.api.patch(t.Context(), b.api.path(jobs, b.nameOf(k.ID)), object{"spec": object{"suspend": yes}}))
	}
	suspend(false) // as Kueue does; "make kueue" has the tests on Kueue itself
	b.reaches(k, trainyard.TaskRunning)
	suspend(true)
	b.ends(k, trainyard.ClassPreempted, "suspended")
	suspend(false)
	b.start(k)
	b.ran(k, 1)
}

func TestAQuotaThatIsUsedUpIsSaid(t *testing.T) {
	var g *gate
	b := newBench(t, func(c *Config) { c.Namespace = "quota"; g = gated(t, c) })
	b.namespace("quota")
	b.ensure("/api/v1/namespaces/quota/resourcequotas", object{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": object{"name": "none"},
		"spec": object{"hard": object{"pods": "0"}}})
	eventually(t, "the quota is kept", func() bool { // which is some time after it is there
		err := b.api.call(t.Context(), http.MethodPost, b.api.path(pods), url.Values{"dryRun": {"All"}}, object{"apiVersion": "v1", "kind": "Pod",
			"metadata": object{"name": "probe"}, "spec": object{"containers": []object{{"name": "main", "image": b.cfg.Image}}}}, nil)
		return err != nil && strings.Contains(err.Error(), "exceeded quota")
	})
	began := time.Now()
	var waiting []trainyard.Task
	for n := range 5 {
		k := b.task(1, "true")
		k.ID = trainyard.MakeTaskID(k.ID.Job(), n+1, 0)
		b.start(k)
		waiting = append(waiting, k)
	}
	for _, k := range waiting {
		b.says(k, "exceeded quota")
	}
	if n, most := g.seen("events"), 1+int(time.Since(began)/warningsEvery); n > most { // the API server reads all for every one that is asked for
		t.Errorf("%d tasks had the events read %d times, want %d at most", len(waiting), n, most)
	}
}

func TestAPodThatWritesMoreThanItMayIsFull(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.WorkSize = "1Mi" })
	k := b.task(1, "head -c 30000000 /dev/zero >$TMPDIR/x; sleep 600")
	b.start(k)
	b.ends(k, trainyard.ClassDisk, "exceeds the limit")
}

// A start that died between any two of its calls is gone on with.
func TestStartGoesOnWhereItStopped(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(2, "true")
	noted := func() *plan {
		p, err := b.newPlan(k)
		b.must(err)
		task, err := b.claim(p)
		b.must(err)
		defer task.op.Unlock()
		b.must(b.note(task, p))
		b.must(b.save(task, nil))
		return p
	}
	unseen := func() {
		t.Helper()
		b.reopen()
		eventually(t, "the cluster is heard", func() bool { _, err := b.Observe(t.Context()); return err == nil })
		if o, ok := b.find(k.ID); ok {
			t.Errorf("a task of which not all was made is seen as %+v", o)
		}
	}
	_, err := b.makeJob(t.Context(), noted()) // and then it died
	b.must(err)
	unseen()
	b.start(k)
	b.ends(k, trainyard.ClassOK, "")
	b.ran(k, 2)

	k.ID, k.Hi = trainyard.MakeTaskID(k.ID.Job(), 2, 0), 1
	p := noted()
	j, err := b.makeJob(t.Context(), p)
	b.must(err)
	b.must(b.makeParts(t.Context(), p, j)) // and then it died
	unseen()
	b.start(k)
	b.ends(k, trainyard.ClassOK, "")
	b.ran(k, 3)

	whole, err := b.keepProgram(t.Context())
	b.must(err)
	long := "true # " + strings.Repeat("x", longest)                                         // which is found in a Secret
	for i, commands := range [][2]string{{"true", "true"}, {long, "true"}, {"true", long}} { // and the task would be told what it is in another way
		k.ID = trainyard.MakeTaskID(k.ID.Job(), 3+i, 0)
		k.Run.Command = "echo ran >>runs; " + commands[0]
		if i == 0 {
			b.keepsFor(whole) // and afterwards the cluster does not any more
		}
		_, err = b.makeJob(t.Context(), noted()) // and then it died
		b.must(err)
		unseen()
		k.Run.Command = "echo ran >>runs; " + commands[1]
		b.start(k)
		b.ends(k, trainyard.ClassOK, "")
		b.ran(k, 4+i)
	}
	b.must(b.Leave(t.Context()))

	k.ID, k.Run.Command = trainyard.MakeTaskID(k.ID.Job(), 6, 0), "echo ran >>runs"
	_, err = b.makeJob(t.Context(), noted()) // and then it died, and nobody wants it any more
	b.must(err)
	unseen()
	b.must(b.Remove(t.Context(), k.ID))
	unseen()
	if n := b.known(k, jobs); n != 0 {
		t.Errorf("%d Jobs are left", n)
	}
}

func TestATaskIsKnownWithoutItsFolder(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(1, "echo hello; until test -e go; do sleep 0.05; done; exit 4")
	b.start(k)
	b.reaches(k, trainyard.TaskRunning)
	b.must(b.Close())
	b.must(os.RemoveAll(b.dir))
	b.Driver = openDriver(t, b.cfg, b.dir)
	b.must(os.WriteFile(filepath.Join(k.Run.Dir, "go"), nil, 0o600))
	b.ends(k, trainyard.ClassUser, "")
	if got := b.log(k); got != "hello\n" {
		t.Errorf("log is %q", got)
	}
	b.ran(k, 1)
}

func TestRemoveLeavesNothingInTheCluster(t *testing.T) {
	b := newBench(t, nil)
	k := b.task(2, "sleep 600")
	b.start(k)
	b.reaches(k, trainyard.TaskRunning)
	b.must(b.Remove(t.Context(), k.ID))
	for _, kind := range []string{jobs, secrets, services, pods} {
		eventually(t, "no "+kind+" are left", func() bool {
			var p page[pod]
			b.must(b.api.get(t.Context(), b.api.path(kind), map[string][]string{"labelSelector": {groupLabel + "=" + b.group}}, &p))
			return len(p.Items) == 0
		})
	}
}

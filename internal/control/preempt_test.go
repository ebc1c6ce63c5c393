package control

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// An idle node stays for its idle time, but not where another cluster of a full location wants its room.
func TestAnIdleNodeGoesAtOnceWhenOthersWantItsRoom(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	c.Locations[0].Capacity, c.Locations[0].Sizes = trainyard.Capacity{Nodes: 1}, []trainyard.VMSize{{Name: "Standard_A", VCPUs: 1}}
	cluster := func(name string) *trainyard.Compute {
		return &trainyard.Compute{Scope: scope, Name: name, Where: trainyard.DefaultLocation, Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeCluster,
			Properties: trainyard.ClusterProperties{VMSize: "Standard_A", ScaleSettings: &trainyard.ScaleSettings{MaxNodeCount: 1, NodeIdleTimeBeforeScaleDown: "PT1H"}}}}
	}
	had, wants := cluster("had"), cluster("wants")
	err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
		for _, comp := range []*trainyard.Compute{had, wants} {
			if err := tx.PutCompute(comp); err != nil {
				return err
			}
		}
		return tx.PutNode(&trainyard.Node{ID: "idle", Compute: had.Key(), State: trainyard.NodeIdle, Size: "Standard_A"})
	})
	if err != nil {
		t.Fatal(err)
	}
	look := func() *trainyard.Node {
		t.Helper()
		if _, err := c.scaleAll(t.Context(), map[trainyard.NodeID]time.Time{}); err != nil {
			t.Fatal(err)
		}
		n, err := c.Store.Node(t.Context(), "idle")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := look(); n.State != trainyard.NodeIdle {
		t.Fatalf("nobody wants its room and it is %s", n.State)
	}
	admin := trainyard.User{Name: "admin", Role: trainyard.RoleAdmin}
	job := &trainyard.Job{Scope: scope, Name: "j", Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: "wants"}}
	if _, _, err := c.SubmitJob(t.Context(), admin, job); err != nil {
		t.Fatal(err)
	}
	if n := look(); n.State != trainyard.NodeLeaving || n.Reason.Code != "RoomNeeded" {
		t.Fatalf("it is %s because %+v", n.State, n.Reason)
	}
	comp, err := c.Store.Compute(t.Context(), wants.Key())
	if err != nil || !strings.Contains(comp.Full, "idle nodes of had are going") {
		t.Errorf("the cluster says %q, %v", comp.Full, err)
	}
	if err := c.nodeGone(t.Context(), "idle", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := c.scaleAll(t.Context(), map[trainyard.NodeID]time.Time{}); err != nil {
		t.Fatal(err)
	}
	var nodes []*trainyard.Node
	for _, n := range c.Store.AllNodes() {
		if n.Compute == wants.Key() || n.Compute == had.Key() {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) != 1 || nodes[0].Compute != wants.Key() {
		t.Errorf("%d nodes, want one, of the cluster that wanted it", len(nodes))
	}
}

// A job of high priority has the node that comes free on another cluster of a full location, and not the next job there. The scheduler may
// look before the scaler does.
func TestANodeGoesToABetterJobWhenItsWorkIsDone(t *testing.T) {
	c := narrow(t, 1)
	many := putCluster(t, c, "many", 0, 3, "node")
	best := putCluster(t, c, "best", 0, 1)
	for _, name := range []string{"first", "second", "third"} {
		submit(t, c, "many", name, 1, "", 1)
	}
	settleNodes(t, c)
	submit(t, c, "best", "urgent", 1, "", 3)
	settleNodes(t, c)
	held := "room of location local goes to job urgent of higher priority on best"
	for _, name := range []string{"second", "third"} {
		if why := reasonOf(t, c, name); why.Code != "HigherPriority" || why.Message != held {
			t.Errorf("job %s waits because %+v", name, why)
		}
	}
	if comp, err := c.Store.Compute(t.Context(), many.Key()); err != nil || comp.Full != held {
		t.Errorf("the cluster says %q, %v", comp.Full, err)
	}
	err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
		j, err := tx.Job(trainyard.MakeJobKey(trainyard.DefaultScope(), "first"))
		if err != nil {
			return err
		}
		task := &j.Status.Current().Tasks[0]
		task.State, task.Result = trainyard.TaskEnded, &trainyard.Result{Class: trainyard.ClassOK}
		_, err = c.step(tx, j)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.round(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	settleNodes(t, c)
	if n, err := c.Store.Node(t.Context(), "node"); err != nil || n.State != trainyard.NodeLeaving || len(c.Store.NodeTasks("node")) > 0 {
		t.Fatalf("the node is %+v, %v", n, err)
	}
	if err := c.nodeGone(t.Context(), "node", ""); err != nil {
		t.Fatal(err)
	}
	settleNodes(t, c)
	if nodes, err := c.Store.Nodes(t.Context(), best.Key()); err != nil || len(nodes) != 1 {
		t.Errorf("%d nodes of the cluster with the better job, %v", len(nodes), err)
	}
	if why := reasonOf(t, c, "second"); why.Code == "HigherPriority" {
		t.Errorf("the better job has its node, and the second waits because %+v", why)
	}
}

// Whoever was held back goes on as soon as the better job is gone, though nothing of its own compute has changed.
func TestNobodyIsHeldBackForAJobThatIsGone(t *testing.T) {
	c := narrow(t, 2)
	putCluster(t, c, "many", 0, 3, "busy", "free")
	putCluster(t, c, "best", 0, 2)
	for _, name := range []string{"first", "second"} {
		submit(t, c, "many", name, 1, "", 1)
		settleNodes(t, c)
		if name == "first" {
			submit(t, c, "best", "urgent", 2, "", 3)
			settleNodes(t, c)
		}
	}
	if why := reasonOf(t, c, "second"); why.Code != "HigherPriority" {
		t.Fatalf("the second job waits because %+v", why)
	}
	if err := c.CancelJob(t.Context(), anAdmin, trainyard.DefaultScope(), "urgent"); err != nil {
		t.Fatal(err)
	}
	settleNodes(t, c)
	if _, placed := c.Store.LiveJob(trainyard.MakeJobKey(trainyard.DefaultScope(), "second")); !placed {
		t.Errorf("it still waits because %+v", reasonOf(t, c, "second"))
	}
}

// A server that starts places nothing before it knows which jobs are held back.
func TestNothingIsPlacedBeforeTheScalerHasLooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := narrow(t, 1)
		putCluster(t, c, "many", 0, 3, "node")
		putCluster(t, c, "best", 0, 1)
		submit(t, c, "many", "lesser", 1, "", 1)
		submit(t, c, "best", "urgent", 1, "", 3)
		ctx, stop := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() { _ = c.schedule(ctx) })
		defer loop.Wait()
		defer stop()
		c.sched.Set()
		synctest.Wait()
		if _, err := c.scaleAll(t.Context(), map[trainyard.NodeID]time.Time{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if why := reasonOf(t, c, "lesser"); why.Code == "Submitted" {
			t.Errorf("nothing is said of the job: %+v", why)
		}
		if n, err := c.Store.Node(t.Context(), "node"); err != nil || n.State != trainyard.NodeLeaving || len(c.Store.NodeTasks("node")) > 0 {
			t.Errorf("the node is %+v and has %+v, %v", n, c.Store.NodeTasks("node"), err)
		}
	})
}

// A node of low priority that dedicated work needs is preempted while its job ends: it takes no other, the job is asked to stop for that and waits
// for its next attempt, and then the node goes.
func TestANodeThatGivesWayIsPreemptedUntilItsJobHasEnded(t *testing.T) {
	c := narrow(t, 1)
	low := putCluster(t, c, "low", 0, 1, "node")
	err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
		low.Spec.Properties.VMPriority = "LowPriority"
		return tx.PutCompute(low)
	})
	if err != nil {
		t.Fatal(err)
	}
	putCluster(t, c, "paid", 0, 1)
	submit(t, c, "low", "training", 1, "", 1)
	settleNodes(t, c)
	submit(t, c, "low", "next", 1, "", 1)
	submit(t, c, "paid", "urgent", 1, "", 1)
	settleNodes(t, c)
	n, err := c.Store.Node(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	if want := "dedicated work of location local needs its room"; n.State != trainyard.NodePreempted || n.Reason.Message != want {
		t.Fatalf("the node is %s: %+v; want %q", n.State, n.Reason, want)
	}
	if why := reasonOf(t, c, "next"); why.Code == "" || len(c.Store.NodeTasks("node")) != 1 {
		t.Errorf("%d tasks are on it; the next job waits for %+v", len(c.Store.NodeTasks("node")), why)
	}
	training := func() *trainyard.Job {
		t.Helper()
		j, err := c.Job(t.Context(), trainyard.DefaultScope(), "training")
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	task := training().Status.Current().Tasks[0]
	if task.StopWhy != trainyard.ClassPreempted {
		t.Errorf("its task is asked to end for %q", task.StopWhy)
	}
	ended := trainyard.TaskReport{ID: task.ID, State: trainyard.TaskEnded, Result: &trainyard.Result{Class: trainyard.ClassPreempted, ExitCode: 143}}
	if err := c.Report(t.Context(), trainyard.Report{Node: "node", Epoch: n.Epoch, Tasks: []trainyard.TaskReport{ended}}); err != nil {
		t.Fatal(err)
	}
	settleNodes(t, c)
	if j := training(); j.Status.State != trainyard.JobQueued || len(j.Status.Attempts) != 1 || j.Status.Attempts[0].Class != trainyard.ClassPreempted {
		t.Errorf("the job is %s after %+v", j.Status.State, j.Status.Attempts)
	}
	if n, err := c.Store.Node(t.Context(), "node"); err != nil || n.State != trainyard.NodeLeaving {
		t.Errorf("the node is %+v, %v", n, err)
	}
}

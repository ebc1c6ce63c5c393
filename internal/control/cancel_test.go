package control

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// placed is a job that has one task, on the node of a cluster.
func placed(t *testing.T) (c *Control, tell func(state trainyard.TaskState, away string)) {
	t.Helper()
	c = narrow(t, 1)
	putCluster(t, c, "cpu", 0, 1, "node")
	submit(t, c, "cpu", "j", 1, "", 0)
	settleNodes(t, c)
	n, err := c.Store.Node(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	return c, func(state trainyard.TaskState, away string) {
		t.Helper()
		a := jobOf(t, c).Status.Current()
		if a == nil {
			t.Fatal("the job is not placed")
		}
		r := trainyard.Report{Node: "node", Epoch: n.Epoch, Tasks: []trainyard.TaskReport{{ID: a.Tasks[0].ID, State: state, Away: away}}}
		if state == trainyard.TaskEnded {
			r.Tasks[0].Result = &trainyard.Result{Class: trainyard.ClassCanceled, ExitCode: 143}
		}
		if err := c.Report(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func jobOf(t *testing.T, c *Control) *trainyard.Job {
	t.Helper()
	j, err := c.Job(t.Context(), trainyard.DefaultScope(), "j")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// Whoever cancels a job whose engine is away already reads what the end waits for; no report need come for that, as none does.
func TestACancelThatWaitsForAnEngineSaysSo(t *testing.T) {
	for _, state := range []trainyard.TaskState{trainyard.TaskStaging, trainyard.TaskRunning} {
		c, tell := placed(t)
		tell(state, "")
		tell(state, "the engine hangs")
		was := jobOf(t, c).Status.Reason
		if was.Code != codeUnseen {
			t.Fatalf("%s: before it is canceled it says %+v", state, was)
		}
		if err := c.CancelJob(t.Context(), anAdmin, trainyard.DefaultScope(), "j"); err != nil {
			t.Fatal(err)
		}
		j := jobOf(t, c)
		want := "canceled by " + anAdmin.Name + "; the process cannot be reached: the engine hangs (node node); it ends when that answers"
		if j.Status.State != trainyard.JobCancelRequested || j.Status.Reason.Message != want || !j.Status.Reason.Since.Equal(was.Since) {
			t.Errorf("%s: %s because %+v, want %q since %s", state, j.Status.State, j.Status.Reason, want, was.Since)
		}
		if last := j.Status.Timeline[len(j.Status.Timeline)-1]; last.Note != want {
			t.Errorf("%s: its timeline says %q", state, last.Note)
		}
		tell(trainyard.TaskEnded, "")
		j = jobOf(t, c)
		if said := strings.Join(j.Status.Warnings, "\n"); j.Status.State != trainyard.JobCanceled || !strings.HasSuffix(said, "nothing could be seen of it: the engine hangs (node node)") {
			t.Errorf("%s: then it is %s, with warnings %q", state, j.Status.State, j.Status.Warnings)
		}
		if got := engineEvents(t, c); !slices.Equal(got, []string{"engine away", "engine back"}) {
			t.Errorf("%s: events %q", state, got)
		}
	}
}

// An engine that goes away under a job that is being canceled is an event, as it is under one that runs.
func TestAnEngineThatGoesAwayDuringACancelIsTold(t *testing.T) {
	c, tell := placed(t)
	tell(trainyard.TaskRunning, "")
	if err := c.CancelJob(t.Context(), anAdmin, trainyard.DefaultScope(), "j"); err != nil {
		t.Fatal(err)
	}
	for _, away := range []string{"the engine hangs", ""} {
		tell(trainyard.TaskRunning, away)
	}
	if got := engineEvents(t, c); !slices.Equal(got, []string{"engine away", "engine back"}) {
		t.Errorf("events %q", got)
	}
	if why := jobOf(t, c).Status.Reason; !strings.HasSuffix(why.Message, "; the process is being stopped") {
		t.Errorf("then it says %+v", why)
	}
}

func engineEvents(t *testing.T, c *Control) (names []string) {
	t.Helper()
	events, err := c.JobEvents(t.Context(), trainyard.DefaultScope(), "j", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if strings.HasPrefix(e.What, "engine ") {
			names = append(names, e.What)
		}
	}
	return names
}

// A silent node keeps a canceled job from its end. What runs there does not go on once it is heard of again, and the job says which it waits for.
func TestACancelThatWaitsForASilentNodeSaysSo(t *testing.T) {
	c, tell := placed(t)
	tell(trainyard.TaskRunning, "")
	if err := c.CancelJob(t.Context(), anAdmin, trainyard.DefaultScope(), "j"); err != nil {
		t.Fatal(err)
	}
	c.saw("node")
	now := c.Now()
	c.Now = func() time.Time { return now.Add(2 * quiet) }
	want := "canceled by admin; nothing was heard of node node since " + clock(now)
	if why := jobOf(t, c).Status.Reason; why.Code != codeSilent || !strings.Contains(why.Message, want) || !strings.Contains(why.Message, "the node is ended, and the job with it") {
		t.Errorf("it says %+v", why)
	}
}

// A machine that is detached while it is away may run on what it ran, whatever has become of the job.
func TestAJobOfAMachineThatWasDetachedUnreachedSaysSo(t *testing.T) {
	c, tell := placed(t)
	tell(trainyard.TaskRunning, "")
	if err := c.CancelJob(t.Context(), anAdmin, trainyard.DefaultScope(), "j"); err != nil {
		t.Fatal(err)
	}
	if err := c.dropAttached(t.Context(), unreached(t, c)); err != nil {
		t.Fatal(err)
	}
	j := jobOf(t, c)
	if said := strings.Join(j.Status.Warnings, "\n"); j.Status.State != trainyard.JobCanceled || !strings.Contains(said, "node node was detached by force while it could not be reached: what ran there goes on") {
		t.Errorf("it is %s, with warnings %q", j.Status.State, said)
	}
}

// unreached makes of the cluster "cpu" a machine that was attached and is not heard of.
func unreached(t *testing.T, c *Control) trainyard.ComputeKey {
	t.Helper()
	comp := trainyard.MakeComputeKey(trainyard.DefaultScope(), "cpu")
	err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
		machine, err := tx.Compute(comp)
		if err != nil {
			return err
		}
		machine.Spec = trainyard.ComputeSpec{ComputeType: "VirtualMachine"}
		return tx.PutCompute(machine)
	})
	if err != nil {
		t.Fatal(err)
	}
	giveUpUnheard(t, c)
	return comp
}

// giveUpUnheard gives up the node "node" after a time in which nothing was heard of it.
func giveUpUnheard(t *testing.T, c *Control) {
	t.Helper()
	now := c.Now()
	c.Now = func() time.Time { return now.Add(2 * expire) }
	if err := c.giveUp(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
}

// A job that ran on a machine which is detached while it is away is canceled with it, and neither lost nor said never to have begun.
func TestAJobThatRanOnAMachineThatIsDetachedUnreachedIsCanceled(t *testing.T) {
	for _, most := range []int{1, 3} { // attempts that it may have
		c, tell := placed(t)
		tell(trainyard.TaskRunning, "")
		err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
			j, err := tx.Job(trainyard.MakeJobKey(trainyard.DefaultScope(), "j"))
			if err != nil {
				return err
			}
			j.Plan.MaxAttempts = most
			return tx.PutJob(j)
		})
		if err != nil {
			t.Fatal(err)
		}
		unreached(t, c)
		if err := c.DeleteCompute(t.Context(), anAdmin, trainyard.DefaultScope(), "cpu", true); err != nil {
			t.Fatal(err)
		}
		j := jobOf(t, c)
		if want := "canceled by admin (detached compute cpu)"; j.Status.State != trainyard.JobCanceled || j.Status.Reason.Message != want || j.Status.Failure.Message != want {
			t.Errorf("of %d attempts it is %s: %+v, %+v; want %q", most, j.Status.State, j.Status.Reason, j.Status.Failure, want)
		}
		if said := strings.Join(j.Status.Warnings, "\n"); !strings.Contains(said, "node node was detached by force while it could not be reached") {
			t.Errorf("it has warnings %q", said)
		}
	}
}

// A job that is canceled between two attempts has run: it says which attempt there is not.
func TestAJobThatIsCanceledBetweenAttemptsSaysSo(t *testing.T) {
	c, tell := placed(t)
	tell(trainyard.TaskRunning, "")
	if err := c.nodeGone(t.Context(), "node", "its machine is gone"); err != nil {
		t.Fatal(err)
	}
	if j := jobOf(t, c); j.Status.State != trainyard.JobQueued {
		t.Fatalf("it is %s", j.Status.State)
	}
	if err := c.CancelJob(t.Context(), anAdmin, trainyard.DefaultScope(), "j"); err != nil {
		t.Fatal(err)
	}
	j := jobOf(t, c)
	if want := "canceled by admin before attempt 2"; j.Status.State != trainyard.JobCanceled || j.Status.Reason.Message != want || j.Status.Failure.Message != want {
		t.Errorf("it is %s: %+v, %+v; want %q", j.Status.State, j.Status.Reason, j.Status.Failure, want)
	}
}

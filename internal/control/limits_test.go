package control

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// narrow is a Control whose location holds so many nodes of size Standard_A.
func narrow(t *testing.T, nodes int) *Control {
	t.Helper()
	c := newControl(t)
	c.Locations[0].Capacity, c.Locations[0].Sizes = trainyard.Capacity{Nodes: nodes}, []trainyard.VMSize{{Name: "Standard_A", VCPUs: 1}, {Name: usualSize, VCPUs: 1}}
	return c
}

// settleNodes lets the scaler and the scheduler look once each.
func settleNodes(t *testing.T, c *Control) {
	t.Helper()
	if _, err := c.scaleAll(t.Context(), map[trainyard.NodeID]time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := c.round(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}

func reasonOf(t *testing.T, c *Control, name string) trainyard.Reason {
	t.Helper()
	j, err := c.Job(t.Context(), trainyard.DefaultScope(), name)
	if err != nil {
		t.Fatal(err)
	}
	return j.Status.Reason
}

// A job that needs more nodes than the location can ever hold says so, alone, and those behind it have their nodes.
func TestAJobLargerThanItsLocationHoldsNobodyUp(t *testing.T) {
	for _, compute := range []string{"", "named"} {
		c := narrow(t, 3)
		putCluster(t, c, "named", 0, 10)
		submit(t, c, compute, "big", 3, "", 0)
		c.Locations[0].Capacity.Nodes = 2 // the configuration says so since: with it at first, a job without a compute is refused
		submit(t, c, compute, "small", 1, "", 0)
		if err := c.round(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		settleNodes(t, c)
		if why := reasonOf(t, c, "big"); why.Code != "LargerThanLocation" || !strings.Contains(why.Message, "the job needs 3 nodes of size Standard_") ||
			!strings.Contains(why.Message, "has room for 2; cancel it, or lower resources.instance_count") {
			t.Errorf("the large job on %q waits because %+v", compute, why)
		}
		if why := reasonOf(t, c, "small"); strings.Contains(why.Message, "3 nodes") || strings.Contains(why.Message, "big") {
			t.Errorf("the small job on %q waits because %+v", compute, why)
		}
		if n := countNodes(c); n != 1 {
			t.Errorf("%d nodes on %q, want one for the job that fits", n, compute)
		}
	}
}

func countNodes(c *Control) (n int) {
	for _, node := range c.Store.AllNodes() {
		if comp, err := c.Store.Compute(context.Background(), node.Compute); err == nil && comp.Elastic() && node.State != trainyard.NodeLeaving {
			n++
		}
	}
	return n
}

// What others keep for ever is no room. When they keep less, the job is looked at again though nothing of its own compute has changed.
func TestAJobLargerThanWhatMinimumsLeaveIsLookedAtAgain(t *testing.T) {
	c := narrow(t, 3)
	keeps := putCluster(t, c, "keeps", 1, 1, "kept")
	wants := putCluster(t, c, "wants", 0, 3)
	submit(t, c, "wants", "gang", 3, "", 0)
	settleNodes(t, c)
	if why := reasonOf(t, c, "gang"); why.Code != "LargerThanLocation" || !strings.Contains(why.Message, "room for 2") {
		t.Fatalf("it waits because %+v", why)
	}
	setMinimum(t, c, keeps, 0)
	settleNodes(t, c)
	if why := reasonOf(t, c, "gang"); why.Code == "LargerThanLocation" {
		t.Errorf("it still waits because %+v", why)
	}
	comp, err := c.Store.Compute(t.Context(), wants.Key())
	if err != nil || comp.Wanted != 3 {
		t.Errorf("the cluster wants %d nodes, %v", comp.Wanted, err)
	}
}

// A job that stays too large is told what room there is now: the scheduler looks though nothing changed but what the scaler found.
func TestWhatRoomALocationHasIsKeptTrue(t *testing.T) {
	c := narrow(t, 3)
	keeps := putCluster(t, c, "keeps", 1, 1, "kept")
	putCluster(t, c, "wants", 0, 9)
	submit(t, c, "wants", "gang", 5, "", 0)
	for low, room := range []string{"room for 3", "room for 2"} {
		setMinimum(t, c, keeps, low)
		settleNodes(t, c)
		if why := reasonOf(t, c, "gang"); !strings.Contains(why.Message, room) {
			t.Errorf("with a minimum of %d it waits because %+v", low, why)
		}
	}
}

func setMinimum(t *testing.T, c *Control, of *trainyard.Compute, low int) {
	t.Helper()
	err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
		comp, err := tx.Compute(of.Key())
		if err != nil {
			return err
		}
		comp.Spec.Properties.ScaleSettings.MinNodeCount = low
		return tx.PutCompute(comp)
	})
	if err != nil {
		t.Fatal(err)
	}
}

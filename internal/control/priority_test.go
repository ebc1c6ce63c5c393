package control

import (
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// putCluster makes a cluster of nodes of size Standard_A at the default location, with some that are idle.
func putCluster(t *testing.T, c *Control, name string, low, high int, idle ...trainyard.NodeID) *trainyard.Compute {
	t.Helper()
	comp := &trainyard.Compute{Scope: trainyard.DefaultScope(), Name: name, Where: trainyard.DefaultLocation, Spec: trainyard.ComputeSpec{ComputeType: trainyard.ComputeCluster,
		Properties: trainyard.ClusterProperties{VMSize: "Standard_A", ScaleSettings: &trainyard.ScaleSettings{MinNodeCount: low, MaxNodeCount: high, NodeIdleTimeBeforeScaleDown: "PT1H"}}}}
	err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
		for _, id := range idle {
			if err := tx.PutNode(&trainyard.Node{ID: id, Compute: comp.Key(), State: trainyard.NodeIdle, Size: "Standard_A", Capacity: trainyard.Resources{Slots: 1}}); err != nil {
				return err
			}
		}
		return tx.PutCompute(comp)
	})
	if err != nil {
		t.Fatal(err)
	}
	return comp
}

// submit sends a job of so many nodes with a tier and a priority.
func submit(t *testing.T, c *Control, compute, name string, nodes int, tier string, priority int) []string {
	t.Helper()
	j := &trainyard.Job{Scope: trainyard.DefaultScope(), Name: name, Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: compute,
		Resources: &trainyard.JobResources{InstanceCount: nodes}, QueueSettings: &trainyard.QueueSettings{JobTier: tier, Priority: priority}}}
	saved, _, err := c.SubmitJob(t.Context(), anAdmin, j)
	if err != nil {
		t.Fatal(err)
	}
	if q := saved.Spec.QueueSettings; q.JobTier != tier || q.Priority != priority {
		t.Errorf("what was asked for reads back as %+v", q)
	}
	return saved.Status.Warnings
}

func queueOf(c *Control, comp trainyard.ComputeKey) (names []string) {
	for _, q := range c.Store.QueueOf(comp) {
		names = append(names, q.Name)
	}
	return names
}

// A better tier goes before any priority of a lesser one, on serverless and on named computes; then priority counts, then who came first.
func TestJobTiersOrderTheQueue(t *testing.T) {
	for _, compute := range []string{"", "named"} {
		c := newControl(t)
		c.Locations[0].Sizes = []trainyard.VMSize{{Name: usualSize, VCPUs: 1}, {Name: "Standard_A", VCPUs: 1}}
		key := trainyard.MakeComputeKey(trainyard.DefaultScope(), "named")
		if compute == "" {
			key = serverlessCompute(trainyard.DefaultScope(), &c.Locations[0], c.Locations[0].Sizes[0], false).Key()
		} else {
			putCluster(t, c, "named", 0, 4)
		}
		sent := []struct {
			name, tier string
			priority   int
		}{{"basic-high", "Basic", 3}, {"low", "", 1}, {"plain", "", 0}, {"null", "Null", 2}, {"high", "Standard", 3}, {"basic", "basic", 0},
			{"premium-low", "Premium", 1}, {"premium-high", "premium", 3}}
		for _, s := range sent {
			if w := submit(t, c, compute, s.name, 1, s.tier, s.priority); len(w) > 0 && strings.Contains(w[0], "queue_settings") {
				t.Errorf("%s: %q", s.name, w)
			}
		}
		want := []string{"premium-high", "premium-low", "high", "plain", "null", "low", "basic-high", "basic"}
		if got := queueOf(c, key); !slices.Equal(got, want) {
			t.Errorf("on %q the order is %v, want %v", compute, got, want)
		}
		err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
			return tx.PutNode(&trainyard.Node{ID: "n", Compute: key, State: trainyard.NodeIdle, Size: "Standard_A", Capacity: trainyard.Resources{Slots: 1}})
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.round(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if refs := c.Store.NodeTasks("n"); len(refs) != 1 || refs[0].Job.Name != "premium-high" {
			t.Errorf("on %q the node got %v", compute, refs)
		}
	}
}

// Jobs that an earlier build stored have 1, 2 or 3; an ordinary job of today stands among them.
func TestOrdinaryJobsStandAmongThoseOfEarlierBuilds(t *testing.T) {
	for want, q := range map[int]*trainyard.QueueSettings{1: {Priority: 1}, 2: nil, 3: {Priority: 3, JobTier: "Standard"}} {
		if got := priority(q); got != want {
			t.Errorf("%+v has %d, want %d", q, got, want)
		}
	}
	if spot, basic := priority(&trainyard.QueueSettings{JobTier: "Spot", Priority: 3}), priority(&trainyard.QueueSettings{JobTier: "Basic", Priority: 1}); spot >= basic || basic >= 1 {
		t.Errorf("spot has %d and basic %d", spot, basic)
	}
}

func TestSpotOnANamedComputeIsSaidToBeLast(t *testing.T) {
	c := newControl(t)
	c.Locations[0].Sizes = []trainyard.VMSize{{Name: "Standard_A", VCPUs: 1}}
	comp := putCluster(t, c, "named", 0, 4)
	said := strings.Join(submit(t, c, "named", "spot", 1, "Spot", 3), "\n")
	submit(t, c, "named", "basic", 1, "Basic", 1)
	if !strings.Contains(said, "behind all others of named and changes nothing about its nodes") || strings.Contains(said, "not acted on") {
		t.Errorf("says %q", said)
	}
	if got := queueOf(c, comp.Key()); !slices.Equal(got, []string{"basic", "spot"}) {
		t.Errorf("the order is %v", got)
	}
}

func TestQueueSettingsThatAreNoneAreRefused(t *testing.T) {
	c := newControl(t)
	for want, q := range map[string]trainyard.QueueSettings{"job_tier is \"gold\"": {JobTier: "gold"}, "priority is 7": {Priority: 7}, "priority is -1": {Priority: -1}} {
		j := &trainyard.Job{Scope: trainyard.DefaultScope(), Name: "j", Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: "local", QueueSettings: &q}}
		if _, _, err := c.SubmitJob(t.Context(), anAdmin, j); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func TestTheSameTierInOtherWordsIsTheSame(t *testing.T) {
	std := &trainyard.QueueSettings{JobTier: "Standard", Priority: 2}
	if otherQueue(nil, std) || otherQueue(&trainyard.QueueSettings{JobTier: "premium", Priority: 3}, &trainyard.QueueSettings{JobTier: "Premium"}) {
		t.Error("the same settings are said to be others")
	}
	if !otherQueue(nil, &trainyard.QueueSettings{JobTier: "Premium"}) || !otherQueue(std, &trainyard.QueueSettings{Priority: 1}) {
		t.Error("other settings are said to be the same")
	}
}

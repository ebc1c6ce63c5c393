package control

import (
	"strings"
	"testing"
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

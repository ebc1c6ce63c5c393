package control

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trainyard/trainyard"
)

// A server that was frozen, or on a computer that was, has heard nobody meanwhile: its nodes run on, and it ends none of them for that.
func TestAServerThatStoodStillGivesUpNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, tell := placed(t)
		var frozen atomic.Int64 // the time that went by unseen
		c.Now = func() time.Time { return time.Now().Add(time.Duration(frozen.Load())) }
		tell(trainyard.TaskRunning, "")
		ctx, stop := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() {
			if err := c.watchNodes(ctx); err != nil {
				t.Error(err)
			}
		})
		defer loop.Wait()
		defer stop()
		state := func() trainyard.NodeState {
			t.Helper()
			synctest.Wait()
			n, err := c.Store.Node(t.Context(), "node")
			if err != nil {
				t.Fatal(err)
			}
			return n.State
		}
		<-time.After(renew + time.Second)
		for _, stood := range []time.Duration{2 * expire, time.Hour} {
			frozen.Add(int64(stood))
			<-time.After(expire - renew)
			if got := state(); got != trainyard.NodeIdle {
				t.Fatalf("after the server stood still for %s the node is %s", stood, got)
			}
			tell(trainyard.TaskRunning, "") // its agent is there as before
		}
		<-time.After(expire + 2*renew)
		if got := state(); got != trainyard.NodeLeaving {
			t.Errorf("a node that is not heard of while the server goes on is %s", got)
		}
	})
}

// A node that is heard of just as it is to be given up stays.
func TestANodeThatIsHeardOfInTimeIsNotGivenUp(t *testing.T) {
	c, tell := placed(t)
	tell(trainyard.TaskRunning, "")
	if err := c.giveUp(t.Context(), "node"); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Store.Node(t.Context(), "node"); err != nil || n.State != trainyard.NodeIdle {
		t.Errorf("it is %s, %v", n.State, err)
	}
}

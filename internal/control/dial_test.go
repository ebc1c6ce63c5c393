package control

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// serving is a control with a replica that runs on node n1.
func serving(t *testing.T) (*Control, trainyard.TaskID) {
	t.Helper()
	c, scope := newControl(t), trainyard.DefaultScope()
	id := trainyard.MakeTaskID(trainyard.MakeJobKey(scope, "replica"), 1, 0)
	err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
		j := &trainyard.Job{Scope: scope, Name: "replica", Plan: trainyard.JobPlan{Compute: "local", Nodes: 1, Serve: &trainyard.Serve{}}}
		j.Status.State = trainyard.JobRunning
		j.Status.Attempts = []trainyard.Attempt{{Number: 1, Tasks: []trainyard.RunTask{{ID: id, Node: "n1", Hi: 1, State: trainyard.TaskRunning}}}}
		return tx.InsertJob(j)
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, id
}

// asks waits until the node is asked for a connection, and returns what for.
func asks(t *testing.T, c *Control) trainyard.Dial {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		if all := c.dials.of("n1"); len(all) == 1 {
			return all[0]
		}
		select {
		case <-late:
			t.Fatal("the node is not asked")
		case <-time.After(time.Millisecond):
		}
	}
}

func TestAConnectionToAReplicaIsTheOneThatItsNodeMakes(t *testing.T) {
	c, id := serving(t)
	got := make(chan reply, 1)
	connect := func(ctx context.Context) {
		conn, err := c.Connect(ctx, id)
		got <- reply{conn, err}
	}
	go connect(t.Context())
	d := asks(t, c)
	if d.Task != id {
		t.Errorf("the node is asked for %s", d.Task)
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if err := c.Dialled(t.Context(), "n2", d.ID, near, nil); !trainyard.IsNotFound(err) {
		t.Errorf("another node answers: %v", err)
	}
	if err := c.Dialled(t.Context(), "n1", d.ID, near, nil); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.err != nil || r.conn != near {
		t.Errorf("connected with %v, %v", r.conn, r.err)
	}
	if err := c.Dialled(t.Context(), "n1", d.ID, near, nil); !trainyard.IsNotFound(err) {
		t.Errorf("it answers twice: %v", err)
	}

	go connect(t.Context())
	if err := c.Dialled(t.Context(), "n1", asks(t, c).ID, nil, errors.New("connection refused")); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.err == nil || !strings.Contains(r.err.Error(), "connection refused") {
		t.Errorf("a replica that cannot be reached: %v", r.err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	go connect(ctx)
	d = asks(t, c)
	cancel()
	if r := <-got; !errors.Is(r.err, context.Canceled) {
		t.Errorf("a caller who gave up: %v", r.err)
	}
	if err := c.Dialled(t.Context(), "n1", d.ID, near, nil); !trainyard.IsNotFound(err) {
		t.Errorf("a connection that nobody waits for: %v", err)
	}
	if len(c.dials.nodes) != 0 {
		t.Errorf("left behind: %v", c.dials.nodes)
	}
	if _, err := c.Connect(t.Context(), "a/b/c/none.1.0"); !trainyard.IsNotFound(err) {
		t.Errorf("a replica that is not there: %v", err)
	}
}

func TestANodeIsNotAskedForMoreConnectionsThanItCanMake(t *testing.T) {
	var d dials
	for range maxAsked {
		if _, err := d.ask("n1", "t"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.ask("n1", "t"); trainyard.CodeOf(err) != trainyard.CodeBusy {
		t.Errorf("one more: %v", err)
	}
	if _, err := d.ask("n2", "t"); err != nil {
		t.Errorf("another node: %v", err)
	}
}

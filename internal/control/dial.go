package control

import (
	"context"
	"crypto/rand"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/trainyard/trainyard"
)

// Bounds of the connections that agents are asked for.
const (
	dialPatience = 10 * time.Second
	maxAsked     = 256 // of one node at a time
)

// Connect returns a connection to the port of a replica that runs. The agent of its node makes it, so it is there however the node
// reaches the server. The caller closes it.
func (c *Control) Connect(ctx context.Context, id trainyard.TaskID) (net.Conn, error) {
	j, live := c.Store.LiveJob(id.Job())
	if !live {
		return nil, trainyard.NotFound("%s is not there any more", id.Words())
	}
	t := findTask(j, id)
	if t == nil || t.State != trainyard.TaskRunning {
		return nil, trainyard.NotFound("%s does not run", id.Words())
	}
	a, err := c.dials.ask(t.Node, id)
	if err != nil {
		return nil, err
	}
	c.nodes.bump(t.Node)
	late := time.NewTimer(dialPatience)
	defer late.Stop()
	select {
	case r := <-a.answer:
		return r.conn, r.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-late.C:
		err = trainyard.Errorf(trainyard.CodeBusy, "node %s has not connected the server with %s within %s: its agent may be away", t.Node, id.Words(), dialPatience)
	}
	c.dials.drop(a)
	return nil, err
}

// Dialled takes a connection that the node's agent was asked for, or why it could not be made. It is refused if nobody waits for it.
func (c *Control) Dialled(_ context.Context, node trainyard.NodeID, id string, conn net.Conn, why error) error {
	a := c.dials.take(node, id)
	if a == nil {
		return trainyard.NotFound("node %q was not asked for connection %q, or too long ago", node, id)
	}
	if why != nil {
		conn, why = nil, trainyard.Errorf(trainyard.CodeBusy, "node %s cannot reach %s: %v", node, a.dial.Task.Words(), why)
	}
	a.answer <- reply{conn, why}
	return nil
}

// dials are the connections that agents were asked for and have not made. The zero value is ready.
type dials struct {
	mu    sync.Mutex
	nodes map[trainyard.NodeID]map[string]*asked
}

// asked is one of them.
type asked struct {
	node   trainyard.NodeID
	dial   trainyard.Dial
	answer chan reply // of one
}

// reply is a connection, or why there is none.
type reply struct {
	conn net.Conn
	err  error
}

func (d *dials) ask(node trainyard.NodeID, task trainyard.TaskID) (*asked, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nodes == nil {
		d.nodes = map[trainyard.NodeID]map[string]*asked{}
	}
	of := d.nodes[node]
	if len(of) >= maxAsked {
		return nil, trainyard.Errorf(trainyard.CodeBusy, "node %s has not made %d connections yet that it was asked for", node, len(of))
	}
	if of == nil {
		of = map[string]*asked{}
		d.nodes[node] = of
	}
	a := &asked{node: node, dial: trainyard.Dial{ID: rand.Text(), Task: task}, answer: make(chan reply, 1)}
	of[a.dial.ID] = a
	return a, nil
}

// of lists what the node is asked for.
func (d *dials) of(node trainyard.NodeID) (out []trainyard.Dial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(d.nodes[node])) {
		out = append(out, d.nodes[node][id].dial)
	}
	return out
}

// take returns what a node was asked for, once.
func (d *dials) take(node trainyard.NodeID, id string) *asked {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.nodes[node]
	a := of[id]
	delete(of, id)
	if len(of) == 0 {
		delete(d.nodes, node)
	}
	return a
}

// drop gives up on a connection. One that is being handed over at this moment is closed.
func (d *dials) drop(a *asked) {
	if d.take(a.node, a.dial.ID) != nil {
		return
	}
	if r := <-a.answer; r.conn != nil {
		r.conn.Close()
	}
}

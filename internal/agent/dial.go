package agent

import (
	"context"
	"net"

	"github.com/trainyard/trainyard"
)

// Tunnels is a Link that takes connections to replicas which the server asked for (trainyard.Wanted.Dials).
type Tunnels interface {
	// Dialled hands over the connection that a dial asked for, or says why there is none. The connection is the link's when the
	// error is nil, and else still the caller's.
	Dialled(ctx context.Context, node trainyard.NodeID, id string, conn net.Conn, why error) error
}

// maxDials bounds the connections that are being made at a time.
const maxDials = 64

// answer makes the connections that the server asks for, each once.
func (a *Agent) answer(ctx context.Context, dials []trainyard.Dial) {
	link, ok := a.cfg.Link.(Tunnels)
	if !ok || len(dials)+len(a.dials) == 0 {
		return
	}
	asked := make(map[string]bool, len(dials))
	for _, d := range dials {
		asked[d.ID] = true
		if a.dials[d.ID] {
			continue
		}
		a.running.Go(func() {
			select {
			case a.dialing <- struct{}{}:
				defer func() { <-a.dialing }()
			case <-ctx.Done():
				return
			}
			a.answerOne(ctx, link, d)
		})
	}
	a.dials = asked // what is asked for no more is never asked for again
}

func (a *Agent) answerOne(ctx context.Context, link Tunnels, d trainyard.Dial) {
	conn, err := a.connect(ctx, d.Task)
	said := link.Dialled(ctx, a.cfg.Node, d.ID, conn, err)
	if said == nil {
		return
	}
	if conn != nil {
		conn.Close()
	}
	if ctx.Err() == nil {
		a.log.Debug("connect the server with a replica", "task", d.Task, "err", said)
	}
}

func (a *Agent) connect(ctx context.Context, id trainyard.TaskID) (net.Conn, error) {
	a.mu.Lock()
	k := a.tasks[id]
	a.mu.Unlock()
	if k == nil || k.state() != trainyard.TaskRunning || k.kept.Task.Serve == nil {
		return nil, trainyard.NotFound("%s is no replica that runs on node %q", id.Words(), a.cfg.Node)
	}
	return k.dial(ctx)
}

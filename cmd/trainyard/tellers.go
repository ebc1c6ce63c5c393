package main

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agentlink"
	"github.com/trainyard/trainyard/internal/target"
)

// tellers are the drivers of hosted nodes whose tasks may ask what they are to run.
type tellers struct {
	mu  sync.Mutex
	all map[trainyard.NodeID]target.Teller
}

var _ agentlink.Tellers = (*tellers)(nil)

// add makes a node's driver known, until done is called.
func (t *tellers) add(node trainyard.NodeID, driver target.Driver) (done func()) {
	teller, ok := driver.(target.Teller)
	if !ok {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[trainyard.NodeID]target.Teller{}
	}
	t.all[node] = teller
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.all, node)
	}
}

func (t *tellers) Tell(ctx context.Context, node trainyard.NodeID, task trainyard.TaskID, ticket string) (json.RawMessage, error) {
	t.mu.Lock()
	teller := t.all[node]
	t.mu.Unlock()
	if teller == nil { // the server has just started, or the node is gone; who asks does not go on for ever
		return nil, trainyard.Errorf(trainyard.CodeBusy, "node %q is not open here", node)
	}
	return teller.Tell(ctx, task, ticket)
}

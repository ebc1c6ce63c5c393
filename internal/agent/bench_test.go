package agent_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/trainyard/trainyard/internal/agent"
)

// BenchmarkTask is what the agent itself costs per task that does nothing, one after the other: from wanted to reported ended.
func BenchmarkTask(b *testing.B) {
	srv, mac := newServer(), newMachine()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.New(agent.Config{Node: "node-1", Link: srv, Driver: mac, Stage: newStage(), Dir: b.TempDir()}).Run(ctx)
	}()
	b.ResetTimer()
	for i := range b.N {
		job := task(fmt.Sprint("job", i), "true")
		srv.want(job)
		for {
			srv.mu.Lock()
			_, ok := srv.ended[job.ID]
			wake := srv.wake
			srv.mu.Unlock()
			if ok {
				break
			}
			<-wake
		}
	}
	b.StopTimer()
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

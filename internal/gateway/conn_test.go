package gateway

import (
	"log/slog"
	"net"
	"testing"
	"time"
)

// A sweep may come between a connection and its goroutine's first step, on a busy computer often.
func TestTheSweepSparesAConnectionThatHasJustCome(t *testing.T) {
	g := New(Config{Source: Fixed{}, Log: slog.New(slog.DiscardHandler)})
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	c := newConn(g, here)
	c.look(time.Second)
	if c.state.Load()&kicked != 0 {
		t.Error("it was interrupted before it could say anything")
	}
	c.look(g.config.HeadTimeout + time.Second)
	if c.state.Load()&kicked == 0 {
		t.Error("it may take as long as it likes")
	}
}

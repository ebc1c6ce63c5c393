package agent_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agent"
	"github.com/trainyard/trainyard/internal/agentlink"
)

// cutter is a TCP proxy whose connections can be cut in the middle of whatever they carry.
type cutter struct {
	ln   net.Listener
	to   string
	wait sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
	cuts  int
}

func newCutter(t *testing.T, to string) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{ln: ln, to: to, conns: map[net.Conn]bool{}}
	c.wait.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			c.mu.Lock()
			c.conns[in], c.conns[out] = true, true
			c.mu.Unlock()
			c.wait.Go(func() { c.carry(in, out) })
			c.wait.Go(func() { c.carry(out, in) })
		}
	})
	return c
}

func (c *cutter) carry(dst, src net.Conn) {
	_, _ = io.Copy(dst, src)
	dst.Close()
	src.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, src)
}

// cut breaks every connection, with a reset where the system can.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
		c.cuts++
	}
}

func (c *cutter) close() {
	c.ln.Close()
	c.cut()
	c.wait.Wait()
}

func TestNetworkCutInTheMiddleLosesAndDoublesNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	srv, mac := newServer(), newMachine()
	srv.written = mac.written
	srv.lease.Renew = 50 * time.Millisecond
	token := func(token string) (trainyard.User, error) {
		if !strings.HasPrefix(token, "token of epoch") {
			return trainyard.User{}, trainyard.Errorf(trainyard.CodeUnknown, "not known")
		}
		return trainyard.User{Role: trainyard.RoleAgent, Node: "node-1"}, nil
	}
	web := httptest.NewUnstartedServer(agentlink.Handler(agentlink.Config{Server: srv, Auth: token}))
	web.EnableHTTP2 = true
	web.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that are cut
	web.StartTLS()
	defer web.Close()
	net := newCutter(t, web.Listener.Addr().String())
	defer net.close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	link, err := agentlink.Dial(agentlink.DialConfig{URL: "https://" + net.ln.Addr().String(), CAFile: ca, Node: "node-1", JoinToken: "join"})
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- agent.New(agent.Config{Node: "node-1", Link: link, Driver: mac, Stage: newStage(), Dir: t.TempDir()}).Run(ctx)
	}()
	var jobs []trainyard.Task
	for i := range 3 {
		jobs = append(jobs, task(fmt.Sprint("job", i), "talk"))
	}
	srv.want(jobs...)
	limit, tick := time.After(2*time.Minute), time.NewTicker(40*time.Millisecond)
	defer tick.Stop()
	ended := 0
	for ended < len(jobs) {
		select {
		case <-tick.C:
			net.cut()
		case <-limit:
			t.Fatal("the tasks did not end")
		}
		ended = 0
		for _, j := range jobs {
			if srv.result(j.ID) != nil {
				ended++
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, w := range srv.wrong { // the server compares each log with what was written when the end is reported
		t.Error(w)
	}
	for _, j := range jobs {
		if res := srv.result(j.ID); res.ExitCode != 0 || mac.started(j.ID) != 1 {
			t.Errorf("%s: %+v, started %d times", j.JobName, res, mac.started(j.ID))
		}
		if n := len(srv.log(j.ID, "user_logs/std_log.txt")); n != talkSize {
			t.Errorf("%s: %d bytes of %d", j.JobName, n, talkSize)
		}
	}
	if net.cuts < 20 {
		t.Errorf("only %d connections were cut: this proves little", net.cuts)
	}
}

package sshtest

import (
	"bytes"
	"fmt"
	mathrand "math/rand/v2"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// process is the first one of a machine. It dies with the test's process: the thread that started it is kept for that.
type process struct {
	pid  int
	gone chan struct{}
}

func start(cmd *exec.Cmd) (*process, error) {
	p := &process{gone: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.gone)
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	return p, nil
}

func (p *process) kill() {
	if p == nil || p.ended() {
		return
	}
	_ = syscall.Kill(p.pid, syscall.SIGKILL)
	<-p.gone
}

func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// plug lays a cable from here to the machine. The first time it chooses addresses that nobody else here has.
func (m *Machine) plug(t testing.TB) {
	t.Helper()
	lay := func() ([]byte, error) {
		return exec.Command("ip", "link", "add", m.link, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(m.first.pid)).CombinedOutput()
	}
	if m.link != "" {
		_ = exec.Command("ip", "link", "del", m.link).Run() // of the machine's last life; the kernel takes its time
		tool(t, lay)
	}
	for try := 0; m.link == ""; try++ {
		n := mathrand.IntN(1 << 15)
		m.link, m.Address6 = fmt.Sprintf("tyard%d", n), fmt.Sprintf("fd18:7a72:%x::2", n)
		subnet := fmt.Sprintf("198.%d.%d.", 18+n>>14, n>>6&255) // of the range for tests between networks (RFC 2544)
		m.gateway, m.Address = fmt.Sprint(subnet, n&63*4+1), fmt.Sprint(subnet, n&63*4+2)
		if out, err := lay(); err != nil && try < 20 && bytes.Contains(out, []byte("exists")) {
			m.link = ""
		} else if err != nil {
			t.Fatalf("lay a cable to the machine: %v: %s", err, out)
		}
	}
	for _, args := range []string{"addr add " + m.gateway + "/30 dev " + m.link, "link set " + m.link + " up",
		"-6 addr add " + strings.TrimSuffix(m.Address6, "2") + "1/64 dev " + m.link + " nodad"} {
		tool(t, exec.Command("ip", strings.Fields(args)...).CombinedOutput)
	}
	m.Run(t, "ip addr add "+m.Address+"/30 dev eth0 && ip link set eth0 up && ip -6 addr add "+m.Address6+"/64 dev eth0 nodad")
}

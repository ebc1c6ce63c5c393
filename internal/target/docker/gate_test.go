//go:build linux

package docker

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// gate is a way to the engine that a test may shut.
type gate struct {
	t    *testing.T
	path string
	host string
	goes sync.WaitGroup

	mu    sync.Mutex
	l     net.Listener // nil while it is shut
	conns map[net.Conn]bool
	lose  string // a request that has this in it gets through; its answer does not, and the gate is shut
}

// newGate returns an open gate before the engine of c, and how to reach the engine through it.
func newGate(t *testing.T, c Config) (*gate, Config) {
	t.Helper()
	g := &gate{t: t, path: filepath.Join(t.TempDir(), "gate.sock"), host: strings.TrimPrefix(c.Host, "unix://"), conns: map[net.Conn]bool{}}
	g.open()
	t.Cleanup(func() {
		g.shut()
		g.goes.Wait()
	})
	c.Host = "unix://" + g.path
	return g, c
}

func (g *gate) open() {
	g.t.Helper()
	l, err := net.Listen("unix", g.path)
	if err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	g.l = l
	g.mu.Unlock()
	g.goes.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			g.goes.Go(func() { g.carry(in) })
		}
	})
}

// shut ends all connections, and refuses more.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.l != nil {
		g.l.Close()
		g.l = nil
	}
	for c := range g.conns {
		c.Close()
	}
	clear(g.conns)
}

// loseAnswer has the gate shut once the engine has got a request that has words in it.
func (g *gate) loseAnswer(words string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lose = words
}

func (g *gate) carry(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("unix", g.host)
	if err != nil {
		return
	}
	defer out.Close()
	g.mu.Lock()
	isOpen := g.l != nil
	if isOpen {
		g.conns[in] = true
	}
	g.mu.Unlock()
	if !isOpen {
		return
	}
	g.goes.Go(func() { pipe(in, out) })
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return
		}
		g.mu.Lock()
		lost := g.lose != "" && bytes.Contains(buf[:n], []byte(g.lose))
		if lost {
			g.lose = ""
		}
		g.mu.Unlock()
		if lost {
			g.drop(in, buf[:n])
			return
		}
		if _, err := out.Write(buf[:n]); err != nil {
			return
		}
	}
}

// drop passes a request on, and shuts the gate when the engine answers: it gives up a request whose caller has gone before.
func (g *gate) drop(in net.Conn, request []byte) {
	defer g.shut()
	out, err := net.Dial("unix", g.host)
	if err != nil {
		return
	}
	defer out.Close()
	if _, err := out.Write(request); err != nil {
		return
	}
	g.goes.Go(func() { _, _ = io.Copy(out, in) }) // the rest of it
	_, _ = out.Read(make([]byte, 1))
}

package ssh

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trainyard/trainyard/internal/login"
)

// line is a connection to a machine, and the way home through it.
type line struct {
	client *ssh.Client
	port   int // on the machine's loopback
	way    net.Listener
	arch   string
	os     string
	boot   string
	python bool
	over   chan struct{} // closed when the connection is gone
}

const (
	portTries = 20 // sshd may need a moment to let go of the port of a connection that has ended
	portPause = 250 * time.Millisecond
	firstByte = 30 * time.Second
	homeTime  = 10 * time.Second // to connect to the server
)

// open makes a line of a fresh connection. It listens at the port wanted, or at another if that one is taken; 0 wants any.
func open(ctx context.Context, c *ssh.Client, s *Settings, vars map[string]string, port int) (*line, error) {
	a, err := run(ctx, c, vars, "hello", "tunnel")
	if err != nil {
		return nil, thereTrouble(s, "", err)
	}
	l := &line{client: c, boot: a.first("boot"), python: a.first("python") != "", over: make(chan struct{})}
	if l.os, l.arch, err = system(s, a); err != nil {
		return nil, err
	}
	for try := 0; port != 0 && try < portTries; try++ {
		if l.way, l.port, err = listen(c, port); err == nil {
			return l, nil
		}
		if !pause(ctx, portPause) {
			return nil, ctx.Err()
		}
	}
	if l.way, l.port, err = listen(c, 0); err != nil {
		return nil, forwardTrouble(s, err)
	}
	return l, nil
}

// serve pipes what arrives at the machine's end to home until the connection is gone, and returns why it is. ended is called when something
// that came through has ended, as when an agent dies.
func (l *line) serve(ctx context.Context, home string, alive time.Duration, ended func()) error {
	defer close(l.over)
	defer l.client.Close()
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work.Go(func() {
		for {
			in, err := l.way.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer ended()
				pipe(ctx, in, home)
			})
		}
	})
	err := login.Stay(ctx, l.client, alive)
	l.way.Close()
	return err
}

// pipe carries bytes between a connection from the machine and the server. Only TLS goes through: whoever speaks plain HTTP would show a
// token to the machine's other users, or be one of them who takes the server for its neighbour.
func pipe(ctx context.Context, in net.Conn, home string) {
	defer in.Close()
	defer context.AfterFunc(ctx, func() { in.Close() })()
	silent := time.AfterFunc(firstByte, func() { in.Close() })
	var first [1]byte
	_, err := io.ReadFull(in, first[:])
	silent.Stop()
	const handshake = 0x16 // first byte of every TLS connection (RFC 8446, 5.1)
	if err != nil || first[0] != handshake {
		return
	}
	out, err := (&net.Dialer{Timeout: homeTime}).DialContext(ctx, "tcp", home)
	if err != nil {
		return // the agent comes back for as long as it takes
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() { out.Close() })()
	if _, err := out.Write(first[:]); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { carry(out, in) })
	both.Go(func() { carry(in, out) })
	both.Wait()
}

// carry copies one way, and hands on the end of it.
func carry(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if w, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		if err = w.CloseWrite(); err == nil || errors.Is(err, io.EOF) {
			return
		}
	}
	to.Close()
	from.Close()
}

// pause waits, and says false if ctx is done before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

package ssh

import (
	"context"
	"net"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/login"
)

// connect logs in and opens the way home.
func (m *machine) connect(ctx context.Context, s *Settings, port int) (*line, error) {
	c, _, err := login.Dial(ctx, s)
	if err != nil {
		return nil, err
	}
	l, err := open(ctx, c, s, m.vars(), port)
	if err != nil {
		c.Close()
	}
	return l, err
}

// listen has sshd listen on loopback, at a port of its choice for 0.
func listen(c *ssh.Client, port int) (net.Listener, int, error) {
	l, err := c.ListenTCP(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return nil, 0, err
	}
	return l, l.Addr().(*net.TCPAddr).Port, nil
}

func forwardTrouble(s *Settings, err error) error {
	if !strings.Contains(err.Error(), "denied") {
		return err
	}
	return there("sshd there forbids port forwarding", trainyard.Errorf(trainyard.CodeForbidden,
		"sshd of %s forbids the port forwarding by which agents reach this server; allow it for user %s there (AllowTcpForwarding, PermitListen)",
		s.Endpoint(), s.User))
}

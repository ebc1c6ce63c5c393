package login

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	dialTime      = 10 * time.Second
	handshakeTime = 20 * time.Second // some take long to look up who calls
)

// Alive is the usual time between questions whether the other end lives.
const Alive = 10 * time.Second

// Dial connects and logs in. The machine must show the pinned key; a machine without one is believed, and its key returned. Of a machine with
// several keys each is asked for until it shows the one of a fingerprint.
func Dial(ctx context.Context, s *Settings) (*ssh.Client, ssh.PublicKey, error) {
	var pinned pin
	var err error
	if s.HostKey != "" {
		if pinned, err = s.pinned(); err != nil {
			return nil, nil, err
		}
	}
	c, shown, err := dial(ctx, s, pinned, pinned.kind)
	if pinned.kind != "" || pinned.fingerprint == "" {
		return c, shown, err
	}
	for _, kind := range keyKinds {
		if t, ok := errors.AsType[Trouble](err); !ok || t.Kind != HostKey {
			break
		}
		if kind == shown.Type() {
			continue
		}
		c2, other, err2 := dial(ctx, s, pinned, kind)
		if t, ok := errors.AsType[Trouble](err2); !ok || t.Kind != HostKey { // it is the pinned one, or what went wrong is something else
			return c2, other, err2
		}
	}
	return c, shown, err
}

// dial asks for a kind of host key first; "" asks for any.
func dial(ctx context.Context, s *Settings, pinned pin, kind string) (*ssh.Client, ssh.PublicKey, error) {
	var shown ssh.PublicKey
	auth, err := s.auth()
	if err != nil {
		return nil, nil, err
	}
	var changed error // the library does not promise to keep what the callback returns
	config := &ssh.ClientConfig{
		User: s.User, Auth: auth, HostKeyAlgorithms: hostKeyAlgorithms(kind), ClientVersion: "SSH-2.0-Trainyard",
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			shown = key
			if pinned.fingerprint != "" && pinned.fingerprint != ssh.FingerprintSHA256(key) {
				changed = changedHostKey(s, pinned, key)
			}
			return changed
		},
	}
	tcp, err := (&net.Dialer{Timeout: dialTime, KeepAlive: Alive}).DialContext(ctx, "tcp", s.Endpoint())
	if err != nil {
		return nil, nil, dialTrouble(s, err)
	}
	if err := tcp.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		tcp.Close()
		return nil, nil, dialTrouble(s, err)
	}
	stop := context.AfterFunc(ctx, func() { tcp.Close() })
	conn, channels, requests, err := ssh.NewClientConn(tcp, s.Endpoint(), config)
	if !stop() && err == nil {
		err = context.Cause(ctx)
		conn.Close()
	}
	if err != nil {
		tcp.Close()
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if changed != nil {
			return nil, shown, changed
		}
		return nil, shown, handshakeTrouble(s, err)
	}
	if err := tcp.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return nil, nil, dialTrouble(s, err)
	}
	return ssh.NewClient(conn, channels, requests), shown, nil
}

// Stay asks the other end for a sign of life every so often, and returns why the connection ended. The answer may take half as long again.
func Stay(ctx context.Context, c *ssh.Client, every time.Duration) error {
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	answered := make(chan error, 1)
	tick := time.NewTimer(every)
	defer tick.Stop()
	asking := false
	for {
		select {
		case <-ctx.Done():
			c.Close()
			<-ended
			return ctx.Err()
		case err := <-ended:
			if err == nil {
				err = errors.New("sshd there ended the connection")
			}
			return err
		case err := <-answered:
			asking = false
			if err == nil {
				tick.Reset(every)
			} // else the connection is about to end
		case <-tick.C:
			if asking {
				c.Close()
				<-ended
				return errors.New("no answer")
			}
			asking = true
			go func() {
				_, _, err := c.SendRequest("keepalive@openssh.com", true, nil)
				answered <- err
			}()
			tick.Reset(every * 3 / 2)
		}
	}
}

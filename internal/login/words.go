package login

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/trainyard/trainyard"
)

// Kind says what may help.
type Kind int

// What may help, where there is trouble at all.
const (
	None    Kind = iota
	Network      // time
	HostKey      // a person, who looks why the key changed
	Access       // other settings
	There        // something on the machine
)

// Trouble is why a machine cannot be worked with. It is an error whose text is for users; Dial returns nothing else, but for settings that
// cannot be, and for a context that is done.
type Trouble struct {
	Kind  Kind
	Short string // a few words, for notes
	Err   error
}

func (t Trouble) Error() string { return t.Err.Error() }

// Unwrap is what went wrong.
func (t Trouble) Unwrap() error { return t.Err }

// dialTrouble puts in words why nothing answers.
func dialTrouble(s *Settings, err error) error {
	where := s.Endpoint()
	say := func(short, format string, args ...any) error {
		return Trouble{Network, short, trainyard.Errorf(trainyard.CodeBusy, format, args...)}
	}
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &dns):
		return say("no computer of that name is known", "no computer is known by the name %s; check the address and this server's DNS", s.Address)
	case errors.Is(err, syscall.ECONNREFUSED):
		return say("connection refused", "%s refuses connections; check that sshd runs there, and on that port", where)
	case errors.Is(err, syscall.EHOSTUNREACH):
		return say("no route to host", "%s cannot be reached: no route to host; check that it is switched on and in this network", where)
	case errors.Is(err, syscall.ENETUNREACH):
		return say("network is unreachable", "%s cannot be reached: this server has no network that leads there", where)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return say("no answer", "%s does not answer within %s; check the address, and that no firewall is in between", where, dialTime)
	}
	return say(err.Error(), "%s cannot be reached: %v", where, err)
}

// handshakeTrouble puts in words why whoever answers does not let us in.
func handshakeTrouble(s *Settings, err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "unable to authenticate"), strings.Contains(text, "unexpected message type 51"): // 51 is a plain no to a question
		return refused(s, text)
	case strings.Contains(text, "no common algorithm"):
		return Trouble{There, "no common algorithm", trainyard.Errorf(trainyard.CodeUnsupported,
			"sshd of %s knows no way of encryption that this server accepts (%v); update it", s.Endpoint(), err)}
	case strings.Contains(text, "overflow reading version"), strings.Contains(text, "invalid packet length"):
		return Trouble{Access, "what answers is not sshd", trainyard.Invalid("what answers at %s is not sshd; check the port", s.Endpoint())}
	case errors.Is(err, os.ErrDeadlineExceeded), strings.Contains(text, "i/o timeout"):
		return Trouble{Network, "no answer", trainyard.Errorf(trainyard.CodeBusy,
			"%s accepts connections and says nothing for %s; check that it is sshd and not overloaded", s.Endpoint(), handshakeTime)}
	}
	return Trouble{Network, "it hung up", trainyard.Errorf(trainyard.CodeBusy,
		"%s hung up before anyone could log in (%s); its sshd may be busy (MaxStartups) or refuse this server's address",
		s.Endpoint(), strings.TrimPrefix(text, "ssh: handshake failed: "))}
}

// refused says that the user is not let in, and with what.
func refused(s *Settings, text string) error {
	var with, do []string
	if s.PrivateKey != "" {
		key := "this key"
		if signer, err := s.signer(); err == nil {
			key = "the key " + ssh.FingerprintSHA256(signer.PublicKey())
		}
		with, do = append(with, key), append(do, "add the public key to ~"+s.User+"/.ssh/authorized_keys there")
	}
	if s.Password != "" {
		with = append(with, "this password")
		if strings.Contains(text, "attempted methods") && !strings.Contains(text, "password") && !strings.Contains(text, "keyboard-interactive") {
			do = append(do, "use a key, because sshd there accepts no passwords")
		} else {
			do = append(do, "check the password")
		}
	}
	return Trouble{Access, "user " + s.User + " is refused", trainyard.Errorf(trainyard.CodeForbidden,
		"%s does not let user %s in with %s; check the user name, or %s", s.Endpoint(), s.User, strings.Join(with, " or "), strings.Join(do, ", or "))}
}

// changedHostKey says that somebody else may be at the address, and how a person tells and pins the new key.
func changedHostKey(s *Settings, pinned pin, now ssh.PublicKey) error {
	is := ssh.FingerprintSHA256(now)
	return Trouble{HostKey, fmt.Sprintf("host key changed: it was %s and is %s", pinned.fingerprint, is),
		trainyard.Errorf(trainyard.CodeForbidden,
			"the host key of %s changed: pinned is %s, and it shows %s (%s). Nothing was sent to it. Compare with what \"%s\" prints on the machine itself: "+
				"if that is %s, as when the machine was installed anew, attach it again with --host-key %s (a location has hostKey in its settings); if not, somebody may be in between: ask who runs it",
			s.Endpoint(), pinned, is, now.Type(), "ssh-keygen -lf "+keyFile(now), is, is)}
}

// keyFile is where sshd usually keeps the public half of a host key.
func keyFile(key ssh.PublicKey) string {
	kind := "rsa"
	switch t := key.Type(); {
	case t == ssh.KeyAlgoED25519:
		kind = "ed25519"
	case strings.HasPrefix(t, "ecdsa-"):
		kind = "ecdsa"
	}
	return "/etc/ssh/ssh_host_" + kind + "_key.pub"
}

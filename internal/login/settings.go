// Package login logs in to computers over SSH: how, believing only the host key that was pinned, and what to do when it does not work, in
// words. It runs nothing there and keeps nothing.
package login

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/trainyard/trainyard"
)

// Settings is how to log in to a machine. It never shows its secrets when it is printed or logged; only JSON has them.
type Settings struct {
	Address    string `json:"address"`        // host name, IPv4 or IPv6 address
	Port       int    `json:"port,omitempty"` // 0 is 22
	User       string `json:"user"`
	Password   string `json:"password,omitempty"`   // secret
	PrivateKey string `json:"privateKey,omitempty"` // secret; PEM or OpenSSH format
	PublicKey  string `json:"publicKey,omitempty"`  // that of PrivateKey, or a certificate for it; authorized_keys format. May be left out
	Passphrase string `json:"passphrase,omitempty"` // secret; of PrivateKey
	HostKey    string `json:"hostKey,omitempty"`    // the only one that is believed; authorized_keys format, or SHA256:…. Empty: the first one shown is
}

// Validate says what is missing or cannot be.
func (s *Settings) Validate() error {
	switch {
	case s.Address == "":
		return trainyard.Invalid("a machine needs an address: a host name or an IP address")
	case !validAddress(s.Address):
		return trainyard.Invalid("%q is not a host name or an IP address; the user and the port are settings of their own", s.Address)
	case s.Port < 0 || s.Port > 65535:
		return trainyard.Invalid("port %d of machine %s does not exist; sshd usually listens on 22", s.Port, s.Address)
	case s.User == "" || strings.ContainsAny(s.User, "\x00\r\n"):
		return trainyard.Invalid("machine %s needs the name of a user to log in as", s.Address)
	case s.Password == "" && s.PrivateKey == "":
		return trainyard.Invalid("machine %s needs a password or a private key to log in with", s.Address)
	}
	if s.HostKey != "" {
		if _, err := s.pinned(); err != nil {
			return err
		}
	}
	if s.PrivateKey != "" {
		if _, err := s.signer(); err != nil {
			return err
		}
	}
	return nil
}

func validAddress(a string) bool {
	if _, err := netip.ParseAddr(a); err == nil {
		return true
	}
	return len(a) <= 253 && !strings.ContainsFunc(a, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`@/:[]'"\%`, r)
	})
}

// pin is the host key that is believed: kind is empty where only its fingerprint is known. The zero value is any key.
type pin struct{ kind, fingerprint string }

func (p pin) String() string {
	if p.kind == "" {
		return p.fingerprint
	}
	return p.fingerprint + " (" + p.kind + ")"
}

// pinned is the key of the machine that was pinned.
func (s *Settings) pinned() (pin, error) {
	text := strings.TrimSpace(s.HostKey)
	if sum, ok := strings.CutPrefix(text, "SHA256:"); ok {
		sum = strings.TrimRight(sum, "=")
		if raw, err := base64.RawStdEncoding.DecodeString(sum); err != nil || len(raw) != sha256.Size {
			return pin{}, trainyard.Invalid("the host key %s of machine %s is not a fingerprint as \"ssh-keygen -l\" prints it: SHA256: and 43 letters, digits, + or /",
				text, s.Address)
		}
		return pin{fingerprint: "SHA256:" + sum}, nil
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil {
		return pin{}, trainyard.Invalid("the host key of machine %s is neither a line as in /etc/ssh/ssh_host_ed25519_key.pub (ssh-ed25519 AAAA…) nor a fingerprint (SHA256:…): %v",
			s.Address, err)
	}
	return pin{key.Type(), ssh.FingerprintSHA256(key)}, nil
}

// signer is the private key, with its certificate if PublicKey is one.
func (s *Settings) signer() (ssh.Signer, error) {
	pem := []byte(strings.TrimSpace(strings.ReplaceAll(s.PrivateKey, "\r\n", "\n")) + "\n")
	signer, err := ssh.ParsePrivateKey(pem)
	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
		if s.Passphrase == "" {
			return nil, trainyard.Invalid("the private key for machine %s is locked: give its passphrase too", s.Address)
		}
		if signer, err = ssh.ParsePrivateKeyWithPassphrase(pem, []byte(s.Passphrase)); err != nil {
			return nil, trainyard.Invalid("the passphrase does not open the private key for machine %s", s.Address)
		}
	}
	if err != nil {
		return nil, trainyard.Invalid("the private key for machine %s cannot be read (%v); give the whole file, from -----BEGIN to END-----", s.Address, err)
	}
	if s.PublicKey == "" {
		return signer, nil
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s.PublicKey))
	if err != nil {
		return nil, trainyard.Invalid("the public key for machine %s is not in the format of authorized_keys (ssh-ed25519 AAAA…): %v", s.Address, err)
	}
	if cert, ok := public.(*ssh.Certificate); ok {
		if signer, err = ssh.NewCertSigner(cert, signer); err != nil {
			return nil, trainyard.Invalid("the certificate for machine %s is not of the private key that is with it", s.Address)
		}
		return signer, nil
	}
	if !bytes.Equal(public.Marshal(), signer.PublicKey().Marshal()) {
		return nil, trainyard.Invalid("the public key for machine %s (%s) is not that of the private key that is with it (%s); leave it out or give the right one",
			s.Address, ssh.FingerprintSHA256(public), ssh.FingerprintSHA256(signer.PublicKey()))
	}
	return signer, nil
}

// auth is what to log in with: the key first.
func (s *Settings) auth() ([]ssh.AuthMethod, error) {
	var out []ssh.AuthMethod
	if s.PrivateKey != "" {
		signer, err := s.signer()
		if err != nil {
			return nil, err
		}
		out = append(out, ssh.PublicKeys(signer))
	}
	if s.Password != "" {
		answer := func(_, _ string, questions []string, echos []bool) ([]string, error) {
			answers := make([]string, len(questions))
			for i := range questions {
				if !echos[i] { // what is not shown while it is typed is the password
					answers[i] = s.Password
				}
			}
			return answers, nil
		}
		out = append(out, ssh.Password(s.Password), ssh.KeyboardInteractive(answer))
	}
	return out, nil
}

// keyKinds are the kinds of host keys. A machine that has one of each shows the first that it is asked for.
var keyKinds = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA}

// hostKeyAlgorithms asks for a kind of key first, so that a machine with several keys shows that one.
func hostKeyAlgorithms(kind string) []string {
	first := []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	var out []string
	switch kind {
	case "":
	case ssh.KeyAlgoRSA:
		out = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	default:
		out = []string{kind}
	}
	for _, a := range first {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// Endpoint is what to dial.
func (s *Settings) Endpoint() string {
	port := s.Port
	if port == 0 {
		port = 22
	}
	return net.JoinHostPort(s.Address, strconv.Itoa(port))
}

// String is user and place, without any secret.
func (s Settings) String() string { return s.User + "@" + s.Endpoint() }

// GoString is String.
func (s Settings) GoString() string { return s.String() }

// LogValue is String.
func (s Settings) LogValue() slog.Value { return slog.StringValue(s.String()) }

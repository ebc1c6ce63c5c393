package login

import (
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/trainyard/trainyard"
)

// newKey is a private key in OpenSSH's format.
func newKey(t *testing.T) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

func TestSettingsAreChecked(t *testing.T) {
	key := newKey(t)
	for name, s := range map[string]Settings{
		"no address":                   {User: "u", Password: "p"},
		"a user in the address":        {Address: "u@host", User: "u", Password: "p"},
		"a port in the address":        {Address: "host:22", User: "u", Password: "p"},
		"no user":                      {Address: "host", Password: "p"},
		"nothing to log in with":       {Address: "host", User: "u"},
		"a port that cannot be":        {Address: "host", User: "u", Password: "p", Port: 70000},
		"a key that is none":           {Address: "host", User: "u", PrivateKey: "secret"},
		"a public key of another":      {Address: "host", User: "u", PrivateKey: key, PublicKey: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ6iSKVOl2rJ9dEtDeHd5b8v4kWYzR9TkQ5YtCN3dQe1"},
		"a host key that is none":      {Address: "host", User: "u", Password: "p", HostKey: "ssh-ed25519"},
		"a fingerprint that is none":   {Address: "host", User: "u", Password: "p", HostKey: "SHA256:abc"},
		"an address that is an option": {Address: "host name", User: "u", Password: "p"},
	} {
		if err := s.Validate(); trainyard.CodeOf(err) != trainyard.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := Settings{Address: "h", User: "u", Password: "geheim", PrivateKey: "geheim", Passphrase: "geheim"}
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%+v", s), fmt.Sprintf("%#v", s), fmt.Sprint(&s), fmt.Sprint(s.LogValue()), fmt.Sprint([]any{s})} {
		if strings.Contains(text, "geheim") {
			t.Errorf("%s shows a secret", text)
		}
	}
	if got := hostKeyAlgorithms(""); !slices.Contains(got, "ssh-ed25519") {
		t.Errorf("algorithms %v", got)
	}
}

package ssh

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cryptossh "golang.org/x/crypto/ssh"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
)

func TestProbeSaysWhatThereIs(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	for name, change := range map[string]func(*Settings){
		"with a key":            func(s *Settings) {},
		"with a password":       func(s *Settings) { s.PrivateKey, s.Password = "", m.Password },
		"with no key pinned":    func(s *Settings) { s.HostKey = "" },
		"with a fingerprint":    func(s *Settings) { s.HostKey = fingerprint(t, m.HostKey) },
		"over IPv6":             func(s *Settings) { s.Address = m.Address6 },
		"by name":               func(s *Settings) { s.Address, s.Port = "localhost", forward(t, m) },
		"with a key that fails": func(s *Settings) { s.PrivateKey, s.Password = sshtest.NewKey(t), m.Password },
	} {
		t.Run(name, func(t *testing.T) {
			s := settings(m)
			change(&s)
			f, err := Probe(t.Context(), s, self(t))
			if err != nil {
				t.Fatal(err)
			}
			if f.HostKey != m.HostKey || !strings.HasPrefix(f.Fingerprint, "SHA256:") {
				t.Errorf("host key %q (%s), not %q", f.HostKey, f.Fingerprint, m.HostKey)
			}
			if f.OS != "linux" || f.Arch == "" || f.CPUs < 1 || f.MemoryMB < 100 || f.Home != "/home/yard" || f.FreeMB < leastFreeMB {
				t.Errorf("found %+v", f)
			}
		})
	}
	if left := m.Run(t, "ls -A /home/yard"); left != ".ssh" {
		t.Errorf("left in the home folder: %s", left)
	}
}

func fingerprint(t *testing.T, key string) string {
	t.Helper()
	k, _, _, _, err := cryptossh.ParseAuthorizedKey([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return cryptossh.FingerprintSHA256(k)
}

// A machine with several host keys shows one of another kind first than that whose fingerprint a person has read.
func TestAFingerprintIsLookedForAmongAllKeysOfAMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	second := filepath.Join(dir, "second")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", second).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	public, err := os.ReadFile(second + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	m := sshtest.New(t, sshtest.Options{Config: []string{"HostKey " + second}})
	s := settings(m)
	s.HostKey = fingerprint(t, string(public))
	f, err := Probe(t.Context(), s, self(t))
	if err != nil || f.Fingerprint != s.HostKey || !strings.HasPrefix(f.HostKey, "ecdsa-") {
		t.Errorf("found %+v, %v", f, err)
	}
	s.HostKey = fingerprint(t, sshtest.New(t, sshtest.Options{}).HostKey)
	failing(t, s, trainyard.CodeForbidden, s.HostKey, fingerprint(t, m.HostKey), "--host-key SHA256:", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
}

func TestProbeSeesAnEngineThatTheUserMayTalkTo(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{Config: []string{"SetEnv DOCKER_HOST=unix:///home/yard/engine.sock"}})
	for i, step := range []struct{ script, want string }{
		{"true", "[]"},
		{"touch /home/yard/engine.sock", "[]"},
		{"rm /home/yard/engine.sock; umask 077; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"/home/yard/engine.sock\")'", "[]"},
		{"chmod a+rw /home/yard/engine.sock", "[docker]"},
	} {
		m.Run(t, step.script)
		f, err := Probe(t.Context(), settings(m), self(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(f.Engines); got != step.want {
			t.Errorf("after step %d engines are %s, not %s", i, got, step.want)
		}
	}
}

// forward makes a port of this computer that is the machine's, so that it can be reached by another name.
func forward(t *testing.T, m *sshtest.Machine) int {
	t.Helper()
	ln, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			go relay(in, net.JoinHostPort(m.Address, fmt.Sprint(m.Port)), 1<<40)
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port
}

// relay pipes a connection to another place, and breaks it after some bytes.
func relay(in net.Conn, to string, most int64) {
	defer in.Close()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	go io.Copy(in, out)
	_, _ = io.CopyN(out, in, most)
}

// failing checks that a Probe fails with a code and says all of the words.
func failing(t *testing.T, s Settings, code trainyard.ErrorCode, words ...string) {
	t.Helper()
	_, err := Probe(t.Context(), s, self(t))
	if err == nil {
		t.Fatal("it works")
	}
	if trainyard.CodeOf(err) != code {
		t.Errorf("code %s, not %s: %v", trainyard.CodeOf(err), code, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	for _, secret := range []string{s.Password, s.PrivateKey} {
		if secret != "" && strings.Contains(err.Error(), secret) {
			t.Errorf("%q shows a secret", err)
		}
	}
}

func TestProbeSaysWhyNobodyIsLetIn(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	for _, c := range []struct {
		name   string
		change func(*Settings)
		code   trainyard.ErrorCode
		words  []string
	}{
		{"a wrong key", func(s *Settings) { s.PrivateKey = sshtest.NewKey(t) }, trainyard.CodeForbidden, []string{"does not let user yard in", "SHA256:", "authorized_keys"}},
		{"a wrong password", func(s *Settings) { s.PrivateKey, s.Password = "", "guess" }, trainyard.CodeForbidden, []string{"this password", "check the password"}},
		{"no such user", func(s *Settings) { s.User = "nobody-here" }, trainyard.CodeForbidden, []string{"nobody-here", "check the user name"}},
		{"another host key", func(s *Settings) { s.HostKey = sshtest.New(t, sshtest.Options{}).HostKey }, trainyard.CodeForbidden, []string{"changed", "attach it again"}},
		{"a port where nobody listens", func(s *Settings) { s.Port = 9 }, trainyard.CodeBusy, []string{"refuses connections", "sshd"}},
		{"an address where nobody is", func(s *Settings) { s.Address = m.Address[:strings.LastIndex(m.Address, ".")+1] + "254" }, trainyard.CodeBusy, nil},
		{"a name that nobody knows", func(s *Settings) { s.Address = "no-such-machine.invalid" }, trainyard.CodeBusy, []string{"no computer is known by the name no-such-machine.invalid"}},
		{"a port of something else", func(s *Settings) { s.Address, s.Port = "127.0.0.1", babble(t) }, trainyard.CodeInvalid, []string{"is not sshd"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := settings(m)
			c.change(&s)
			failing(t, s, c.code, c.words...)
		})
	}
	s := settings(m)
	s.HostKey = sshtest.New(t, sshtest.Options{}).HostKey
	_, err := Probe(t.Context(), s, self(t))
	f, _ := Probe(t.Context(), settings(m), self(t))
	if err == nil || !strings.Contains(err.Error(), f.Fingerprint) || !strings.Contains(err.Error(), fingerprint(t, s.HostKey)) {
		t.Errorf("not both fingerprints are said: %v", err)
	}
}

// babble is a port where something speaks that is not SSH.
func babble(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(strings.Repeat("HTTP/1.1 400 Bad Request ", 1000)))
			c.Close()
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port
}

func TestAMachineWithAnotherProcessorNeedsItsProgramHere(t *testing.T) {
	t.Parallel()
	arch := otherArch()
	processor := map[string]string{"arm64": "aarch64", "amd64": "x86_64"}[arch]
	s := settings(sshtest.New(t, sshtest.Options{Uname: "Linux " + processor}))
	own := filepath.Join(t.TempDir(), "trainyard")
	other := own + "-linux-" + arch
	_, err := Probe(t.Context(), s, own)
	if trainyard.CodeOf(err) != trainyard.CodeUnsupported || !strings.Contains(err.Error(), other) || !strings.Contains(err.Error(), `"make cross"`) {
		t.Errorf("none is there: %v", err)
	}
	writeProgram(t, other, processors[arch])
	if f, err := Probe(t.Context(), s, own); err != nil || f.Arch != arch {
		t.Errorf("one is there: %+v, %v", f, err)
	}
}

func TestProbeSaysWhyAComputerCannotBeAMachine(t *testing.T) {
	t.Parallel()
	// What Windows' sshd and its usual shell say to a command; neither runs here.
	cmd := filepath.Join(t.TempDir(), "cmd")
	words := "#!/bin/sh\nprintf \"'exec' is not recognized as an internal or external command,\\r\\noperable program or batch file.\\r\\n\" >&2\nexit 1\n"
	if err := errors.Join(os.WriteFile(cmd, []byte(words), 0o755), os.Chmod(filepath.Dir(filepath.Dir(cmd)), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Run("sshd that takes no passwords", func(t *testing.T) {
		m := sshtest.New(t, sshtest.Options{Config: []string{"PasswordAuthentication no", "KbdInteractiveAuthentication no"}})
		s := settings(m)
		s.PrivateKey, s.Password = "", m.Password
		failing(t, s, trainyard.CodeForbidden, "accepts no passwords")
	})
	for _, c := range []struct {
		name    string
		options sshtest.Options
		words   []string
	}{
		{"a disk that is full", sshtest.Options{Home: "size=1m"}, []string{"are free in /home/yard", "free some space"}},
		{"a home that runs no programs", sshtest.Options{Home: "size=1g,noexec"}, []string{"noexec"}},
		{"a home that cannot be written", sshtest.Options{ReadOnly: true}, []string{"cannot write in the home folder", "Read-only file system"}},
		{"a user without a shell", sshtest.Options{Shell: "/usr/sbin/nologin"}, []string{"cannot run commands", "not available"}},
		{"a processor that we do not know", sshtest.Options{Uname: "Linux riscv64"}, []string{"runs Linux on riscv64", "on x86_64 or aarch64"}},
		{"an ARM of 32 bits", sshtest.Options{Uname: "Linux armv7l"}, []string{"runs Linux on armv7l", "64-bit Linux"}},
		{"a PC of 32 bits", sshtest.Options{Uname: "Linux i686"}, []string{"runs Linux on i686", "64-bit Linux"}},
		{"a Mac", sshtest.Options{Uname: "Darwin arm64"}, []string{"runs macOS on arm64", "64-bit Linux"}},
		{"a PC with Windows", sshtest.Options{Shell: cmd, Config: []string{"VersionAddendum for_Windows_9.5"}}, []string{"runs Windows;", "64-bit Linux"}},
		{"sshd that forwards nothing", sshtest.Options{Config: []string{"AllowTcpForwarding no"}}, []string{"forbids the port forwarding", "AllowTcpForwarding"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := settings(sshtest.New(t, c.options))
			_, err := Probe(t.Context(), s, self(t))
			failing(t, s, trainyard.CodeOf(err), c.words...)
			if _, ok := errors.AsType[*trainyard.Error](err); !ok {
				t.Errorf("not an error for users: %v", err)
			}
		})
	}
}

func TestSettingsAreRead(t *testing.T) {
	for _, a := range []string{"host", "host.example.org", "192.0.2.7", "2001:db8::7", "fe80::1%eth0", "[2001:db8::7]"} {
		s, err := ParseSettings(encode(t, Settings{Address: a, User: "u", Password: "p"}))
		if err != nil {
			t.Errorf("%s: %v", a, err)
			continue
		}
		if _, port, err := net.SplitHostPort(s.Endpoint()); err != nil || port != "22" {
			t.Errorf("%s: %s, %v", a, s.Endpoint(), err)
		}
	}
	if _, err := ParseSettings([]byte(`{"address":"h","user":"u","password":123456}`)); err == nil || strings.Contains(err.Error(), "123456") {
		t.Errorf("an error with a secret: %v", err)
	}
}

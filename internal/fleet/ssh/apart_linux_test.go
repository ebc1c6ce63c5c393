package ssh

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
)

// Nothing of what lets the server in may be read from the fleet's folder, and all of it is for its owner alone.
func TestSecretsAreSealed(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLocation(t, m)
	d := l.opened(t)
	login := settings(m)
	login.PrivateKey, login.Password = "", m.Password
	s := spec(t, "a", "", login)
	grow(t, d, s)
	err := filepath.WalkDir(l.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if info.Mode().Perm()&0o077 != 0 || bytes.Contains(data, []byte(m.Password)) || bytes.Contains(data, []byte(s.Token)) {
			t.Errorf("%s (%s) holds %q", path, info.Mode(), data)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if shown := m.Run(t, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); strings.Contains(shown, s.Token) {
		t.Errorf("the list of processes shows the token: %s", shown)
	}
	shrunk(t, d, s.ID)
	if left, _ := filepath.Glob(filepath.Join(l.dir, "*", "*")); len(left) > 0 {
		t.Errorf("left here: %v", left)
	}
}

// The port on the machine can be reached by all its users: only TLS comes through, so that nobody can show a token there.
func TestOnlyTLSGoesHome(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLocation(t, m)
	d := l.opened(t)
	s := spec(t, "a", "", settings(m))
	grow(t, d, s)
	port := d.machines[d.folder(s.ID)].rec.Port
	out := m.Run(t, fmt.Sprintf(`python3 -c 'import socket
s=socket.create_connection(("127.0.0.1", %d)); s.sendall(b"GET / HTTP/1.0\r\n\r\n"); print(s.recv(100))'`, port))
	if out != "b''" {
		t.Errorf("plain HTTP was answered %s", out)
	}
	if listens := m.Run(t, fmt.Sprintf("grep -c ':%04X ' /proc/net/tcp; grep -ci '0100007F:%04X 00000000:0000 0A' /proc/net/tcp", port, port)); !strings.HasSuffix(listens, "\n1") {
		t.Errorf("it does not listen on loopback: %s", listens)
	}
	shrunk(t, d, s.ID)
}

// Two servers share a computer, with machines of the same ID: each ends its own.
func TestTwoServersOnOneComputer(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{Cgroups: true, Root: true})
	one, two := newLocation(t, m), newLocation(t, m)
	a, b := one.opened(t), two.opened(t)
	s := spec(t, "a", "", settings(m))
	grow(t, a, s)
	grow(t, b, s)
	until(t, "both agents live", func() bool { return one.agent(s.ID) != 0 && two.agent(s.ID) != 0 })
	mine, other := one.work(t, s.ID), two.work(t, s.ID)
	shrunk(t, a, s.ID)
	if mine() || !other() || two.agent(s.ID) == 0 {
		t.Errorf("own work runs: %v; the other's: %v; its agent: %d", mine(), other(), two.agent(s.ID))
	}
	shrunk(t, b, s.ID)
	if other() {
		t.Error("work still runs")
	}
	if left := m.Run(t, "ls -A /root"); left != ".ssh" {
		t.Errorf("left: %s", left)
	}
}

// What hides from the environment is found by its cgroup, and only there.
func TestProcessesAreFoundByTheirCgroup(t *testing.T) {
	m := sshtest.New(t, sshtest.Options{Cgroups: true, Root: true})
	l := newLocation(t, m)
	d := l.opened(t)
	s := spec(t, "a", "", settings(m))
	grow(t, d, s)
	made := 0
	for _, tree := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"} {
		if _, err := os.Stat(filepath.Join(tree, "cgroup.procs")); err != nil {
			continue
		}
		group := filepath.Join(tree, "trainyard", d.folder(s.ID), "task-1")
		if err := os.MkdirAll(group, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() {
			for dir := group; dir != tree; dir = filepath.Dir(dir) {
				_ = os.Remove(dir)
			}
		})
		runs := start(t, m)
		m.Run(t, fmt.Sprintf(`for p in /proc/[0-9]*; do case $(tr '\0' ' ' <$p/cmdline 2>/dev/null) in "sleep 1000 "|*"echo ready"*) [ $p = /proc/$$ ] || echo ${p#/proc/} >%s/cgroup.procs;; esac; done`, group))
		made++
		t.Cleanup(func() {
			if runs() {
				t.Errorf("a process in %s still runs", group)
			}
			if _, err := os.Stat(filepath.Dir(group)); err == nil {
				t.Errorf("%s is still there", filepath.Dir(group))
			}
		})
	}
	if made == 0 {
		t.Skip("no cgroup can be made here")
	}
	shrunk(t, d, s.ID)
}

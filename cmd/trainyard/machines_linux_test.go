package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
)

// attachArgs attach a machine under a name.
func attachArgs(l *lab, m *sshtest.Machine, name string, more ...string) []string {
	return append([]string{"compute", "attach", "-n", name, "--type", "virtualmachine", "--address", m.Address, "--ssh-port", strconv.Itoa(m.Port),
		"--admin-username", m.User, "--ssh-private-key-file", l.file("id_machine", m.Key), "-o", "none"}, more...)
}

func fingerprint(t *testing.T, key string) string {
	t.Helper()
	k, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return ssh.FingerprintSHA256(k)
}

// why is what a compute says of its trouble.
func (l *lab) why(compute string) string {
	l.t.Helper()
	var e struct {
		Errors []struct{ Error trainyard.Error }
	}
	if err := json.Unmarshal([]byte(l.cli("compute", "show", "-n", compute, "-o", "json")), &e); err != nil {
		l.t.Fatal(err)
	}
	if len(e.Errors) == 0 {
		return ""
	}
	return e.Errors[0].Error.Message
}

// A machine that shows another host key says both, is not believed by being attached again, and is when its key is named.
func TestANewHostKeyIsPinnedByName(t *testing.T) {
	t.Parallel()
	l, m, p := machine(t)
	l.run(p, "hello", p.compute, "before")
	l.until("before", trainyard.JobCompleted)
	old := fingerprint(t, m.HostKey)
	m.Off()
	m.NewHostKey(t)
	m.On(t)
	is := fingerprint(t, m.HostKey)
	l.wait("it says so", func() bool { return strings.Contains(l.why(p.compute), "host key") })
	out, err := l.try(attachArgs(l, m, p.compute, "--description", "again")...)
	if err == nil {
		t.Errorf("a machine that shows another key is attached again: %s", out)
	}
	for _, said := range []string{l.why(p.compute), out} {
		for _, word := range []string{old, is, "--host-key " + is, "ssh-keygen -lf"} {
			if !strings.Contains(said, word) {
				t.Errorf("%q does not say %q", said, word)
			}
		}
	}
	l.cli(attachArgs(l, m, p.compute, "--host-key", is)...)
	l.run(p, "hello", p.compute, "after")
	l.until("after", trainyard.JobCompleted)
	l.cli("compute", "detach", "-n", p.compute, "--yes")
	if left := m.Run(t, "ls -A "+m.HomeDir); left != ".ssh" {
		t.Errorf("left on the machine: %s", left)
	}
}

// A machine that is off is let go of when it is back, and whoever waits is told why; a machine that is forgotten by force leaves what is said.
func TestDetachingAMachineThatIsAway(t *testing.T) {
	t.Parallel()
	l, m, p := machine(t)
	l.run(p, "hello", p.compute, "before")
	l.until("before", trainyard.JobCompleted)
	m.Off()
	path := l.file("said", "")
	said, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd := exec.Command(l.bin, "compute", "detach", "-n", p.compute, "--yes")
	cmd.Env, cmd.Stdout, cmd.Stderr = l.env(), said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := func() string { data, _ := os.ReadFile(path); return string(data) }
	l.wait("it says so", func() bool { return strings.Contains(out(), "does not leave: it is not known to be gone") })
	m.On(t)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	for _, word := range []string{p.compute + " waits: its node is being let go of; node " + p.compute + "-", "it is detached when that is over", "--force", p.compute + " is detached"} {
		if !strings.Contains(out(), word) {
			t.Errorf("%q does not say %q", out(), word)
		}
	}
	if left := m.Run(t, "ls -A "+m.HomeDir); left != ".ssh" {
		t.Errorf("left on the machine: %s", left)
	}
}

// A machine that no program is there for is refused when it is attached, and what makes one is said.
func TestAttachingAMachineThatTheServerHasNoProgramFor(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	processor, arch := "aarch64", "arm64"
	if runtime.GOARCH == arch {
		processor, arch = "x86_64", "amd64"
	}
	for uname, words := range map[string][]string{
		"Linux " + processor: {`"make cross" makes bin/trainyard-linux-` + arch, "as " + filepath.Join(filepath.Dir(l.bin), "trainyard-linux-"+arch)},
		"Linux riscv64":      {"Linux on riscv64"},
	} {
		out, err := l.try(attachArgs(l, sshtest.New(t, sshtest.Options{Uname: uname}), "edge")...)
		if err == nil {
			t.Errorf("%s is attached", uname)
		}
		for _, word := range append(words, `compute "edge"`) {
			if !strings.Contains(out, word) {
				t.Errorf("%s: %q does not say %q", uname, out, word)
			}
		}
	}
	if out := l.cli("compute", "list"); strings.Contains(out, "edge") {
		t.Errorf("there is a compute: %s", out)
	}
}

// Of a machine whose agent was never heard of, nothing is waited for by force.
func TestForgettingAMachineSaysWhatStays(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLab(t)
	m.Run(t, "mkdir -p "+m.HomeDir+"/.trainyard && touch "+m.HomeDir+"/.trainyard/bin && chown "+strconv.Itoa(m.UID())+" "+m.HomeDir+"/.trainyard") // no program can come
	l.cli(attachArgs(l, m, "edge")...)
	l.wait("it says so", func() bool { return l.why("edge") != "" })
	m.NewHostKey(t)
	m.Off()
	m.On(t)
	out := l.cli("compute", "detach", "-n", "edge", "--force", "--yes")
	for _, word := range []string{"edge is detached", "~/.trainyard/edge-", m.Address, "join token"} {
		if !strings.Contains(out, word) {
			t.Errorf("%q does not say %q", out, word)
		}
	}
	folder := func() bool { return strings.Contains(m.Run(t, "ls -d "+m.HomeDir+"/.trainyard/*"), "/edge-") }
	if !folder() {
		t.Error("nothing stays on the machine")
	}
	m.Run(t, "rm -f "+m.HomeDir+"/.trainyard/bin")
	l.cli(attachArgs(l, m, "new-edge")...)
	l.run(&place{lab: l, compute: "new-edge"}, "hello", "new-edge", "after")
	l.until("after", trainyard.JobCompleted)
	l.wait("the old folder goes", func() bool { return !folder() })
}

// Two machines of one server: each keeps what it made for a job and gives it to the next, one without Python says what it cannot do, and no
// key by which they are reached is shown or lies anywhere as it is.
func TestSeveralMachinesOfOneServer(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	machines := map[string]*sshtest.Machine{
		"with-python": sshtest.New(t, sshtest.Options{}),
		"without":     sshtest.New(t, sshtest.Options{Config: []string{"SetEnv PATH=" + sshtest.Without(t, "python")}}),
	}
	offline(t, machines["with-python"])
	for name, m := range machines {
		l.cli(attachArgs(l, m, name)...)
	}
	l.run(&place{}, "environment", "with-python", "first")
	l.run(&place{}, "environment", "with-python", "second")
	l.run(&place{}, "hello", "without", "shell")
	l.run(&place{}, "environment", "without", "python")
	for job, reused := range map[string]bool{"first": false, "second": true} {
		l.until(job, trainyard.JobCompleted)
		if _, log := l.files(job); log != "six 1.16.0\n" {
			t.Errorf("%s prints %q", job, log)
		}
		cached := 0
		for _, s := range l.story(job).Timeline {
			if (s.Name == "code" || s.Name == "environment") && s.Note == "cached" {
				cached++
			}
		}
		if cached != map[bool]int{true: 2}[reused] {
			t.Errorf("of %s's code and environment %d were there", job, cached)
		}
	}
	l.until("shell", trainyard.JobCompleted)
	if v := l.until("python", trainyard.JobFailed); v.Failure == nil || v.Failure.Class != trainyard.ClassEnvironment || !strings.Contains(v.Failure.Message, "install python3 on the node") {
		t.Errorf("without Python: %+v", v.Failure)
	}
	if out := l.cli("compute", "show", "-n", "without", "--query", "[reason.code, reason.message]", "-o", "tsv"); !strings.Contains(out, "Joined") || !strings.Contains(out, "no python3 there") {
		t.Errorf("its compute says %q", out)
	}
	secret := strings.Split(strings.TrimSpace(machines["without"].Key), "\n")[3]
	for _, format := range []string{"json", "yaml", "table"} {
		if out := l.cli("compute", "show", "-n", "without", "-o", format) + l.cli("compute", "list", "-o", format); strings.Contains(out, secret) || strings.Contains(out, "PRIVATE KEY") {
			t.Errorf("the key is shown: %s", out)
		}
	}
	if err := l.terminate(); err != nil {
		t.Errorf("the server ends with %v", err)
	}
	out, err := exec.Command("grep", "-rlF", secret, l.data).CombinedOutput()
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 1 {
		t.Errorf("the key lies as it is in %s (%v)", out, err)
	}
	if strings.Contains(l.errout.String(), secret) {
		t.Error("the key is in the server's log")
	}
}

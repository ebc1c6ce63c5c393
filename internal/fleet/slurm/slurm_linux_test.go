package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
)

func TestAgentIsToldEverything(t *testing.T) {
	t.Setenv("TRAINYARD_TOKEN", "of the server's user")
	l := newLocation(t)
	d := l.open(t)
	s := spec("a", "Standard_NC6")
	s.Settings = []byte(`{"partition":"low","sbatch":["--nice=9"]}`)
	grow(t, d, s)
	until(t, "the agent lives", func() bool { return l.number(s.ID, "told") != 0 })
	data, err := os.ReadFile(l.machine(s.ID, nodeFolder+"/told"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(l.machine(s.ID, "x"))
	want := fmt.Sprintf("--node %s --dir %s/node --server https://127.0.0.1:1 --token-file %s/join-token --group %s%s --size Standard_NC6 --cpus 3 --memory-mb 512 --ca /ca.pem --cache /cache --address 127.0.0.1",
		s.ID, dir, dir, s.ID, strings.Replace(d.suffix, "@", "-", 1))
	if got := strings.Split(string(data), "\n")[2]; got != want {
		t.Errorf("the agent was started with\n%s, want\n%s", got, want)
	}
	show := command(t, l, "scontrol", "show", "job", "--oneliner", job(t, d, s.ID))
	for _, want := range []string{" Partition=low ", " Nice=9 ", " CPUs/Task=3 ", " MinMemoryNode=512M ", " TresPerNode=gres:gpu:1 ", " Requeue=0 "} {
		if !strings.Contains(show, want) {
			t.Errorf("Slurm shows %s, which lacks %q", show, want)
		}
	}
}

func TestSharedFolderHasAllThatNodesNeed(t *testing.T) {
	l := newLocation(t)
	l.settings.Folder = t.TempDir()
	self, _ := os.Executable()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte("authority"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Settings: l.settings, ServerURL: "https://train.example.com"}
	opened, err := c.Open(t.Context(), fleet.Env{Dir: l.dir, Server: l.server, CA: ca, Binary: self, Cache: "/only/here"})
	if err != nil {
		t.Fatal(err)
	}
	d := opened.(*Driver)
	defer d.Close()
	text := d.agent("a", spec("a", "x"))
	for _, want := range []string{"exec '" + d.base + "/bin/", "'--ca' '" + d.base + "/bin/ca.pem-", "'--cache' '" + d.base + "/cache'",
		"'--hide' '" + d.base + "/machines'", "'--server' 'https://train.example.com'"} {
		if !strings.Contains(text, want) {
			t.Errorf("the agent is started by\n%s which lacks %q", text, want)
		}
	}
	if data, err := os.ReadFile(d.ca); err != nil || string(data) != "authority" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestMachineThatWaitsSaysWhy(t *testing.T) {
	l := newLocation(t)
	l.settings.Partition = "down"
	d := l.open(t)
	grow(t, d, spec("a", "x"))
	until(t, "Slurm says why", func() bool {
		m := only(t, d)
		return m.State == trainyard.MachineStarting && m.Note == "Slurm: (PartitionDown) partition down is down"
	})
}

func TestAgentThatEndsSaysWhy(t *testing.T) {
	l := newLocation(t)
	d := l.open(t)
	grow(t, d, spec("a", "crash"))
	until(t, "the end is noticed", func() bool { return only(t, d).State == trainyard.MachineDead })
	if got := only(t, d).Note; got != "its agent ended with exit status 3: the disk is on fire" {
		t.Errorf("note %q", got)
	}
}

// A machine that Slurm took away is dead, and Grow gets another allocation for it.
func TestAllocationThatIsGone(t *testing.T) {
	l := newLocation(t)
	d := l.open(t)
	s := spec("a", "x")
	grow(t, d, s)
	until(t, "it runs", func() bool { return only(t, d).State == trainyard.MachineRunning })
	first := job(t, d, s.ID)
	command(t, l, "scancel", first)
	until(t, "it is dead", func() bool { return only(t, d).State == trainyard.MachineDead })
	until(t, "Slurm says how", func() bool { return only(t, d).Note == "its job was canceled in Slurm (scancel)" })
	if n, err := d.Grow(t.Context(), []trainyard.MachineSpec{s}); n != 1 || err != nil {
		t.Fatalf("Grow: %d, %v", n, err)
	}
	until(t, "it runs again", func() bool { return only(t, d).State == trainyard.MachineRunning && l.number(s.ID, "told") != 0 })
	if now := job(t, d, s.ID); now == first {
		t.Errorf("it has the same job %s", now)
	}
}

// However late a machine's batch script is told of it, Grow returns when the agent that dials where the server is no more has been replaced.
func TestAgentOfAServerThatMovedIsStartedAgain(t *testing.T) {
	l := newLocation(t)
	d := l.open(t)
	s := spec("a", "x")
	grow(t, d, s)
	until(t, "it runs", func() bool { return only(t, d).State == trainyard.MachineRunning && l.number(s.ID, "told") != 0 })
	pid, number := l.number(s.ID, "told"), job(t, d, s.ID)
	d.Close()
	l.server = "https://127.0.0.1:2"
	d = l.open(t)
	if m := only(t, d); m.State != trainyard.MachineDead || m.Note != "its agent dials https://127.0.0.1:1, where the server is no more" {
		t.Errorf("before Grow it is %+v", m)
	}
	script := int(status(t, pid, "PPid", 10))
	if err := syscall.Kill(script, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(script, syscall.SIGCONT) }()
	grown := make(chan error, 1)
	go func() {
		_, err := d.Grow(t.Context(), []trainyard.MachineSpec{s})
		grown <- err
	}()
	until(t, "the batch script has its signal", func() bool { return status(t, script, "ShdPnd", 16)>>(syscall.SIGUSR1-1)&1 == 1 })
	select {
	case err := <-grown:
		t.Errorf("Grow has returned (%v), and the agent has not ended", err)
	default:
	}
	if err := syscall.Kill(script, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-grown; err != nil {
		t.Fatal(err)
	}
	if lives(pid) {
		t.Error("the agent that dials the server's old address still lives")
	}
	until(t, "another lives", func() bool { return only(t, d).State == trainyard.MachineRunning && l.number(s.ID, "told") != 0 })
	if now := job(t, d, s.ID); now != number {
		t.Errorf("it has job %s, and had %s", now, number)
	}
}

// status is a number that Linux tells of a process.
func status(t *testing.T, pid int, name string, base int) uint64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "\n"+name+":")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseUint(strings.TrimSpace(line), base, 64)
	if err != nil {
		t.Fatalf("%s of process %d: %v", name, pid, err)
	}
	return n
}

func TestWhatCannotBe(t *testing.T) {
	l := newLocation(t)
	d := l.open(t)
	for settings, want := range map[string]string{
		`{"partition":"no-such"}`:       "invalid partition specified: no-such",
		`{"partition":"a; rm -rf /"}`:   "cannot be used",
		`{"sbatch":["--wrap=reboot"]}`:  "set for each job here",
		`{"confPath":"/etc/evil.conf"}`: "are the location's",
		`[]`:                            "cannot be read",
	} {
		s := spec("a", "x")
		s.Settings = []byte(settings)
		if n, err := d.Grow(t.Context(), []trainyard.MachineSpec{s}); n != 0 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d, %v, want %q", settings, n, err, want)
		}
		if gone, err := d.Shrink(t.Context(), []trainyard.NodeID{s.ID}); err != nil || len(gone) != 1 {
			t.Errorf("%v, %v", gone, err)
		}
	}
	if err := (&Config{Cache: "/a b"}).Validate(); trainyard.CodeOf(err) != trainyard.CodeInvalid {
		t.Error(err)
	}
	if err := (&Config{ServerURL: "train.example.com"}).Validate(); trainyard.CodeOf(err) != trainyard.CodeInvalid {
		t.Error(err)
	}
}

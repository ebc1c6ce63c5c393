package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/slurm"
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
	want := fmt.Sprintf("--node %s --dir %s/node --server https://127.0.0.1:1 --token-file %s/join-token --notice %s/notice --group %s%s --size Standard_NC6 --cpus 3 --memory-mb 512 --ca /ca.pem --cache /cache --address 127.0.0.1 --place %s.0 --lost-class  --lost ",
		s.ID, dir, dir, dir, s.ID, strings.Replace(d.suffix, "@", "-", 1), mark(t, d, s.ID))
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
	text := d.agent("a", record{}, spec("a", "x"))
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

// An sbatch that ends without a word has its job looked for; only if there is none was the machine not submitted.
func TestMachineWhoseNumberWasNotToldIsThere(t *testing.T) {
	l := newLocation(t)
	dir := t.TempDir()
	for _, name := range []string{"sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct"} {
		path, err := exec.LookPath(name)
		if err == nil && name == "sbatch" {
			err = os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n[ ! -e \"$0.deaf\" ] || exit 0\n"+path+" \"$@\" >/dev/null\n"), 0o700)
		} else if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l.settings.Commands = dir
	d := l.open(t)
	heard := spec("a", "x")
	grow(t, d, heard)
	if jobs, err := d.client.Queue(t.Context()); err != nil || len(ours(jobs, d.suffix)) != 1 {
		t.Fatalf("of one machine there are the jobs %+v, %v", jobs, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sbatch.deaf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := d.Grow(t.Context(), []trainyard.MachineSpec{spec("b", "x")}); n != 0 || err == nil || !strings.Contains(err.Error(), "did not say the number") {
		t.Errorf("of a machine that Slurm never heard of Grow says %d, %v", n, err)
	}
	if jobs, err := d.client.Queue(t.Context()); err != nil || len(ours(jobs, d.suffix)) != 1 {
		t.Errorf("the jobs are %+v, %v", jobs, err)
	}
	until(t, "the one that was heard runs", func() bool {
		list, err := d.Machines(t.Context())
		return err == nil && slices.ContainsFunc(list, func(m trainyard.Machine) bool { return m.ID == heard.ID && m.State == trainyard.MachineRunning })
	})
}

// ours are the jobs of a location, by the end of its jobs' names.
func ours(jobs []slurm.Job, suffix string) []slurm.Job {
	return slices.DeleteFunc(jobs, func(j slurm.Job) bool { return !strings.HasSuffix(j.Name, suffix) })
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
	want := fmt.Sprintf("--place %s.0 --lost-class NodeLost --lost job %s, which its node was, was canceled in Slurm (scancel)\n", mark(t, d, s.ID), first)
	if data, err := os.ReadFile(l.machine(s.ID, nodeFolder+"/told")); err != nil || !strings.HasSuffix(string(data), want) {
		t.Errorf("its agent was started with %q (%v), want at the end %q", data, err, want)
	}
}

func TestAgentOfAServerThatMovedIsStartedAgain(t *testing.T) {
	newLocation(t) // or there is no Slurm
	for name, variable := range ways {
		t.Run(name, func(t *testing.T) { agentOfAServerThatMoved(t, newLocationBy(t, variable)) })
	}
}

// agentOfAServerThatMoved has the machine's batch script told late: nobody waits for it, and it does what it was asked once.
func agentOfAServerThatMoved(t *testing.T, l *location) {
	d := l.reopen(t)
	s := spec("a", "x")
	if _, err := d.Grow(t.Context(), []trainyard.MachineSpec{s}); err != nil {
		t.Fatal(err)
	}
	until(t, "it runs", func() bool { return only(t, d).State == trainyard.MachineRunning && l.number(s.ID, "told") != 0 })
	pid, number := l.number(s.ID, "told"), job(t, d, s.ID)
	script := int(status(t, pid, "PPid", 10))
	signaled := func() bool { return status(t, script, "ShdPnd", 16)>>(syscall.SIGUSR1-1)&1 == 1 }
	signal := func(n syscall.Signal) {
		if err := syscall.Kill(script, n); err != nil {
			t.Fatal(err)
		}
	}
	d.Close()
	signal(syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(script, syscall.SIGCONT) }) // should the test end early
	l.server = "https://127.0.0.1:2"
	d = l.open(t)
	if m := only(t, d); m.State != trainyard.MachineDead || m.Note != "its agent dials https://127.0.0.1:1, where the server is no more" {
		t.Errorf("before Grow it is %+v", m)
	}
	grow(t, d, s)
	until(t, "the batch script has its signal", signaled)
	grow(t, d, s)
	if m := only(t, d); m.State != trainyard.MachineDead || l.number(s.ID, "told") != pid {
		t.Errorf("before its batch script has done anything it is %+v", m)
	}
	signal(syscall.SIGCONT)
	until(t, "another lives", func() bool { // slurmrestd signals the agent, too, which may have been the new one
		grow(t, d, s)
		return only(t, d).State == trainyard.MachineRunning && l.number(s.ID, "told") != 0
	})
	if lives(pid) {
		t.Error("the agent that dials the server's old address still lives")
	}
	pid = l.number(s.ID, "told")
	signal(syscall.SIGUSR1) // Slurm passes it on once more
	until(t, "the batch script has heeded its signal", func() bool { return !signaled() })
	grow(t, d, s)
	if m := only(t, d); m.State != trainyard.MachineRunning || l.number(s.ID, "told") != pid {
		t.Errorf("after a signal that nobody waits for it is %+v", m)
	}
	if now := job(t, d, s.ID); now != number {
		t.Errorf("it has job %s, and had %s", now, number)
	}
}

// A job that Slurm has suspended heeds no signal: nothing is sent to it, and its machine says so.
func TestSuspendedMachineOfAServerThatMoved(t *testing.T) {
	l := newLocation(t)
	d := l.reopen(t)
	s := spec("a", "x")
	if _, err := d.Grow(t.Context(), []trainyard.MachineSpec{s}); err != nil {
		t.Fatal(err)
	}
	until(t, "it runs", func() bool { return only(t, d).State == trainyard.MachineRunning })
	number := job(t, d, s.ID)
	command(t, l, "scontrol", "suspend", number)
	d.Close()
	l.server = "https://127.0.0.1:2"
	d = l.open(t)
	_, err := d.Grow(t.Context(), []trainyard.MachineSpec{s})
	if want := "job " + number + " of the machine is SUSPENDED in Slurm: its agent must be replaced, and is when the job runs"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("Grow: %v, want %q", err, want)
	}
	command(t, l, "scontrol", "resume", number)
	until(t, "it runs again", func() bool { // a signal may be lost on a job that has just been resumed
		_, _ = d.Grow(t.Context(), []trainyard.MachineSpec{s})
		return only(t, d).State == trainyard.MachineRunning
	})
	grow(t, d, s)
}

// A batch script that cannot write, as on a full disk, says what it has to say when it can.
func TestEndThatCouldNotBeToldIsToldLater(t *testing.T) {
	l := newLocation(t)
	d := l.open(t)
	s := spec("a", "x")
	grow(t, d, s)
	until(t, "it runs", func() bool { return only(t, d).State == trainyard.MachineRunning && l.number(s.ID, "told") != 0 })
	full := d.statePath(fleet.Folder(s.ID)) + ".part"
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(l.number(s.ID, "told"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the batch script has tried", func() bool {
		data, _ := os.ReadFile(l.machine(s.ID, slurmFile))
		return strings.Contains(string(data), "Is a directory")
	})
	if m := only(t, d); m.State != trainyard.MachineRunning {
		t.Errorf("before anything was told it is %+v", m)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	until(t, "it is told", func() bool {
		m := only(t, d)
		return m.State == trainyard.MachineDead && strings.HasPrefix(m.Note, "its agent ended with exit status 137")
	})
}

// A job that Slurm had given up, as with a node that was away, may run on beside the machine's next one.
func TestJobBeforeTheLastSaysAndStartsNothing(t *testing.T) {
	l := newLocation(t)
	d := l.open(t)
	s := spec("a", "x")
	grow(t, d, s)
	until(t, "it runs", func() bool { return only(t, d).State == trainyard.MachineRunning && l.number(s.ID, "told") != 0 })
	pid, number := l.number(s.ID, "told"), job(t, d, s.ID)
	next := order{"the-next", "1", l.server}
	if err := os.WriteFile(l.machine(s.ID, goFile), []byte(next.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "it gives its node back", func() bool {
		return strings.Contains(command(t, l, "scontrol", "show", "job", "--oneliner", number), " JobState=COMPLETED ")
	})
	if data, err := os.ReadFile(d.statePath(fleet.Folder(s.ID))); err != nil || !strings.HasPrefix(string(data), "up ") {
		t.Errorf("it has said %q, %v", data, err)
	}
	if l.number(s.ID, "told") != 0 {
		t.Error("it has started an agent")
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
	for _, url := range []string{"train.example.com", "http://192.0.2.9:1234"} {
		if err := (&Config{ServerURL: url}).Validate(); trainyard.CodeOf(err) != trainyard.CodeInvalid {
			t.Errorf("%s: %v", url, err)
		}
	}
}

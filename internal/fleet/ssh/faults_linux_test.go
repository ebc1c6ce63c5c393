package ssh

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
)

// A cable that is pulled in the middle of a task: the task goes on, what it says waits, and all of it comes when the cable is back.
func TestCutAndMended(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLocation(t, m)
	d := l.opened(t)
	s := spec(t, "a", "talker", settings(m))
	grow(t, d, s)
	until(t, "the agent is heard", func() bool { return l.home.heard(t) > 5 })
	runs, pid := l.work(t, s.ID), l.agent(s.ID)
	m.Cut(t)
	until(t, "the cut is noticed", func() bool { now := only(t, d); return now.Cut && strings.Contains(now.Note, "cut off since") })
	if now := only(t, d); now.State != trainyard.MachineRunning || !strings.Contains(now.Note, "tasks there go on") {
		t.Errorf("while it is cut off: %+v", now)
	}
	if gone, err := d.Shrink(t.Context(), []trainyard.NodeID{s.ID}); err == nil || len(gone) != 0 || !strings.Contains(err.Error(), "not known to be gone") {
		t.Errorf("a machine that cannot be reached: Shrink %v, %v", gone, err)
	}
	before := l.home.heard(t)
	m.Mend(t)
	until(t, "the agent is heard again", func() bool { return l.home.heard(t) > before+20 })
	until(t, "it is known", func() bool { now := only(t, d); return !now.Cut && !strings.Contains(now.Note, "cut off") })
	if now := only(t, d); now.State != trainyard.MachineRunning {
		t.Errorf("afterwards: %+v", now)
	}
	if !runs() || l.agent(s.ID) != pid {
		t.Errorf("the work runs: %v; agent %d, then %d", runs(), pid, l.agent(s.ID))
	}
	shrunk(t, d, s.ID)
	clean(t, m)
}

// clean checks that nothing is left on a computer.
func clean(t *testing.T, m *sshtest.Machine) {
	t.Helper()
	if left := m.Run(t, "find "+m.HomeDir+" -mindepth 1 -not -path '*/.ssh*'; find /sys/fs/cgroup -path '*/trainyard*'"); left != "" {
		t.Errorf("left on the machine:\n%s", left)
	}
	until(t, "no process is left", func() bool { return len(m.Processes(t)) == 0 })
}

// A server that dies while its machine is cut off leaves sshd there with a connection that looks alive, and holds the port.
func TestServerStartsAgainWhileTheOldConnectionLooksAlive(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]sshtest.Options{"of an ordinary user": {}, "of root": {Root: true}} { // sshd has other processes for root
		t.Run(name, func(t *testing.T) { startsAgain(t, sshtest.New(t, o)) })
	}
}

func startsAgain(t *testing.T, m *sshtest.Machine) {
	l := newLocation(t, m)
	d := l.open(t)
	s := spec(t, "a", "talker", settings(m))
	grow(t, d, s)
	until(t, "the agent is heard", func() bool { return l.home.heard(t) > 5 })
	pid := l.agent(s.ID)
	m.Cut(t)
	if err := d.Close(); err != nil { // what it says of that is lost
		t.Fatal(err)
	}
	d = l.opened(t)
	before := l.home.heard(t)
	m.Mend(t)
	until(t, "the agent is heard again", func() bool { return l.home.heard(t) > before+20 })
	if now := l.agent(s.ID); now != pid {
		t.Errorf("agent %d, then %d", pid, now)
	}
	shrunk(t, d, s.ID)
	clean(t, m)
}

// After a reboot the agent is found dead, said why, and started by the next Grow, as a fleet's host calls it.
func TestRebooted(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLocation(t, m)
	d := l.opened(t)
	s := spec(t, "a", "talker", settings(m))
	grow(t, d, s)
	until(t, "the agent is heard", func() bool { return l.home.heard(t) > 5 })
	m.Off()
	until(t, "it is noticed", func() bool { return strings.Contains(only(t, d).Note, "cut off") })
	m.On(t)
	until(t, "it is known to be dead", func() bool { return only(t, d).State == trainyard.MachineDead })
	if note := only(t, d).Note; !strings.HasPrefix(note, "rebooted") {
		t.Errorf("note %q", note)
	}
	before := l.home.heard(t)
	grow(t, d, s)
	if now := only(t, d); now.State != trainyard.MachineRunning || !strings.Contains(now.Note, "rebooted: its agent was started again") {
		t.Errorf("afterwards: %+v", now)
	}
	until(t, "the agent is heard again", func() bool { return l.home.heard(t) > before+5 })
	shrunk(t, d, s.ID)
	clean(t, m)
}

// A port that another program took while the connection was gone: the agent is started again with another, its tasks stay.
func TestPortIsTaken(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLocation(t, m)
	d := l.open(t)
	s := spec(t, "a", "talker", settings(m))
	grow(t, d, s)
	until(t, "the agent is heard", func() bool { return l.home.heard(t) > 5 })
	runs, pid := l.work(t, s.ID), l.agent(s.ID)
	port := d.machines[d.folder(s.ID)].rec.Port
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	thief := m.Command(m.UID(), fmt.Sprintf(`python3 -c 'import socket,time
s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
while True:
    try: s.bind(("127.0.0.1", %d)); break
    except OSError: time.sleep(.01)
s.listen(); print("taken", flush=True); time.sleep(1000)'`, port))
	out, err := thief.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := thief.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = thief.Process.Kill(); _ = thief.Wait() }()
	if word, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", word, err)
	}
	d = l.opened(t)
	until(t, "the agent is ended", func() bool { return only(t, d).State == trainyard.MachineDead })
	if note := only(t, d).Note; !strings.Contains(note, fmt.Sprintf("took port %d", port)) {
		t.Errorf("note %q", note)
	}
	before := l.home.heard(t)
	grow(t, d, s)
	until(t, "the new agent is heard", func() bool { return l.home.heard(t) > before+5 })
	if !runs() || l.agent(s.ID) == pid {
		t.Errorf("the work runs: %v; agent %d, then %d", runs(), pid, l.agent(s.ID))
	}
	shrunk(t, d, s.ID)
}

// Whoever may not log in is told to the user, and what is mended is used at the next Grow.
func TestRefusedThenMended(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLocation(t, m)
	d := l.opened(t)
	wrong := settings(m)
	wrong.PrivateKey = sshtest.NewKey(t)
	s := spec(t, "a", "", wrong)
	if n, err := d.Grow(t.Context(), []trainyard.MachineSpec{s}); n != 0 || trainyard.CodeOf(err) != trainyard.CodeForbidden {
		t.Fatalf("Grow: %d, %v", n, err)
	}
	if now := only(t, d); now.State != trainyard.MachineDead || !strings.Contains(now.Note, "user yard is refused") {
		t.Errorf("%+v", now)
	}
	s.Settings = encode(t, settings(m))
	grow(t, d, s)
	until(t, "the agent lives", func() bool { return l.agent(s.ID) != 0 })
	grow(t, d, s)
	shrunk(t, d, s.ID)
	if n, err := d.Grow(t.Context(), []trainyard.MachineSpec{spec(t, "b", "", wrong)}); n != 0 || err == nil {
		t.Fatalf("Grow: %d, %v", n, err)
	}
	shrunk(t, d, only(t, d).ID) // nothing was ever done there: it is gone for certain, although nobody can log in
	clean(t, m)
}

func TestHostKeyChanges(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLocation(t, m)
	d := l.opened(t)
	s := spec(t, "a", "", settings(m))
	grow(t, d, s)
	old := m.HostKey
	m.NewHostKey(t)
	m.Off()
	m.On(t)
	until(t, "it is noticed", func() bool { return strings.Contains(only(t, d).Note, "host key changed") })
	now := only(t, d)
	if now.State != trainyard.MachineDead || strings.Count(now.Note, "SHA256:") != 2 {
		t.Errorf("%+v", now)
	}
	if n, err := d.Grow(t.Context(), []trainyard.MachineSpec{s}); n != 0 || err == nil || !strings.Contains(err.Error(), "attach it again with --host-key SHA256:") {
		t.Errorf("Grow: %d, %v", n, err)
	}
	if gone, err := d.Shrink(t.Context(), []trainyard.NodeID{s.ID}); err == nil || len(gone) != 0 {
		t.Errorf("Shrink: %v, %v", gone, err)
	}
	s.Settings = encode(t, settings(m)) // attached again
	if old == m.HostKey {
		t.Fatal("the key is the same")
	}
	grow(t, d, s)
	shrunk(t, d, s.ID)
	clean(t, m)
}

// A machine that nobody wants any more, and that shows another host key, is cleared by what a new one at the same place is reached with.
func TestANewMachineAtTheSamePlaceServesTheOldOne(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLocation(t, m)
	d := l.opened(t)
	old := spec(t, "old", "", settings(m))
	grow(t, d, old)
	m.NewHostKey(t)
	m.Off()
	m.On(t)
	until(t, "it is noticed", func() bool { return strings.Contains(only(t, d).Note, "host key changed") })
	if gone, err := d.Shrink(t.Context(), []trainyard.NodeID{old.ID}); err == nil || len(gone) != 0 {
		t.Errorf("Shrink: %v, %v", gone, err)
	}
	another := settings(sshtest.New(t, sshtest.Options{}))
	elsewhere := spec(t, "elsewhere", "", another)
	grow(t, d, elsewhere)
	if gone, err := d.Shrink(t.Context(), []trainyard.NodeID{old.ID}); err == nil || len(gone) != 0 {
		t.Errorf("by a machine elsewhere: Shrink %v, %v", gone, err)
	}
	s := spec(t, "new", "", settings(m))
	grow(t, d, s)
	shrunk(t, d, old.ID)
	if left := m.Run(t, "ls "+m.HomeDir+"/.trainyard"); strings.Contains(left, string(old.ID)) || !strings.Contains(left, string(s.ID)) {
		t.Errorf("on the machine: %s", left)
	}
	shrunk(t, d, s.ID, elsewhere.ID)
	clean(t, m)
}

func TestNoRoomOnTheDisk(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{Home: "size=3m"})
	l := newLocation(t, m)
	d := l.opened(t)
	s := spec(t, "a", "", settings(m))
	n, err := d.Grow(t.Context(), []trainyard.MachineSpec{s})
	if n != 0 || trainyard.CodeOf(err) != trainyard.CodeConflict || !strings.Contains(err.Error(), "no room on the disk") {
		t.Errorf("Grow: %d, %v", n, err)
	}
	if now := only(t, d); now.State != trainyard.MachineDead || now.Note != "no room on its disk" {
		t.Errorf("%+v", now)
	}
	m.Run(t, "mount -o remount,size=1g "+m.HomeDir)
	grow(t, d, s)
	until(t, "the agent lives", func() bool { return l.agent(s.ID) != 0 })
	shrunk(t, d, s.ID)
	clean(t, m)
}

func TestAgentThatEndsSaysWhy(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLocation(t, m)
	d := l.opened(t)
	s := spec(t, "a", "crash", settings(m))
	grow(t, d, s)
	until(t, "the end is noticed", func() bool { return only(t, d).State == trainyard.MachineDead })
	if got := only(t, d).Note; got != "its agent ended: the disk is on fire" {
		t.Errorf("note %q", got)
	}
	shrunk(t, d, s.ID)
}

// What is cut off in the middle of a copy is done again; nothing half copied is ever run.
func TestCutWhileCopying(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLocation(t, m)
	d := l.opened(t)
	login := settings(m)
	login.Address, login.Port = "localhost", choked(t, m, 3<<20)
	s := spec(t, "a", "", login)
	n, err := d.Grow(t.Context(), []trainyard.MachineSpec{s})
	if n != 0 || err == nil {
		t.Fatalf("Grow: %d, %v", n, err)
	}
	if parts := m.Run(t, "find /home/yard/.trainyard/bin -type f"); !strings.Contains(parts, ".part-") {
		t.Errorf("nothing was being copied: %s", parts)
	}
	until(t, "it is copied", func() bool { // the second connection is not choked; that the first is broken may not be known yet
		n, err := d.Grow(t.Context(), []trainyard.MachineSpec{s})
		return n == 1 && err == nil
	})
	until(t, "the agent lives", func() bool { return l.agent(s.ID) != 0 })
	if parts := m.Run(t, "find /home/yard/.trainyard/bin -name '*.part*'"); parts != "" {
		t.Errorf("left: %s", parts)
	}
	shrunk(t, d, s.ID)
	clean(t, m)
}

// choked is a way to a machine whose first connection breaks after some bytes.
func choked(t *testing.T, m *sshtest.Machine, bytes int64) int {
	t.Helper()
	ln, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for limit := bytes; ; limit = 1 << 40 {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			go relay(in, net.JoinHostPort(m.Address, fmt.Sprint(m.Port)), limit)
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port
}

// A slow Grow returns and goes on; a Shrink meanwhile ends it.
func TestShrinkWhileGrowing(t *testing.T) {
	t.Parallel()
	m := sshtest.New(t, sshtest.Options{})
	l := newLocation(t, m)
	driver, err := (&Config{look: time.Second, alive: time.Second, patience: 100 * time.Millisecond}).Open(t.Context(), l.env(t))
	if err != nil {
		t.Fatal(err)
	}
	d := driver.(*Driver)
	defer d.Close()
	login := settings(m)
	login.Address, login.Port = "127.0.0.1", silent(t)
	s := spec(t, "a", "", login)
	grow(t, d, s)
	if now := only(t, d); now.State != trainyard.MachineStarting {
		t.Errorf("%+v", now)
	}
	shrunk(t, d, s.ID)
}

// silent is a port where somebody listens and says nothing.
func silent(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().(*net.TCPAddr).Port
}

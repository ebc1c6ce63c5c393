//go:build unix

package process

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/fleet/fleettest"
)

// TestMain is also the agent of the machines under test: this program, started with the agent's arguments.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(agent(os.Args[2:]))
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // or every agent that the race detector watches takes a second to end
	goleak.VerifyTestMain(m)
}

// agent writes down who it is and waits for SIGTERM. Sizes tell it to misbehave.
func agent(args []string) int {
	f := flag.NewFlagSet("agent", flag.ExitOnError)
	node, dir, tokenFile, size := f.String("node", "", ""), f.String("dir", "", ""), f.String("token-file", "", ""), f.String("size", "", "")
	for _, name := range []string{"server", "group", "ca", "cache", "cpus", "memory-mb"} {
		f.String(name, "", "")
	}
	if err := f.Parse(args); err != nil {
		return 2
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	if *size == "crash" {
		fmt.Println("the disk is on fire")
		return 3
	}
	info, err := os.Stat(*tokenFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		fmt.Println("token file:", info, err)
		return 4
	}
	token, err := os.ReadFile(*tokenFile)
	if err != nil || strings.Contains(strings.Join(os.Args, " "), string(token)) || os.Getenv("TRAINYARD_TOKEN") != "" {
		fmt.Println("the token can be seen", err)
		return 5
	}
	told := fmt.Sprintf("%d\n%s\n%s\n", os.Getpid(), *node, strings.Join(args, " "))
	if err := write(filepath.Join(*dir, "told"), []byte(told)); err != nil {
		fmt.Println(err)
		return 6
	}
	for range term {
		if *size != "stubborn" {
			return 0
		}
	}
	return 0
}

// location is a fleet's folder and what a test does to it.
type location struct{ dir string }

func newLocation(t *testing.T) location { return location{t.TempDir()} }

func (l location) open(t *testing.T) *Driver {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d, err := (&Config{}).Open(t.Context(), fleet.Env{Dir: l.dir, Name: "local", Server: "https://127.0.0.1:1", CA: "/ca.pem", Binary: self, Cache: "/cache"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.(*Driver).Close() })
	return d.(*Driver)
}

// pid is the live agent of a machine by its own account; 0 if there is none.
func (l location) pid(id trainyard.NodeID) int {
	data, err := os.ReadFile(filepath.Join(l.dir, fleet.Folder(id), nodeFolder, "told"))
	var pid int
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(data), &pid); err != nil {
		return 0
	}
	if a, err := identify(pid); err != nil || !a.alive() {
		return 0
	}
	return pid
}

func (l location) kill(t *testing.T, id trainyard.NodeID) {
	t.Helper()
	pid := l.pid(id)
	if pid == 0 {
		t.Fatalf("no agent of %s lives", id)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// command is a process of its own session, as tasks are; the function returned says whether it runs.
func command(t *testing.T, env []string, script string) (pid int, runs func() bool) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append(env, "PATH=/usr/bin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
	})
	return cmd.Process.Pid, func() bool {
		select {
		case <-done:
			return false
		case <-time.After(50 * time.Millisecond): // Wait needs a moment after the end
			return true
		}
	}
}

func TestContract(t *testing.T) {
	fleettest.Run(t, func(t *testing.T) fleettest.Fleet {
		l := newLocation(t)
		return fleettest.Fleet{
			Open: func(t *testing.T) fleet.Driver { return l.open(t) },
			Agent: func(_ *testing.T, id trainyard.NodeID) string {
				if pid := l.pid(id); pid != 0 {
					return fmt.Sprint(pid)
				}
				return ""
			},
			Kill: l.kill,
			Work: func(t *testing.T, id trainyard.NodeID) func() bool {
				_, runs := command(t, []string{nodeVariable + "=" + string(id)}, "sleep 1000 & sleep 1000 & wait")
				return runs
			},
			Spoil: func(t *testing.T, id trainyard.NodeID) {
				if err := os.WriteFile(filepath.Join(l.dir, fleet.Folder(id)), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

func spec(t *testing.T, name, size string) trainyard.MachineSpec {
	t.Helper()
	return trainyard.MachineSpec{ID: trainyard.NodeID(fmt.Sprintf("%s-%d", name, time.Now().UnixNano())), Token: "secret", Compute: "s/r/w/c",
		Size: trainyard.VMSize{Name: size, VCPUs: 64, MemoryGB: 0.5}}
}

func grow(t *testing.T, d *Driver, specs ...trainyard.MachineSpec) {
	t.Helper()
	if n, err := d.Grow(t.Context(), specs); err != nil || n != len(specs) {
		t.Fatalf("Grow: %d, %v", n, err)
	}
	t.Cleanup(func() {
		for _, s := range specs {
			if _, err := d.Shrink(context.Background(), []trainyard.NodeID{s.ID}); err != nil {
				t.Error(err)
			}
		}
	})
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-limit:
			t.Fatalf("waited in vain until %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestAgentIsToldEverything(t *testing.T) {
	t.Setenv("TRAINYARD_TOKEN", "of the server's user")
	l := newLocation(t)
	d := l.open(t)
	s := spec(t, "a", "Standard_NC64")
	grow(t, d, s)
	until(t, "the agent lives", func() bool { return l.pid(s.ID) != 0 })
	data, err := os.ReadFile(filepath.Join(l.dir, string(s.ID), nodeFolder, "told"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(l.dir, string(s.ID))
	want := fmt.Sprintf("--node %s --dir %s/node --server https://127.0.0.1:1 --token-file %s/join-token --group %s --size Standard_NC64 --cpus 64 --memory-mb 512 --ca /ca.pem --cache /cache",
		s.ID, dir, dir, d.group(string(s.ID)))
	if got := strings.Split(string(data), "\n")[2]; got != want {
		t.Errorf("the agent was started with\n%s, want\n%s", got, want)
	}
	if sid, err := getsid(l.pid(s.ID)); err != nil || sid != l.pid(s.ID) {
		t.Errorf("session %d, %v", sid, err)
	}
}

func TestStubbornAgentIsKilled(t *testing.T) {
	l := newLocation(t)
	d := l.open(t)
	s := spec(t, "a", "stubborn")
	grow(t, d, s)
	until(t, "the agent lives", func() bool { return l.pid(s.ID) != 0 })
	pid, began := l.pid(s.ID), time.Now()
	if _, err := d.Shrink(t.Context(), []trainyard.NodeID{s.ID}); err != nil {
		t.Fatal(err)
	}
	if a, err := identify(pid); err == nil && a.alive() {
		t.Error("it lives")
	}
	if took := time.Since(began); took < stopTime {
		t.Errorf("it was given %s to stop, not %s", took, stopTime)
	}
}

func TestAgentThatEndsSaysWhy(t *testing.T) {
	l := newLocation(t)
	d := l.open(t)
	s := spec(t, "a", "crash")
	grow(t, d, s)
	note := func() string {
		list, err := d.Machines(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
		return list[0].Note
	}
	until(t, "the end is noticed", func() bool { return note() != "" })
	if got := note(); got != "its agent ended with exit status 3: the disk is on fire" {
		t.Errorf("note %q", got)
	}
}

// A server that is killed between starting an agent and writing it down must not start a second one.
func TestAgentThatWasNotWrittenDownIsFound(t *testing.T) {
	l := newLocation(t)
	d := l.open(t)
	s := spec(t, "a", "")
	grow(t, d, s)
	until(t, "the agent lives", func() bool { return l.pid(s.ID) != 0 })
	pid := l.pid(s.ID)
	for name, spoil := range map[string]func(path string) error{
		"the agent is not in the record": func(path string) error {
			return os.WriteFile(path, fmt.Appendf(nil, `{"id":%q,"compute":"s/r/w/c"}`, s.ID), 0o600)
		},
		"the record is empty": func(path string) error { return os.Truncate(path, 0) },
		"there is no record":  os.Remove,
	} {
		if err := spoil(filepath.Join(l.dir, string(s.ID), recordFile)); err != nil {
			t.Fatal(err)
		}
		again := l.open(t)
		list, err := again.Machines(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != s.ID || list[0].State != trainyard.MachineRunning {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
		if n, err := again.Grow(t.Context(), []trainyard.MachineSpec{s}); err != nil || n != 1 || l.pid(s.ID) != pid {
			t.Errorf("%s: Grow: %d, %v; agent %d, then %d", name, n, err, pid, l.pid(s.ID))
		}
	}
}

// A server that comes back at another address starts its agents again, or nobody would hear of their tasks.
func TestAgentOfAServerThatMovedIsStartedAgain(t *testing.T) {
	l := newLocation(t)
	s := spec(t, "a", "")
	grow(t, l.open(t), s)
	until(t, "the agent lives", func() bool { return l.pid(s.ID) != 0 })
	pid := l.pid(s.ID)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	work := filepath.Join(cache, "work", string(s.ID))
	if err := os.MkdirAll(filepath.Join(work, "task"), 0o700); err != nil {
		t.Fatal(err)
	}
	moved, err := (&Config{}).Open(t.Context(), fleet.Env{Dir: l.dir, Name: "local", Server: "https://127.0.0.1:2", Binary: self, Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { moved.(*Driver).Close() })
	until(t, "the old agent is gone", func() bool {
		list, err := moved.Machines(t.Context())
		return err == nil && len(list) == 1 && list[0].State == trainyard.MachineDead
	})
	grow(t, moved.(*Driver), s)
	until(t, "a new agent lives", func() bool { return l.pid(s.ID) != 0 && l.pid(s.ID) != pid })
	if _, err := moved.Shrink(t.Context(), []trainyard.NodeID{s.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(work); !os.IsNotExist(err) {
		t.Errorf("its work folder is left: %v", err)
	}
}

func TestHalfMadeAndHalfGoneMachinesAreCleared(t *testing.T) {
	l := newLocation(t)
	for _, name := range []string{newFolder + "a", goneFolder + "b-1"} {
		if err := os.MkdirAll(filepath.Join(l.dir, name, nodeFolder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d := l.open(t)
	if list, err := d.Machines(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if entries, err := os.ReadDir(l.dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestFoldersOfOthersAreLeftAlone(t *testing.T) {
	l := newLocation(t)
	precious := filepath.Join(l.dir, "precious", "file")
	if err := os.MkdirAll(filepath.Dir(precious), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := l.open(t)
	s := spec(t, "n", "Standard_DS3_v2")
	grow(t, d, s)
	if err := os.Remove(filepath.Join(l.dir, fleet.Folder(s.ID), recordFile)); err != nil { // as a loss of power may leave it
		t.Fatal(err)
	}
	there, err := d.Machines(t.Context())
	if err != nil || len(there) != 1 || there[0].ID != s.ID {
		t.Errorf("machines %v, %v", there, err)
	}
	for _, id := range []trainyard.NodeID{"precious", s.ID} {
		if gone, err := d.Shrink(t.Context(), []trainyard.NodeID{id}); err != nil || len(gone) != 1 {
			t.Errorf("shrink %s: %v, %v", id, gone, err)
		}
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestLogsDoNotGrowWithoutEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), logFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	say := func(text string) {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		say(strings.Repeat(fmt.Sprint(i), 100))
		if err := rotate(path, 150); err != nil {
			t.Fatal(err)
		}
	}
	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path + ".1")
	if err != nil {
		t.Fatal(err)
	}
	if string(now) != strings.Repeat("4", 100) || string(before) != strings.Repeat("2", 50)+strings.Repeat("3", 100) {
		t.Errorf("%s, and before %s", now, before)
	}
}

func TestAgentThatCannotBeStarted(t *testing.T) {
	d, err := (&Config{}).Open(t.Context(), fleet.Env{Dir: t.TempDir(), Binary: "/no/such/program"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.(*Driver).Close()
	s := spec(t, "a", "")
	if n, err := d.Grow(t.Context(), []trainyard.MachineSpec{s}); n != 0 || err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("%d, %v", n, err)
	}
	if list, err := d.Machines(t.Context()); err != nil || len(list) != 1 || list[0].State != trainyard.MachineDead {
		t.Errorf("%v, %v", list, err)
	}
	if gone, err := d.Shrink(t.Context(), []trainyard.NodeID{s.ID}); err != nil || len(gone) != 1 {
		t.Errorf("%v, %v", gone, err)
	}
}

// An agent has what is said of its machine, and nothing of whoever started the server.
func TestAgentsGetNoVariablesOfOursButThoseOfTheMachine(t *testing.T) {
	env := []string{"HOME=/root", "TRAINYARD_TOKEN=secret", "TRAINYARD_DOCKER={}", "TRAINYARD_DOCKERS=x", "TRAINYARD_CONTAINERS=off"}
	got := withoutOurs(env, []string{"TRAINYARD_DOCKER", "TRAINYARD_CONTAINERS"})
	if want := []string{"HOME=/root", "TRAINYARD_DOCKER={}", "TRAINYARD_CONTAINERS=off"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

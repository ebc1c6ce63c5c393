package ssh

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/fleet/ssh/sshtest"
)

// TestMain is also the agent of the machines under test: this program, copied there and started with the agent's arguments.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(agent(os.Args[2:]))
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// agent writes down who it is and waits for SIGTERM. Sizes tell it what else to do.
func agent(args []string) int {
	f := flag.NewFlagSet("agent", flag.ExitOnError)
	dir, tokenFile, size := f.String("dir", "", ""), f.String("token-file", "", ""), f.String("size", "", "")
	server, ca := f.String("server", "", ""), f.String("ca", "", "")
	for _, name := range []string{"node", "group", "cache", "cpus", "memory-mb", "hide", "address", "orphan-after"} {
		f.String(name, "", "")
	}
	if err := f.Parse(args); err != nil {
		return 2
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	info, err := os.Stat(*tokenFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		fmt.Println("token file:", info, err)
		return 4
	}
	token, err := os.ReadFile(*tokenFile)
	if err != nil || len(token) < 2 || strings.Contains(strings.Join(os.Args, " "), strings.TrimSpace(string(token))) {
		fmt.Println("the token can be seen", err)
		return 5
	}
	told := fmt.Sprintf("%d\n%s\n", os.Getpid(), strings.Join(args, " "))
	if err := write(filepath.Join(*dir, "told"), []byte(told)); err != nil {
		fmt.Println(err)
		return 6
	}
	switch *size {
	case "crash":
		fmt.Println("the disk is on fire")
		return 3
	case "talker":
		go talk(*server, *ca, filepath.Join(*dir, "said"))
	}
	<-term
	return 0
}

// talk tells the server one number after the other, each until it is acknowledged, and goes on where an earlier agent was.
func talk(server, caFile, memory string) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	n := 0
	if data, err := os.ReadFile(memory); err == nil {
		_, _ = fmt.Sscan(string(data), &n)
	}
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		res, err := c.Post(server, "text/plain", strings.NewReader(fmt.Sprint(n)))
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		n++
		_ = write(memory, fmt.Append(nil, n))
	}
}

// home is a server that agents dial: it keeps what they say.
type home struct {
	*httptest.Server
	ca string

	mu   sync.Mutex
	said []int
}

func newHome(t *testing.T) *home {
	t.Helper()
	h := &home{ca: filepath.Join(t.TempDir(), "ca.pem")}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		if _, err := fmt.Fscan(r.Body, &n); err == nil {
			h.mu.Lock()
			h.said = append(h.said, n)
			h.mu.Unlock()
		}
	}))
	t.Cleanup(h.Close)
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	if err := os.WriteFile(h.ca, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return h
}

// heard is how many different numbers came, which must be all up to there.
func (h *home) heard(t *testing.T) int {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	next := 0
	for _, n := range h.said {
		if n > next { // one may come again, when its acknowledgement was lost
			t.Fatalf("after %d came %d", next-1, n)
		}
		next = max(next, n+1)
	}
	return next
}

// location is a fleet's folder, computers for its machines, and what a test does to them.
type location struct {
	dir      string
	home     *home
	machines []*sshtest.Machine

	mu      sync.Mutex
	spoiled map[trainyard.NodeID]bool
}

func newLocation(t *testing.T, machines ...*sshtest.Machine) *location {
	t.Helper()
	return &location{dir: t.TempDir(), home: newHome(t), machines: machines, spoiled: map[trainyard.NodeID]bool{}}
}

// self is the path of this program.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (l *location) env(t *testing.T) fleet.Env {
	t.Helper()
	return fleet.Env{Dir: l.dir, Name: "lab", Server: l.home.URL, CA: l.home.ca, Binary: self(t), Log: slog.New(slog.DiscardHandler)}
}

// open opens the fleet; whoever opens it closes it.
func (l *location) open(t *testing.T) *Driver {
	t.Helper()
	d, err := (&Config{look: 300 * time.Millisecond, alive: time.Second}).Open(t.Context(), l.env(t))
	if err != nil {
		t.Fatal(err)
	}
	return d.(*Driver)
}

// opened opens the fleet until the test ends.
func (l *location) opened(t *testing.T) *Driver {
	t.Helper()
	d := l.open(t)
	t.Cleanup(func() { d.Close() })
	return d
}

// on is the computer that a machine is to be on.
func (l *location) on(id trainyard.NodeID) *sshtest.Machine {
	sum := 0
	for _, b := range []byte(id) {
		sum += int(b)
	}
	return l.machines[sum%len(l.machines)]
}

// settings is how to log in to a computer with a key.
func settings(m *sshtest.Machine) Settings {
	return Settings{Address: m.Address, Port: m.Port, User: m.User, PrivateKey: m.Key, HostKey: m.HostKey}
}

func encode(t *testing.T, s Settings) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (l *location) folder(id trainyard.NodeID) string {
	mark, _ := os.ReadFile(filepath.Join(l.dir, markFile))
	return filepath.Join(l.on(id).Home(), ".trainyard", (&Driver{mark: strings.TrimSpace(string(mark))}).folder(id))
}

// agent is the live agent of a machine by its own account; 0 if there is none.
func (l *location) agent(id trainyard.NodeID) int {
	data, err := os.ReadFile(filepath.Join(l.folder(id), "own", "node", "told"))
	var pid int
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(data), &pid); err != nil {
		return 0
	}
	stat, err := os.ReadFile(filepath.Join(l.on(id).Root(), "proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return 0
	}
	if fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(fields) == 0 || fields[0][0] == 'Z' {
		return 0
	}
	return pid
}

func (l *location) kill(t *testing.T, id trainyard.NodeID) {
	t.Helper()
	pid := l.agent(id)
	if pid == 0 {
		t.Fatalf("no agent of %s lives", id)
	}
	l.on(id).Run(t, fmt.Sprint("kill -9 ", pid))
}

// work is a process of a machine, as tasks are; the function returned says whether it runs.
func (l *location) work(t *testing.T, id trainyard.NodeID) func() bool {
	t.Helper()
	m := l.on(id)
	inside := strings.TrimPrefix(l.folder(id), m.Home())
	return start(t, m, "TRAINYARD_NODE="+string(id), "TRAINYARD_TASK_DIR="+m.HomeDir+inside+"/own/node/tasks/1")
}

func start(t *testing.T, m *sshtest.Machine, env ...string) func() bool {
	t.Helper()
	cmd := m.Command(m.UID(), "echo ready; sleep 1000 & sleep 1000 & wait")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
	})
	return func() bool {
		select {
		case <-done:
			return false
		case <-time.After(50 * time.Millisecond): // Wait needs a moment after the end
			return true
		}
	}
}

// dressed gives machines their settings, which the suite does not know.
type dressed struct {
	*Driver
	l *location
	t *testing.T
}

func (d dressed) Grow(ctx context.Context, want []trainyard.MachineSpec) (int, error) {
	var out []trainyard.MachineSpec
	for _, w := range want {
		s := settings(d.l.on(w.ID))
		d.l.mu.Lock()
		if d.l.spoiled[w.ID] {
			s.Port = 9 // nobody listens
		}
		d.l.mu.Unlock()
		w.Settings = encode(d.t, s)
		out = append(out, w)
	}
	return d.Driver.Grow(ctx, out)
}

// spec asks for a machine on m.
func spec(t *testing.T, name, size string, s Settings) trainyard.MachineSpec {
	t.Helper()
	return trainyard.MachineSpec{ID: trainyard.NodeID(fmt.Sprintf("%s-%d", name, time.Now().UnixNano())), Token: "secret", Compute: "s/r/w/c",
		Size: trainyard.VMSize{Name: size, VCPUs: 64, MemoryGB: 0.5}, Settings: encode(t, s)}
}

func grow(t *testing.T, d *Driver, specs ...trainyard.MachineSpec) {
	t.Helper()
	if n, err := d.Grow(t.Context(), specs); err != nil || n != len(specs) {
		t.Fatalf("Grow: %d, %v", n, err)
	}
}

// shrunk ends machines, which must work.
func shrunk(t *testing.T, d *Driver, ids ...trainyard.NodeID) {
	t.Helper()
	if gone, err := d.Shrink(context.Background(), ids); err != nil || len(gone) != len(ids) {
		t.Fatalf("Shrink: %v, %v", gone, err)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(60 * time.Second)
	for !ok() {
		select {
		case <-limit:
			t.Fatalf("waited in vain until %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// only is the one machine there is.
func only(t *testing.T, d *Driver) trainyard.Machine {
	t.Helper()
	list, err := d.Machines(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	return list[0]
}

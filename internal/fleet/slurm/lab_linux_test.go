package slurm

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/fleet"
	"github.com/trainyard/trainyard/internal/fleet/fleettest"
	"github.com/trainyard/trainyard/internal/slurm"
)

// TestMain is also the agent of the machines under test: this program, started with the agent's arguments.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "agent" {
		os.Exit(agent(os.Args[2:]))
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// agent writes down who it is and waits for SIGTERM. SIGUSR1 has it start something that outlives it. Sizes tell it to misbehave.
func agent(args []string) int {
	f := flag.NewFlagSet("agent", flag.ExitOnError)
	node, dir, tokenFile, size := f.String("node", "", ""), f.String("dir", "", ""), f.String("token-file", "", ""), f.String("size", "", "")
	for _, name := range []string{"server", "group", "ca", "cache", "cpus", "memory-mb", "address", "hide", "place", "lost", "lost-class", "notice"} {
		f.String(name, "", "")
	}
	if err := f.Parse(args); err != nil {
		return 2
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
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
	if err := slurm.WriteFile(filepath.Join(*dir, "told"), []byte(told), 0o600); err != nil {
		fmt.Println(err)
		return 6
	}
	for s := range signals {
		if s == syscall.SIGTERM {
			return 0
		}
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return 7
		}
		_ = slurm.WriteFile(filepath.Join(*dir, "work"), fmt.Append(nil, cmd.Process.Pid), 0o600)
	}
	return 0
}

// location is a fleet's folder and what a test does to it.
type location struct {
	dir      string
	settings slurm.Settings
	server   string
}

func newLocation(t *testing.T) *location { return newLocationBy(t, "") }

// newLocationBy is a location whose Slurm is reached as the JSON in a variable of the environment says.
func newLocationBy(t *testing.T, variable string) *location {
	t.Helper()
	conf := os.Getenv("TRAINYARD_TEST_SLURM_CONF")
	if conf == "" {
		const how = `no Slurm to test with; run: eval "$(test/engines/slurm/up.sh DIR)", and test/engines/slurm/down.sh DIR afterwards`
		if os.Getenv("TRAINYARD_REQUIRE_ENGINES") != "" {
			t.Fatal(how)
		}
		t.Skip(how)
	}
	alone.Do(func() {
		var err error
		if alone.lock, err = slurm.Lock(context.Background(), filepath.Dir(conf), 8*time.Minute); err != nil {
			t.Fatal(err)
		}
	})
	l := &location{t.TempDir(), slurm.Settings{ConfPath: conf}, "https://127.0.0.1:1"}
	if variable == "" {
		return l
	}
	way := os.Getenv(variable)
	if way == "" {
		how := "test/engines/slurm/up.sh made no " + variable + "; it says what is missing"
		if os.Getenv("TRAINYARD_REQUIRE_ENGINES") != "" {
			t.Fatal(how)
		}
		t.Skip(how)
	}
	if err := json.Unmarshal([]byte(way), &l.settings); err != nil {
		t.Fatal(err)
	}
	l.settings.Folder = filepath.Join(l.dir, "shared")
	return l
}

// alone has this package's tests have Slurm for themselves until they end: others fill all its nodes, and kill its controller.
var alone struct {
	sync.Once
	lock *os.File // never closed
}

func (l *location) open(t *testing.T) *Driver {
	t.Helper()
	d := l.reopen(t)
	t.Cleanup(func() { d.Close() })
	return d
}

// reopen opens a driver that its caller closes.
func (l *location) reopen(t *testing.T) *Driver {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ca := "/ca.pem"
	if l.settings.Folder != "" { // it is copied
		ca = filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(ca, []byte("authority"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d, err := (&Config{Settings: l.settings}).Open(t.Context(), fleet.Env{Dir: l.dir, Name: "hpc", Server: l.server, CA: ca, Binary: self, Cache: "/cache"})
	if err != nil {
		t.Fatal(err)
	}
	return d.(*Driver)
}

func (l *location) machine(id trainyard.NodeID, file string) string {
	base := l.dir
	if l.settings.Folder != "" {
		found, _ := filepath.Glob(filepath.Join(l.settings.Folder, "trainyard-*"))
		base = strings.Join(found, "")
	}
	return filepath.Join(base, machinesFolder, fleet.Folder(id), file)
}

// number reads a process number out of a file of a machine; 0 if it does not live.
func (l *location) number(id trainyard.NodeID, file string) int {
	data, err := os.ReadFile(l.machine(id, filepath.Join(nodeFolder, file)))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || !lives(pid) {
		return 0
	}
	return pid
}

func lives(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(data), ") Z ")
}

// ways are those to reach Slurm, and the variables of the environment that tell them.
var ways = map[string]string{"commands": "", "login node": "TRAINYARD_TEST_SLURM_LOGIN", "slurmrestd": "TRAINYARD_TEST_SLURM_REST"}

func TestContract(t *testing.T) {
	newLocation(t) // or there is no Slurm
	for name, variable := range ways {
		t.Run(name, func(t *testing.T) { contract(t, variable) })
	}
}

func contract(t *testing.T, variable string) {
	newLocationBy(t, variable)
	fleettest.Run(t, func(t *testing.T) fleettest.Fleet {
		l := newLocationBy(t, variable)
		var drivers []*Driver // closed after the suite has tidied up through them
		t.Cleanup(func() {
			for _, d := range drivers {
				d.Close()
			}
		})
		return fleettest.Fleet{
			Patience: 90 * time.Second,
			Open: func(t *testing.T) fleet.Driver {
				d := l.reopen(t)
				drivers = append(drivers, d)
				return d
			},
			Agent: func(_ *testing.T, id trainyard.NodeID) string {
				if pid := l.number(id, "told"); pid != 0 {
					return fmt.Sprint(pid)
				}
				return ""
			},
			Kill: func(t *testing.T, id trainyard.NodeID) {
				if err := syscall.Kill(l.number(id, "told"), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			},
			Work: func(t *testing.T, id trainyard.NodeID) func() bool {
				if err := syscall.Kill(l.number(id, "told"), syscall.SIGUSR1); err != nil {
					t.Fatal(err)
				}
				until(t, "work runs", func() bool { return l.number(id, "work") != 0 })
				pid := l.number(id, "work")
				return func() bool { return lives(pid) }
			},
			Spoil: func(t *testing.T, id trainyard.NodeID) {
				if err := os.WriteFile(l.machine(id, ""), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(90 * time.Second)
	for !ok() {
		select {
		case <-limit:
			t.Fatalf("waited in vain until %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func spec(name, size string) trainyard.MachineSpec {
	return trainyard.MachineSpec{ID: trainyard.NodeID(fmt.Sprintf("%s-%d", name, time.Now().UnixNano())), Token: "secret", Compute: "s/r/w/c",
		Size: trainyard.VMSize{Name: size, VCPUs: 3, MemoryGB: 0.5, GPUs: 1}}
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

// only is the one machine there is.
func only(t *testing.T, d *Driver) trainyard.Machine {
	t.Helper()
	list, err := d.Machines(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("machines are %+v, %v", list, err)
	}
	return list[0]
}

// command runs one of Slurm's commands as a user beside us would.
func command(t *testing.T, l *location, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+l.settings.ConfPath)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// job is the number of a machine's job.
func job(t *testing.T, d *Driver, id trainyard.NodeID) string {
	t.Helper()
	name := mark(t, d, id)
	jobs, err := d.client.Queue(t.Context(), name)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs of %s are %+v, %v", name, jobs, err)
	}
	return jobs[0].ID
}

// mark is the name of a machine's job.
func mark(t *testing.T, d *Driver, id trainyard.NodeID) string {
	t.Helper()
	r, err := d.read(fleet.Folder(id))
	if err != nil {
		t.Fatal(err)
	}
	return r.Mark
}

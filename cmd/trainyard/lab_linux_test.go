package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// program builds the real program once, with the small one in it: agents are processes of their own, so the test binary will not do.
// TRAINYARD_TEST_PROGRAM names one that is built already, where there is no compiler.
var program = sync.OnceValues(func() (string, error) {
	if built := os.Getenv("TRAINYARD_TEST_PROGRAM"); built != "" {
		return built, nil
	}
	dir, err := os.MkdirTemp("", "trainyard-lab")
	if err != nil {
		return "", err
	}
	programDir = dir
	bin := filepath.Join(dir, "trainyard")
	out, err := exec.Command("make", "-C", "../..", "slim").CombinedOutput()
	if err == nil {
		out, err = exec.Command("go", "build", "-tags", "slimtask", "-o", bin, ".").CombinedOutput()
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return bin, nil
})

var programDir string // that it is built in; TestMain removes it

// lab is a real server in a folder of its own that a test may kill and start again.
type lab struct {
	t           *testing.T
	bin         string
	data        string
	config      string
	addr        string
	vars        []string // for all its programs, beside the usual
	cmd         *exec.Cmd
	out, errout *bytes.Buffer
}

func newLab(t *testing.T) *lab {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l := &lab{t: t, bin: bin, data: filepath.Join(dir, "data"), config: filepath.Join(dir, "config"), addr: freeAddr(t)}
	l.start()
	t.Cleanup(l.clean)
	return l
}

// freeAddr is one that nobody has, and that nobody is given while a server that has it is away: below the ports of outgoing connections.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(28100+rand.IntN(4600)))
		if err != nil {
			continue
		}
		defer ln.Close()
		return ln.Addr().String()
	}
	t.Fatal("no port from 28100 on is free")
	return ""
}

func (l *lab) env() []string {
	return append(append(os.Environ(), "TRAINYARD_CONFIG_DIR="+l.config, "TRAINYARD_URL=", "TRAINYARD_TOKEN=", "NO_COLOR=1", "DOCKER_HOST=unix:///nowhere"), l.vars...)
}

// command is the server, not started yet.
func (l *lab) command(args ...string) *exec.Cmd {
	cmd := exec.Command(l.bin, append([]string{"server", "--data", l.data, "--listen", l.addr}, args...)...)
	cmd.Env = l.env()
	return cmd
}

// start starts the server and waits until it answers.
func (l *lab) start() {
	l.t.Helper()
	l.cmd, l.out, l.errout = l.command(), &bytes.Buffer{}, &bytes.Buffer{}
	l.cmd.Stderr = l.errout
	ready, err := l.cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	if _, err := ready.Read(make([]byte, 512)); err != nil {
		_ = l.cmd.Wait()
		l.t.Fatalf("the server did not start: %s", l.errout)
	}
}

// in is the same lab for a subtest.
func (l *lab) in(t *testing.T) *lab {
	c := *l
	c.t = t
	return &c
}

// kill ends the server as a power cut would.
func (l *lab) kill() {
	l.t.Helper()
	if err := l.cmd.Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	_ = l.cmd.Wait()
}

// terminate asks the server to stop and returns how it ended.
func (l *lab) terminate() error {
	_ = l.cmd.Process.Signal(syscall.SIGTERM)
	return l.cmd.Wait()
}

// clean stops the server and every process that is left in the lab's folder: agents and tasks.
func (l *lab) clean() {
	if l.cmd.ProcessState == nil {
		_ = l.terminate()
	}
	if l.t.Failed() {
		l.t.Logf("server's log:\n%s", tailOf(l.errout.String(), 6000))
	}
	for range 20 {
		left := l.processes("")
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// processes lists the processes whose command line or environment names the lab's data folder, and with contains, that too.
func (l *lab) processes(contains string) []int {
	var out []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		text := strings.ReplaceAll(string(cmdline), "\x00", " ")
		if strings.Contains(text+string(environ), l.data) && strings.Contains(text, contains) {
			out = append(out, pid)
		}
	}
	return out
}

// cli runs a command that must work and returns what it printed.
func (l *lab) cli(args ...string) string {
	l.t.Helper()
	out, err := l.try(args...)
	if err != nil {
		l.t.Fatalf("trainyard %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// try runs a command and returns all it printed.
func (l *lab) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.bin, args...)
	cmd.Env = l.env()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// file writes a file into a folder of the test's own and returns its path.
func (l *lab) file(name, text string) string {
	l.t.Helper()
	path := filepath.Join(filepath.Dir(l.data), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		l.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		l.t.Fatal(err)
	}
	return path
}

// submit submits a command.
func (l *lab) submit(name, compute, command string) {
	l.t.Helper()
	doc, _ := json.Marshal(command) // JSON strings are YAML strings
	l.cli("job", "create", "-f", l.file(name+".yml", fmt.Sprintf("command: %s\ncompute: azureml:%s\n", doc, compute)), "-n", name, "-o", "none")
}

// cluster makes a cluster of at most max nodes.
func (l *lab) cluster(name, size string, max, idleSeconds int) {
	l.t.Helper()
	l.cli("compute", "create", "-n", name, "--type", "amlcompute", "--size", size, "--min-instances", "0", "--max-instances", strconv.Itoa(max),
		"--idle-time-before-scale-down", strconv.Itoa(idleSeconds), "-o", "none")
}

// job is a job as the API shows it.
type jobView struct {
	Status   string             `json:"status"`
	Reason   trainyard.Reason   `json:"reason"`
	ExitCode *int               `json:"exitCode"`
	Failure  *trainyard.Failure `json:"failure"`
	Attempts []struct {
		Number int             `json:"number"`
		Class  trainyard.Class `json:"class"`
	} `json:"attempts"`
}

// show reads a job through the API, without the CLI's start-up.
func (l *lab) show(name string) (jobView, error) {
	out, err := l.try("job", "show", "-n", name, "-o", "json")
	if err != nil {
		return jobView{}, errors.New(out)
	}
	var v struct {
		jobView
		ExitCode *int `json:"exit_code"`
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		return jobView{}, fmt.Errorf("%w in %s", err, out)
	}
	if v.ExitCode != nil {
		v.jobView.ExitCode = v.ExitCode
	}
	return v.jobView, nil
}

// until waits until a job is in one of the states.
func (l *lab) until(name string, states ...trainyard.JobState) jobView {
	l.t.Helper()
	var v jobView
	l.wait(fmt.Sprintf("job %s is %v", name, states), func() bool {
		var err error
		if v, err = l.show(name); err != nil {
			return false
		}
		for _, s := range states {
			if v.Status == string(s) {
				return true
			}
		}
		if trainyard.JobState(v.Status).Terminal() {
			l.t.Fatalf("job %s is %s, waited for %v: %+v", name, v.Status, states, v)
		}
		return false
	})
	return v
}

// wait waits until something holds, for four minutes at most: engines share the processors here. Most of what is asked starts a program: the
// longer it takes, the more rarely it is asked.
func (l *lab) wait(what string, holds func() bool) {
	l.t.Helper()
	deadline := time.After(4 * time.Minute)
	for pause := 30 * time.Millisecond; !holds(); pause = min(pause*5/4, 200*time.Millisecond) {
		select {
		case <-deadline:
			l.t.Fatalf("still not so after four minutes: %s", what)
		case <-time.After(pause):
		}
	}
}

// log is what a job printed.
func (l *lab) log(name string) string {
	l.t.Helper()
	dir := filepath.Join(filepath.Dir(l.data), "download-"+name)
	l.cli("job", "download", "-n", name, "--all", "--download-path", dir)
	var text string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "std_log.txt" {
			data, err := os.ReadFile(path)
			text = string(data)
			return err
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return text
}

func tailOf(s string, n int) string { return s[max(0, len(s)-n):] }

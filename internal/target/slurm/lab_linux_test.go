package slurm

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
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
	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
	"github.com/trainyard/trainyard/internal/target"
)

// TestMain is three programs. As "task" it stands in for this program's own command of that name, which jobs start: it stages nothing and
// runs the command that the task holds already, so that these tests are about Slurm and the driver alone. As agentEnv says it is an agent
// that dies.
func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	if len(os.Args) > 1 && os.Args[1] == "task" {
		os.Exit(runTask(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == unlockedWord {
		fmt.Println(unlocked(os.Args[2:]))
		os.Exit(1)
	}
	if dir := os.Getenv(agentEnv); dir != "" {
		fmt.Println(dyingAgent(dir, os.Getenv(agentEnv+"_STEP")))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// runTask runs the task in --file and leaves word of its end in --result, as the real command does.
func runTask(args []string) int {
	f := flag.NewFlagSet("task", flag.ExitOnError)
	file, result, rank, hosts := f.String("file", "", ""), f.String("result", "", ""), f.Int("rank", -1, ""), f.String("hosts", "", "")
	f.Func("hide", "", func(string) error { return nil }) // the real command's own tests are elsewhere
	_ = f.Parse(args)
	var t trainyard.Task
	if data, err := os.ReadFile(*file); err != nil || json.Unmarshal(data, &t) != nil {
		fmt.Fprintln(os.Stderr, "read the task:", err)
		return 1
	}
	end := trainyard.TaskEnd{Started: time.Now()}
	code, stopped, killed, peak := runCommand(&t, *rank, *hosts)
	end.Ended = time.Now()
	if killed > 0 {
		end.Warnings = []string{fmt.Sprintf("the process was killed: it had not ended %s after it was asked to (SIGTERM)", killed)}
	}
	if store := t.Run.Env[storeEnv]; store != "" {
		storing := exec.Command("bash", "-c", store)
		storing.Dir = t.Run.Dir
		_ = storing.Run()
	}
	end.Result = trainyard.Result{ExitCode: code, Class: trainyard.ClassOK, PeakMB: peak}
	if end.Result.Message = fmt.Sprintf("exit code %d", code); code != 0 {
		end.Result.Class = trainyard.ClassUser
	}
	if stopped {
		end.Result.Class, end.Result.Message = trainyard.ClassCanceled, "canceled"
	}
	data, err := json.Marshal(end)
	if err == nil {
		err = slurm.WriteFile(*result, data, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return min(code, 255)
}

// storeEnv is a variable of tasks with what the stand-in does, in their folder, where the real program stores their results.
const storeEnv = "STANDIN_STORE"

// graceOf is how long what runs may take to end, as the engine says, or else the task.
func graceOf(t *trainyard.Task) time.Duration {
	data, _ := os.ReadFile(os.Getenv("TRAINYARD_GRACE_FILE"))
	if ms, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	return t.Grace
}

// runCommand runs the task's command. killed is how long after SIGTERM what had not ended was killed; 0: nothing was.
func runCommand(t *trainyard.Task, rank int, hosts string) (code int, stopped bool, killed time.Duration, peakMB int64) {
	term := make(chan os.Signal, 8)
	signal.Notify(term, syscall.SIGTERM)
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // what leaves its parent becomes ours
	tmp, _ := os.MkdirTemp("", "standin-")
	defer os.RemoveAll(tmp)
	script := filepath.Join(tmp, "command")
	_ = os.WriteFile(script, []byte(t.Run.Command), 0o600)
	cmd := exec.Command("bash", script)
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.Run.Dir, os.Stdout, os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // slurmrestd signals the whole group of a job's script
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "RANK="+strconv.Itoa(rank), "HOSTS="+hosts)
	for name, value := range t.Run.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		return 127, false, 0, 0
	}
	done := make(chan unix.WaitStatus, 1)
	go func() {
		var status unix.WaitStatus
		for {
			if pid, err := unix.Wait4(-1, &status, 0, nil); err == nil && pid == cmd.Process.Pid {
				done <- status
				return
			}
		}
	}()
	var (
		asked, deadline time.Time
		over            time.Time // when it ended
		ended           *unix.WaitStatus
		alone           int // looks in a row that saw no descendant; one may miss some while another of them ends, says proc(5)
		look            = time.NewTicker(10 * time.Millisecond)
	)
	defer look.Stop()
	for {
		select {
		case <-term:
			if stopped {
				continue
			}
			stopped, asked = true, time.Now()
			deadline = asked.Add(graceOf(t))
			for _, pid := range descendants(os.Getpid()) {
				_ = unix.Kill(pid, unix.SIGTERM)
			}
		case status := <-done:
			ended, over = &status, time.Now()
		case <-look.C:
		}
		if at := time.Now().Add(graceOf(t)); stopped && at.Before(deadline) {
			deadline = at
		}
		if ended != nil {
			_, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil)
		}
		left := descendants(os.Getpid())
		if len(left) > 0 {
			alone = 0
		} else {
			alone++
		}
		switch late := stopped && !time.Now().Before(deadline); {
		case late && len(left) > 0 && killed == 0:
			killed = deadline.Sub(asked)
		case !stopped && ended != nil && ended.Signaled() && ended.Signal() == syscall.SIGTERM && time.Since(over) < time.Second: // Slurm ends us all, and we have not heard yet
			continue
		case ended != nil && alone > 2:
			var use unix.Rusage
			_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &use)
			if ended.Signaled() {
				return 128 + int(ended.Signal()), stopped, killed, use.Maxrss / 1024
			}
			return ended.ExitStatus(), stopped, killed, use.Maxrss / 1024
		case !late && (stopped || ended == nil): // what the command left behind has the rest of the grace
			continue
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// descendants lists the children of a process, and theirs.
func descendants(pid int) (out []int) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range tasks {
		data, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(data)) {
			if child, err := strconv.Atoi(word); err == nil {
				out = append(append(out, child), descendants(child)...)
			}
		}
	}
	return out
}

// lab is the Slurm that tests use.
func lab(t testing.TB) slurm.Settings {
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
	return slurm.Settings{ConfPath: conf}
}

// The ways in to the Slurm that tests use.
const (
	byCommands = "commands"
	byLogin    = "login node"
	byREST     = "slurmrestd"
)

var waysIn = []string{byCommands, byLogin, byREST}

// labBy is the Slurm that tests use, reached in one of the ways.
func labBy(t testing.TB, way string) slurm.Settings {
	t.Helper()
	s := lab(t)
	settings := func(variable string) {
		text := os.Getenv(variable)
		if text == "" {
			how := "test/engines/slurm/up.sh made no " + variable + "; it says what is missing"
			if os.Getenv("TRAINYARD_REQUIRE_ENGINES") != "" {
				t.Fatal(how)
			}
			t.Skip(how)
		}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
	}
	switch way {
	case byLogin:
		settings("TRAINYARD_TEST_SLURM_LOGIN")
	case byREST:
		settings("TRAINYARD_TEST_SLURM_REST")
	}
	return s
}

// alone has this package's tests have Slurm for themselves until they end: they fill all its nodes, and kill its controller.
var alone struct {
	sync.Once
	lock *os.File // never closed
}

func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// open opens a driver on dir that is closed when the test ends.
func open(t testing.TB, s slurm.Settings, dir string) *Driver {
	t.Helper()
	d := reopen(t, s, dir)
	t.Cleanup(func() { d.Close() })
	return d
}

// reopen opens a driver that its caller closes.
func reopen(t testing.TB, s slurm.Settings, dir string) *Driver {
	t.Helper()
	d, err := (&Config{Settings: s}).open(context.Background(), target.Env{Dir: dir, Program: self(t), Group: "test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// makeTask is a staged task of n nodes.
func makeTask(t testing.TB, name, command string, n int) trainyard.Task {
	t.Helper()
	return trainyard.Task{
		ID: trainyard.MakeTaskID(trainyard.MakeJobKey(trainyard.DefaultScope(), name), 1, 0), JobName: name, Attempt: 1, Hi: n, Nodes: n,
		Grace: 2 * time.Second, Run: trainyard.Run{Command: command, Dir: t.TempDir()},
	}
}

// start starts a task, which is removed when the test ends.
func start(t testing.TB, d *Driver, task trainyard.Task) {
	t.Helper()
	if err := d.Start(t.Context(), task); err != nil {
		t.Fatalf("start: %v", err)
	}
	removeLater(t, d, task.ID)
}

func removeLater(t testing.TB, d *Driver, id trainyard.TaskID) {
	t.Cleanup(func() {
		d.mu.Lock()
		closed := d.closed
		d.mu.Unlock()
		if closed {
			return
		}
		if err := d.Remove(context.Background(), id); err != nil {
			t.Errorf("remove: %v", err)
		}
	})
}

// seen waits until the task is seen as wanted.
func seen(t testing.TB, d *Driver, id trainyard.TaskID, what string, ok func(o trainyard.Observation) bool) trainyard.Observation {
	t.Helper()
	var last trainyard.Observation
	until(t, 60*time.Second, what, func() bool {
		all, err := d.Observe(t.Context())
		if err != nil {
			return false
		}
		for _, o := range all {
			if o.ID == id {
				last = o
				return ok(o)
			}
		}
		return false
	}, func() string { return fmt.Sprintf("%+v %+v", last, last.Result) })
	return last
}

func ended(t testing.TB, d *Driver, id trainyard.TaskID) trainyard.Observation {
	t.Helper()
	return seen(t, d, id, "the task has ended", func(o trainyard.Observation) bool { return o.State == trainyard.TaskEnded })
}

func running(t testing.TB, d *Driver, id trainyard.TaskID) trainyard.Observation {
	t.Helper()
	return seen(t, d, id, "the task runs", func(o trainyard.Observation) bool { return o.State == trainyard.TaskRunning })
}

func until(t testing.TB, patience time.Duration, what string, ok func() bool, is func() string) {
	t.Helper()
	late := time.After(patience)
	for !ok() {
		select {
		case <-late:
			t.Fatalf("waited %s in vain until %s; it is %s", patience, what, is())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// command runs one of Slurm's commands as a user beside us would.
func command(t testing.TB, s slurm.Settings, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+s.ConfPath)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

func logOf(t testing.TB, d *Driver, id trainyard.TaskID) string {
	t.Helper()
	r, err := d.Logs(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(bufio.NewReader(r))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

//go:build unix

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
)

func gangTask(kind string, nodes, per int) trainyard.Task {
	t := trainyard.Task{Lo: 0, Hi: 1, Nodes: nodes, Processes: per, Port: 23456, Grace: 2 * time.Second}
	for i := range nodes {
		t.Hosts = append(t.Hosts, fmt.Sprintf("10.0.0.%d", i+1))
	}
	if kind != "" {
		t.Distribution = &trainyard.Distribution{DistributionType: kind, ProcessCountPerInstance: per}
	}
	return t
}

// started is a task's launcher at work.
type started struct {
	*exec.Cmd
	out, err bytes.Buffer
	logs     string
}

func start(t *testing.T, task trainyard.Task, command string) *started {
	t.Helper()
	s := &started{logs: filepath.Join(t.TempDir(), "user_logs")}
	task.Run = trainyard.Run{Command: command, LogDir: s.logs, Env: map[string]string{"MINE": "own"}}
	if err := launch(&task, "linux"); err != nil {
		t.Fatal(err)
	}
	s.Cmd = exec.Command("bash", "-c", task.Run.Command)
	s.Dir, s.Stdout, s.Stderr = t.TempDir(), &s.out, &s.err
	s.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s.WaitDelay = 20 * time.Second
	s.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir()}
	for k, v := range task.Run.Env {
		s.Env = append(s.Env, k+"="+v)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *started) code(t *testing.T) int {
	t.Helper()
	err := s.Wait()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return e.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return 0
}

func (s *started) log(t *testing.T, rank int) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.logs, fmt.Sprintf("std_log_process_%d.txt", rank)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestPyTorchProcesses(t *testing.T) {
	task := gangTask("PyTorch", 2, 3)
	task.Lo, task.Hi = 1, 2
	s := start(t, task, `echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR:$MASTER_PORT $AZUREML_CR_NODE_RANK $AZUREML_PROCESS_NAME $AZ_BATCH_HOST_LIST $AZ_BATCHAI_JOB_MASTER_NODE_IP $MINE"; echo err >&2`)
	if c := s.code(t); c != 0 {
		t.Errorf("exit %d", c)
	}
	line := func(rank, local int) string {
		return fmt.Sprintf("%d %d 6 3 1 10.0.0.1:23456 1 rank_%d 10.0.0.1,10.0.0.2 10.0.0.1 own\n", rank, local, rank)
	}
	if s.out.String() != line(3, 0) || s.err.String() != "err\n" {
		t.Errorf("rank 3: %q, %q", s.out.String(), s.err.String())
	}
	for i := 1; i < 3; i++ {
		if got := s.log(t, 3+i); got != line(3+i, i)+"err\n" {
			t.Errorf("rank %d: %q", 3+i, got)
		}
	}
	if got := stdLog(&task); got != "user_logs/std_log_process_3.txt" {
		t.Errorf("log of rank 3 is called %s", got)
	}
	if got := processLogs(&task); !slices.Equal(got, []string{"std_log_process_4.txt", "std_log_process_5.txt"}) {
		t.Errorf("other logs %v", got)
	}
}

func TestProcessesInAContainerLogWhereItSeesTheirFolder(t *testing.T) {
	task := gangTask("PyTorch", 1, 2)
	task.Run = trainyard.Run{Command: "true", Root: "/node/one", LogDir: "/node/one/user_logs", View: trainyard.ContainedView}
	if err := launch(&task, "linux"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(task.Run.Command, "logs='"+trainyard.ContainedView+"/user_logs'") || task.Run.LogDir != "/node/one/user_logs" {
		t.Errorf("the node reads logs in %s, and the command is\n%s", task.Run.LogDir, task.Run.Command)
	}
}

func TestTwoNodeRanksOfOneGangOnOneNode(t *testing.T) {
	task := gangTask("", 2, 1)
	task.Hi = 2
	s := start(t, task, `echo $RANK/$WORLD_SIZE on $NODE_RANK, local $LOCAL_RANK`)
	if c := s.code(t); c != 0 || s.out.String() != "0/2 on 0, local 0\n" || s.log(t, 1) != "1/2 on 1, local 0\n" {
		t.Errorf("exit %d, %q, %q", c, s.out.String(), s.log(t, 1))
	}
}

func TestOneProcessKeepsItsCommand(t *testing.T) {
	for _, kind := range []string{"", "PyTorch", "Mpi", "TensorFlow"} {
		for _, nodes := range []int{1, 2} {
			task := gangTask(kind, nodes, 1)
			task.Run.Command = "python train.py"
			if err := launch(&task, "windows"); err != nil {
				t.Fatal(err)
			}
			if task.Run.Command != "python train.py" || task.Run.Env["NODE_RANK"] != "0" {
				t.Errorf("%q on %d nodes: %+v", kind, nodes, task.Run)
			}
			name, want := task.Run.Env["AZUREML_PROCESS_NAME"], map[int]string{1: "main", 2: "rank_0"}[nodes]
			log, wantLog := stdLog(&task), map[int]string{1: "user_logs/std_log.txt", 2: "user_logs/std_log_process_0.txt"}[nodes]
			if name != want || log != wantLog {
				t.Errorf("%q on %d nodes: %s, %s", kind, nodes, name, log)
			}
		}
	}
}

func TestMPIVariables(t *testing.T) {
	task := gangTask("mpi", 2, 2)
	s := start(t, task, `echo $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $OMPI_COMM_WORLD_LOCAL_RANK $OMPI_COMM_WORLD_LOCAL_SIZE $AZ_BATCHAI_MPI_MASTER_NODE $AZ_BATCH_MASTER_NODE`)
	if c := s.code(t); c != 0 || s.out.String() != "0 4 0 2 10.0.0.1 10.0.0.1:23456\n" || s.log(t, 1) != "1 4 1 2 10.0.0.1 10.0.0.1:23456\n" {
		t.Errorf("exit %d, %q, %q", c, s.out.String(), s.log(t, 1))
	}
}

func TestTensorFlowCluster(t *testing.T) {
	task := gangTask("TensorFlow", 2, 1)
	task.Distribution.ParameterServerCount = 1
	began := time.Now()
	s := start(t, task, `echo "$TF_CONFIG"; case $TF_CONFIG in
		*'"type":"ps"'*) touch serving; sleep 60;;
		*) until [ -e serving ]; do sleep 0.05; done;;
	esac`)
	if c := s.code(t); c != 0 {
		t.Errorf("exit %d", c)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the parameter server did not end with the last worker, but after %s", took)
	}
	type config struct {
		Cluster map[string][]string `json:"cluster"`
		Task    struct {
			Type  string `json:"type"`
			Index int    `json:"index"`
		} `json:"task"`
		Environment string `json:"environment"`
	}
	want := config{Cluster: map[string][]string{"worker": {"10.0.0.1:23456", "10.0.0.2:23457"}, "ps": {"10.0.0.1:23458"}}, Environment: "cloud"}
	for kind, text := range map[string]string{"worker": s.out.String(), "ps": s.log(t, 2)} {
		var got config
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("TF_CONFIG %q: %v", text, err)
		}
		want.Task.Type = kind
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
}

func TestFirstFailureEndsTheOthers(t *testing.T) {
	began := time.Now()
	s := start(t, gangTask("PyTorch", 1, 4), `if [ $RANK = 2 ]; then until [ -e r0 -a -e r1 -a -e r3 ]; do sleep 0.05; done; exit 3; fi
		trap 'echo told; exit 9' TERM; sleep 60 & touch r$RANK; wait`)
	if c := s.code(t); c != 3 {
		t.Errorf("exit %d", c)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	if s.out.String() != "told\n" || s.log(t, 1) != "told\n" {
		t.Errorf("%q, %q", s.out.String(), s.log(t, 1))
	}
	gone(t, s)
}

func TestProcessThatDoesNotListenIsKilled(t *testing.T) {
	s := start(t, gangTask("PyTorch", 1, 2), `if [ $RANK = 1 ]; then until [ -e r0 ]; do sleep 0.05; done; exit 4; fi
		trap '' TERM; touch r$RANK; (while :; do sleep 1; done)`)
	if c := s.code(t); c != 4 {
		t.Errorf("exit %d", c)
	}
	gone(t, s)
}

// terminate sends SIGTERM to all processes of the launcher's session, as drivers do.
func (s *started) terminate(t *testing.T) {
	t.Helper()
	out, err := exec.Command("pkill", "-TERM", "-s", strconv.Itoa(s.Process.Pid)).CombinedOutput()
	if err != nil {
		t.Fatalf("pkill: %v %s", err, out)
	}
}

// Python counts: a shell takes two signals for one.
func TestASignalToAllComesOnce(t *testing.T) {
	s := start(t, gangTask("PyTorch", 1, 2), `exec python3 -c '
import os, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
open("ready." + os.environ["RANK"], "w").close()
while not told: time.sleep(0.02)
until = time.monotonic() + 0.5
while time.monotonic() < until: time.sleep(0.02)
print("heard", len(told))
sys.exit(143)'`)
	for _, rank := range []string{"0", "1"} {
		await(t, func() bool { _, err := os.Stat(filepath.Join(s.Dir, "ready."+rank)); return err == nil })
	}
	s.terminate(t)
	if c := s.code(t); c != 143 || s.out.String() != "heard 1\n" || s.log(t, 1) != "heard 1\n" {
		t.Errorf("exit %d, %q, %q", c, s.out.String(), s.log(t, 1))
	}
	gone(t, s)
}

func TestProcessesThatHeardOfTheEndAreWaitedFor(t *testing.T) {
	s := start(t, gangTask("PyTorch", 1, 2), `trap 'echo bye; exit 143' TERM; echo ready >ready.$RANK; sleep 60 & wait`)
	for _, rank := range []string{"0", "1"} {
		await(t, func() bool { _, err := os.Stat(filepath.Join(s.Dir, "ready."+rank)); return err == nil })
	}
	s.terminate(t)
	if c := s.code(t); c != 143 || s.out.String() != "bye\n" || s.log(t, 1) != "bye\n" {
		t.Errorf("exit %d, %q, %q", c, s.out.String(), s.log(t, 1))
	}
	gone(t, s)
}

// A shell dies of SIGTERM at once, and says so; what it waited for has the rest of the grace all the same, whoever it was that ended them.
func TestWhatAShellLeavesBehindKeepsItsGrace(t *testing.T) {
	const saves = `trap 'sleep 0.5; echo saved >saved.$RANK; exit 0' TERM; touch up.$RANK; while :; do sleep 0.05; done`
	for name, c := range map[string]struct {
		ends func(s *started)
		code int
	}{
		"a signal": {func(s *started) { s.terminate(t) }, 143},
		"the end of another": {func(s *started) {
			if err := os.WriteFile(filepath.Join(s.Dir, "fail"), nil, 0o600); err != nil {
				t.Error(err)
			}
		}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, gangTask("PyTorch", 1, 3), `if [ $RANK = 2 ]; then until [ -e fail ]; do sleep 0.05; done; exit 5; fi; export RANK; bash -c "`+strings.ReplaceAll(saves, `$`, `\$`)+`" | cat`)
			for _, rank := range []string{"0", "1"} {
				await(t, func() bool { _, err := os.Stat(filepath.Join(s.Dir, "up."+rank)); return err == nil })
			}
			c.ends(s)
			if got := s.code(t); got != c.code {
				t.Errorf("exit %d, want %d", got, c.code)
			}
			for _, rank := range []string{"0", "1"} {
				if _, err := os.Stat(filepath.Join(s.Dir, "saved."+rank)); err != nil {
					t.Errorf("rank %s could not save", rank)
				}
			}
			gone(t, s)
		})
	}
}

func TestProcessKilledWithItsWholeGroup(t *testing.T) {
	s := start(t, gangTask("PyTorch", 1, 2), `if [ $RANK = 1 ]; then kill -KILL 0; fi; sleep 60`)
	if c := s.code(t); c != 137 {
		t.Errorf("exit %d", c)
	}
	gone(t, s)
}

func TestCommandIsTakenAsItIs(t *testing.T) {
	s := start(t, gangTask("PyTorch", 1, 2), "echo 'it'\\''s' \"a  b\" $((1+1)) \\\n  next # comment\nX=1 && echo $X || false\ncat")
	if c := s.code(t); c != 0 || s.out.String() != "it's a  b 2 next\n1\n" {
		t.Errorf("exit %d, %q, %q", c, s.out.String(), s.err.String())
	}
}

func TestManyProcesses(t *testing.T) {
	s := start(t, gangTask("PyTorch", 1, 24), `exit $((RANK == 23 ? 5 : 0))`)
	if c := s.code(t); c != 5 {
		t.Errorf("exit %d", c)
	}
}

func TestWhatCannotBeLaunched(t *testing.T) {
	for name, c := range map[string]struct {
		kind, goos, command, want string
		per                       int
	}{
		"an unknown type":     {kind: "Ray", goos: "linux", per: 2, want: "Ray"},
		"a gang on Windows":   {kind: "PyTorch", goos: "windows", per: 2, want: "Windows"},
		"a command too large": {kind: "PyTorch", goos: "linux", per: 2, command: strings.Repeat("x", 130<<10), want: "bytes long"},
	} {
		task := gangTask(c.kind, 1, c.per)
		task.Run.Command = c.command
		if err := launch(&task, c.goos); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// gone checks that nothing of the launcher's session is left.
func gone(t *testing.T, s *started) {
	t.Helper()
	await(t, func() bool {
		out, err := exec.Command("ps", "-o", "pid=,stat=", "-s", fmt.Sprint(s.Process.Pid)).Output()
		if err != nil {
			return len(bytes.TrimSpace(out)) == 0
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) == 2 && !strings.HasPrefix(f[1], "Z") {
				return false
			}
		}
		return true
	})
}

// await waits for something that must come within half a minute.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-limit:
			t.Fatal("waited in vain")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

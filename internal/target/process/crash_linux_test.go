package process

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// agentEnv makes the test binary an agent that opens the driver in the folder it names, starts one task, and waits to be killed.
const agentEnv = "TRAINYARD_TEST_AGENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(agentEnv); dir != "" {
		if err := agent(dir, os.Getenv(agentEnv+"_GROUP"), os.Getenv(agentEnv+"_STEP")); err != nil {
			fmt.Println(err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// steps are those of Start, in order.
var steps = []string{"begin", "prepared", "spawned", "recorded", "attached", "opened"}

// agent dies of SIGKILL at the named step; with none it lives until it is killed from outside.
func agent(dir, group, dieAt string) error {
	ctx := context.Background()
	d, err := (&Config{}).open(ctx, target.Env{Dir: filepath.Join(dir, "driver"), Group: group}, func(step string) {
		if step == dieAt {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if err := d.Start(ctx, crashTask(dir)); err != nil {
		return err
	}
	fmt.Println("started")
	<-time.After(time.Hour) // not for ever: without cgo the runtime ends a process in which nothing can happen any more
	return nil
}

// crashTask is slow enough that its agent may die while it runs.
func crashTask(dir string) trainyard.Task {
	return trainyard.Task{
		ID:  "s/r/w/crash.1.0",
		Run: trainyard.Run{Command: "echo ran >> runs; sleep 0.005; echo done >> runs; exit 5", Dir: dir, Env: map[string]string{"CRASH": dir}},
	}
}

// startAgent returns when the agent is ready to start its task.
func startAgent(t *testing.T, dir, step string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), agentEnv+"="+dir, agentEnv+"_GROUP="+groupName(t), agentEnv+"_STEP="+step)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the agent says %q", lines.Text())
	}
	return cmd, lines
}

// wantOnce starts the task as the next agent would, and fails unless its command ran exactly once in all, to its end.
func wantOnce(t *testing.T, dir, how string) {
	t.Helper()
	d := reopen(t, &Config{}, filepath.Join(dir, "driver"), trainyard.Resources{})
	defer d.Close()
	task := crashTask(dir)
	if err := d.Start(t.Context(), task); err != nil {
		t.Fatalf("%s: start again: %v", how, err)
	}
	o := waitEnded(t, d, task.ID)
	if o.Result.ExitCode != 5 || o.Result.Class != trainyard.ClassUser {
		t.Errorf("%s: result is %+v", how, *o.Result)
	}
	data, err := os.ReadFile(filepath.Join(dir, "runs"))
	if err != nil || string(data) != "ran\ndone\n" {
		t.Errorf("%s: the command wrote %q (%v), want that it ran once", how, data, err)
	}
	if err := d.Remove(t.Context(), task.ID); err != nil {
		t.Errorf("%s: remove: %v", how, err)
	}
	if left := waitGone(t, "CRASH="+dir); len(left) > 0 {
		t.Errorf("%s: processes %v are left", how, left)
	}
}

func TestAgentKilledAtAnyStepOfAStart(t *testing.T) {
	for _, step := range steps {
		dir := t.TempDir()
		cmd, _ := startAgent(t, dir, step)
		if err := cmd.Wait(); !killed(err) {
			t.Fatalf("the agent was to die at %q and ended with %v", step, err)
		}
		waitGone(t, "CRASH="+dir) // what it left behind leaves by itself, or runs to its end
		wantOnce(t, dir, "killed at "+step)
	}
}

func TestAgentKilledAtAnyTime(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 200 {
		dir := t.TempDir()
		cmd, _ := startAgent(t, dir, "")
		after := time.Duration(12e6 * math.Pow(random.Float64(), 3)) // most of them early, where Start is
		<-time.After(after)
		cmd.Process.Kill()
		if err := cmd.Wait(); !killed(err) {
			t.Fatalf("the agent ended with %v", err)
		}
		if i%2 == 0 {
			waitGone(t, "CRASH="+dir) // the next agent comes late; else it comes at once
		}
		wantOnce(t, dir, fmt.Sprintf("seed %d, round %d, killed after %v", seed, i, after))
		if t.Failed() {
			return
		}
	}
}

func TestTaskEndsAfterItsAgent(t *testing.T) {
	dir := t.TempDir()
	cmd, lines := startAgent(t, dir, "")
	if !lines.Scan() || lines.Text() != "started" {
		t.Fatalf("the agent says %q", lines.Text())
	}
	cmd.Process.Kill()
	cmd.Wait()
	waitGone(t, "CRASH="+dir) // it ends with no agent there
	d := open(t, &Config{}, filepath.Join(dir, "driver"), trainyard.Resources{})
	o := d.observe1(crashTask(dir).ID)
	if o == nil || o.State != trainyard.TaskEnded || o.Result.ExitCode != 5 {
		t.Errorf("the task is seen as %+v", o)
	}
	if err := d.Remove(t.Context(), o.ID); err != nil {
		t.Error(err)
	}
}

func killed(err error) bool {
	exit, ok := err.(*exec.ExitError)
	return ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

func TestFolderIsForOneDriver(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := startAgent(t, dir, "")
	_, err := (&Config{}).Open(t.Context(), target.Env{Dir: filepath.Join(dir, "driver"), Group: groupName(t)})
	if !trainyard.IsConflict(err) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second driver opens with %v, want a conflict that names the folder", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	wantOnce(t, dir, "refused another")
}

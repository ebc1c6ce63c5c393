package slurm

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
	"github.com/trainyard/trainyard/internal/target"
)

// agentEnv makes the test binary an agent that opens the driver in the folder it names, starts one task, and waits to be killed.
const agentEnv = "TRAINYARD_TEST_AGENT"

// steps are those of Start, in order.
var steps = []string{"begin", "written", "submitted", "recorded"}

// dyingAgent dies of SIGKILL at the named step; with none it lives until it is killed from outside.
func dyingAgent(dir, dieAt string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ctx := context.Background()
	s := slurm.Settings{ConfPath: os.Getenv("TRAINYARD_TEST_SLURM_CONF")}
	d, err := (&Config{Settings: s}).open(ctx, target.Env{Dir: filepath.Join(dir, "driver"), Program: program}, func(step string) {
		if step == dieAt {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
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
	select {}
}

func crashTask(dir string) trainyard.Task {
	return trainyard.Task{ID: "s/r/w/crash.1.0", Hi: 1, Nodes: 1, Run: trainyard.Run{Command: "echo ran >> runs; sleep 0.2; echo done >> runs; exit 5", Dir: dir}}
}

func startAgent(t *testing.T, dir, step string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(self(t))
	cmd.Env = append(os.Environ(), agentEnv+"="+dir, agentEnv+"_STEP="+step)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the agent says %q", lines.Text())
	}
	return cmd
}

// wantOnce starts the task as the next agent would, and fails unless its command ran exactly once, in one job.
func wantOnce(t *testing.T, s slurm.Settings, dir, how string) {
	t.Helper()
	d := open(t, s, filepath.Join(dir, "driver"))
	task := crashTask(dir)
	if err := d.Start(t.Context(), task); err != nil {
		t.Fatalf("%s: start again: %v", how, err)
	}
	o := ended(t, d, task.ID)
	if o.Result.ExitCode != 5 || o.Result.Class != trainyard.ClassUser {
		t.Errorf("%s: result is %+v", how, *o.Result)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "runs")); err != nil || string(data) != "ran\ndone\n" {
		t.Errorf("%s: the command wrote %q (%v), want that it ran once", how, data, err)
	}
	jobs, err := d.client.Queue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, j := range jobs {
		if strings.HasSuffix(j.Name, d.suffix) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%s: %d jobs were made: %+v", how, n, jobs)
	}
	if err := d.Remove(t.Context(), task.ID); err != nil {
		t.Errorf("%s: remove: %v", how, err)
	}
}

func TestAgentKilledAtAnyStepOfAStart(t *testing.T) {
	s := lab(t)
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			err := startAgent(t, dir, step).Wait()
			if exit, ok := err.(*exec.ExitError); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the agent was to die at %q and ended with %v", step, err)
			}
			wantOnce(t, s, dir, "killed at "+step)
		})
	}
}

// An agent that is killed while sbatch runs leaves it behind; the next one waits for it.
func TestAgentKilledAtAnyTime(t *testing.T) {
	s := lab(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 8 {
		dir := t.TempDir()
		cmd := startAgent(t, dir, "")
		after := time.Duration(random.Float64() * float64(40*time.Millisecond))
		<-time.After(after)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		wantOnce(t, s, dir, fmt.Sprintf("seed %d, round %d, killed after %v", seed, i, after))
		if t.Failed() {
			return
		}
	}
}

// What an agent that died has given to Slurm is shown by the next one, though nobody asks it to start that.
func TestJobThatWasNotWrittenDownIsFound(t *testing.T) {
	s := lab(t)
	dir := t.TempDir()
	_ = startAgent(t, dir, "submitted").Wait()
	d := open(t, s, filepath.Join(dir, "driver"))
	if o := ended(t, d, crashTask(dir).ID); o.Result.ExitCode != 5 {
		t.Errorf("result is %+v", *o.Result)
	}
	if err := d.Remove(t.Context(), crashTask(dir).ID); err != nil {
		t.Error(err)
	}
	dir = t.TempDir()
	_ = startAgent(t, dir, "written").Wait()
	d = open(t, s, filepath.Join(dir, "driver"))
	if all, err := d.Observe(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("a task that never came to Slurm is listed: %+v, %v", all, err)
	}
	if err := d.Remove(t.Context(), crashTask(dir).ID); err != nil {
		t.Error(err)
	}
}

// Should two jobs be made for one task all the same, one of them runs it.
func TestSecondJobOfATaskLeaves(t *testing.T) {
	s := lab(t)
	dir := t.TempDir()
	d := open(t, s, filepath.Join(dir, "driver"))
	task := crashTask(dir)
	start(t, d, task)
	d.mu.Lock()
	it := d.tasks[task.ID.Dir()]
	d.mu.Unlock()
	for range 3 {
		if _, err := d.client.Submit(t.Context(), d.batch(it)); err != nil {
			t.Fatal(err)
		}
	}
	if o := ended(t, d, task.ID); o.Result.ExitCode != 5 {
		t.Errorf("result is %+v", *o.Result)
	}
	until(t, time.Minute, "the other jobs have left", func() bool {
		jobs, err := d.client.Queue(t.Context(), it.rec.Mark)
		for _, j := range jobs {
			if !j.Ended() {
				return false
			}
		}
		return err == nil && len(jobs) == 4
	}, func() string { return "not so" })
	if data, err := os.ReadFile(filepath.Join(dir, "runs")); err != nil || string(data) != "ran\ndone\n" {
		t.Errorf("the command wrote %q (%v), want that it ran once", data, err)
	}
}

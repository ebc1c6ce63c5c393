//go:build !windows

package docker

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

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// agentVar makes the test binary an agent that opens the driver in the folder it names, starts one task, and waits to be killed.
const agentVar = "TRAINYARD_TEST_DOCKER_AGENT"

// condaVar is the conda file of an environment that such an agent prepares, at the step of that name.
const condaVar = "TRAINYARD_TEST_DOCKER_CONDA"

// steps are those of Start, in order.
var steps = []string{"begin", "folder", "created", "started"}

// agent dies of SIGKILL at the named step; with none it lives until it is killed from outside.
func agent(dir, group, dieAt string) error {
	ctx := context.Background()
	c := Config{Host: os.Getenv(hostVar), Image: os.Getenv(imageVar)}
	d, err := c.open(ctx, target.Env{Dir: filepath.Join(dir, "driver"), Group: group}, func(step string) {
		if step == dieAt {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if dieAt == "prepare" {
		task := crashTask(dir)
		task.Environment = &trainyard.EnvironmentPlan{Name: "env", Hash: "h", Image: c.Image, CondaFile: os.Getenv(condaVar)}
		return d.Prepare(ctx, task, &teller{})
	}
	if err := d.Start(ctx, crashTask(dir)); err != nil {
		return err
	}
	fmt.Println("started")
	select {}
}

// crashTask is slow enough that its agent may die while it runs.
func crashTask(dir string) trainyard.Task {
	return trainyard.Task{
		ID:  "s/r/w/crash.1.0",
		Run: trainyard.Run{Command: "echo ran >> runs; sleep 0.005; echo done >> runs; exit 5", Dir: dir, Root: dir},
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
	cmd.Env = append(os.Environ(), agentVar+"="+dir, agentVar+"_GROUP="+groupName(t), agentVar+"_STEP="+step)
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
func wantOnce(t *testing.T, c Config, dir, how string) {
	t.Helper()
	d := reopen(t, c, filepath.Join(dir, "driver"), trainyard.Resources{})
	defer d.Close()
	task := crashTask(dir)
	if err := d.Start(t.Context(), task); err != nil {
		t.Fatalf("%s: start again: %v", how, err)
	}
	o := ended(t, d, task.ID)
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
	left, err := d.engine.list(t.Context(), groupName(t), labelGroup)
	if err != nil || len(left) > 0 {
		t.Errorf("%s: containers %v are left (%v)", how, left, err)
	}
}

func TestAgentKilledAtAnyStepOfAStart(t *testing.T) {
	c := needEngine(t)
	for _, step := range steps {
		dir := t.TempDir()
		cmd, _ := startAgent(t, dir, step)
		if err := cmd.Wait(); !killed(err) {
			t.Fatalf("the agent was to die at %q and ended with %v", step, err)
		}
		wantOnce(t, c, dir, "killed at "+step)
	}
}

func TestAgentKilledAtAnyTime(t *testing.T) {
	c := needEngine(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 25 {
		dir := t.TempDir()
		cmd, _ := startAgent(t, dir, "")
		after := time.Duration(400e6 * math.Pow(random.Float64(), 1.5)) // Start takes about that long
		<-time.After(after)
		cmd.Process.Kill()
		if err := cmd.Wait(); !killed(err) {
			t.Fatalf("the agent ended with %v", err)
		}
		wantOnce(t, c, dir, fmt.Sprintf("seed %d, round %d, killed after %v", seed, i, after))
		if t.Failed() {
			return
		}
	}
}

func TestTaskEndsAfterItsAgent(t *testing.T) {
	c := needEngine(t)
	dir := t.TempDir()
	cmd, lines := startAgent(t, dir, "")
	if !lines.Scan() || lines.Text() != "started" {
		t.Fatalf("the agent says %q", lines.Text())
	}
	cmd.Process.Kill()
	cmd.Wait()
	until(t, "the command is over", func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "runs"))
		return strings.HasSuffix(string(data), "done\n")
	})
	wantOnce(t, c, dir, "ended without an agent")
}

func TestStartedContainerThatIsStartedAgainRunsNothing(t *testing.T) {
	c := needEngine(t)
	d := open(t, c, t.TempDir(), trainyard.Resources{})
	task := newTestTask(t, "echo ran >> runs; exit 4")
	if _, r := run(t, d, task); r.ExitCode != 4 {
		t.Fatalf("result is %+v", r)
	}
	if err := dockerCLI(c, "start", d.container(newTask(task.ID.Dir()))); err != nil {
		t.Fatal(err)
	}
	until(t, "the container is over again", func() bool {
		all, err := d.engine.list(t.Context(), groupName(t), labelTask)
		return err == nil && len(all) == 1 && !lives(all[0].State)
	})
	if data, _ := os.ReadFile(filepath.Join(task.Run.Dir, "runs")); string(data) != "ran\n" {
		t.Errorf("the command ran again: %q", data)
	}
	if o := find(t, d, task.ID); o == nil || o.Result == nil || o.Result.ExitCode != 4 {
		t.Errorf("the task is seen as %+v", o)
	}
}

// dockerCLI runs the docker command as somebody on the node would.
func dockerCLI(c Config, args ...string) error {
	cmd := exec.Command("docker", args...)
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+c.Host)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("docker %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func killed(err error) bool {
	exit, ok := err.(*exec.ExitError)
	return ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}

func TestFolderIsForOneDriver(t *testing.T) {
	c := needEngine(t)
	dir := t.TempDir()
	open(t, c, dir, trainyard.Resources{})
	_, err := c.Open(t.Context(), target.Env{Dir: dir, Group: groupName(t)})
	if !trainyard.IsConflict(err) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second driver opens with %v, want a conflict that names the folder", err)
	}
}

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// lines is the log of a job that counts to n.
func lines(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintln(&b, "line", i)
	}
	return b.String()
}

func readFile(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}

func TestAServerKilledInTheMiddleOfAJobLosesNothing(t *testing.T) {
	l := newLab(t)
	mark := filepath.Join(t.TempDir(), "mark")
	l.submit("counter", "local", fmt.Sprintf("echo began >> %s; for i in $(seq 1 300); do echo line $i; sleep 0.01; echo $i > %s.at; done", mark, mark))
	l.wait("the job counts", func() bool { return readFile(mark+".at") != "" })
	for range 3 {
		l.kill()
		at := readFile(mark + ".at")
		l.wait("the job goes on without a server", func() bool { return readFile(mark+".at") != at })
		l.start()
	}
	l.until("counter", trainyard.JobCompleted)
	if got := l.log("counter"); got != lines(300) {
		t.Errorf("the log is not whole: %d bytes, want %d; it ends %q", len(got), len(lines(300)), tailOf(got, 60))
	}
	if got := readFile(mark); got != "began\n" {
		t.Errorf("the job began %d times", strings.Count(got, "began"))
	}
}

func TestAnAgentKilledInTheMiddleOfAJobIsReplacedAndTheTaskAdopted(t *testing.T) {
	l := newLab(t)
	l.cluster("cpu-cluster", "Standard_DS3_v2", 1, 60)
	mark := filepath.Join(t.TempDir(), "mark")
	l.submit("counter", "cpu-cluster", fmt.Sprintf("echo began >> %s; for i in $(seq 1 300); do echo line $i; sleep 0.02; done", mark))
	l.wait("the job runs", func() bool { return readFile(mark) != "" })
	agents := l.processes(" agent ")
	if len(agents) != 1 {
		t.Fatalf("%d agents run, want 1", len(agents))
	}
	if err := syscall.Kill(agents[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	v := l.until("counter", trainyard.JobCompleted)
	began := strings.Count(readFile(mark), "began")
	if began != len(v.Attempts) {
		t.Errorf("began %d times in %d attempts", began, len(v.Attempts))
	}
	if len(v.Attempts) != 1 {
		t.Errorf("%d attempts: the task was not adopted", len(v.Attempts))
	}
	if got := l.log("counter"); got != lines(300) {
		t.Errorf("the log is not whole: %d bytes, want %d", len(got), len(lines(300)))
	}
}

func TestAMachineThatIsGoneWithItsTaskIsSaidLostAndTheJobRunsAgain(t *testing.T) {
	l := newLab(t)
	l.cluster("cpu-cluster", "Standard_DS3_v2", 1, 60)
	mark := filepath.Join(t.TempDir(), "mark")
	l.submit("twice", "cpu-cluster", fmt.Sprintf("echo began >> %s; if [ $(grep -c began %s) = 1 ]; then sleep 300; fi; echo second", mark, mark))
	l.wait("the job runs", func() bool { return readFile(mark) != "" })
	l.until("twice", trainyard.JobRunning)
	l.kill()
	for range 3 { // the agent, then what it left
		for _, pid := range l.processes("") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	machines, err := filepath.Glob(filepath.Join(l.data, "machines", "*", "cpu-cluster-*"))
	if err != nil || len(machines) != 1 {
		t.Fatalf("machines %v, %v", machines, err)
	}
	if err := os.RemoveAll(machines[0]); err != nil {
		t.Fatal(err)
	}
	l.start()
	v := l.until("twice", trainyard.JobCompleted)
	if began := strings.Count(readFile(mark), "began"); began != 2 || len(v.Attempts) != 2 {
		t.Errorf("began %d times in %d attempts, want 2 and 2", began, len(v.Attempts))
	}
}

func TestAcknowledgedSubmitsSurviveKills(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	var mu sync.Mutex
	var acked []string
	for round := range 4 {
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				name := fmt.Sprintf("job-%d-%d", round, i)
				path := l.file(name+".yml", fmt.Sprintf("command: echo x >> %s/%s\ncompute: azureml:local\n", dir, name))
				if _, err := l.try("job", "create", "-f", path, "-n", name, "-o", "none"); err == nil {
					mu.Lock()
					defer mu.Unlock()
					acked = append(acked, name)
				}
			})
		}
		<-time.After(time.Duration(rand.IntN(120)) * time.Millisecond)
		l.kill()
		l.start()
		wg.Wait()
	}
	if len(acked) == 0 {
		t.Fatal("nothing was acknowledged")
	}
	for _, name := range acked {
		l.until(name, trainyard.JobCompleted)
		if got := readFile(filepath.Join(dir, name)); got != "x\n" {
			t.Errorf("job %s ran %d times", name, strings.Count(got, "x"))
		}
	}
}

func TestNastyJobs(t *testing.T) {
	l := newLab(t)
	t.Run("prints invalid UTF-8", func(t *testing.T) {
		l := l.in(t)
		l.submit("bytes", "local", `printf 'a\377\376b\n'`)
		l.until("bytes", trainyard.JobCompleted)
		if got := l.log("bytes"); got != "a\xff\xfeb\n" {
			t.Errorf("log %q", got)
		}
	})
	t.Run("deletes its own working directory", func(t *testing.T) {
		l := l.in(t)
		l.submit("rmdir", "local", `rm -rf "$PWD"; echo still here`)
		l.until("rmdir", trainyard.JobCompleted)
	})
	t.Run("forks 500 children and is canceled", func(t *testing.T) {
		l := l.in(t)
		mark := filepath.Join(t.TempDir(), "up")
		l.submit("forks", "local", fmt.Sprintf("for i in $(seq 500); do sleep 321 & done; touch %s; wait", mark))
		l.wait("children are up", func() bool { _, err := os.Stat(mark); return err == nil })
		l.cli("job", "cancel", "-n", "forks")
		l.until("forks", trainyard.JobCanceled)
		l.wait("no child is left", func() bool { return len(l.processes("sleep 321")) == 0 })
	})
	t.Run("ignores SIGTERM and is canceled", func(t *testing.T) {
		l := l.in(t)
		mark := filepath.Join(t.TempDir(), "up")
		l.submit("deaf", "local", fmt.Sprintf("trap '' TERM; touch %s; while true; do sleep 0.1; done", mark))
		l.wait("it is up", func() bool { _, err := os.Stat(mark); return err == nil })
		l.cli("job", "cancel", "-n", "deaf")
		l.until("deaf", trainyard.JobCanceled)
	})
	t.Run("fails with its exit code", func(t *testing.T) {
		l := l.in(t)
		l.submit("three", "local", "exit 3")
		v := l.until("three", trainyard.JobFailed)
		if v.ExitCode == nil || *v.ExitCode != 3 {
			t.Errorf("exit code %v, want 3", v.ExitCode)
		}
	})
	t.Run("runs over its time limit", func(t *testing.T) {
		l := l.in(t)
		path := l.file("slow.yml", "command: sleep 100\ncompute: azureml:local\nlimits:\n  timeout: 1\n")
		for i := range 5 {
			name := fmt.Sprintf("slow-%d", i)
			l.cli("job", "create", "-f", path, "-n", name, "-o", "none")
			v := l.until(name, trainyard.JobCanceled)
			if v.Failure == nil || v.Failure.Class != trainyard.ClassTimeout || !strings.Contains(v.Failure.Message, "1s") {
				t.Errorf("failure %+v, want the limit of 1s named", v.Failure)
			}
		}
	})
	t.Run("prints two gigabytes", func(t *testing.T) {
		l := l.in(t)
		l.submit("loud", "local", "yes 0123456789012345678901234567890123456789012345678901234567890 | head -c 2147483648")
		l.until("loud", trainyard.JobCompleted)
		info, err := os.Stat(filepath.Join(l.data, "blobs", "workspaceartifactstore", "ExperimentRun", "dcid.loud", "user_logs", "std_log.txt"))
		if err != nil || info.Size() != 2147483648 {
			t.Errorf("log of %v bytes, %v; want 2147483648", info, err)
		}
		l.cli("job", "delete", "-n", "loud", "--yes")
	})
	t.Run("uses more memory than its node has", func(t *testing.T) {
		l := l.in(t)
		l.cluster("small", "Standard_F2s_v2", 1, 60)
		l.submit("glutton", "small", `python3 -c "x = bytearray(6 << 30); print(len(x))"`)
		v := l.until("glutton", trainyard.JobFailed)
		if v.Failure == nil || v.Failure.Class != trainyard.ClassOutOfMemory || !strings.Contains(v.Failure.Message, "memory") {
			t.Errorf("failure %+v, want out of memory named as such", v.Failure)
		}
	})
	t.Run("and the server lives", func(t *testing.T) {
		l := l.in(t)
		l.submit("after", "local", "true")
		l.until("after", trainyard.JobCompleted)
	})
}

func TestAJobsTokenDiesWithIt(t *testing.T) {
	l := newLab(t)
	ask := `curl -s -o /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $T" "$U/subscriptions/$S/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default/jobs?api-version=1"`
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.submit("first", "local", "U=$AZUREML_SERVICE_ENDPOINT S=$AZUREML_ARM_SUBSCRIPTION T=$AZUREML_RUN_TOKEN; "+ask+"; echo $T > "+token)
	l.until("first", trainyard.JobCompleted)
	l.submit("second", "local", "U=$AZUREML_SERVICE_ENDPOINT S=$AZUREML_ARM_SUBSCRIPTION T=$(cat "+token+"); "+ask)
	l.until("second", trainyard.JobCompleted)
	if live, dead := l.log("first"), l.log("second"); live != "200\n" || dead != "401\n" {
		t.Errorf("the token was answered %q in its job's life and %q after", live, dead)
	}
}

func TestAGangEndsWithTheRankThatFailed(t *testing.T) {
	l := newLab(t)
	l.cluster("cpu-cluster", "Standard_DS3_v2", 2, 60)
	path := l.file("gang.yml", "command: 'if [ \"$NODE_RANK\" = 1 ]; then exit 3; fi; sleep 300'\ncompute: azureml:cpu-cluster\nresources:\n  instance_count: 2\n")
	l.cli("job", "create", "-f", path, "-n", "gang", "-o", "none")
	v := l.until("gang", trainyard.JobFailed)
	if v.ExitCode == nil || *v.ExitCode != 3 {
		t.Errorf("exit code %v, failure %+v; want 3", v.ExitCode, v.Failure)
	}
	l.wait("no rank is left", func() bool { return len(l.processes("sleep 300")) == 0 })
}

func TestASecondServerLeavesTheProfileAlone(t *testing.T) {
	l := newLab(t)
	before := readFile(filepath.Join(l.config, "profile.json"))
	other := &lab{t: t, bin: l.bin, data: filepath.Join(t.TempDir(), "data"), config: l.config, addr: freeAddr(t)}
	other.start()
	t.Cleanup(other.clean)
	if readFile(filepath.Join(l.config, "profile.json")) != before {
		t.Error("the profile of a server that runs was replaced")
	}
	l.kill()
	if err := other.terminate(); err != nil {
		t.Error(err)
	}
	other.start()
	if readFile(filepath.Join(l.config, "profile.json")) == before {
		t.Error("the profile of a server that is gone was kept")
	}
}

func TestASecondServerIsRefusedInWords(t *testing.T) {
	l := newLab(t)
	out, err := l.command().CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is in use") {
		t.Errorf("on the same address: %v\n%s", err, out)
	}
	l.addr = freeAddr(t)
	out, err = l.command().CombinedOutput()
	if err == nil || !strings.Contains(string(out), l.data) || strings.Contains(string(out), "panic") {
		t.Errorf("on the same data folder: %v\n%s", err, out)
	}
}

func TestTheServerStopsOnSIGTERM(t *testing.T) {
	l := newLab(t)
	if err := l.terminate(); err != nil {
		t.Errorf("ended with %v: %s", err, l.errout)
	}
}

// mountSmall mounts a file system of its own for a test.
func mountSmall(t *testing.T, dir, options string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("left out: a small file system cannot be mounted here (%v); run as root to have it", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

func TestAReadOnlyDataFolderIsSaidInWords(t *testing.T) {
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "ro")
	mountSmall(t, dir, "size=1m")
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, bin: bin, data: filepath.Join(dir, "data"), config: t.TempDir(), addr: freeAddr(t)}
	out, err := l.command().CombinedOutput()
	if err == nil || !strings.Contains(string(out), l.data) || !strings.Contains(string(out), "--data") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestAFullDiskFailsTheWriteAndNotTheServer(t *testing.T) {
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "small")
	mountSmall(t, dir, "size=24m")
	l := &lab{t: t, bin: bin, data: filepath.Join(dir, "data"), config: t.TempDir(), addr: freeAddr(t)}
	l.start()
	t.Cleanup(l.clean)
	l.submit("before", "local", "echo fine")
	l.until("before", trainyard.JobCompleted)
	fill := filepath.Join(dir, "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 64<<10)
	for {
		if _, err := f.Write(block); err != nil {
			break
		}
	}
	f.Close()
	path := filepath.Join(t.TempDir(), "full.yml")
	if err := os.WriteFile(path, []byte("command: echo full\ncompute: azureml:local\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := l.try("job", "create", "-f", path, "-n", "during", "-o", "none")
	t.Logf("submit on a full disk: %v %s", err, out)
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	l.wait("jobs run again once there is room", func() bool {
		_, err := l.try("job", "create", "-f", path, "-n", "after", "-o", "none")
		return err == nil
	})
	l.until("after", trainyard.JobCompleted)
	if v, err := l.show("before"); err != nil || v.Status != string(trainyard.JobCompleted) {
		t.Errorf("the job from before is %v, %v", v, err)
	}
}

func TestAJobCannotReadTheServersOwnFiles(t *testing.T) {
	l := newLab(t)
	l.cluster("cpu-cluster", "Standard_DS3_v2", 1, 60)
	for _, compute := range []string{"local", "cpu-cluster"} {
		name := "thief-" + compute
		l.submit(name, compute, fmt.Sprintf("cat %s/db/* %s/tls/* %s/profile.json %s/machines/*/*/join-token %s/nodes/*/agent/*/task.json 2>/dev/null | wc -c; touch /tmp/$AZUREML_RUN_ID-tmp && rm /tmp/$AZUREML_RUN_ID-tmp && echo fine",
			l.data, l.data, l.config, l.data, l.data))
		l.until(name, trainyard.JobCompleted)
		if got := l.log(name); got != "0\nfine\n" {
			t.Errorf("on %s it read and said %q", compute, got)
		}
	}
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
)

// A step of the server is a system call that changes a disk. The test has another process trace the server and kill it at the n-th
// step of a submit, for every n: kill -9 between any two steps, not at moments that chance picks.

// steps are the system calls that change a disk, by number.
var steps = map[uint64]string{
	unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite64", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_OPENAT: "openat", unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2",
	unix.SYS_RENAME: "rename", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_MKDIRAT: "mkdirat", unix.SYS_LINKAT: "linkat", unix.SYS_FALLOCATE: "fallocate",
}

// Variables by which the test binary becomes the tracer.
const (
	tracePid  = "TRAINYARD_TEST_TRACE_PID"
	traceStep = "TRAINYARD_TEST_TRACE_STEP"
)

func TestMain(m *testing.M) {
	if os.Getenv(tracePid) == "" {
		code := m.Run()
		_ = os.RemoveAll(programDir) // nothing, if it was not built
		os.Exit(code)
	}
	pid, _ := strconv.Atoi(os.Getenv(tracePid))
	at, _ := strconv.Atoi(os.Getenv(traceStep))
	if err := trace(pid, at); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// trace kills process pid just before its step number at. It prints "attached" when it counts, and "killed CALL" after, or, if the process
// ends before, how many of its steps brought something safely to the disk.
func trace(pid, at int) error {
	runtime.LockOSThread() // the tracer is a thread
	tids, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, e := range tids {
		tid, _ := strconv.Atoi(e.Name())
		if err := seize(tid); err != nil {
			return fmt.Errorf("trace %d: %w", tid, err)
		}
	}
	fmt.Println("attached")
	inside := map[int]bool{} // threads in a system call, whose next stop is its end
	for count, synced := 0, 0; ; {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil { // no threads are left
			fmt.Println("synced", synced)
			return nil
		}
		if !status.Stopped() {
			continue
		}
		signal := status.StopSignal()
		pass := 0
		switch {
		case signal == unix.SIGTRAP|0x80:
			inside[tid] = !inside[tid]
			if name := stepOf(tid, inside[tid]); name != "" {
				count++
				if strings.HasSuffix(name, "sync") {
					synced++
				}
				if count == at {
					fmt.Println("killed", name)
					return unix.Kill(pid, unix.SIGKILL)
				}
			}
		case status.TrapCause() == 0 && signal != unix.SIGTRAP && signal != unix.SIGSTOP:
			pass = int(signal)
		}
		_ = unix.PtraceSyscall(tid, pass)
	}
}

// seize begins to trace a thread.
func seize(tid int) error {
	const options = unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACESYSGOOD
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(tid), 0, options, 0, 0); errno != 0 {
		return errno
	}
	return unix.PtraceInterrupt(tid)
}

// stepOf names the step that a thread is about to take, if it is one: what goes to a file or makes one.
func stepOf(tid int, entering bool) string {
	if !entering {
		return ""
	}
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) != nil {
		return ""
	}
	name := steps[regs.Orig_rax]
	switch name {
	case "write", "pwrite64":
		if path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, regs.Rdi)); err != nil || !strings.HasPrefix(path, "/") {
			return "" // a socket or a pipe
		}
	case "openat":
		if regs.Rdx&unix.O_CREAT == 0 {
			return ""
		}
	}
	return name
}

// stepper kills a server at one of its steps.
type stepper struct {
	l    *lab
	cmd  *exec.Cmd
	out  *bufio.Reader
	gone chan struct{} // closed when the server is
}

// traced has the server killed at its n-th step from now on.
func (l *lab) traced(n int) *stepper {
	l.t.Helper()
	s := &stepper{l: l, cmd: exec.Command(os.Args[0]), gone: make(chan struct{})}
	s.cmd.Env = append(os.Environ(), tracePid+"="+strconv.Itoa(l.cmd.Process.Pid), traceStep+"="+strconv.Itoa(n))
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if line, _ := s.out.ReadString('\n'); line != "attached\n" {
		l.t.Fatalf("the server cannot be traced here: %s; run as root, or with kernel.yama.ptrace_scope at 0", strings.TrimSpace(line))
	}
	go func() {
		_ = l.cmd.Wait()
		close(s.gone)
	}()
	return s
}

// end kills the server if that was not done, and returns the name of the step at which it was; else "", and how often it synced.
func (s *stepper) end() (step string, synced int) {
	s.l.t.Helper()
	_ = s.l.cmd.Process.Kill()
	<-s.gone
	rest, err := io.ReadAll(s.out)
	if err != nil {
		s.l.t.Fatal(err)
	}
	_ = s.cmd.Wait()
	if n, ok := strings.CutPrefix(strings.TrimSpace(string(rest)), "synced "); ok {
		synced, _ = strconv.Atoi(n)
		return "", synced
	}
	name, _ := strings.CutPrefix(strings.TrimSpace(string(rest)), "killed")
	return strings.TrimSpace(name), 0
}

func TestAServerKilledBetweenAnyTwoStepsOfASubmit(t *testing.T) {
	l := newLab(t)
	l.cluster("cpu-cluster", "Standard_DS3_v2", 1, 60)
	l.cli("compute", "stop", "-n", "cpu-cluster") // jobs wait, so that the steps are the submit's own
	marks := t.TempDir()
	l.file("src/main.sh", "echo x >> "+marks+"/$1\n")
	taken := map[string]int{}
	var names []string
	synced := 0
	for n := 1; ; n++ {
		name := fmt.Sprintf("job-%d", n)
		// A file of its own, so that each submit uploads code.
		l.file("src/which.txt", name)
		path := l.file(name+".yml", fmt.Sprintf("command: bash main.sh %s\ncode: src\ncompute: azureml:cpu-cluster\n", name))
		s := l.traced(n)
		done := make(chan error, 1)
		go func() {
			out, err := l.try("job", "create", "-f", path, "-n", name, "-o", "none")
			if err != nil {
				err = errors.New(out)
			}
			done <- err
		}()
		var step string
		select {
		case <-s.gone: // the command waits for the server to be back
			step, _ = s.end()
			l.start()
			err := <-done
			if err != nil {
				t.Fatalf("killed at step %d (%s) and started again: the submit failed: %v", n, step, err)
			}
		case err := <-done:
			if err != nil {
				t.Fatalf("the submit failed without a kill: %v", err)
			}
			step, synced = s.end() // it may have come after the answer
			l.start()
		}
		if _, err := l.show(name); err != nil {
			t.Fatalf("killed at step %d (%s): the submit was acknowledged and is lost: %v", n, step, err)
		}
		names = append(names, name)
		if step == "" {
			break
		}
		taken[step]++
	}
	t.Logf("killed at %d steps: %v", len(names)-1, taken)
	if synced == 0 || len(names) < 10 {
		t.Errorf("%d steps, of them %v, and %d syncs of the last: the submit was not traced", len(names), taken, synced)
	}
	l.cli("compute", "start", "-n", "cpu-cluster")
	for _, name := range names {
		l.until(name, trainyard.JobCompleted)
		if got := readFile(filepath.Join(marks, name)); got != "x\n" {
			t.Errorf("job %s ran %d times", name, strings.Count(got, "x"))
		}
	}
}

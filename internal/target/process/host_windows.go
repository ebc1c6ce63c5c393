package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// On Windows a task is held by a job object that ends with the agent, so a task does too; the gate is a process made suspended. The
// agent itself writes what the shell writes elsewhere. A task that was let through and has no status ended with its agent.

const (
	scriptSuffix = ".cmd"
	lostClass    = trainyard.ClassNodeLost
	killPatience = 10 * time.Second
)

var (
	tmpNames       = []string{"TMP", "TEMP", "TMPDIR"}
	platformPassed = []string{"SystemRoot", "SystemDrive", "ComSpec", "PATHEXT", "WINDIR", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "USERNAME",
		"APPDATA", "LOCALAPPDATA", "ProgramData", "ProgramFiles*", "NUMBER_OF_PROCESSORS", "PROCESSOR_*", "OS"}
)

func platformEnv() map[string]string { return map[string]string{} }

func (c *Config) shell() string { return c.Shell }

// shellArgs is a whole command line as its only element where cmd runs it: cmd has quoting rules of its own.
func shellArgs(shell, command string) []string {
	if shell == "" {
		return []string{`cmd.exe /d /s /c "` + command + `"`}
	}
	return []string{shell, "-c", command}
}

func shellFile(shell, path string) []string {
	if shell == "" {
		return []string{`cmd.exe /d /s /c ""` + path + `""`}
	}
	return []string{shell, path}
}

func signalName(int) string { return "" }

func lostMessage(int, bool) string {
	return "ended with the agent: on Windows tasks do not outlive it"
}

// lockDir opens a file that nobody else may open meanwhile.
func lockDir(_ context.Context, dir string) (io.Closer, error) {
	name, err := windows.UTF16PtrFromString(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	h, err := windows.CreateFile(name, windows.GENERIC_READ|windows.GENERIC_WRITE, 0, nil, windows.OPEN_ALWAYS, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, windows.ERROR_SHARING_VIOLATION) {
		return nil, trainyard.Conflict("%s is in use by another agent; stop that one, or use another folder", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open process target: %w", err)
	}
	return os.NewFile(uintptr(h), "lock"), nil
}

type host struct {
	boot  string
	limit trainyard.Resources
}

func newHost(_ string, env target.Env) *host {
	return &host{boot: strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36), limit: env.Limit}
}

func (h *host) notes() []string {
	notes := []string{
		"tasks end with the agent: Windows ends the job objects of a process with it",
		"the server's files are not hidden from tasks: Windows has no Landlock",
	}
	if h.limit.MemoryMB > 0 {
		notes = append(notes, fmt.Sprintf("memory limit of %d MB is not held: only limits of single tasks are, on Windows", h.limit.MemoryMB))
	}
	if h.limit.CPUs > 0 {
		notes = append(notes, fmt.Sprintf("CPU limit of %g is not held on Windows", h.limit.CPUs))
	}
	return notes
}

func (h *host) close()       {}
func (h *host) sweep(string) {}

// process is a task's shell and its job object; job 0: there is none, or it was let go of.
type process struct {
	cmd   *exec.Cmd
	task  string // the file that the status goes into
	quit  chan struct{}
	ended chan exit
	once  sync.Once

	mu  sync.Mutex
	job windows.Handle
}

// withJob calls f with the job object, which is not closed meanwhile. It does nothing where there is none.
func (p *process) withJob(f func(windows.Handle) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.job == 0 {
		return nil
	}
	return f(p.job)
}

func (h *host) spawn(l *launch) (*process, record, error) {
	rec := record{ID: l.id, Boot: h.boot}
	if l.limit.CPUs > 0 {
		rec.Note = fmt.Sprintf("CPU limit of %g is not held on Windows", l.limit.CPUs)
	}
	rec.LimitMB = l.limit.MemoryMB
	job, err := newJob(l.limit.MemoryMB)
	if err != nil {
		return nil, rec, fmt.Errorf("make job object: %w", err)
	}
	p := &process{job: job, task: filepath.Join(l.folder, taskFile), quit: make(chan struct{}), ended: make(chan exit, 1)}
	p.cmd = command(l)
	if err := p.cmd.Start(); err != nil {
		windows.CloseHandle(job)
		return nil, rec, fmt.Errorf("start shell: %w", err)
	}
	rec.Pid = p.cmd.Process.Pid
	if err := p.join(); err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		windows.CloseHandle(job)
		return nil, rec, fmt.Errorf("put process into its job object: %w", err)
	}
	go p.follow()
	return p, rec, nil
}

func command(l *launch) *exec.Cmd {
	attr := &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_UNICODE_ENVIRONMENT}
	cmd := &exec.Cmd{Path: l.argv[0], Args: l.argv}
	if len(l.argv) == 1 {
		attr.CmdLine = l.argv[0]
		cmd.Path = os.Getenv("ComSpec")
	}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = l.dir, l.env, l.log, l.log, attr
	return cmd
}

func newJob(memoryMB int64) (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, err
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if memoryMB > 0 {
		info.BasicLimitInformation.LimitFlags |= windows.JOB_OBJECT_LIMIT_JOB_MEMORY
		info.JobMemoryLimit = uintptr(memoryMB) << 20
	}
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		windows.CloseHandle(job)
		return 0, err
	}
	return job, nil
}

func (p *process) join() error {
	h, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(p.cmd.Process.Pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	return windows.AssignProcessToJobObject(p.job, h)
}

// follow writes the status where the shell does it elsewhere.
func (p *process) follow() {
	_ = p.cmd.Wait()
	code := p.cmd.ProcessState.ExitCode()
	p.note("b\n" + strconv.Itoa(code) + "\n")
	p.ended <- exit{known: true, code: code}
}

func (p *process) note(s string) error {
	f, err := os.OpenFile(p.task, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(s), 0)
	return errors.Join(err, f.Close())
}

func (p *process) attach() error { return nil }

// open notes that the command begins and lets it: in this order, so that it cannot run twice.
func (p *process) open() error {
	if err := p.note("b\n"); err != nil {
		return err
	}
	threads, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(threads)
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(threads, &entry); err == nil; err = windows.Thread32Next(threads, &entry) {
		if entry.OwnerProcessID == uint32(p.cmd.Process.Pid) {
			return resume(entry.ThreadID)
		}
	}
	return fmt.Errorf("process %d has no thread to resume: %w", p.cmd.Process.Pid, err)
}

func resume(thread uint32) error {
	h, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, thread)
	if err != nil {
		return err
	}
	defer windows.CloseHandle(h)
	_, err = windows.ResumeThread(h)
	return err
}

func (p *process) cancel() error {
	err := p.kill()
	p.wait()
	return errors.Join(err, p.remove())
}

// adopt finds nothing: the process ended with the agent that made it.
func (h *host) adopt(record, string) *process {
	p := &process{quit: make(chan struct{}), ended: make(chan exit, 1)}
	p.ended <- exit{}
	return p
}

func (p *process) otherBoot() bool { return false }
func (p *process) alive() bool     { return !p.empty() }

// abandon closes the job object, with which the task ends: nobody could find it again.
func (p *process) abandon() {
	p.once.Do(func() {
		close(p.quit)
		_ = p.withJob(func(job windows.Handle) error {
			p.job = 0
			return windows.CloseHandle(job)
		})
	})
}

func (p *process) wait() exit {
	select {
	case x := <-p.ended:
		return x
	case <-p.quit:
		return exit{abandoned: true}
	}
}

// terminate sends Ctrl-Break, which is as near to SIGTERM as a console program gets.
func (p *process) terminate() {
	_ = p.withJob(func(windows.Handle) error {
		return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.cmd.Process.Pid))
	})
}

func (p *process) kill() error {
	if err := p.withJob(func(job windows.Handle) error { return windows.TerminateJobObject(job, 128+9) }); err != nil {
		return err
	}
	for deadline := time.Now().Add(killPatience); !p.empty(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d and what it started do not end", p.cmd.Process.Pid)
		}
	}
	return nil
}

func (p *process) killRest() error { return p.kill() }

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION.
type accounting struct {
	times     [4]int64
	faults    uint32
	processes uint32
	active    uint32
	killed    uint32
}

func (p *process) empty() bool {
	var a accounting
	err := p.withJob(func(job windows.Handle) error {
		return windows.QueryInformationJobObject(job, windows.JobObjectBasicAccountingInformation,
			uintptr(unsafe.Pointer(&a)), uint32(unsafe.Sizeof(a)), nil)
	})
	return err == nil && a.active == 0
}

func (p *process) usage() (peakMB int64, ooms int) {
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	_ = p.withJob(func(job windows.Handle) error {
		return windows.QueryInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
			uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
	})
	return int64((info.PeakJobMemoryUsed + 1<<20 - 1) >> 20), 0
}

func (p *process) remove() error {
	p.abandon()
	return nil
}

func machineMemoryMB() (int64, error) {
	var status struct {
		length, load                                                               uint32
		total, avail, totalPage, availPage, totalVirtual, availVirtual, availExtra uint64
	}
	status.length = uint32(unsafe.Sizeof(status))
	ok, _, err := windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx").Call(uintptr(unsafe.Pointer(&status)))
	if ok == 0 {
		return 0, err
	}
	return int64(status.total >> 20), nil
}

// memoryFile is for systems that have files in memory alone.
func memoryFile(string) *os.File { return nil }

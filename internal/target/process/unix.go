//go:build linux || darwin

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
)

const (
	scriptSuffix = ""
	lostClass    = trainyard.ClassUser

	// killPatience bounds how long killed processes may take to go; one in an uninterruptible wait can take for ever.
	killPatience = 10 * time.Second
	lockPatience = 2 * time.Second
	pollPause    = 100 * time.Millisecond
)

var (
	tmpNames       = []string{"TMPDIR"}
	platformPassed = []string{"LC_ALL", "LC_CTYPE"}
)

// wrapper waits at the gate (standard input), says that it began, runs "$@", and says how that ended (descriptor 3). It lives through
// the signals that a whole group is sent, which are the command's to handle: caught signals go back to normal in what it starts.
const wrapper = `trap : HUP INT QUIT TERM USR1 USR2 ALRM PIPE
ulimit -c 0
read -r go || exit 125
echo b >&3
"$@" </dev/null 3>&-
s=$?
echo $s >&3
exit $s`

func platformEnv() map[string]string {
	return map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
}

func (c *Config) shell() string {
	for _, name := range []string{c.Shell, "bash"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return "/bin/sh"
}

func shellArgs(shell, command string) []string { return []string{shell, "-c", command} }
func shellFile(shell, path string) []string    { return []string{shell, path} }

func signalName(n int) string { return unix.SignalName(syscall.Signal(n)) }

func lostMessage(code int, known bool) string {
	if known {
		return "killed from outside, with the shell that kept its status: " + exitMessage(code)
	}
	return "killed from outside by signal 9 (SIGKILL) or the like: it left no status"
}

// lockDir takes the folder for this process. A process that was just killed may hold it for the moment its last child takes to exec.
func lockDir(ctx context.Context, dir string) (io.Closer, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open process target: %w", err)
	}
	deadline := time.Now().Add(lockPatience)
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || ctx.Err() != nil || time.Now().After(deadline) {
			f.Close()
			return nil, trainyard.Conflict("%s is in use by another agent (%v); stop that one, or use another folder", dir, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// process is a task's shell and what holds its tree.
type process struct {
	pid    int
	start  uint64
	reboot bool // it is of another boot of this computer: nothing of it is left
	gone   bool // it was gone when it was adopted
	gate   int  // our end of the gate; -1: open or not ours
	pidfd  *os.File
	reaped chan exit // where there is no pidfd: gets the status of a child
	hold   hold
	quit   chan struct{}
	once   sync.Once
}

// spawn makes the process, which waits at its gate.
func (h *host) spawn(l *launch) (*process, record, error) {
	p := &process{gate: -1, quit: make(chan struct{})}
	rec := record{ID: l.id, Boot: h.boot}
	var err error
	if p.hold, err = h.enclose(l, &rec); err != nil {
		return nil, rec, err
	}
	if err = h.fork(l, p); err != nil {
		return nil, rec, errors.Join(err, p.hold.remove())
	}
	var ok bool
	if p.start, _, ok = procStart(p.pid); !ok {
		return nil, rec, errors.Join(fmt.Errorf("process %d vanished", p.pid), p.cancel())
	}
	rec.Pid, rec.PidStart = p.pid, p.start
	return p, rec, nil
}

// fork starts the shell with the closed gate as its standard input.
func (h *host) fork(l *launch, p *process) error {
	gate, ours, err := pipe()
	if err != nil {
		return fmt.Errorf("make gate: %w", err)
	}
	defer syscall.Close(gate)
	attr := &syscall.ProcAttr{
		Dir:   l.dir,
		Env:   l.env,
		Files: []uintptr{uintptr(gate), l.log.Fd(), l.log.Fd(), l.task.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	p.hold.prepare(attr.Sys)
	pidfd := wantPidfd(attr.Sys)
	argv := append([]string{"sh", "-c", wrapper, "trainyard-task"}, l.argv...)
	err = h.confine(l, attr.Sys, func() (err error) {
		p.pid, err = syscall.ForkExec("/bin/sh", argv, attr)
		return err
	})
	if err != nil {
		syscall.Close(ours)
		return fmt.Errorf("start /bin/sh: %w", err)
	}
	p.gate = ours
	p.pidfd = pidfd()
	if p.pidfd == nil {
		p.reaped = make(chan exit, 1)
		go func() { p.reaped <- reap(p.pid, 0) }()
	}
	return nil
}

func (p *process) attach() error { return p.hold.attach(p.pid) }

// open opens the gate.
func (p *process) open() error {
	_, err := syscall.Write(p.gate, []byte("\n"))
	syscall.Close(p.gate)
	p.gate = -1
	if err != nil {
		return fmt.Errorf("open gate: the shell is gone: %w", err)
	}
	return nil
}

// cancel takes a process away whose gate was not opened.
func (p *process) cancel() error {
	if p.gate >= 0 {
		syscall.Close(p.gate)
		p.gate = -1
	}
	err := p.kill()
	if err == nil {
		p.wait()
	}
	return errors.Join(err, p.remove())
}

// adopt finds the process of a record. It is never nil: what held a process that is gone is still there to be read and removed.
func (h *host) adopt(rec record, folder string) *process {
	p := &process{pid: rec.Pid, start: rec.PidStart, gate: -1, quit: make(chan struct{}), reboot: rec.Boot != h.boot}
	if p.reboot {
		p.gone, p.hold = true, nothing{}
		return p
	}
	p.hold = h.restore(rec, folder)
	p.pidfd = openPidfd(p.pid)
	start, _, ok := procStart(p.pid) // after the descriptor: if it is ours now, it was when that was opened
	if p.gone = !ok || start != p.start; p.gone && p.pidfd != nil {
		p.pidfd.Close()
		p.pidfd = nil
	}
	return p
}

func (p *process) otherBoot() bool { return p.reboot }

// alive compares the start time, so a pid that was given out again does not count.
func (p *process) alive() bool {
	if p.gone {
		return false
	}
	start, zombie, ok := procStart(p.pid)
	return ok && !zombie && start == p.start
}

// abandon makes wait return. The process goes on.
func (p *process) abandon() {
	p.once.Do(func() {
		close(p.quit)
		if p.pidfd != nil {
			p.pidfd.SetReadDeadline(time.Unix(1, 0))
		}
	})
}

// wait returns when the process is gone, or on abandon.
func (p *process) wait() exit {
	switch {
	case p.gone:
		return exit{}
	case p.pidfd != nil:
		return p.waitPidfd()
	case p.reaped != nil:
		select {
		case x := <-p.reaped:
			return x
		case <-p.quit:
			return exit{abandoned: true}
		}
	}
	return p.poll()
}

// poll is wait for an adopted process where there is no pidfd.
func (p *process) poll() exit {
	for {
		start, zombie, ok := procStart(p.pid)
		if !ok || start != p.start {
			return exit{}
		}
		if zombie {
			return reap(p.pid, unix.WNOHANG) // a child from before this driver was opened in the same process
		}
		select {
		case <-p.quit:
			return exit{abandoned: true}
		case <-time.After(pollPause):
		}
	}
}

// reap takes the status of a process if it is a child of ours.
func reap(pid, options int) exit {
	var status unix.WaitStatus
	var use unix.Rusage
	for {
		got, err := unix.Wait4(pid, &status, options, &use)
		if err == unix.EINTR {
			continue
		}
		if err != nil || got != pid {
			return exit{}
		}
		x := exit{known: true, code: status.ExitStatus(), peakMB: maxRSSMB(&use)}
		if status.Signaled() {
			x.code = 128 + int(status.Signal())
		}
		return x
	}
}

// terminate sends SIGTERM to every process of the task once.
func (p *process) terminate() {
	pids, _ := p.hold.pids()
	for _, pid := range pids {
		unix.Kill(pid, unix.SIGTERM)
	}
}

// kill ends every process of the task, and returns when they are gone.
func (p *process) kill() error {
	if p.alive() {
		unix.Kill(p.pid, unix.SIGKILL)
	}
	return p.hold.kill()
}

// killRest is kill for a task whose shell is gone.
func (p *process) killRest() error { return p.hold.kill() }

func (p *process) empty() bool {
	pids, err := p.hold.pids()
	return err == nil && len(pids) == 0
}

func (p *process) usage() (peakMB int64, ooms int) { return p.hold.usage() }

func (p *process) remove() error {
	p.abandon()
	if p.pidfd != nil {
		p.pidfd.Close()
	}
	return p.hold.remove()
}

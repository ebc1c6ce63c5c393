package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/slurm"
	"github.com/trainyard/trainyard/internal/target"
)

// unlockedWord is the argument by which this program becomes another that finds a kernel without Landlock.
const unlockedWord = "without-landlock"

// unlocked starts a program for which the kernel has no Landlock.
func unlocked(args []string) error {
	load, jump, ret := uint16(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS), uint16(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K), uint16(unix.BPF_RET|unix.BPF_K)
	const refuse, allow = 0x00050000, 0x7fff0000 // SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW
	rules := []unix.SockFilter{
		{Code: load, K: 0}, // the number of the call
		{Code: jump, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
		{Code: ret, K: refuse | uint32(unix.ENOSYS)},
		{Code: ret, K: allow},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	all := unix.SockFprog{Len: uint16(len(rules)), Filter: &rules[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, 1 /* SECCOMP_SET_MODE_FILTER */, 1 /* for all threads */, uintptr(unsafe.Pointer(&all))); errno != 0 {
		return errno
	}
	return unix.Exec(args[0], args, os.Environ())
}

// nodeKinds are programs for tasks, as they find it on nodes: the real one on a node where it is root, on one where it may not mount, and on
// one that cannot hide anything.
func nodeKinds(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	real := filepath.Join(dir, "trainyard-task")
	if out, err := exec.Command("go", "build", "-o", real, "github.com/trainyard/trainyard/cmd/trainyard-task").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	kinds := map[string]string{"root": real}
	for name, before := range map[string]string{"no mounts": "setpriv --bounding-set=-sys_admin", "no Landlock": self(t) + " " + unlockedWord} {
		kinds[name] = filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := os.WriteFile(kinds[name], []byte("#!/bin/sh\nexec "+before+" "+real+` "$@"`+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return kinds
}

// A job reads no token of the server's or of another task's, wherever the tasks' folders are, and is told where nothing can be hidden.
func TestWhatTheServerHidesIsOutOfReachOfAJobOrThatIsSaid(t *testing.T) {
	lab(t)
	for node, program := range nodeKinds(t) {
		for _, way := range []string{"", byCommands, byLogin, byREST} { // "": without a shared folder
			if node != "root" && way != "" {
				continue // what a node can do has nothing to do with the way to it
			}
			t.Run(strings.TrimPrefix(way+" ", " ")+node, func(t *testing.T) {
				t.Parallel()
				s := lab(t)
				if way != "" {
					s = labBy(t, way)
				}
				dir := t.TempDir()
				if way != "" {
					s.Folder = filepath.Join(dir, "shared")
				}
				h := &hiding{T: t, dir: dir, held: node != "no Landlock"}
				h.Driver = h.open(s, "server/nodes/hpc/tasks", program)
				beside := h.open(s, "server/nodes/other/tasks", program) // another compute
				h.lives(beside, "beside")
				h.lives(h.Driver, "other")
				for ranks := range 2 {
					h.reaches(fmt.Sprint("job", ranks+1), ranks+1)
				}
			})
		}
	}
}

// hiding is a driver of a server with secrets.
type hiding struct {
	*testing.T
	*Driver
	dir  string
	held bool
}

// open opens a driver that hides what its server does.
func (h *hiding) open(s slurm.Settings, dir, program string) *Driver {
	h.Helper()
	secret := filepath.Join(h.dir, "server/tls")
	for _, dir := range []string{secret, filepath.Join(h.dir, "server/nodes"), s.Folder} {
		if filepath.IsAbs(dir) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				h.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(secret, "key"), []byte("SECRET"), 0o600); err != nil {
		h.Fatal(err)
	}
	env := target.Env{Dir: filepath.Join(h.dir, dir), Program: program, Group: "test",
		Hide: []string{secret, filepath.Join(h.dir, "server/nodes"), "/nowhere/on/this/node"}}
	d, err := (&Config{Settings: s}).open(h.Context(), env, nil)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { d.Close() })
	return d
}

// task is one as the server makes it: the program stages it.
func (h *hiding) task(name, command string, ranks int) trainyard.Task {
	t := makeTask(h, name, "", ranks)
	t.Run = trainyard.Run{}
	t.Node, t.Processes, t.Server, t.Token, t.Command = "n", 1, "http://127.0.0.1:1", "SECRET", command
	t.Env = map[string]string{"DIR": h.dir}
	return t
}

// lives starts a task that is there for as long as the test is.
func (h *hiding) lives(d *Driver, name string) {
	h.Helper()
	t := h.task(name, "sleep 600", 1)
	start(h, d, t)
	running(h, d, t.ID)
}

// reaches runs a job that looks for secrets and uses what is its own, on each of its nodes.
func (h *hiding) reaches(name string, ranks int) {
	h.Helper()
	found := filepath.Join(h.dir, "found", name)
	if err := os.MkdirAll(found, 0o755); err != nil {
		h.Fatal(err)
	}
	t := h.task(name, `{ grep -rsl SECRET $DIR/server $DIR/shared --include=task.json --include=key
		ls $DIR/shared/trainyard-*/bin/* $DIR/server/nodes/*/tasks/bin
		echo x >own && mkdir -p ./more && mv own ./more/ && echo y >$TMPDIR/file && echo fine; } >$(mktemp -p $DIR/found/$NAME) 2>&1`, ranks)
	t.Env["NAME"] = name
	start(h, h.Driver, t)
	o := ended(h, h.Driver, t.ID)
	files, _ := filepath.Glob(filepath.Join(found, "*"))
	if len(files) != ranks || o.Result.Class != trainyard.ClassOK {
		h.Errorf("%s ended with %+v on %d nodes", name, o.Result, len(files))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		text := string(data)
		if err != nil || !strings.Contains(text, "fine") {
			h.Errorf("%s cannot use its own: %q (%v)", name, text, err)
		}
		if strings.Contains(text, "task.json") == h.held || strings.Contains(text, "/key") == h.held || h.held && strings.Contains(text, "trainyard-task") {
			h.Errorf("%s found %q", name, text)
		}
	}
	if said := strings.Contains(strings.Join(o.Notes, "; "), "not hidden"); said == h.held || strings.Count(strings.Join(o.Notes, "; "), "not hidden") > 1 {
		h.Errorf("%s: its warnings are %q", name, o.Notes)
	}
}

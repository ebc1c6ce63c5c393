//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScript runs the real program as people run it. Each script has a server of its own, started by its command "server start"; "server
// kill" is a power cut, "server stop" a polite end.
func TestScript(t *testing.T) {
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:   filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error { return setUpScript(t, env, bin) },
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"server": serverCommand,
			"until":  untilCommand,
			"status": statusCommand,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

type scriptLab struct{}

func setUpScript(t *testing.T, env *testscript.Env, bin string) error {
	l := &lab{bin: bin, data: filepath.Join(env.WorkDir, "data"), config: filepath.Join(env.WorkDir, "config"), addr: freeAddr(t)}
	env.Setenv("PATH", filepath.Dir(bin)+string(os.PathListSeparator)+os.Getenv("PATH"))
	env.Setenv("TRAINYARD_CONFIG_DIR", l.config)
	env.Setenv("ADDR", l.addr)
	env.Setenv("HOME", env.WorkDir)
	env.Values[scriptLab{}] = l
	env.Defer(func() {
		if l.cmd != nil && l.cmd.ProcessState == nil {
			_ = l.terminate()
		}
		for range 40 { // agents and tasks live on without a server
			left := l.processes("")
			if len(left) == 0 {
				return
			}
			for _, pid := range left {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			<-time.After(50 * time.Millisecond)
		}
	})
	return nil
}

func serverCommand(ts *testscript.TestScript, neg bool, args []string) {
	l := ts.Value(scriptLab{}).(*lab)
	if neg || len(args) != 1 {
		ts.Fatalf("usage: server start|kill|stop")
	}
	switch args[0] {
	case "start":
		l.cmd, l.errout = l.command(), &bytes.Buffer{}
		l.cmd.Stderr = l.errout
		ready, err := l.cmd.StdoutPipe()
		ts.Check(err)
		ts.Check(l.cmd.Start())
		if _, err := ready.Read(make([]byte, 512)); err != nil {
			_ = l.cmd.Wait()
			ts.Fatalf("the server did not start: %s", l.errout)
		}
	case "kill":
		ts.Check(l.cmd.Process.Kill())
		_ = l.cmd.Wait() // it says that it was killed
	case "stop":
		ts.Check(l.terminate())
	default:
		ts.Fatalf("usage: server start|kill|stop")
	}
}

// untilCommand repeats a command until its output holds a text, for a minute at most: until TEXT COMMAND…
func untilCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until TEXT COMMAND…")
	}
	if args[1] == "trainyard" {
		args[1] = ts.Value(scriptLab{}).(*lab).bin
	}
	late := time.After(time.Minute)
	for {
		cmd := exec.Command(args[1], args[2:]...)
		cmd.Dir = ts.Getenv("WORK")
		cmd.Env = append(os.Environ(), "TRAINYARD_CONFIG_DIR="+ts.Getenv("TRAINYARD_CONFIG_DIR"))
		out, _ := cmd.CombinedOutput() // a failure is not yet what is waited for
		if strings.Contains(string(out), args[0]) {
			return
		}
		select {
		case <-late:
			ts.Fatalf("after a minute there is no %q in what %q says:\n%s", args[0], args[1:], out)
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// statusCommand wants an exit status: status N COMMAND…
func statusCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if exit, ok := err.(*exec.ExitError); ok {
		got = fmt.Sprint(exit.ExitCode())
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != args[0] {
		ts.Fatalf("%q ended with status %s, want %s", args[1:], got, args[0])
	}
}

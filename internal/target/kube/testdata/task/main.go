// Command task stands in for the trainyard program in the tests of package kube: "task --file TASK.json --result FILE --rank N --hosts A,B"
// runs the command of an already staged task and leaves a trainyard.TaskEnd, as the real one does, but stages and stores nothing. The real
// one imports most of the project, which a driver's tests cannot wait for.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agentlink"
	"github.com/trainyard/trainyard/internal/target/kube/podlog"
)

func main() {
	flags := flag.NewFlagSet("task", flag.ExitOnError)
	file, result := flags.String("file", "", ""), flags.String("result", "", "")
	rank, hosts := flags.Int("rank", 0, ""), flags.String("hosts", "", "")
	for _, name := range []string{"dir", "cache"} { // of staging
		flags.String(name, "", "")
	}
	flags.Bool("fresh", false, "")
	flags.Bool("pod-log", true, "")
	model := flags.String("model", "", "")
	if len(os.Args) > 1 && os.Args[1] == "ask" {
		os.Exit(agentlink.AskStatus(agentlink.Ask(context.Background(), os.Args[2:])))
	}
	if len(os.Args) < 2 || os.Args[1] != "task" || flags.Parse(os.Args[2:]) != nil {
		fail(fmt.Errorf("called as %q", os.Args))
	}
	var t trainyard.Task
	data, err := os.ReadFile(*file)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		fail(err)
	}
	var end trainyard.TaskEnd
	if *model != "" {
		end = bring(t, *model)
	} else {
		end = run(t, *rank, *hosts)
	}
	data, err = json.Marshal(end)
	if err == nil {
		err = os.WriteFile(*result, data, 0o600)
	}
	if err != nil {
		fail(err)
	}
	if code := end.Result.ExitCode; code != 0 {
		os.Exit(code & 0xff)
	}
	if end.Result.Class != trainyard.ClassOK {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(70)
}

// bring puts the model where its server looks for it.
func bring(t trainyard.Task, to string) trainyard.TaskEnd {
	data, err := os.ReadFile(t.Run.Env["AZURE_ML_INPUT_model"])
	if err == nil {
		err = os.WriteFile(to, data, 0o644)
	}
	if err != nil {
		fail(err)
	}
	return trainyard.TaskEnd{Result: trainyard.Result{Class: trainyard.ClassOK}}
}

func run(t trainyard.Task, rank int, hosts string) trainyard.TaskEnd {
	stops := make(chan os.Signal, 10)
	signal.Notify(stops, syscall.SIGTERM)
	if t.Run.Env["DEAF"] != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	script, err := os.CreateTemp(os.Getenv("TRAINYARD_WORK_DIR"), "command")
	if err != nil {
		fail(err)
	}
	if _, err := script.WriteString(t.Run.Command); err != nil {
		fail(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		fail(err)
	}
	cmd := exec.Command("bash", script.Name())
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.Run.Dir, w, w
	tmp, err := os.MkdirTemp(os.Getenv("TRAINYARD_WORK_DIR"), "tmp")
	if err != nil {
		fail(err)
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "LANG=C.UTF-8", "TMPDIR=" + tmp, "RANK=" + strconv.Itoa(rank), "HOSTS=" + hosts}
	if t.Serve != nil {
		for _, name := range trainyard.PortVariables {
			cmd.Env = append(cmd.Env, name+"="+strconv.Itoa(t.Serve.ContainerPort()))
		}
	}
	for name, value := range t.Run.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	started := time.Now()
	if err := cmd.Start(); err != nil {
		return trainyard.TaskEnd{Result: trainyard.Result{Class: trainyard.ClassStart, ExitCode: -1, Message: err.Error()}}
	}
	w.Close()
	copied := make(chan struct{})
	var written int64
	go func() {
		defer close(copied)
		written, _ = io.Copy(podlog.New(context.Background(), os.Stdout, os.Getenv(podlog.ReadVariable)), r)
	}() // a broken log is no reason to stop
	over := make(chan struct{})
	go func() { defer close(over); _ = cmd.Wait() }() // the state says how it ended
	stopped, killed := wait(t.Grace, stops, over)
	_ = syscall.Kill(-1, syscall.SIGKILL) // everything in the pod but this
	<-copied
	end := trainyard.TaskEnd{Started: started, Ended: time.Now(), LogBytes: written, Result: resultOf(cmd.ProcessState, stopped)}
	if killed > 0 { // in the words of the agent in the real one
		end.Warnings = []string{fmt.Sprintf("the process was killed: it had not ended %s after it was asked to (SIGTERM)", killed.Round(time.Millisecond))}
	}
	return end
}

// wait returns when the command is over, and says whether it was told to stop. What else runs then has the rest of its grace. killed is how long
// after it was told something was killed, 0 if nothing was.
func wait(grace time.Duration, stops chan os.Signal, over chan struct{}) (stopped bool, killed time.Duration) {
	var asked, deadline time.Time
	kill := time.NewTimer(time.Hour)
	var look <-chan time.Time
	for {
		select {
		case <-over:
			over, look = nil, time.After(0)
		case <-look:
			if !stopped || alone() {
				return stopped, killed
			}
			look = time.After(10 * time.Millisecond)
		case <-stops:
			if !stopped {
				stopped, asked = true, time.Now()
				_ = syscall.Kill(-1, syscall.SIGTERM) // everything in the pod but this, once
			}
			if data, err := os.ReadFile(os.Getenv("TRAINYARD_GRACE_FILE")); err == nil {
				ms, _ := strconv.Atoi(strings.TrimSpace(string(data)))
				grace = time.Duration(ms) * time.Millisecond
			}
			if d := time.Now().Add(grace); deadline.IsZero() || d.Before(deadline) {
				deadline = d
				kill.Reset(grace)
			}
		case <-kill.C:
			killed = deadline.Sub(asked)
			_ = syscall.Kill(-1, syscall.SIGKILL)
		}
	}
}

// alone says whether nothing else is left in the pod. The command was waited for.
func alone() bool {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			return errors.Is(syscall.Kill(-1, 0), syscall.ESRCH)
		}
	}
}

func resultOf(state *os.ProcessState, stopped bool) trainyard.Result {
	r := trainyard.Result{Class: trainyard.ClassUser, ExitCode: state.ExitCode(), PeakMB: peakMB()}
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		r.ExitCode = 128 + int(s.Signal())
	}
	r.Message = fmt.Sprintf("exit code %d", r.ExitCode)
	switch {
	case stopped:
		r.Class = trainyard.ClassCanceled
	case r.ExitCode == 0:
		r.Class, r.Message = trainyard.ClassOK, ""
	}
	return r
}

// peakMB is the most memory that the pod's container held.
func peakMB() int64 {
	for _, file := range []string{"/sys/fs/cgroup/memory.peak", "/sys/fs/cgroup/memory/memory.max_usage_in_bytes"} {
		if data, err := os.ReadFile(file); err == nil {
			n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
			return n >> 20
		}
	}
	return 0
}

// Package taskrun runs one task where an engine has started it, without an agent: in a pod, or in an allocation of another scheduler. Two
// programs are made of it: "trainyard task", and a small one that has nothing else, which starts faster and is quicker to send.
package taskrun

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agent"
	"github.com/trainyard/trainyard/internal/agentlink"
	"github.com/trainyard/trainyard/internal/stage"
	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/target/kube/podlog"
	"github.com/trainyard/trainyard/internal/target/process"
)

// maxEnd bounds what is left behind of a task: a pod's termination message takes 4,096 bytes.
const maxEnd = 4000

// Options is what an engine starts a task with. File is required.
type Options struct {
	File, Result, Hosts, Dir, Cache, Model string
	Rank                                   int
	Fresh, PodLog                          bool
	Hide                                   []string // paths that the command may not reach, or shell patterns of such

	many func() // see oneProcessor
}

// Flags are the options as flags of a command line.
func (f *Options) Flags(set *flag.FlagSet) {
	set.StringVar(&f.File, "file", "", "the task, as JSON")
	set.StringVar(&f.Result, "result", "", "file to leave behind how it ended, as JSON")
	set.IntVar(&f.Rank, "rank", -1, "the one of the task's ranks that runs here (-1: all)")
	set.StringVar(&f.Hosts, "hosts", "", "addresses of the task's ranks, separated by commas")
	set.StringVar(&f.Dir, "dir", "", "folder for the task's files (default: a temporary one)")
	set.StringVar(&f.Cache, "cache", "", "folder for code, data and environments, kept for later tasks (default: in the user's cache folder)")
	set.BoolVar(&f.PodLog, "pod-log", false, "print the log so that Kubernetes keeps all of it")
	set.BoolVar(&f.Fresh, "fresh", false, "begin anew, whatever an earlier run has left in --dir")
	set.Func("hide", "path, or shell pattern of paths, that the task must not reach (repeatable)", func(path string) error {
		f.Hide = append(f.Hide, path)
		return nil
	})
	set.StringVar(&f.Model, "model", "", "bring the input \"model\" to this path and end: another container serves it")
}

// oneProcessor has this program use one, and returns what gives it back all that it had. One is enough to look after a command, and saves
// threads that look for work: a tenth of what the program takes for a short task.
func oneProcessor() (many func()) {
	had := runtime.GOMAXPROCS(1)
	return sync.OnceFunc(func() { runtime.GOMAXPROCS(had) })
}

// Run runs the task, ends it early if the engine says so, and leaves behind how it ended. code is what the program is to exit with: that a
// task went wrong is in its result, and no error.
func (f Options) Run(ctx context.Context, out io.Writer) (code int, err error) {
	f.many = oneProcessor()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	t, first, err := f.task()
	if err != nil {
		return f.leave(trainyard.TaskEnd{}, err)
	}
	ours, release, err := f.claim(t)
	switch {
	case err != nil:
		return f.leave(trainyard.TaskEnd{}, err)
	case !ours:
		return f.follow(ctx, t)
	}
	defer release()
	return f.leave(f.run(ctx, t, first, out))
}

// leave writes down how the task ended, and says what the program is to exit with.
func (f Options) leave(end trainyard.TaskEnd, err error) (int, error) {
	if err != nil {
		end.Result = trainyard.Result{Class: trainyard.ClassStart, ExitCode: 1, Message: err.Error()}
	}
	if f.Result != "" {
		err = errors.Join(err, leaveEnd(f.Result, end))
	}
	return status(end), err
}

func status(end trainyard.TaskEnd) int {
	if end.Result.Class == trainyard.ClassOK {
		return 0
	}
	return max(1, min(end.Result.ExitCode, 255))
}

// run is a task from staging to its results; first: what it prints is this program's output.
func (f Options) run(ctx context.Context, t trainyard.Task, first bool, out io.Writer) (end trainyard.TaskEnd, err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("task", t.ID)
	if f.Fresh && f.Dir != "" {
		if err := os.RemoveAll(f.Dir); err != nil {
			return end, fmt.Errorf("clear away what an earlier run left: %w", err)
		}
	}
	if t.Serve != nil {
		f.many()
	}
	dir, tidy, err := taskDir(f.Dir)
	if err != nil {
		return end, err
	}
	defer tidy()
	dial := agentlink.DialConfig{URL: t.Server, CA: t.CA, Node: t.Node, Token: t.Token}
	link, err := agentlink.Dial(dial)
	if err != nil {
		return end, fmt.Errorf("dial %s: %w", t.Server, err)
	}
	defer link.Close()
	proxy, err := agentlink.NewProxy(dial, log)
	if err != nil {
		return end, err
	}
	defer proxy.Close()
	env := target.Env{Dir: filepath.Join(dir, "tasks"), Alone: f.Dir == "" || f.Fresh, Group: fmt.Sprintf("%s-%d", t.ID.Dir(), t.Lo), Log: log}
	if env.Alone {
		env.Dir = dir
	}
	if f.Dir == "" { // another server's job of that name may run on this computer
		env.Group += "-" + strings.TrimPrefix(filepath.Base(dir), tempPrefix)
	}
	driver, err := process.Kind().New().Open(ctx, env)
	if err != nil {
		return end, err
	}
	if c, ok := driver.(io.Closer); ok {
		defer c.Close()
	}
	cache := f.Cache
	if cache == "" {
		if user, err := os.UserCacheDir(); err == nil {
			cache = filepath.Join(user, "trainyard")
		} else {
			cache = filepath.Join(dir, "cache")
		}
	}
	st, err := stage.New(stage.Config{Dir: dir, Cache: cache, Blobs: link, Log: log, Many: f.many})
	if err != nil {
		return end, err
	}
	if f.Model != "" {
		return bringModel(ctx, st, t, f.Model, out)
	}
	t.Resources.GPUs = 0 // the engine has chosen them, and the task sees no others
	one := agent.One{Task: t, Driver: driver, Stage: st, Dir: dir, Server: proxy.URL, Hide: there(f.Hide), Log: log,
		Send: func(ctx context.Context, name string, offset int64, data []byte) (int64, error) {
			return link.Append(ctx, t.Node, 0, t.ID, name, offset, data)
		}}
	over, done := context.WithCancel(context.WithoutCancel(ctx))
	defer done()
	defer context.AfterFunc(ctx, func() { endSoon(over, driver, t.ID, log) })()
	if first { // the others' output is sent home, where each has a log of its own
		one.Out = out
		if f.PodLog { // it comes from a file, so the task does not wait when it is slowed down
			one.Out = podlog.New(ctx, out, os.Getenv(podlog.ReadVariable))
		}
	}
	return one.Run(ctx)
}

// there are those of the paths that this computer has; a pattern stands for all that it matches. What it has not needs no hiding: a server
// makes its folders before it has any task started, so it is on another computer.
func there(paths []string) (out []string) {
	for _, path := range paths {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			out = append(out, path)
			continue
		}
		matches, err := filepath.Glob(path)
		if err != nil {
			continue // it is a path that looks like a pattern
		}
		out = append(out, matches...)
	}
	return out
}

// graceVariable names a file in which an engine says, in milliseconds, how long the task still has once it is to end, when that is less than
// it came with. It may say less later.
const graceVariable = "TRAINYARD_GRACE_FILE"

// lookForLess is how often it is looked whether the engine says less.
const lookForLess = time.Second

// endSoon ends the task when the engine's time for it is up, unless it is over before.
func endSoon(over context.Context, driver target.Driver, id trainyard.TaskID, log *slog.Logger) {
	path := os.Getenv(graceVariable)
	if path == "" {
		return // the task's own grace counts
	}
	look := time.NewTicker(lookForLess)
	defer look.Stop()
	var (
		last  string
		until time.Time
		up    <-chan time.Time
	)
	for {
		said, _ := os.ReadFile(path) // there is none if nobody here ends the task
		if ms, err := strconv.ParseInt(strings.TrimSpace(string(said)), 10, 64); err == nil && string(said) != last {
			last = string(said)
			if at := time.Now().Add(time.Duration(max(0, ms)) * time.Millisecond); up == nil || at.Before(until) {
				until, up = at, time.After(time.Until(at))
			}
		}
		select {
		case <-over.Done():
			return
		case <-look.C:
		case <-up:
			if err := driver.Stop(context.Background(), id, 0); err != nil {
				log.Warn("end the task at the engine's time", "err", err)
			}
			return
		}
	}
}

// task reads the task and makes it the part that runs here; first says whether that has the task's first rank.
func (f Options) task() (t trainyard.Task, first bool, err error) {
	data, err := os.ReadFile(f.File)
	if err != nil {
		return t, false, fmt.Errorf("read the task: %w", err)
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return t, false, fmt.Errorf("read the task in %s: %w", f.File, err)
	}
	if f.Hosts != "" {
		t.Hosts = strings.Split(f.Hosts, ",")
	}
	first = f.Rank < 0 || f.Rank == t.Lo
	if f.Rank >= 0 {
		if f.Rank < t.Lo || f.Rank >= t.Hi {
			return t, false, trainyard.Invalid("rank %d is not one of the task's, [%d, %d)", f.Rank, t.Lo, t.Hi)
		}
		t.Lo, t.Hi = f.Rank, f.Rank+1
	}
	return t, first, nil
}

// taskDir is the folder for the task's files, and what takes a temporary one away.
func taskDir(dir string) (string, func(), error) {
	if dir != "" {
		return dir, func() {}, os.MkdirAll(dir, 0o700)
	}
	sweepTemp(os.TempDir())
	for {
		dir, err := os.MkdirTemp("", tempPrefix)
		if err != nil {
			return "", nil, fmt.Errorf("make a folder for the task: %w", err)
		}
		release, ours := holdDir(dir)
		if ours {
			return dir, func() { _ = os.RemoveAll(dir); release() }, nil
		}
	}
}

// leaveEnd writes how the task ended, short enough for whoever reads it.
func leaveEnd(path string, end trainyard.TaskEnd) error {
	data, err := json.Marshal(end)
	if err != nil {
		return err
	}
	if len(data) > maxEnd {
		for i := range end.Spans {
			end.Spans[i].Note = ""
		}
		warnings, message := end.Warnings, end.Result.Message
		for n, room := len(warnings), 1000; len(data) > maxEnd && room > 0; n-- { // as many of the first as have room
			if n < 0 { // JSON may make six bytes of one
				room /= 2
			}
			end.Warnings = warnings[:max(n, 0)]
			end.Result.Message = strings.ToValidUTF8(message[:min(len(message), room)], "")
			if data, err = json.Marshal(end); err != nil {
				return err
			}
		}
	}
	// A pod's termination message is a file that cannot be replaced, so it is written in place; elsewhere half of it must not be seen.
	if strings.HasPrefix(path, "/dev/") {
		return os.WriteFile(path, data, 0o600)
	}
	if err := os.WriteFile(path+".part", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agent"
	"github.com/trainyard/trainyard/internal/agentlink"
	"github.com/trainyard/trainyard/internal/stage"
	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/target/kube/podlog"
)

// maxEnd bounds what is left behind of a task: a pod's termination message takes 4,096 bytes.
const maxEnd = 4000

// taskFlags is what an engine starts a task with.
type taskFlags struct {
	file, result, hosts, dir, cache, model string
	rank                                   int
	fresh, podLog                          bool
}

// newTaskCommand is what engines that have no agent on their nodes start: target.Kind.SelfStaged.
func newTaskCommand() *cobra.Command {
	var f taskFlags
	cmd := &cobra.Command{
		Use:    "task",
		Short:  "Run one task where it is (started by Slurm, Kubernetes and the like)",
		Long:   "Stages one task, runs it, prints what it prints, stores its results, and leaves behind how it ended. Engines start it; people do not.",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			end, err := runTask(ctx, f, cmd.OutOrStdout())
			if err != nil {
				end.Result = trainyard.Result{Class: trainyard.ClassStart, ExitCode: 1, Message: err.Error()}
			}
			if f.result != "" {
				err = errors.Join(err, leaveEnd(f.result, end))
			}
			if err != nil {
				return err
			}
			if code := end.Result.ExitCode; end.Result.Class != trainyard.ClassOK {
				return failed{status: max(1, min(code, 255))} // said in the result, not in the task's log
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&f.file, "file", "", "the task, as JSON")
	cmd.Flags().StringVar(&f.result, "result", "", "file to leave behind how it ended, as JSON")
	cmd.Flags().IntVar(&f.rank, "rank", -1, "the one of the task's ranks that runs here (-1: all)")
	cmd.Flags().StringVar(&f.hosts, "hosts", "", "addresses of the task's ranks, separated by commas")
	cmd.Flags().StringVar(&f.dir, "dir", "", "folder for the task's files (default: a temporary one)")
	cmd.Flags().StringVar(&f.cache, "cache", "", "folder for code, data and environments, kept for later tasks (default: in the user's cache folder)")
	cmd.Flags().BoolVar(&f.podLog, "pod-log", false, "print the log so that Kubernetes keeps all of it")
	cmd.Flags().BoolVar(&f.fresh, "fresh", false, "begin anew, whatever an earlier run has left in --dir")
	cmd.Flags().StringVar(&f.model, "model", "", "bring the input \"model\" to this path and end: another container serves it")
	_ = cmd.MarkFlagRequired("file")
	return cmd
}

// runTask is a task from staging to its results.
func runTask(ctx context.Context, f taskFlags, out io.Writer) (end trainyard.TaskEnd, err error) {
	t, first, err := readTask(f)
	if err != nil {
		return end, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("task", t.ID)
	if f.fresh && f.dir != "" {
		if err := os.RemoveAll(f.dir); err != nil {
			return end, fmt.Errorf("clear away what an earlier run left: %w", err)
		}
	}
	dir, tidy, err := taskDir(f.dir)
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
	driver, err := openDriver(ctx, targets()[0], nil, target.Env{Dir: filepath.Join(dir, "tasks"), Group: fmt.Sprintf("%s-%d", t.ID.Dir(), t.Lo), Log: log})
	if err != nil {
		return end, err
	}
	if c, ok := driver.(io.Closer); ok {
		defer c.Close()
	}
	cache := f.cache
	if cache == "" {
		if user, err := os.UserCacheDir(); err == nil {
			cache = filepath.Join(user, "trainyard")
		} else {
			cache = filepath.Join(dir, "cache")
		}
	}
	st, err := stage.New(stage.Config{Dir: filepath.Join(dir, "work"), Cache: cache, Blobs: link, Log: log})
	if err != nil {
		return end, err
	}
	if f.model != "" {
		return bringModel(ctx, st, t, f.model, out)
	}
	one := agent.One{Task: t, Driver: driver, Stage: st, Dir: dir, Server: proxy.URL, Log: log,
		Send: func(ctx context.Context, name string, offset int64, data []byte) (int64, error) {
			return link.Append(ctx, t.Node, 0, t.ID, name, offset, data)
		}}
	defer context.AfterFunc(ctx, func() { endSoon(driver, t.ID, log) })()
	if first { // the others' output is sent home, where each has a log of its own
		one.Out = out
		if f.podLog { // it comes from a file, so the task does not wait when it is slowed down
			one.Out = podlog.New(out)
		}
	}
	return one.Run(ctx)
}

// bringModel stages the task's model alone, and puts it where its server looks for it.
func bringModel(ctx context.Context, st *stage.Stager, t trainyard.Task, to string, out io.Writer) (end trainyard.TaskEnd, err error) {
	model, ok := t.Inputs["model"]
	if !ok {
		return end, trainyard.Invalid("the task has no input \"model\"")
	}
	t.Inputs = map[string]trainyard.TaskInput{"model": model}
	t.CodeKey, t.Environment, t.Outputs, t.Command = "", nil, nil, ""
	if t, err = st.Prepare(ctx, t, said{out}); err != nil {
		end.Result = trainyard.Result{Class: trainyard.ClassOf(err), ExitCode: 1, Message: err.Error()}
		if end.Result.Class == "" {
			return end, err
		}
		return end, nil
	}
	from := t.Run.Env["AZURE_ML_INPUT_model"]
	info, err := os.Stat(from)
	if err == nil && info.IsDir() {
		err = os.CopyFS(to, os.DirFS(from))
	} else if err == nil {
		err = copyFile(from, to)
	}
	if err != nil {
		return end, fmt.Errorf("put the model in its place: %w", err)
	}
	end.Result.Class = trainyard.ClassOK
	return end, nil
}

// said prints what staging says.
type said struct{ out io.Writer }

func (s said) Say(text string)                         { fmt.Fprintln(s.out, text) }
func (said) Span(string, time.Time, time.Time, string) {}
func (said) Log(string, []byte)                        {}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// graceVariable names a file in which an engine says, in milliseconds, how long the task still has once it is to end, when that is less than
// it came with.
const graceVariable = "TRAINYARD_GRACE_FILE"

// endSoon ends the task when the engine's time for it is up.
func endSoon(driver target.Driver, id trainyard.TaskID, log *slog.Logger) {
	data, err := os.ReadFile(os.Getenv(graceVariable))
	if err != nil {
		return // the task's own grace counts
	}
	ms, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return
	}
	time.AfterFunc(time.Duration(max(0, ms))*time.Millisecond, func() {
		if err := driver.Stop(context.Background(), id, 0); err != nil {
			log.Warn("end the task at the engine's time", "err", err)
		}
	})
}

// readTask reads the task and makes it the part that runs here; first says whether that has the task's first rank.
func readTask(f taskFlags) (t trainyard.Task, first bool, err error) {
	data, err := os.ReadFile(f.file)
	if err != nil {
		return t, false, fmt.Errorf("read the task: %w", err)
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return t, false, fmt.Errorf("read the task in %s: %w", f.file, err)
	}
	if f.hosts != "" {
		t.Hosts = strings.Split(f.hosts, ",")
	}
	first = f.rank < 0 || f.rank == t.Lo
	if f.rank >= 0 {
		if f.rank < t.Lo || f.rank >= t.Hi {
			return t, false, trainyard.Invalid("rank %d is not one of the task's, [%d, %d)", f.rank, t.Lo, t.Hi)
		}
		t.Lo, t.Hi = f.rank, f.rank+1
	}
	return t, first, nil
}

// taskDir is the folder for the task's files, and what takes a temporary one away.
func taskDir(dir string) (string, func(), error) {
	if dir != "" {
		return dir, func() {}, os.MkdirAll(dir, 0o700)
	}
	dir, err := os.MkdirTemp("", "trainyard-task-")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for the task: %w", err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// leaveEnd writes how the task ended, short enough for whoever reads it.
func leaveEnd(path string, end trainyard.TaskEnd) error {
	data, err := json.Marshal(end)
	if err != nil {
		return err
	}
	if len(data) > maxEnd {
		end.Warnings = nil
		for i := range end.Spans {
			end.Spans[i].Note = ""
		}
		end.Result.Message = end.Result.Message[:min(len(end.Result.Message), 1000)]
		if data, err = json.Marshal(end); err != nil {
			return err
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

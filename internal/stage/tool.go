package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/installer"
)

// errNetwork marks a tool's failure that comes from an index it could not reach.
var errNetwork = errors.New("the package index could not be reached")

// toolError is how a tool of a build failed.
type toolError struct {
	argv   []string
	err    error
	output string // its last lines
	net    bool
}

func (e *toolError) Error() string { return fmt.Sprintf("%s: %v", e.argv[0], e.err) }
func (e *toolError) Unwrap() error { return e.err }
func (e *toolError) Is(target error) bool {
	return target == errNetwork && e.net
}

// stallLimit is how long a tool may neither print nor compute.
const stallLimit = 3 * time.Minute

var errStalled = errors.New("it neither printed nor computed anything for a long time and was stopped")

// run runs a tool of the build, its output going to the build log. A tool dies with its context, with this process, and when it does
// nothing for long.
func (b *builder) run(ctx context.Context, argv ...string) error {
	b.print("$ %s", strings.Join(argv, " "))
	from := sizeOf(b.log)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = b.dir, b.env, b.log, b.log
	inGroup(cmd)
	runtime.LockOSThread() // the kernel ends the tool when the thread that started it ends
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if err == nil {
		watched := make(chan struct{})
		go func() { defer close(watched); b.watch(ctx, cmd.Process.Pid, cancel) }()
		err = cmd.Wait()
		cause := context.Cause(ctx)
		cancel(nil)
		<-watched
		if errors.Is(cause, errStalled) {
			err = cause
		} else if cause != nil {
			return cause
		}
	}
	if err == nil {
		return nil
	}
	e := &toolError{argv: argv, err: err, output: lastLines(b.log.Name(), from)}
	e.net = installer.Unreachable(e.output) || errors.Is(err, errStalled)
	return e
}

// watch stops a tool that has stopped working.
func (b *builder) watch(ctx context.Context, pid int, stop context.CancelCauseFunc) {
	stall := b.stager.stall
	tick := time.NewTicker(stall / 36)
	defer tick.Stop()
	last, since := int64(-1), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		cpu, known := groupCPU(pid)
		if now := sizeOf(b.log) + int64(cpu); now != last || !known {
			last, since = now, time.Now()
		}
		if time.Since(since) > stall {
			stop(errStalled)
			return
		}
	}
}

func sizeOf(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// lastLines is the end of what was written to a log from an offset on.
func lastLines(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 32 << 10
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		from = max(from, size-most)
	}
	data, _ := io.ReadAll(io.NewSectionReader(f, from, most))
	return installer.Redact(string(data))
}

// explain turns a tool's failure into the end it makes of the task, in words.
func (b *builder) explain(err error) error {
	e, ok := errors.AsType[*toolError](err)
	if !ok {
		return err
	}
	const more = "the whole build log is shown by job logs --file " + environmentLog
	switch {
	case installer.Full(e.output):
		return b.stager.noRoom(b.stager.env.dir, 0)
	case errors.Is(e, errNetwork):
		return fault(trainyard.ClassEnvironment, "%s is not on this node and could not be built: %s could not be reached (%s); "+
			"check the node's network, proxy and pip settings. Environments built here before still work; %s", b.words, installer.Index(e.output), cause(e), more)
	}
	return fault(trainyard.ClassEnvironment, "%s could not be built: %s; %s", b.words, cause(e), more)
}

// cause is what a tool gives as its reason, on one line. One that was stopped, or killed, gives none.
func cause(e *toolError) string {
	text := installer.Cause(e.output)
	if end, ok := errors.AsType[*exec.ExitError](e.err); !ok || end.ExitCode() < 0 || text == "" {
		text = strings.TrimPrefix(text+": "+e.err.Error(), ": ")
	}
	return text
}

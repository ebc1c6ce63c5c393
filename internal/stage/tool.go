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
	e.net = isNetwork(e.output) || errors.Is(err, errStalled)
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
	return redact(string(data))
}

var networkWords = pattern(`(?i)error sending request|connection refused|connection reset|could not connect|name resolution|dns error|` +
	`failed to lookup address|name or service not known|no route to host|network is unreachable|tunnel error|operation timed out|timed out|` +
	`newconnectionerror|proxyerror|max retries exceeded|connection broken|connectionerror|certificate verify failed|invalid peer certificate|` +
	`could not resolve host|CondaHTTPError|download error|503 service unavailable|502 bad gateway`)

// isNetwork says whether a tool's last words are of a network that failed it.
func isNetwork(output string) bool {
	return networkWords().MatchString(output) && !strings.Contains(output, "No solution found")
}

var addresses = pattern(`https?://[^\s)>'"\]]+`)
var credentials = pattern(`(://)[^/\s@]+@`)

// redact takes user names and passwords out of addresses.
func redact(text string) string { return credentials().ReplaceAllString(text, "${1}****@") }

// explain turns a tool's failure into the end it makes of the task, in words.
func (b *builder) explain(err error) error {
	e, ok := errors.AsType[*toolError](err)
	if !ok {
		return err
	}
	const more = "the whole build log is system_logs/environment.txt"
	switch {
	case strings.Contains(e.output, "No space left on device"), strings.Contains(e.output, "os error 28"), strings.Contains(e.output, "Errno 28"):
		return b.stager.noRoom(b.stager.env.dir, 0)
	case errors.Is(e, errNetwork):
		where := "the package index"
		if u := addresses().FindString(e.output); u != "" {
			where += " " + hostOf(u)
		}
		return fault(trainyard.ClassEnvironment, "environment %q is not on this node and could not be built: %s could not be reached (%s); "+
			"check the node's network, proxy and pip settings. Environments built here before still work; %s", b.name, where, cause(e), more)
	}
	return fault(trainyard.ClassEnvironment, "environment %q could not be built: %s; %s", b.name, cause(e), more)
}

// hostOf is the host of an address, port and all.
func hostOf(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	host, _, _ := strings.Cut(rest, "/")
	return host[strings.LastIndex(host, "@")+1:]
}

// cause is what a tool gives as its reason, on one line.
func cause(e *toolError) string {
	var lines []string
	for line := range strings.Lines(e.output) {
		line = strings.TrimSpace(line)
		low := strings.ToLower(line)
		switch {
		case strings.HasPrefix(low, "error:"), strings.HasPrefix(low, "cause:"), strings.HasPrefix(low, "×"), strings.HasPrefix(low, "╰"),
			strings.HasPrefix(low, "hint:"), strings.HasPrefix(low, "critical"), strings.Contains(low, "no module named"):
			line = strings.TrimLeft(line, "×╰─▶ ")
			for _, word := range []string{"ERROR: ", "error: ", "cause: "} {
				line = strings.TrimPrefix(line, word)
			}
			lines = append(lines, strings.TrimSuffix(line, "."))
		}
	}
	if errors.Is(e.err, errStalled) {
		lines = append(lines, e.err.Error())
	}
	if len(lines) == 0 {
		all := strings.Split(strings.TrimSpace(e.output), "\n")
		lines = append(all[max(0, len(all)-2):], e.err.Error())
	}
	text := strings.Join(lines, ": ")
	const most = 1200
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return text
}

package ssh

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trainyard/trainyard"
)

//go:embed remote.sh
var remoteScript string

const (
	scriptTime  = time.Minute  // for a script
	maxAnswer   = 256 << 10    // bytes
	shellPrefix = "exec sh -s" // understood by every login shell; exec so that the script's parent is sshd
)

// answer is what a script said: the values by name, in order.
type answer map[string][]string

func (a answer) first(name string) string {
	if v := a[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// scriptError is a script that did not do all it should.
type scriptError struct {
	doing string // "" if it did not even begin
	said  string // on standard error
}

func (e *scriptError) Error() string {
	if e.doing == "" {
		return "the shell there does not run scripts: " + e.said
	}
	return e.doing + ": " + e.said
}

// full says whether there was no room.
func (e *scriptError) full() bool {
	return strings.Contains(e.said, "No space left") || strings.Contains(e.said, "quota exceeded") || strings.Contains(e.said, "Disk quota")
}

// run runs functions of remote.sh on the machine, with variables set. Secrets may be among them: all goes through standard input, so that no
// list of processes there shows it.
func run(ctx context.Context, c *ssh.Client, vars map[string]string, calls ...string) (answer, error) {
	var script strings.Builder
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		fmt.Fprintf(&script, "%s=%s\n", name, quote(vars[name]))
	}
	script.WriteString(remoteScript)
	script.WriteString("main() {\n")
	for _, call := range calls {
		script.WriteString(call + "\n")
	}
	script.WriteString("say done\n}\nmain </dev/null\n")
	limited, cancel := context.WithTimeout(ctx, scriptTime)
	defer cancel()
	out, said, err := execute(limited, c, shellPrefix, strings.NewReader(script.String()))
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("the machine took longer than %s", scriptTime)
	}
	a := answer{}
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "@@ "); ok {
			name, value, _ := strings.Cut(rest, " ")
			a[name] = append(a[name], value)
		}
	}
	if doing, failed := a["failed"]; failed {
		return nil, &scriptError{doing[0], lastLine(said)}
	}
	if _, done := a["done"]; done {
		return a, nil
	}
	var exit *ssh.ExitError
	if err == nil || errors.As(err, &exit) {
		what := lastLine(said)
		if what == "" {
			what = lastLine(out)
		}
		if what == "" {
			what = "it said nothing"
		}
		return nil, &scriptError{said: what}
	}
	if _, broke := errors.AsType[*ssh.ExitMissingError](err); broke {
		err = errors.New("the connection broke off")
	}
	return nil, err
}

// quote makes a word for sh.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// lastLine is the last line of a text that says something, without what shells put before it.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	for _, shell := range []string{"sh: ", "bash: "} {
		last = strings.TrimPrefix(last, shell)
	}
	if rest, ok := strings.CutPrefix(last, "line "); ok { // bash: line 12:
		if _, after, ok := strings.Cut(rest, ": "); ok {
			last = after
		}
	} else if number, after, ok := strings.Cut(last, ": "); ok && strings.Trim(number, "0123456789") == "" {
		last = after // dash: 12:
	}
	if len(last) > 400 {
		last = last[:400] + "…"
	}
	return last
}

// execute runs one command of the login shell's.
func execute(ctx context.Context, c *ssh.Client, command string, in io.Reader) (out, said string, err error) {
	s, err := c.NewSession()
	if err != nil {
		return "", "", fmt.Errorf("open a session: %w", err)
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	var stdout, stderr limited
	s.Stdin, s.Stdout, s.Stderr = in, &stdout, &stderr
	err = s.Run(command)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return stdout.String(), stderr.String(), err
}

// limited keeps the first part of what is written to it, and takes the rest.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := maxAnswer - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

// thereTrouble puts in words what went wrong on the machine.
func thereTrouble(s *Settings, free string, err error) error {
	e, ok := errors.AsType[*scriptError](err)
	if !ok {
		return err
	}
	say := func(short string, code trainyard.ErrorCode, format string, args ...any) error {
		return there(short, trainyard.Errorf(code, format, args...))
	}
	switch {
	case e.full():
		left := ""
		if free != "" {
			left = " (" + free + " free)"
		}
		return say("no room on its disk", trainyard.CodeConflict, "no room on the disk of %s%s: cannot %s: %s; free some space there", s, left, e.doing, e.said)
	case e.doing == "":
		return say("the login shell there does not run scripts", trainyard.CodeInvalid,
			"user %s at %s logs in but cannot run commands: %s; give that user a usual login shell", s.User, s.Endpoint(), e.said)
	case e.doing == "run a program in the home folder":
		return say("programs cannot be run from the home folder", trainyard.CodeInvalid,
			"programs cannot be run from the home folder of %s (%s): its file system may be mounted noexec; use a user with another home", s, e.said)
	case e.doing == "write in the home folder", e.doing == "enter the home folder":
		return say("the home folder cannot be used", trainyard.CodeInvalid, "cannot %s of %s: %s; give the user a home folder that can be written", e.doing, s, e.said)
	}
	return say("cannot "+e.doing+": "+e.said, trainyard.CodeInternal, "cannot %s on %s: %s", e.doing, s, e.said)
}

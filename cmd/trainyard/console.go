package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// console is where a command reads and writes, and what is known of the people behind it.
type console struct {
	in       io.Reader
	out      io.Writer
	err      io.Writer
	outTTY   bool // a person reads out
	errTTY   bool // a person reads err: progress lines make sense
	inTTY    bool // a person can be asked
	color    bool // on out, if a person reads it and wants it
	errColor bool // the same on err
	width    int  // columns of the terminal; 0: no limit
	now      func() time.Time
	mu       sync.Mutex // guards progress
	progress string     // the line that stands on err and will be overwritten
	drawn    time.Time
}

func newConsole(in, out, err *os.File) *console {
	c := &console{in: in, out: out, err: err, now: time.Now}
	c.outTTY, c.errTTY, c.inTTY = term.IsTerminal(int(out.Fd())), term.IsTerminal(int(err.Fd())), term.IsTerminal(int(in.Fd()))
	dumb := os.Getenv("TERM") == "dumb"
	c.color = c.outTTY && os.Getenv("NO_COLOR") == "" && !dumb
	c.errTTY = c.errTTY && !dumb
	c.errColor = c.errTTY && os.Getenv("NO_COLOR") == ""
	for _, f := range []*os.File{out, err} {
		if w, _, e := term.GetSize(int(f.Fd())); e == nil && w > 0 {
			c.width = w
			break
		}
	}
	return c
}

// Colours, as people expect them: green is well, yellow is waiting, red is wrong, grey is small print.
const (
	bold   = "1"
	grey   = "90"
	red    = "31"
	green  = "32"
	yellow = "33"
	blue   = "34"
	cyan   = "36"
)

// paint colours text where colours are wanted.
func (c *console) paint(code, text string) string {
	if !c.color || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// note writes a line for the person, not for the pipe.
func (c *console) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	fmt.Fprintf(c.err, format+"\n", args...)
}

// status replaces the progress line on a terminal. Elsewhere it does nothing: logs should not fill with bars.
func (c *console) status(format string, args ...any) {
	if !c.errTTY {
		return
	}
	text := clean(fmt.Sprintf(format, args...))
	c.mu.Lock()
	defer c.mu.Unlock()
	if text == c.progress || c.now().Sub(c.drawn) < 60*time.Millisecond && c.progress != "" {
		return
	}
	c.clear()
	if c.width > 0 {
		text = cut(text, c.width-1)
	}
	fmt.Fprint(c.err, text)
	c.progress, c.drawn = text, c.now()
}

// done removes the progress line.
func (c *console) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
}

func (c *console) clear() {
	if c.progress != "" {
		fmt.Fprint(c.err, "\r\x1b[K")
		c.progress = ""
	}
}

// clean makes text safe and fit for one line of a terminal: names and messages come from other people.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			return -1
		}
		return r
	}, s)
}

// cut shortens text to n characters and shows that it did.
func cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	if n <= 1 {
		return string(r[:max(n, 0)])
	}
	return string(r[:n-1]) + "…"
}

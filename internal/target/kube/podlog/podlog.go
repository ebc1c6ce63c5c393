// Package podlog prints a log so that Kubernetes keeps all of it.
package podlog

import (
	"bytes"
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// A kubelet keeps 10 MiB of a container's log by default, looks every ten seconds whether there is more, begins a new file then, and throws the
// oldest away, read or not (KubeletConfiguration: containerLogMaxSize, containerLogMonitorInterval). Who reads along comes from one file to the
// next only if they have been at the end of the log before that (ReadLogs of k8s.io/cri-client begins to look for new files there), and misses
// all files but the last that were begun meanwhile. So no more is printed at once than goes into one file, and then nothing until it was read.
const (
	window  = 8 << 20 // bytes of the kubelet's file
	perLine = 50      // of them before each line: its time, its stream and whether it goes on
	longest = 16 << 10
	slack   = 256 << 10 // bytes of it that may be missing of what was read: in somebody's hands, or lost where a file ends
	piece   = 64 << 10  // bytes of it that are printed at once

	look      = 50 * time.Millisecond
	firstWord = 15 * time.Second // from when the window is full until somebody says for the first time what was read
	patience  = 5 * time.Minute  // and at a later time: the server may be away
	settled   = 20 * time.Second // from what they say to when they would have said more if there were more for them to read
)

// While nobody says what was read it goes slowly. A kubelet hands out some 5 MB/s of short lines on a small node, and long ones faster, as it
// works by the line. Who reads along with a kubelet loses what the runtime has in hand while it changes the log for a new one, unless they are
// behind; so what costs the kubelet little is not held back, and the rest comes in portions.
const (
	portion = 1 << 20 // bytes of short lines at once
	steady  = 2 << 20 // so many a second on average
	short   = 128     // bytes of a line that is
)

// cost is how many bytes of short lines the kubelet could hand out in the time.
func cost(text []byte) int {
	return min(len(text), short*(bytes.Count(text, []byte{'\n'})+1)+len(text)/16)
}

// Weight is how many bytes of the kubelet's file hold a text of a container's output with so many ends of lines.
func Weight(bytes, lines int) int64 { return int64(bytes) + perLine*int64(lines+bytes/longest) }

func weigh(text []byte) int64 { return Weight(len(text), bytes.Count(text, []byte{'\n'})) }

// ReadVariable names the file in which whoever reads the log says how many bytes of it they have, when they are at its end for the moment: at
// every such moment from Step of weight on after one at which they said it, and so until Most.
const ReadVariable = "TRAINYARD_READ_FILE"

// How long one may read without a word, and how much there can be to read after one was heard.
const (
	Step = 6 << 20
	Most = window
)

// New returns a writer to out, the standard output of a container: no further ahead of whoever reads the log than it is kept, and with the
// carriage return doubled that the container runtime (containerd's CRI) drops before a line's end. Write waits; it counts the bytes that it was
// given. heard is the file that ReadVariable names; "" if there is none. When ctx is done it waits no more: the pod is being ended, and has
// little time to say the rest.
func New(ctx context.Context, out io.Writer, heard string) io.Writer {
	return &writer{ctx: ctx, out: out, file: heard, alone: heard == "", pace: rate.NewLimiter(steady, portion)}
}

type writer struct {
	ctx  context.Context
	out  io.Writer
	last byte

	printed place   // of all
	unread  []place // the ends of pieces that are not known to have been read,
	begins  int64   // and the weight before them
	file    string  // that says what was read
	read    int64   // bytes, as it says
	lost    int64   // bytes that were printed and will never be read, or less than none where others have printed, too
	heard   bool    // somebody has said it
	alone   bool    // and does not any more

	pace *rate.Limiter
	left int // of the portion, in bytes of short lines
}

// place is one in the log: bytes of it, and weight.
type place struct{ at, weight int64 }

func (w *writer) Write(data []byte) (int, error) {
	for done := 0; done < len(data); {
		text := data[done:min(len(data), done+piece)]
		for weigh(text) > piece { // short lines
			text = text[:len(text)/2]
		}
		w.makeRoom(text)
		if err := w.print(text); err != nil {
			return done, err
		}
		done += len(text)
	}
	return len(data), nil
}

// makeRoom waits until all was read if a text would be too far ahead, and prints slowly while nobody says so.
func (w *writer) makeRoom(text []byte) {
	end := place{w.printed.at + int64(len(text)), w.printed.weight + weigh(text)}
	if w.printed.weight-w.begins > slack {
		w.hear()
	}
	answered := false // since it waits
	for from := time.Now(); end.weight-w.begins > window && w.ctx.Err() == nil; {
		if w.hear() {
			answered, from = true, time.Now()
			continue
		}
		if answered && time.Since(from) > settled { // there is no more for them
			w.lost = w.printed.at - w.read
			w.reset()
			continue
		}
		if w.alone {
			w.slowly(text)
			break
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(look):
		}
		w.alone = time.Since(from) > patience || !w.heard && time.Since(from) > firstWord
	}
	w.printed = end
	w.unread = append(w.unread, end)
}

// hear looks what was read, and says whether that is more than before. When it is all, printing begins anew.
func (w *writer) hear() bool {
	if w.file == "" {
		return false
	}
	text, err := os.ReadFile(w.file)
	if err != nil {
		return false
	}
	at, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || at <= w.read {
		return false
	}
	w.read, w.heard, w.alone = at, true, false
	known := w.begins
	for _, p := range w.unread {
		if p.at <= w.read+w.lost {
			known = p.weight
		}
	}
	if w.printed.weight-known <= slack {
		w.lost = w.printed.at - w.read
		w.reset()
	}
	return true
}

// reset counts all that was printed as read.
func (w *writer) reset() {
	w.begins, w.unread = w.printed.weight, w.unread[:0]
}

func (w *writer) slowly(text []byte) {
	if w.left -= cost(text); w.left < 0 {
		_ = w.pace.WaitN(w.ctx, portion) // or there is no time to wait
		w.left += portion
	}
}

func (w *writer) print(data []byte) error {
	more := make([]byte, 0, len(data)+len(data)/8)
	for _, b := range data {
		if b == '\n' && w.last == '\r' {
			more = append(more, '\r')
		}
		more = append(more, b)
		w.last = b
	}
	_, err := w.out.Write(more)
	return err
}

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
	slack   = 64 << 10 // bytes of the log that may be missing of what was read: the runtime loses some where a file ends

	look      = 50 * time.Millisecond
	firstWord = 15 * time.Second // from when the window is full until somebody says for the first time what was read
	patience  = 5 * time.Minute  // and at a later time: the server may be away
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
func cost(piece []byte) int {
	return min(len(piece), short*(bytes.Count(piece, []byte{'\n'})+1)+len(piece)/16)
}

// Weight is how many bytes of the kubelet's file hold a text of a container's output with so many ends of lines.
func Weight(bytes, lines int) int64 { return int64(bytes) + perLine*int64(lines+bytes/longest) }

func weigh(piece []byte) int64 { return Weight(len(piece), bytes.Count(piece, []byte{'\n'})) }

// ReadVariable names the file in which whoever reads the log says how many bytes of it they have, when they are at its end.
const ReadVariable = "TRAINYARD_READ_FILE"

// Step is how much weight they read before they are to say so.
const Step = 6 << 20

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

	printed int64  // bytes
	ahead   int64  // weight of what was printed since all was read
	file    string // that says what was read
	read    int64  // as it says
	lost    int64  // bytes that will never be
	heard   bool   // somebody has said it
	alone   bool   // and does not any more

	pace *rate.Limiter
	left int // of the portion, in bytes of short lines
}

func (w *writer) Write(data []byte) (int, error) {
	for done := 0; done < len(data); {
		piece := data[done:min(len(data), done+portion)]
		for weigh(piece) > portion { // short lines
			piece = piece[:len(piece)/2]
		}
		w.makeRoom(piece)
		if err := w.print(piece); err != nil {
			return done, err
		}
		done += len(piece)
	}
	return len(data), nil
}

// makeRoom waits until all was read if a piece would be too far ahead, and prints slowly while nobody says so.
func (w *writer) makeRoom(piece []byte) {
	weight := weigh(piece)
	for from := time.Now(); w.ahead+weight > window && w.ctx.Err() == nil; {
		if more := w.hear(); more {
			from = time.Now()
		}
		if w.printed-w.read <= w.lost+slack {
			w.ahead, w.lost, w.alone = 0, max(0, w.printed-w.read), false
			break
		}
		if w.alone {
			w.slowly(piece)
			break
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(look):
		}
		w.alone = time.Since(from) > patience || !w.heard && time.Since(from) > firstWord
	}
	w.printed += int64(len(piece))
	w.ahead += weight
}

// hear looks what was read, and says whether that is more than before.
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
	w.read, w.heard = at, true
	return true
}

func (w *writer) slowly(piece []byte) {
	if w.left -= cost(piece); w.left < 0 {
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

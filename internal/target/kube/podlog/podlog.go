// Package podlog prints a log so that Kubernetes keeps all of it.
package podlog

import (
	"bytes"
	"context"
	"io"

	"golang.org/x/time/rate"
)

// A kubelet keeps 10 MiB of a container's log by default, looks every ten seconds whether there is more, and throws the oldest away, read or
// not (KubeletConfiguration: containerLogMaxSize, containerLogMonitorInterval). It hands out some 5 MB/s of short lines on a small node, and
// long ones faster, as it works by the line. Who reads along with a kubelet loses what the runtime has in hand while it changes the log for a new one,
// unless they are behind; so what costs the kubelet little is not held back, and the rest comes in portions.
const (
	burst   = 8 << 20 // bytes of short lines printed at once
	portion = 1 << 20 // and those after them,
	steady  = 2 << 20 // so many a second on average
	short   = 128     // bytes of a line that is
)

// cost is how many bytes of short lines the kubelet could hand out in the time.
func cost(piece []byte) int {
	return min(len(piece), short*(bytes.Count(piece, []byte{'\n'})+1)+len(piece)/16)
}

// New returns a writer to out, the standard output of a container: no faster than a log is read, and with the carriage return doubled that
// the container runtime (containerd's CRI) drops before a line's end. Write waits; it counts the bytes that it was given. When ctx is done
// it waits no more: the pod is being ended, and has little time to say the rest.
func New(ctx context.Context, out io.Writer) io.Writer {
	return &writer{ctx: ctx, out: out, pace: rate.NewLimiter(steady, burst)}
}

type writer struct {
	ctx  context.Context
	out  io.Writer
	pace *rate.Limiter
	left int // of the portion, in bytes of short lines
	last byte
}

func (w *writer) Write(data []byte) (int, error) {
	for done := 0; done < len(data); {
		piece := data[done:min(len(data), done+portion)]
		if w.left -= cost(piece); w.left < 0 {
			_ = w.pace.WaitN(w.ctx, portion) // or there is no time to wait
			w.left += portion
		}
		if err := w.print(piece); err != nil {
			return done, err
		}
		done += len(piece)
	}
	return len(data), nil
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

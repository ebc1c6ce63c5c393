// Package podlog prints a log so that Kubernetes keeps all of it.
package podlog

import (
	"context"
	"io"

	"golang.org/x/time/rate"
)

// A kubelet keeps 10 MiB of a container's log by default, looks every ten seconds whether there is more, and throws the oldest away, read or
// not (KubeletConfiguration: containerLogMaxSize, containerLogMonitorInterval). It hands out some 5 MB/s on a small node. Who reads along
// loses what the runtime still has in hand when the log is changed for a new one, unless they are behind: so a long log is printed in
// portions with pauses between them, and not in a steady trickle.
const (
	burst   = 8 << 20 // bytes printed at once
	portion = 4 << 20 // and those after them,
	steady  = 2 << 20 // so many a second on average
)

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
	left int // of the portion
	last byte
}

func (w *writer) Write(data []byte) (int, error) {
	for done := 0; done < len(data); {
		if w.left == 0 {
			_ = w.pace.WaitN(w.ctx, portion) // or there is no time to wait
			w.left = portion
		}
		piece := data[done:min(len(data), done+w.left)]
		if err := w.print(piece); err != nil {
			return done, err
		}
		done += len(piece)
		w.left -= len(piece)
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

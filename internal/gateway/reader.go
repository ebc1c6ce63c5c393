package gateway

import (
	"errors"
	"io"
)

// reader is a buffer before a connection. It differs from bufio.Reader in that a read that was interrupted by a deadline loses nothing,
// that it grows only when it is told to, and that its parts can be looked at in place.
type reader struct {
	src  io.Reader
	buf  []byte
	r, w int // buf[r:w] has been read from src and not been taken
}

func (b *reader) buffered() int { return b.w - b.r }
func (b *reader) data() []byte  { return b.buf[b.r:b.w] }
func (b *reader) take(n int)    { b.r += n }

// errFull says that a head or a line is longer than the buffer may become.
var errFull = errors.New("buffer full")

// fill reads from the connection once, and returns when there is at least one more byte or an error. It moves what is buffered to the
// front when there is no room behind it, and doubles the buffer up to limit when there is no room at all.
func (b *reader) fill(limit int) error {
	if b.r == b.w {
		b.r, b.w = 0, 0
	}
	if b.w == len(b.buf) {
		if b.r == 0 {
			if len(b.buf) >= limit {
				return errFull
			}
			grown := make([]byte, min(2*len(b.buf), limit))
			copy(grown, b.buf[:b.w])
			b.buf = grown
		} else {
			b.w = copy(b.buf, b.buf[b.r:b.w])
			b.r = 0
		}
	}
	for range 100 {
		n, err := b.src.Read(b.buf[b.w:])
		b.w += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
)

const (
	maxChunkLine = 4 << 10  // of a chunk's size with its extensions
	maxTrailers  = 16 << 10 // of all fields after the last chunk
	flushAt      = 64 << 10 // bytes that are gathered before they are written
	readBuffer   = 64 << 10 // what a reader may grow to for a body
)

// framing says how the end of a body is known.
type framing uint8

const (
	noBody    framing = iota
	byLengthF         // Content-Length
	chunkedF          // Transfer-Encoding: chunked
	toEnd             // until the connection ends; answers only
)

// body takes one message's body out of a reader, piece by piece. An error of the connection below loses nothing: the next call goes on
// where this one stopped.
type body struct {
	b       *reader
	framing framing
	left    int64 // of the body, or of the present chunk
	part    chunkPart
	read    int64        // bytes of the body that were given out
	before  func() error // called before anything that may wait
	trail   []byte       // fields after the last chunk, "Name: value\r\n" each
}

type chunkPart uint8

const (
	chunkSize chunkPart = iota
	chunkData
	chunkEnd
	chunkTrailer
	chunkDone
)

func (x *body) reset(b *reader, h *head, answerToEnd bool) {
	*x = body{b: b, before: x.before, trail: x.trail[:0]}
	switch {
	case h.chunked:
		x.framing = chunkedF
	case h.length > 0:
		x.framing, x.left = byLengthF, h.length
	case h.length < 0 && answerToEnd:
		x.framing = toEnd
	}
}

// done says whether all of the body has been given out.
func (x *body) done() bool {
	switch x.framing {
	case chunkedF:
		return x.part == chunkDone
	case byLengthF:
		return x.left == 0
	case toEnd:
		return false
	}
	return true
}

// next is the next piece, which points into the reader's buffer and holds until the next call. io.EOF: there is no more.
// io.ErrUnexpectedEOF: the connection ended before the body did.
func (x *body) next() ([]byte, error) {
	if x.framing == chunkedF {
		return x.nextChunked()
	}
	if x.done() {
		return nil, io.EOF
	}
	if x.b.buffered() == 0 {
		if err := x.fill(); err != nil {
			if x.framing == byLengthF && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	p := x.b.data()
	if x.framing == byLengthF {
		p = p[:min(int64(len(p)), x.left)]
		x.left -= int64(len(p))
	}
	x.b.take(len(p))
	x.read += int64(len(p))
	return p, nil
}

func (x *body) fill() error {
	if x.before != nil {
		if err := x.before(); err != nil {
			return err
		}
	}
	return x.b.fill(readBuffer)
}

func (x *body) nextChunked() ([]byte, error) {
	for {
		switch x.part {
		case chunkData:
			if x.b.buffered() == 0 {
				if err := x.fillChunked(); err != nil {
					return nil, err
				}
			}
			p := x.b.data()
			p = p[:min(int64(len(p)), x.left)]
			x.b.take(len(p))
			x.read += int64(len(p))
			if x.left -= int64(len(p)); x.left == 0 {
				x.part = chunkEnd
			}
			return p, nil
		case chunkDone:
			return nil, io.EOF
		default:
			if err := x.line(); err != nil {
				return nil, err
			}
		}
	}
}

func (x *body) fillChunked() error {
	err := x.fill()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// line reads one line between the pieces.
func (x *body) line() error {
	data := x.b.data()
	i := bytes.IndexByte(data, '\n')
	if i < 0 {
		if len(data) >= maxChunkLine {
			return malformed(http.StatusBadRequest, "a chunk's first line is longer than 4 KiB")
		}
		return x.fillChunked()
	}
	if i < 1 || data[i-1] != '\r' {
		return malformed(http.StatusBadRequest, "a line between chunks ends in LF without CR")
	}
	line := data[:i-1]
	x.b.take(i + 1)
	switch x.part {
	case chunkSize:
		return x.size(line)
	case chunkEnd:
		if len(line) > 0 {
			return malformed(http.StatusBadRequest, "a chunk is longer than it says")
		}
		x.part = chunkSize
	case chunkTrailer:
		return x.trailer(line)
	}
	return nil
}

// size reads a chunk's first line. Extensions are dropped: they are for this connection only (RFC 9112 section 7.1.1).
func (x *body) size(line []byte) error {
	digits, ext, _ := bytes.Cut(line, []byte(";"))
	digits = bytes.TrimRight(digits, " \t")
	if len(digits) == 0 || len(digits) > 15 || !all(ext, &valueByte) {
		return malformed(http.StatusBadRequest, "a chunk's size is not a hexadecimal number")
	}
	var n int64
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return malformed(http.StatusBadRequest, "a chunk's size is not a hexadecimal number")
		}
		n = n<<4 | int64(c)
	}
	x.left, x.part = n, chunkData
	if n == 0 {
		x.part = chunkTrailer
	}
	return nil
}

// trailer keeps a field after the last chunk, unless it is one that says how to read or route the message.
func (x *body) trailer(line []byte) error {
	if len(line) == 0 {
		x.part = chunkDone
		return nil
	}
	f, bad := parseField(line)
	if bad != nil {
		return bad
	}
	if f.id != hOther {
		return nil
	}
	if len(x.trail)+len(line)+4 > maxTrailers {
		return malformed(http.StatusRequestHeaderFieldsTooLarge, "the fields after the last chunk are longer than 16 KiB")
	}
	x.trail = appendField(x.trail, f.name, f.value)
	return nil
}

func appendField[N, V ~string | ~[]byte](to []byte, name N, value V) []byte {
	to = append(to, name...)
	to = append(to, ": "...)
	to = append(to, value...)
	return append(to, "\r\n"...)
}

// writer gathers what goes to a connection and frames the pieces of a body.
type writer struct {
	to   net.Conn
	buf  []byte
	keep func(p []byte) // sees all that is written, before it is; nil: nobody does
}

func (w *writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.write(w.buf)
	w.buf = w.buf[:0]
	return err
}

func (w *writer) write(p []byte) error {
	if w.keep != nil {
		w.keep(p)
	}
	_, err := w.to.Write(p)
	return err
}

// piece adds a piece of a body. What is large goes straight to the connection.
func (w *writer) piece(p []byte, f framing) error {
	if f == chunkedF {
		w.buf = strconv.AppendInt(w.buf, int64(len(p)), 16)
		w.buf = append(w.buf, "\r\n"...)
		w.buf = append(w.buf, p...)
		w.buf = append(w.buf, "\r\n"...)
	} else if len(w.buf) == 0 && len(p) >= flushAt/4 {
		return w.write(p)
	} else {
		w.buf = append(w.buf, p...)
	}
	if len(w.buf) >= flushAt {
		return w.flush()
	}
	return nil
}

// end closes a body, and writes what is left.
func (w *writer) end(f framing, trailers []byte) error {
	if f == chunkedF {
		w.buf = append(w.buf, "0\r\n"...)
		w.buf = append(w.buf, trailers...)
		w.buf = append(w.buf, "\r\n"...)
	}
	return w.flush()
}

package kube

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard/internal/target/kube/podlog"
)

// spool is the log of one container, copied to a file as it grows: the kubelet throws the oldest away when it is long, and all of it with
// the pod. Lines come with the time at which they were written; the mark says where in the file the first line of some time begins, so a
// copy that was cut goes on at that line and skips what the file has of it.
type spool struct {
	log  *os.File
	mark *os.File
	size int64
	time time.Time // of the mark
	at   int64
	lost bool // the kubelet had thrown away what came after the mark

	whole int64 // how long the log is, once it is known

	copied atomic.Int64 // how far a reading has come; for those who look on

	weight int64                  // of all that was read
	grown  func(at, weight int64) // is told how much of the log there is, and the weight; it may be nil
}

const markSize = 64

func openSpool(dir string) (*spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	mark, err := os.OpenFile(filepath.Join(dir, markFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		log.Close()
		return nil, fmt.Errorf("open log: %w", err)
	}
	s := &spool{log: log, mark: mark}
	if s.size, err = log.Seek(0, io.SeekEnd); err != nil {
		s.close()
		return nil, fmt.Errorf("open log: %w", err)
	}
	buf := make([]byte, markSize)
	if n, _ := mark.ReadAt(buf, 0); n == markSize {
		when, offset, _ := strings.Cut(strings.TrimSpace(string(buf)), " ")
		t, terr := time.Parse(time.RFC3339Nano, when)
		at, aerr := strconv.ParseInt(offset, 10, 64)
		if terr == nil && aerr == nil && at <= s.size {
			s.time, s.at = t, at
		}
	}
	return s, nil
}

func (s *spool) close() {
	s.log.Close()
	s.mark.Close()
}

// setMark writes the mark down. It is written after the bytes before it, and may be older than they are, never newer.
func (s *spool) setMark(when time.Time, at int64) error {
	if !when.After(s.time) {
		return nil
	}
	line := fmt.Sprintf("%-*s\n", markSize-1, when.UTC().Format(time.RFC3339Nano)+" "+strconv.FormatInt(at, 10))
	if _, err := s.mark.WriteAt([]byte(line), 0); err != nil {
		return fmt.Errorf("mark log: %w", err)
	}
	s.time, s.at = when, at
	return nil
}

// errNoMark says that the marked line is not there any more.
var errNoMark = errors.New("the marked line is not there any more")

// copy reads a log from the mark's time on and appends what is new, until it ends. If the marked line is not there any more and it is known
// how long the log is, it fails with errNoMark before it has appended anything.
func (s *spool) copy(r io.Reader) error {
	return s.append(r, &copier{from: s.time, skip: s.size - s.at, end: s.at})
}

// copyTail is copy of a log that begins at the given byte of the whole.
func (s *spool) copyTail(r io.Reader, begins int64) error {
	s.lost = s.lost || begins > s.size
	return s.append(r, &copier{skip: max(0, s.size-begins), end: min(begins, s.size)})
}

func (s *spool) append(r io.Reader, c *copier) error {
	c.spool, c.source, c.out = s, r, bufio.NewWriterSize(s.log, 64<<10)
	c.in = bufio.NewReaderSize(c, 64<<10)
	for {
		if err := c.line(); err != nil {
			flushed := c.flush()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return errors.Join(flushed, err)
		}
	}
}

// copier is one reading of a log.
type copier struct {
	*spool
	source io.Reader
	in     *bufio.Reader // of what the copier reads
	out    *bufio.Writer

	from time.Time // of the mark: lines before it are there
	skip int64     // bytes from the marked line on that are there as well
	end  int64     // where the file ends when all that was read is in it

	last  time.Time // of the line before
	when  time.Time // of the latest line that has a time of its own,
	begin int64     // and where it begins
}

// Read reads on, which may take long, when others can see what was read before.
func (c *copier) Read(p []byte) (int, error) {
	if err := c.flush(); err != nil {
		return 0, err
	}
	return c.source.Read(p)
}

// line copies one line, which may be longer than memory. io.EOF is the end of the log.
func (c *copier) line() error {
	stamp, err := c.in.ReadSlice(' ')
	if err != nil && (len(stamp) > 0 || !errors.Is(err, io.EOF)) {
		return fmt.Errorf("read log: cut within a time: %v", err)
	}
	if err != nil {
		return io.EOF
	}
	t, err := time.Parse(time.RFC3339Nano, string(stamp[:len(stamp)-1]))
	if err != nil {
		return fmt.Errorf("read log: %q is no time", stamp)
	}
	old := t.Before(c.from)
	if !old && !c.from.IsZero() && t.After(c.from) && c.last.Before(c.from) { // the marked line is not there any more
		if c.whole > 0 {
			return errNoMark
		}
		c.skip, c.end, c.lost = 0, c.size, true
	}
	if !old && t.After(c.last) {
		c.when, c.begin = t, c.end
	}
	c.last = t
	return c.text(old)
}

// text copies what a line says, or reads over it.
func (c *copier) text(old bool) error {
	for {
		piece, err := c.in.ReadSlice('\n')
		if !old {
			n := min(c.skip, int64(len(piece)))
			c.skip -= n
			c.weight += podlog.Weight(len(piece), 0)
			c.end += int64(len(piece))
			c.copied.Store(c.end)
			if _, err := c.out.Write(piece[n:]); err != nil {
				return fmt.Errorf("write log: %v", err)
			}
		}
		switch {
		case err == nil:
			c.weight += podlog.Weight(0, 1)
			return nil
		case errors.Is(err, io.EOF): // a last line without an end
			return io.EOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read log: %w", err)
		}
	}
}

// flush puts what was read where others see it, and then the mark.
func (c *copier) flush() error {
	if err := c.out.Flush(); err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	c.size = max(c.size, c.end)
	if c.grown != nil {
		c.grown(c.size, c.weight)
	}
	return c.setMark(c.when, c.begin)
}

// measure returns how many bytes a log has besides its times, and the last of them.
func measure(r io.Reader) (n int64, last []byte, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		switch stamp, err := in.ReadSlice(' '); {
		case err == nil:
		case len(stamp) == 0 && errors.Is(err, io.EOF):
			return n, last, nil
		default:
			return n, last, fmt.Errorf("read log: cut within a time: %v", err)
		}
		for ended := false; !ended; {
			piece, err := in.ReadSlice('\n')
			n += int64(len(piece))
			last = append(last, piece...)
			last = slices.Clone(last[max(0, len(last)-tailSize):])
			switch {
			case err == nil:
				ended = true
			case errors.Is(err, io.EOF):
				return n, last, nil
			case !errors.Is(err, bufio.ErrBufferFull):
				return n, last, fmt.Errorf("read log: %w", err)
			}
		}
	}
}

// tailSize is how much of a log's end is compared.
const tailSize = 4 << 10

// endsWith says whether the end of the copy is the given one.
func (s *spool) endsWith(last []byte) bool {
	own := make([]byte, len(last))
	n, err := s.log.ReadAt(own, s.size-int64(len(last)))
	return n == len(last) && (err == nil || errors.Is(err, io.EOF)) && bytes.Equal(own, last)
}

// readLog copies the container's log into the spool: to its present end, or until the container ends. A line may be longer than what the
// kubelet keeps, as that of a progress bar that never ends one; then there is only the line's end to read, and its place follows from how
// long the whole log is.
func (d *Driver) readLog(ctx context.Context, s *spool, pod, container string, follow bool) error {
	read := func(what func(io.Reader) error) error { return d.openLog(ctx, s, pod, container, follow, what) }
	err := read(s.copy)
	if !errors.Is(err, errNoMark) {
		return err
	}
	var n int64
	var last []byte
	if err := read(func(r io.Reader) (err error) { n, last, err = measure(r); return err }); err != nil {
		return err
	}
	if s.endsWith(last) { // what is missing went missing before
		return nil
	}
	return read(func(r io.Reader) error { return s.copyTail(r, s.whole-n) })
}

// openLog hands over the container's log from the mark's time on.
func (d *Driver) openLog(ctx context.Context, s *spool, pod, container string, follow bool, to func(io.Reader) error) error {
	q := url.Values{"container": {container}, "timestamps": {"true"}}
	if follow {
		q.Set("follow", "true")
	}
	if !s.time.IsZero() {
		q.Set("sinceTime", s.time.UTC().Truncate(time.Second).Format(time.RFC3339))
	}
	r, err := d.api.send(ctx, http.MethodGet, d.api.path(pods, pod, "log"), q, "", nil)
	if err != nil {
		return err
	}
	defer r.Close()
	return to(r)
}

package history

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
)

// lineAtMost bounds how far back the end of the last whole line is looked for.
const lineAtMost = 64 << 10

// text sends a log as Azure's client can stream it. That fetches the whole log at every poll, decodes it strictly as UTF-8, and prints the
// lines beyond the last count: one wrong byte ends it, and the rest of a line that was seen half is never printed. So bytes that are no
// UTF-8 are replaced, and as long as the job runs the last line waits for its end. The bytes as they are come with ?offset=0 or a Range.
func (d *door) text(c *call, j *trainyard.Job) error {
	r, info, err := d.Runs.ReadLog(c.Context(), c.scope, j.Name, c.rest, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	end := info.Size
	if s := statusOf(j); !s.Terminal() && s != trainyard.JobFinalizing {
		if end, err = d.lastLineEnd(c, j, info.Size); err != nil {
			return err
		}
	}
	c.w.Header().Set(HeaderSize, strconv.FormatInt(info.Size, 10))
	c.w.Header().Set("Accept-Ranges", "bytes")
	c.w.WriteHeader(http.StatusOK)
	if c.Method == http.MethodHead {
		return nil
	}
	n, err := copyText(c.w, io.LimitReader(r, end))
	return d.cutShort(c, n, end, err)
}

// lastLineEnd is where the last whole line of the log's first size bytes ends; size, if the last line is very long.
func (d *door) lastLineEnd(c *call, j *trainyard.Job, size int64) (int64, error) {
	from := max(size-lineAtMost, 0)
	r, _, err := d.Runs.ReadLog(c.Context(), c.scope, j.Name, c.rest, from)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	tail, err := io.ReadAll(io.LimitReader(r, size-from))
	if err != nil {
		return 0, err
	}
	i := bytes.LastIndexAny(tail, "\r\n")
	if i < 0 && from > 0 {
		return size, nil
	}
	return from + int64(i) + 1, nil
}

// copyText copies r to w with everything replaced that is not UTF-8, and returns how much of r was copied.
func copyText(w io.Writer, r io.Reader) (n int64, err error) {
	buf := make([]byte, 32<<10)
	kept := 0 // bytes at the front of buf: a rune whose end is not read yet
	for {
		got, readErr := r.Read(buf[kept:])
		n += int64(got)
		data := buf[:kept+got]
		whole := len(data)
		if readErr == nil {
			whole -= unfinished(data)
		}
		if _, err := w.Write(bytes.ToValidUTF8(data[:whole], []byte(string(utf8.RuneError)))); err != nil {
			return n, err
		}
		kept = copy(buf, data[whole:])
		if readErr == io.EOF {
			return n, nil
		}
		if readErr != nil {
			return n, readErr
		}
	}
}

// unfinished is how many bytes at the end of data may be the beginning of a rune.
func unfinished(data []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if tail := data[len(data)-i:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return i
		}
	}
	return 0
}

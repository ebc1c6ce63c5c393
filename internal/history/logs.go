package history

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Headers of an answer with a log. The status is as it was before the log was read: if it is terminal, Size is the log's last.
const (
	HeaderSize   = "Trainyard-Log-Size"   // bytes that the log has
	HeaderStatus = "Trainyard-Job-Status" // the job's state
)

const (
	maxWait  = 60 * time.Second // a follower asks again; proxies cut off what is silent for longer
	logValid = 24 * time.Hour   // a log's URL is good for this long at least
)

// logKey is what a log's URL is signed for: all logs of one job. No blob's key begins with a dot, so it opens no blob.
func logKey(scope trainyard.Scope, job string) string {
	return ".logs/" + scope.Key() + "/" + url.PathEscape(job)
}

// logURL is where a log can be had without credentials. It stays the same for an hour, so that it can be cached.
func (d *door) logURL(c *call, job, name string) string {
	expiry := d.Now().Add(logValid + time.Hour).Truncate(time.Hour)
	parts := []string{"", "history", "v1.0", "subscriptions", c.scope.Subscription, "resourceGroups", c.scope.ResourceGroup,
		"providers", trainyard.Provider, "workspaces", c.scope.Workspace, "runs", job, "logs"}
	parts = append(parts, strings.Split(name, "/")...)
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return d.External(c.Request) + strings.Join(parts, "/") + "?" + d.Signer.Sign(logKey(c.scope, job), "r", expiry).Encode()
}

// log serves a log: whole, a Range of it, or what comes after an offset.
func (d *door) log(c *call) error {
	if err := d.allowLog(c); err != nil {
		return err
	}
	j, err := d.Runs.Job(c.Context(), c.scope, c.run)
	if err != nil {
		return err
	}
	head := c.w.Header()
	head.Set("Content-Type", "text/plain; charset=utf-8")
	head.Set("Cache-Control", "no-store")
	// What a job prints is not this server's word: a browser must not run it.
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "sandbox")
	if q := c.URL.Query(); q.Has("offset") || q.Has("wait") {
		offset, wait, err := following(q)
		if err != nil {
			return err
		}
		return d.follow(c, j, offset, wait)
	}
	return d.plain(c, j)
}

func (d *door) allowLog(c *call) error {
	if q := c.URL.Query(); q.Has("sig") {
		return d.Signer.Verify(q, logKey(c.scope, c.run), 'r')
	}
	_, err := d.allow(c)
	return err
}

// following reads the query of a follower.
func following(q url.Values) (offset int64, wait time.Duration, err error) {
	if s := q.Get("offset"); s != "" {
		if offset, err = strconv.ParseInt(s, 10, 64); err != nil || offset < 0 {
			return 0, 0, trainyard.Invalid("offset=%s: want a number of bytes, 0 or more", s)
		}
	}
	if s := q.Get("wait"); s != "" {
		seconds, err := strconv.ParseFloat(s, 64)
		if err != nil || !(seconds >= 0) {
			return 0, 0, trainyard.Invalid("wait=%s: want a number of seconds, 0 or more", s)
		}
		wait = time.Duration(min(seconds, maxWait.Seconds()) * float64(time.Second))
	}
	return offset, wait, nil
}

// follow answers with what comes after offset, when there is something or the wait is over. A log that is not there yet is an empty one.
func (d *door) follow(c *call, j *trainyard.Job, offset int64, wait time.Duration) error {
	if wait > 0 && !j.Status.State.Terminal() {
		ctx, cancel := context.WithTimeout(c.Context(), wait)
		defer cancel()
		if _, err := d.Runs.WaitLog(ctx, c.scope, j.Name, c.rest, offset); err != nil {
			return err
		}
		again, err := d.Runs.Job(c.Context(), c.scope, j.Name)
		if err != nil {
			return err
		}
		j = again
	}
	// The status first, then the log: a log read after its job was over is whole.
	c.w.Header().Set(HeaderStatus, string(statusOf(j)))
	r, info, err := d.Runs.ReadLog(c.Context(), c.scope, j.Name, c.rest, offset)
	if trainyard.IsNotFound(err) {
		r, info, err = io.NopCloser(strings.NewReader("")), trainyard.BlobInfo{}, nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	c.w.Header().Set(HeaderSize, strconv.FormatInt(info.Size, 10))
	return d.send(c, r, http.StatusOK, max(info.Size-offset, 0))
}

// plain answers a GET that knows nothing of following: a Range of the log's bytes, or its text.
func (d *door) plain(c *call, j *trainyard.Job) error {
	c.w.Header().Set(HeaderStatus, string(statusOf(j)))
	want, ranged := parseRange(c.Header.Get("Range"))
	if !ranged {
		return d.text(c, j)
	}
	if want.suffix {
		r, info, err := d.Runs.ReadLog(c.Context(), c.scope, j.Name, c.rest, 0)
		if err != nil {
			return err
		}
		r.Close()
		want.offset = max(info.Size-want.length, 0)
	}
	r, info, err := d.Runs.ReadLog(c.Context(), c.scope, j.Name, c.rest, want.offset)
	if err != nil {
		return err
	}
	defer r.Close()
	head := c.w.Header()
	head.Set(HeaderSize, strconv.FormatInt(info.Size, 10))
	head.Set("Accept-Ranges", "bytes")
	if want.offset >= info.Size {
		head.Set("Content-Range", fmt.Sprintf("bytes */%d", info.Size))
		return d.send(c, r, http.StatusRequestedRangeNotSatisfiable, 0)
	}
	length := info.Size - want.offset
	if want.length >= 0 {
		length = min(length, want.length)
	}
	head.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", want.offset, want.offset+length-1, info.Size))
	return d.send(c, r, http.StatusPartialContent, length)
}

func (d *door) send(c *call, r io.Reader, status int, length int64) error {
	c.w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	c.w.WriteHeader(status)
	if c.Method == http.MethodHead {
		return nil
	}
	n, err := io.CopyN(c.w, r, length)
	return d.cutShort(c, n, length, err)
}

// cutShort breaks the connection off if not all was sent: the client must not take a part for the whole.
func (d *door) cutShort(c *call, sent, of int64, err error) error {
	if sent == of && err == nil {
		return nil
	}
	if c.Context().Err() == nil {
		d.Log.Error("log cut short", "path", c.URL.Path, "sent", sent, "of", of, "error", err)
	}
	panic(http.ErrAbortHandler)
}

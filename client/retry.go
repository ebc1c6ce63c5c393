package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/trainyard/trainyard"
)

// Unreachable is the error of a server that does not answer at all.
type Unreachable struct {
	URL string
	Err error
}

func (e *Unreachable) Error() string {
	return fmt.Sprintf("no server answers at %s: %v. Start one on this computer with \"trainyard server\", or set TRAINYARD_URL", e.URL, e.Reason())
}

// Reason is why, in the fewest words: "connection refused".
func (e *Unreachable) Reason() error {
	if no, ok := errors.AsType[syscall.Errno](e.Err); ok {
		return no // without the address once more
	}
	if u, ok := errors.AsType[*url.Error](e.Err); ok {
		return u.Err
	}
	return e.Err
}

func (e *Unreachable) Unwrap() error { return e.Err }

// statusError is an answer of 400 or above.
type statusError struct {
	status int
	after  time.Duration
	err    error
}

func (e *statusError) Error() string { return e.err.Error() }
func (e *statusError) Unwrap() error { return e.err }

func decodeError(req *http.Request, res *http.Response, data []byte) error {
	var body struct {
		Error trainyard.Error `json:"error"`
	}
	if json.Unmarshal(data, &body) == nil && body.Error.Message != "" {
		if body.Error.Code == "" {
			body.Error.Code = codeOf(res.StatusCode)
		}
		return &body.Error
	}
	if code := res.Header.Get("X-Ms-Error-Code"); code != "" {
		return trainyard.Errorf(codeOf(res.StatusCode), "%s %s: %s", req.Method, req.URL.Path, code)
	}
	text := strings.TrimSpace(string(data))
	if len(text) > 200 {
		text = text[:200] + "…"
	}
	return trainyard.Errorf(codeOf(res.StatusCode), "%s %s: the server answers %s %s", req.Method, req.URL.Path, res.Status, text)
}

func codeOf(status int) trainyard.ErrorCode {
	switch status {
	case http.StatusNotFound:
		return trainyard.CodeNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return trainyard.CodeConflict
	case http.StatusUnauthorized:
		return trainyard.CodeUnknown
	case http.StatusForbidden:
		return trainyard.CodeForbidden
	case http.StatusTooManyRequests:
		return trainyard.CodeBusy
	case http.StatusNotImplemented:
		return trainyard.CodeUnsupported
	}
	if status < 500 {
		return trainyard.CodeInvalid
	}
	return trainyard.CodeInternal
}

// persist calls do until it succeeds, fails for good, or patience ends.
func (c *Client) persist(ctx context.Context, repeatable bool, do func() error) error {
	var since time.Time // of the first failure
	pause := 50 * time.Millisecond
	for try := 1; ; try++ {
		err := do()
		if err == nil || ctx.Err() != nil || c.patience < 0 {
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		again, wait := retryable(err, repeatable, try)
		if !again || time.Since(since)+wait > c.patienceNow() {
			return c.describe(err)
		}
		if wait == 0 {
			wait = time.Duration(float64(pause) * (0.8 + 0.4*rand.Float64()))
			pause = min(2*pause, 2*time.Second)
		}
		if c.onRetry != nil {
			c.onRetry(c.describe(err))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (c *Client) patienceNow() time.Duration {
	if c.reached.Load() {
		return c.patience
	}
	return min(c.patience, firstPatience)
}

// retryable says whether a call that failed with err may be made again, and when if the server said when.
func retryable(err error, repeatable bool, try int) (again bool, wait time.Duration) {
	if s, ok := errors.AsType[*statusError](err); ok {
		switch s.status {
		case http.StatusTooManyRequests:
			return true, s.after
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return repeatable, s.after
		case http.StatusInternalServerError:
			return repeatable && try < 3, s.after
		}
		return false, 0
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return !permanent(err), 0 // nothing was sent
	}
	return repeatable && !permanent(err), 0
}

// local says whether err is of this computer, or already in words, and not of the way to the server.
func local(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return true
	}
	_, ok := errors.AsType[*trainyard.Error](err)
	return ok
}

// permanent says whether trying again cannot help: the certificate or the name is wrong, or it is not the server at all.
func permanent(err error) bool {
	if local(err) {
		return true
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.IsNotFound
	}
	text := err.Error()
	return strings.Contains(text, "certificate") || strings.Contains(text, "server gave HTTP response to HTTPS client") ||
		strings.Contains(text, "unsupported protocol scheme")
}

// describe makes err one for a person.
func (c *Client) describe(err error) error {
	if s, ok := errors.AsType[*statusError](err); ok {
		return s.err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || local(err) {
		return err
	}
	return &Unreachable{URL: c.base.String(), Err: err}
}

func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.Atoi(h.Get("Retry-After-Ms")); err == nil && ms >= 0 {
		return time.Duration(ms) * time.Millisecond
	}
	if s, err := strconv.Atoi(h.Get("Retry-After")); err == nil && s >= 0 {
		return time.Duration(s) * time.Second
	}
	return 0
}

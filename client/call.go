package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
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

// Request is one call of the API.
type Request struct {
	Method string
	Path   string     // of the URL, escaped: see Client.Path
	Query  url.Values // api-version is added where it is missing
	Body   any        // encoded as JSON; nil: no body
	Repeat bool       // a POST that may be sent twice without harm; other methods always may
}

// Answer is a 2xx response.
type Answer struct {
	Status int
	Header http.Header
	Body   json.RawMessage // nil if there was none
}

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

// Get reads something of the workspace: Get(ctx, "jobs", name).
func (c *Client) Get(ctx context.Context, path ...string) (json.RawMessage, error) {
	a, err := c.Do(ctx, Request{Method: http.MethodGet, Path: c.Path(path...)})
	return bodyOf(a), err
}

// Put creates or replaces something of the workspace. A long-running operation may have been started: see Wait.
func (c *Client) Put(ctx context.Context, body any, path ...string) (*Answer, error) {
	return c.Do(ctx, Request{Method: http.MethodPut, Path: c.Path(path...), Body: body})
}

// Patch changes some fields of something of the workspace.
func (c *Client) Patch(ctx context.Context, body any, path ...string) (*Answer, error) {
	return c.Do(ctx, Request{Method: http.MethodPatch, Path: c.Path(path...), Body: body})
}

// Delete deletes something of the workspace.
func (c *Client) Delete(ctx context.Context, query url.Values, path ...string) (*Answer, error) {
	return c.Do(ctx, Request{Method: http.MethodDelete, Path: c.Path(path...), Query: query})
}

// Post calls an action of something of the workspace: Post(ctx, nil, "computes", name, "start"). All actions that the API has may be
// repeated without harm, and are when the connection breaks.
func (c *Client) Post(ctx context.Context, body any, path ...string) (*Answer, error) {
	return c.Do(ctx, Request{Method: http.MethodPost, Path: c.Path(path...), Body: body, Repeat: true})
}

// List goes through all pages of a list of the workspace and stops after the first error.
func (c *Client) List(ctx context.Context, query url.Values, path ...string) iter.Seq2[json.RawMessage, error] {
	return c.ListAt(ctx, c.Path(path...), query)
}

// ListAt is List for any path of the server.
func (c *Client) ListAt(ctx context.Context, path string, query url.Values) iter.Seq2[json.RawMessage, error] {
	return c.pages(ctx, Request{Method: http.MethodGet, Path: path, Query: query}, "value")
}

// Nodes goes through the nodes of a compute.
func (c *Client) Nodes(ctx context.Context, compute string) iter.Seq2[json.RawMessage, error] {
	return c.pages(ctx, Request{Method: http.MethodPost, Path: c.Path("computes", compute, "listNodes"), Repeat: true}, "nodes")
}

func (c *Client) pages(ctx context.Context, r Request, member string) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for {
			a, err := c.Do(ctx, r)
			if err != nil {
				yield(nil, err)
				return
			}
			var page map[string]json.RawMessage
			var items []json.RawMessage
			var next string
			if err = json.Unmarshal(a.Body, &page); err == nil && len(page[member]) > 0 {
				err = json.Unmarshal(page[member], &items)
			}
			if err == nil && len(page["nextLink"]) > 0 {
				err = json.Unmarshal(page["nextLink"], &next)
			}
			if err != nil {
				yield(nil, fmt.Errorf("read list %s: %w", r.Path, err))
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			if r, err = c.follow(r, next); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// follow turns an absolute URL that the server handed out into a request to the server at the address this client uses, which may be
// another than the server knows itself by. The token goes nowhere else.
func (c *Client) follow(r Request, link string) (Request, error) {
	u, err := url.Parse(link)
	if err != nil {
		return r, fmt.Errorf("follow link %q: %w", link, err)
	}
	r.Path, r.Query = u.EscapedPath(), u.Query()
	return r, nil
}

// Do makes one call. It repeats it while the server cannot be reached or answers 429 or 5xx, as long as Config.Patience lasts and the
// request may be repeated. Errors that the server reports are *trainyard.Error.
func (c *Client) Do(ctx context.Context, r Request) (*Answer, error) {
	var body []byte
	if r.Body != nil {
		data, err := json.Marshal(r.Body)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", r.Method, r.Path, err)
		}
		body = data
	}
	query := r.Query
	if !query.Has("api-version") {
		query = url.Values{"api-version": {apiVersion}}
		for k, v := range r.Query {
			query[k] = v
		}
	}
	full := c.base.String() + r.Path + "?" + query.Encode()
	var out *Answer
	err := c.persist(ctx, r.Method != http.MethodPost || r.Repeat, func() error {
		req, err := http.NewRequestWithContext(ctx, r.Method, full, bytes.NewReader(body))
		if err != nil {
			return err
		}
		if body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		res, err := c.send(req, true)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		if err != nil {
			return err
		}
		out = &Answer{Status: res.StatusCode, Header: res.Header, Body: data}
		return nil
	})
	return out, err
}

// send makes one exchange and turns statuses of 400 and above into errors. auth adds the bearer token.
func (c *Client) send(req *http.Request, auth bool) (*http.Response, error) {
	if auth && c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	req.Header.Set("User-Agent", "trainyard")
	start := time.Now()
	res, err := c.http.Do(req)
	status := 0
	if err == nil {
		status = res.StatusCode
	}
	if c.trace != nil {
		c.trace(req.Method, redact(req.URL), status, time.Since(start), err)
	}
	if err != nil {
		return nil, err
	}
	c.reached.Store(true)
	if status < 400 {
		return res, nil
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20)) // what was read of an error is enough to report it
	return nil, &statusError{status: status, after: retryAfter(res.Header), err: decodeError(req, res, data)}
}

// redact hides the signature in a URL, which is as good as a password.
func redact(u *url.URL) string {
	q := u.Query()
	for _, k := range []string{"sig", "token", "se"} {
		if q.Has(k) {
			q.Set(k, "…")
		}
	}
	clean := *u
	clean.RawQuery = q.Encode()
	return clean.String()
}

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

func bodyOf(a *Answer) json.RawMessage {
	if a == nil {
		return nil
	}
	return a.Body
}

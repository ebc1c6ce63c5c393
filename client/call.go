package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"
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

func bodyOf(a *Answer) json.RawMessage {
	if a == nil {
		return nil
	}
	return a.Body
}

package agentlink

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
)

// DialConfig is what an agent needs to reach its server. URL and Node are required.
type DialConfig struct {
	URL       string // https://HOST:PORT; plain http only to loopback
	CAFile    string // PEM file of the authority to trust; empty: the system's
	CA        string // the same as text, where there is no file
	Node      trainyard.NodeID
	JoinToken string // for Join, where NodeInfo carries none
	Token     string // speaks for a job instead: for its task's bytes and logs alone, without joining
}

// Client is the agent's end. It connects when it is first used, and again whenever the connection is gone. A server that cannot be
// reached, or breaks off, is an error with CodeBusy; what the server itself says keeps its code.
type Client struct {
	base  string
	node  trainyard.NodeID
	join  string
	http  *http.Client
	wire  *http.Transport // HTTP/1.1, for connections that are more than requests
	times times

	tunnels tunnels
	token   atomic.Pointer[string] // of the lease
}

// Dial makes a Client; nothing is sent yet.
func Dial(c DialConfig) (*Client, error) { return dial(c, patience) }

func dial(c DialConfig, limits times) (*Client, error) {
	if err := trainyard.CheckServerURL(c.URL); err != nil {
		return nil, err
	}
	t, err := transport(c, limits)
	if err != nil {
		return nil, err
	}
	client := &Client{base: strings.TrimRight(c.URL, "/") + "/agent/v1", node: c.Node, join: c.JoinToken, times: limits,
		http: &http.Client{Transport: t}, wire: plainTransport(t)}
	if c.Token != "" {
		client.token.Store(&c.Token)
	}
	return client, nil
}

// Close lets go of idle connections, and ends those that are carried.
func (c *Client) Close() error {
	c.tunnels.close()
	c.wire.CloseIdleConnections()
	c.http.CloseIdleConnections()
	return nil
}

// Join joins and keeps the lease's token for everything that follows.
func (c *Client) Join(ctx context.Context, info trainyard.NodeInfo) (trainyard.NodeLease, error) {
	if info.Token == "" {
		info.Token = c.join
	}
	var lease trainyard.NodeLease
	if err := c.post(ctx, c.base+"/join", info, &lease); err != nil {
		return lease, err
	}
	c.token.Store(&lease.Token)
	return lease, nil
}

// Wanted waits for news.
func (c *Client) Wanted(ctx context.Context, node trainyard.NodeID, epoch, after int64) (trainyard.Wanted, error) {
	var w trainyard.Wanted
	err := c.call(ctx, http.MethodGet, c.url(node, "wanted", "epoch", strconv.FormatInt(epoch, 10), "after", strconv.FormatInt(after, 10)), nil, &w)
	return w, err
}

// Report says what became of tasks.
func (c *Client) Report(ctx context.Context, r trainyard.Report) error {
	return c.post(ctx, c.url(r.Node, "report"), r, nil)
}

// Append sends log bytes, in pieces that the server takes.
func (c *Client) Append(ctx context.Context, node trainyard.NodeID, epoch int64, task trainyard.TaskID, name string, offset int64, data []byte) (int64, error) {
	for {
		piece := data[:min(len(data), maxChunk)]
		var a appended
		u := c.url(node, "log", "epoch", strconv.FormatInt(epoch, 10), "task", string(task), "name", name, "offset", strconv.FormatInt(offset, 10))
		if err := c.call(ctx, http.MethodPost, u, piece, &a); err != nil {
			return 0, err
		}
		offset, data = offset+int64(len(piece)), data[len(piece):]
		if len(data) == 0 || a.Size < offset {
			return a.Size, nil
		}
	}
}

// List lists the blobs under a prefix.
func (c *Client) List(ctx context.Context, prefix string) ([]trainyard.BlobInfo, error) {
	var infos []trainyard.BlobInfo
	err := c.call(ctx, http.MethodGet, c.url(c.node, "blobs", "prefix", prefix), nil, &infos)
	return infos, err
}

// Open reads a blob from an offset. A connection that breaks ends the reading with an error, never as if it were the end.
func (c *Client) Open(ctx context.Context, key string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	var info trainyard.BlobInfo
	guard := watch(ctx, c.times.stall)
	res, err := c.do(guard.ctx, http.MethodGet, c.url(c.node, "blob", "key", key, "offset", strconv.FormatInt(offset, 10)), nil)
	if err != nil {
		guard.stop()
		return nil, info, c.away(ctx, guard.why(err))
	}
	doc, err := base64.StdEncoding.DecodeString(res.Header.Get(infoHeader))
	if err == nil {
		err = json.Unmarshal(doc, &info)
	}
	if err != nil {
		res.Body.Close()
		guard.stop()
		return nil, info, fmt.Errorf("read the description of %s: %w", key, err)
	}
	return &download{c: c, ctx: ctx, body: res.Body, guard: guard}, info, nil
}

// Put stores a blob. It has done with r when it returns, and does not close it.
func (c *Client) Put(ctx context.Context, key string, r io.Reader) error {
	guard := watch(ctx, c.times.stall)
	up := &upload{r: r, guard: guard, done: make(chan struct{})}
	defer func() { guard.stop(); <-up.done }()
	res, err := c.do(guard.ctx, http.MethodPut, c.url(c.node, "blob", "key", key), up)
	if err != nil {
		if failed := up.failed(); failed != nil {
			return failed // what was to be sent could not be read: that is not the server's fault
		}
		return c.away(ctx, guard.why(err))
	}
	return res.Body.Close()
}

func (c *Client) url(node trainyard.NodeID, what string, query ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		q.Set(query[i], query[i+1])
	}
	u := c.base + "/nodes/" + url.PathEscape(string(node)) + "/" + what
	if len(q) > 0 {
		u += "?" + q.Encode()
	}
	return u
}

// post sends a word as JSON.
func (c *Client) post(ctx context.Context, u string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, u, data, into)
}

// call sends a body and decodes the answer, within the time that a call may take.
func (c *Client) call(ctx context.Context, method, u string, body []byte, into any) error {
	limited, cancel := context.WithTimeout(ctx, c.times.call)
	defer cancel()
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	res, err := c.do(limited, method, u, r)
	if err != nil {
		return c.away(ctx, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return c.away(ctx, err)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read the server's answer to %s: %w", method, err)
	}
	return nil
}

// do sends a request; an answer that is an error becomes the trainyard.Error it was at the server.
func (c *Client) do(ctx context.Context, method, u string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, fmt.Errorf("make a request of %s: %w", u, err)
	}
	if t := c.token.Load(); t != nil {
		req.Header.Set("Authorization", "Bearer "+*t)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	var e trainyard.Error
	if json.Unmarshal(data, &e) == nil && e.Code != "" {
		return nil, &e
	}
	code := trainyard.CodeInternal
	switch res.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		code = trainyard.CodeBusy // something between us and the server speaks
	}
	return nil, trainyard.Errorf(code, "%s %s was answered %s: %s", method, req.URL.Path, res.Status, data[:min(len(data), 500)])
}

// away turns an error of the connection into one with CodeBusy; the caller's own end, and what the server said, stay as they are.
func (c *Client) away(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, said := errors.AsType[*trainyard.Error](err); said {
		return err
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which holds more than people want to read
	}
	return trainyard.Errorf(trainyard.CodeBusy, "the server at %s cannot be reached: %v", strings.TrimSuffix(c.base, "/agent/v1"), err)
}

// times bounds how long things may take.
type times struct {
	dial  time.Duration
	call  time.Duration // a call with its answer; longer than a long poll is held
	stall time.Duration // of a transfer that does not move
	ping  time.Duration // of silence on HTTP/2 before the server is asked for a sign of life
}

// patience is what Dial uses.
var patience = times{dial: 5 * time.Second, call: 45 * time.Second, stall: time.Minute, ping: 10 * time.Second}

package agentlink

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
)

// DialConfig is what an agent needs to reach its server.
type DialConfig struct {
	URL       string
	CAFile    string // PEM; empty: the system's authorities, and plain HTTP
	Node      trainyard.NodeID
	JoinToken string
}

// Client is the agent's end. It connects when it is first used, and again whenever the connection is gone.
type Client struct {
	base  string
	node  trainyard.NodeID
	http  *http.Client
	token atomic.Pointer[string] // of the lease
}

// Times after which a silent connection is given up: a request's answer must begin, a long poll's within its hold.
const (
	answerTimeout = 40 * time.Second // longer than a long poll is held
	dialTimeout   = 5 * time.Second
	pingAfter     = 10 * time.Second // of silence, on HTTP/2
)

// Dial makes a Client; nothing is sent yet.
func Dial(c DialConfig) (*Client, error) {
	u, err := url.Parse(c.URL)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		return nil, trainyard.Invalid("%q is not the URL of a server: want https://HOST:PORT", c.URL)
	}
	t := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       2 * time.Minute,
		ResponseHeaderTimeout: answerTimeout,
		TLSHandshakeTimeout:   dialTimeout,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: dialTimeout, MaxReceiveBufferPerStream: 4 << 20, MaxReceiveBufferPerConnection: 16 << 20},
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the server's CA certificate: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, trainyard.Invalid("%s holds no certificate", c.CAFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &Client{base: strings.TrimRight(c.URL, "/") + "/agent/v1", node: c.Node, http: &http.Client{Transport: t}}, nil
}

// Join joins and keeps the lease's token for everything that follows.
func (c *Client) Join(ctx context.Context, info trainyard.NodeInfo) (trainyard.NodeLease, error) {
	var lease trainyard.NodeLease
	body, err := json.Marshal(info)
	if err != nil {
		return lease, err
	}
	if err := c.call(ctx, http.MethodPost, c.base+"/join", body, &lease); err != nil {
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

// Report reports.
func (c *Client) Report(ctx context.Context, r trainyard.Report) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, c.url(r.Node, "report"), body, nil)
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
	res, err := c.do(ctx, http.MethodGet, c.url(c.node, "blob", "key", key, "offset", strconv.FormatInt(offset, 10)), nil)
	if err != nil {
		return nil, info, err
	}
	doc, err := strconv.Unquote(res.Header.Get(infoHeader))
	if err == nil {
		err = json.Unmarshal([]byte(doc), &info)
	}
	if err != nil {
		res.Body.Close()
		return nil, info, fmt.Errorf("read the description of %s: %w", key, err)
	}
	return res.Body, info, nil
}

// Put stores a blob.
func (c *Client) Put(ctx context.Context, key string, r io.Reader) error {
	res, err := c.do(ctx, http.MethodPut, c.url(c.node, "blob", "key", key), r)
	if err != nil {
		return err
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

// call sends a body and decodes the answer.
func (c *Client) call(ctx context.Context, method, u string, body []byte, into any) error {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	res, err := c.do(ctx, method, u, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if into == nil {
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	return json.NewDecoder(res.Body).Decode(into)
}

// do sends a request; an answer that is an error becomes the trainyard.Error it was at the server.
func (c *Client) do(ctx context.Context, method, u string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, err
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
	return nil, fmt.Errorf("%s %s: the server answered %s: %s", method, req.URL.Path, res.Status, data)
}

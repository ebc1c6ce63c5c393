package agentlink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
)

// Gateways is what gateways that are processes of their own ask; package control satisfies it.
type Gateways interface {
	Routes(ctx context.Context, after int64) (trainyard.Routes, error)
	Report(ctx context.Context, r trainyard.GatewayReport) error
	Connect(ctx context.Context, task trainyard.TaskID) (net.Conn, error)
	CheckToken(ctx context.Context, endpoint, token string) (time.Time, error)
	Collect(ctx context.Context, endpoint, deployment, collection string, rows []byte) error
}

const maxCollected = 32 << 20

type gatewayDoor struct {
	handler
	will Gateways
}

// GatewayHandler serves /agent/v1/gateway/… to who has an administrator's token: a gateway sees every endpoint and stands between callers
// and models.
func GatewayHandler(c Config, will Gateways) http.Handler {
	h := gatewayDoor{handler{c}, will}
	mux := http.NewServeMux()
	for path, do := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /agent/v1/gateway/routes": h.routes, "POST /agent/v1/gateway/report": h.report, "GET /agent/v1/gateway/connect": h.connect,
		"POST /agent/v1/gateway/check": h.check, "POST /agent/v1/gateway/collect": h.collect,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			token, _ := bearer(r)
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stall))
			who, err := h.Auth(token)
			if err == nil && (who.Role != trainyard.RoleAdmin || who.Scope != (trainyard.Scope{})) {
				err = trainyard.Errorf(trainyard.CodeForbidden, "a gateway needs the token of an administrator of the whole server")
			}
			if err == nil {
				err = do(w, r)
			}
			if err != nil {
				h.fail(w, r, err)
			}
		})
	}
	return mux
}

func bearer(r *http.Request) (string, bool) {
	const word = "Bearer "
	if a := r.Header.Get("Authorization"); len(a) > len(word) {
		return a[len(word):], true
	}
	return "", false
}

func (h gatewayDoor) routes(w http.ResponseWriter, r *http.Request) error {
	after, err := strconv.ParseInt(r.FormValue("after"), 10, 64)
	if err != nil {
		return trainyard.Invalid("after is %q, want a number", r.FormValue("after"))
	}
	out, err := h.will.Routes(r.Context(), after)
	if err != nil {
		return err
	}
	return answer(w, out)
}

func (h gatewayDoor) report(w http.ResponseWriter, r *http.Request) error {
	var in trainyard.GatewayReport
	if err := decode(w, r, maxReport, &in); err != nil {
		return err
	}
	if err := h.will.Report(r.Context(), in); err != nil {
		return err
	}
	return answer(w, struct{}{})
}

// checking asks about a token; it is in a body so that it stands in no log of addresses.
type checking struct {
	Endpoint string    `json:"endpoint"`
	Token    string    `json:"token,omitempty"`
	Good     time.Time `json:"good,omitzero"`
}

func (h gatewayDoor) check(w http.ResponseWriter, r *http.Request) error {
	var in checking
	if err := decode(w, r, 64<<10, &in); err != nil {
		return err
	}
	good, err := h.will.CheckToken(r.Context(), in.Endpoint, in.Token)
	if err != nil {
		return err
	}
	return answer(w, checking{Endpoint: in.Endpoint, Good: good})
}

func (h gatewayDoor) collect(w http.ResponseWriter, r *http.Request) error {
	rows, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCollected))
	if err != nil {
		return trainyard.Invalid("what was collected cannot be read: %v", err)
	}
	q := r.URL.Query()
	if err := h.will.Collect(r.Context(), q.Get("endpoint"), q.Get("deployment"), q.Get("collection"), rows); err != nil {
		return err
	}
	return answer(w, struct{}{})
}

func (h gatewayDoor) connect(w http.ResponseWriter, r *http.Request) error {
	near, err := h.will.Connect(r.Context(), trainyard.TaskID(r.FormValue("task")))
	if err != nil {
		return err
	}
	far, err := accept(w)
	if err != nil {
		near.Close()
		return err
	}
	Pipe(near, far)
	return nil
}

// GatewayClient is a gateway's end. Its methods are those of gateway.Source.
type GatewayClient struct{ link *Client }

// DialGateway makes a GatewayClient; nothing is sent yet.
func DialGateway(c DialConfig) (*GatewayClient, error) {
	link, err := Dial(c)
	if err != nil {
		return nil, err
	}
	return &GatewayClient{link}, nil
}

// Close lets go of connections.
func (g *GatewayClient) Close() error { return g.link.Close() }

func (g *GatewayClient) url(what string, query url.Values) string {
	return g.link.base + "/gateway/" + what + "?" + query.Encode()
}

// Routes waits for news.
func (g *GatewayClient) Routes(ctx context.Context, after int64) (trainyard.Routes, error) {
	var out trainyard.Routes
	err := g.link.call(ctx, http.MethodGet, g.url("routes", url.Values{"after": {strconv.FormatInt(after, 10)}}), nil, &out)
	return out, err
}

// Report says what was counted.
func (g *GatewayClient) Report(ctx context.Context, r trainyard.GatewayReport) error {
	return g.link.post(ctx, g.url("report", nil), r, nil)
}

// CheckToken asks whether a token is good for an endpoint.
func (g *GatewayClient) CheckToken(ctx context.Context, endpoint, token string) (time.Time, error) {
	var out checking
	err := g.link.post(ctx, g.url("check", nil), checking{Endpoint: endpoint, Token: token}, &out)
	return out.Good, err
}

// Collect hands rows over that are to be kept.
func (g *GatewayClient) Collect(ctx context.Context, endpoint, deployment, collection string, rows []byte) error {
	q := url.Values{"endpoint": {endpoint}, "deployment": {deployment}, "collection": {collection}}
	return g.link.call(ctx, http.MethodPost, g.url("collect", q), rows, nil)
}

// Connect is a connection to a replica, through the server and the replica's node.
func (g *GatewayClient) Connect(ctx context.Context, task trainyard.TaskID) (net.Conn, error) {
	c, err := g.link.upgrade(ctx, g.url("connect", url.Values{"task": {string(task)}}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", task.Words(), err)
	}
	return &wireConn{ReadWriteCloser: c}, nil
}

// wireConn gives an upgraded request's body what a net.Conn has. A deadline that passes breaks the connection.
type wireConn struct {
	io.ReadWriteCloser
	late  atomic.Bool
	mu    sync.Mutex
	timer *time.Timer
}

func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	return n, c.explain(err)
}

func (c *wireConn) Write(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Write(p)
	return n, c.explain(err)
}

func (c *wireConn) explain(err error) error {
	if err != nil && !errors.Is(err, io.EOF) && c.late.Load() {
		return os.ErrDeadlineExceeded
	}
	return err
}

// CloseWrite says that nothing more will be written.
func (c *wireConn) CloseWrite() error { return closeWrite(c.ReadWriteCloser) }

func (c *wireConn) Close() error {
	_ = c.SetDeadline(time.Time{})
	return c.ReadWriteCloser.Close()
}

// SetDeadline breaks the connection at t, unless it is set again before.
func (c *wireConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if !t.IsZero() {
		c.timer = time.AfterFunc(time.Until(t), func() {
			c.late.Store(true)
			c.ReadWriteCloser.Close()
		})
	}
	return nil
}

func (c *wireConn) SetReadDeadline(t time.Time) error  { return c.SetDeadline(t) }
func (c *wireConn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }
func (c *wireConn) LocalAddr() net.Addr                { return wireAddr{} }
func (c *wireConn) RemoteAddr() net.Addr               { return wireAddr{} }

type wireAddr struct{}

func (wireAddr) Network() string { return "trainyard" }
func (wireAddr) String() string  { return "through the server" }

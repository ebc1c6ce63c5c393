// Package gateway answers the requests to models: it finds the endpoint, checks the key, chooses the deployment by header or by its share
// of the traffic, holds the request while no replica is there, sends it to the least busy one, sends it again when that one dies, copies
// it to a mirror, counts it, and passes what comes back on as it comes. It speaks HTTP/1.1 itself, on both sides, because the standard
// library's proxy costs several times as much a request.
//
// It decides nothing about replicas and keeps no truth: Routes say where to send, and reports say what came. It ends no TLS (hand Serve a
// TLS listener that offers http/1.1 alone), does not change bodies, and does not speak HTTP/2.
//
// A request reaches a model at least once: when the connection to a replica fails before the first byte of an answer, the request goes to
// another replica, if all of its body is still here (up to 1 MiB). A model that must not run twice for one request compares x-request-id,
// which is the same in every try. An answer of up to 32 KiB that says its length is passed on when all of it is here, so that a replica
// which dies while it writes one costs nothing either; all other answers pass as they come.
//
// The clock of a deployment's request timeout runs from when the request came (or, for one that was held, from when a replica had come)
// to the first byte of the answer, and begins anew whenever a part of a large body passes. An answer that streams may take longer.
package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trainyard/trainyard"
)

// Source is the server as a gateway needs it.
type Source interface {
	// Routes returns when there is something newer than after, or after about 25 s with what there was.
	Routes(ctx context.Context, after int64) (trainyard.Routes, error)
	Report(ctx context.Context, r trainyard.GatewayReport) error
	// Connect is a connection to a replica that cannot be dialled.
	Connect(ctx context.Context, task trainyard.TaskID) (net.Conn, error)
	// CheckToken says until when a token is good for an endpoint, or for the whole server when endpoint is "". CodeUnknown and CodeForbidden: it is not.
	CheckToken(ctx context.Context, endpoint, token string) (good time.Time, err error)
	// Collect appends JSON lines to what is collected. collection is "request" or "response".
	Collect(ctx context.Context, endpoint, deployment, collection string, rows []byte) error
}

// Config says how a gateway runs. Only Source is needed.
type Config struct {
	Source Source
	Name   string                                                      // in reports; "": host name and a random part
	Dial   func(ctx context.Context, address string) (net.Conn, error) // to a replica that is reached directly; nil: TCP
	Now    func() time.Time                                            // nil: time.Now
	Log    *slog.Logger                                                // nil: slog.Default()
	Cache  string                                                      // file in which the last Routes are kept; "": nowhere

	MetricsToken   string // lets a caller read /metrics, as a token does that is good for the whole server
	MetricsGuarded bool   // callers on this computer need one, too: the gateway serves others than its owner

	MaxConns    int           // connections of clients; 0: a third of the files that the process may have open, at most 20,000. More are answered 503
	MaxHeld     int           // requests a deployment holds while it has no replica; 0: 1,000. More are answered 429
	HeadTimeout time.Duration // for a request's head, and for the TLS handshake; 0: 10 s
	BodyTimeout time.Duration // without a byte of a request's body; 0: 60 s
	IdleTimeout time.Duration // of a client's connection between requests; 0: 2 min
	Stall       time.Duration // without a client taking a byte of the answer; 0: 2 min
	DialTimeout time.Duration // 0: 3 s
}

// Gateway serves requests to endpoints. See New.
type Gateway struct {
	config Config
	log    *slog.Logger
	start  time.Time
	table  atomic.Pointer[table]
	tokens tokens

	applying sync.Mutex
	rev      atomic.Int64
	kick     chan struct{} // report now

	coarse  atomic.Int64 // time since start, about 20 ms exact; see sweep
	mu      sync.Mutex
	conns   map[*conn]struct{}
	serving map[net.Listener]struct{}
	closed  bool
	tick    bool // sweep runs
	empty   chan struct{}
	stop    chan struct{} // closed when the gateway is shut down
	drain   atomic.Bool

	mirrors  mirrors
	collects collects
	refused  refused
	work     sync.WaitGroup // sweep, mirrors, collectors
}

// New makes a gateway, which serves the routes it remembers at once.
func New(config Config) *Gateway {
	g := &Gateway{
		config: config, log: config.Log, conns: map[*conn]struct{}{}, serving: map[net.Listener]struct{}{},
		kick: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	c := &g.config
	if g.log == nil {
		g.log = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Name == "" {
		c.Name = randomName()
	}
	if c.Dial == nil {
		dialer := &net.Dialer{}
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	files := openFiles()
	c.MaxConns, c.MaxHeld = orInt(c.MaxConns, connsFor(files)), orInt(c.MaxHeld, 1000)
	g.log.Info("gateway", "connections", c.MaxConns, "open files", files)
	c.HeadTimeout, c.BodyTimeout = orDefault(c.HeadTimeout, 10*time.Second), orDefault(c.BodyTimeout, time.Minute)
	c.IdleTimeout, c.Stall = orDefault(c.IdleTimeout, 2*time.Minute), orDefault(c.Stall, 2*time.Minute)
	c.DialTimeout = orDefault(c.DialTimeout, 3*time.Second)
	g.start = c.Now()
	g.table.Store(&table{endpoints: map[string]*endpoint{}})
	g.recall()
	return g
}

func orInt(v, def int) int {
	if v > 0 {
		return v
	}
	return def
}

func randomName() string {
	host, _ := os.Hostname() // a name is for people; without one the random part serves
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return fmt.Sprintf("%s-%s", host, hex.EncodeToString(b))
}

// now is the time since the gateway started.
func (g *Gateway) now() time.Duration { return g.config.Now().Sub(g.start) }

// Ready says whether the gateway has routes: the server's, or those it remembered.
func (g *Gateway) Ready() bool { return g.rev.Load() > 0 || len(g.table.Load().endpoints) > 0 }

package gateway_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gateway"
)

const key = "the-key"

// source stands for the server: routes that a test sets, and what the gateway said.
type source struct {
	mu      sync.Mutex
	routes  trainyard.Routes
	changed chan struct{}
	away    error
	tokens  map[string]time.Time
	asked   int
	reports []trainyard.GatewayReport
	rows    map[string][]byte
	connect func(ctx context.Context, task trainyard.TaskID) (net.Conn, error)
}

func newSource(endpoints ...trainyard.EndpointRoute) *source {
	return &source{routes: trainyard.Routes{Rev: 1, Endpoints: endpoints}, changed: make(chan struct{}), rows: map[string][]byte{}}
}

func (s *source) set(endpoints ...trainyard.EndpointRoute) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes = trainyard.Routes{Rev: s.routes.Rev + 1, Endpoints: endpoints}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *source) leave(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *source) Routes(ctx context.Context, after int64) (trainyard.Routes, error) {
	for {
		s.mu.Lock()
		routes, changed, away := s.routes, s.changed, s.away
		s.mu.Unlock()
		if away != nil {
			return trainyard.Routes{}, away
		}
		if routes.Rev > after {
			return routes, nil
		}
		select {
		case <-ctx.Done():
			return trainyard.Routes{}, ctx.Err()
		case <-changed:
		}
	}
}

func (s *source) Report(_ context.Context, r trainyard.GatewayReport) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, r)
	return s.away
}

func (s *source) Connect(ctx context.Context, task trainyard.TaskID) (net.Conn, error) {
	if s.connect == nil {
		return nil, errors.New("no way there")
	}
	return s.connect(ctx, task)
}

func (s *source) CheckToken(_ context.Context, endpoint, token string) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if until, ok := s.tokens[token]; ok {
		return until, nil
	}
	return time.Time{}, trainyard.Errorf(trainyard.CodeUnknown, "no such token")
}

func (s *source) Collect(_ context.Context, endpoint, deployment, collection string, rows []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := endpoint + "/" + deployment + "/" + collection
	s.rows[k] = append(s.rows[k], rows...)
	return nil
}

// rig is a gateway that runs, and its source.
type rig struct {
	*testing.T
	g    *gateway.Gateway
	src  *source
	addr string
	url  string
}

func run(t *testing.T, src *source, change ...func(*gateway.Config)) *rig {
	t.Helper()
	config := gateway.Config{Source: src, Name: "g", Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&config)
	}
	g := gateway.New(config)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Run(ctx) })
	wg.Go(func() { _ = g.Serve(ln) })
	t.Cleanup(func() {
		ctx, end := context.WithTimeout(context.Background(), 5*time.Second)
		defer end()
		_ = g.Shutdown(ctx)
		cancel()
		wg.Wait()
	})
	r := &rig{T: t, g: g, src: src, addr: ln.Addr().String(), url: "http://" + ln.Addr().String()}
	r.inForce()
	return r
}

// inForce waits until the source's newest routes are in force.
func (r *rig) inForce() {
	r.Helper()
	r.until("the routes are in force", func() bool {
		r.src.mu.Lock()
		defer r.src.mu.Unlock()
		n := len(r.src.reports)
		return r.src.away != nil || n > 0 && r.src.reports[n-1].Rev == r.src.routes.Rev
	})
}

func (r *rig) set(endpoints ...trainyard.EndpointRoute) {
	r.Helper()
	r.src.set(endpoints...)
	r.inForce()
}

func (r *rig) until(what string, ok func() bool) {
	r.Helper()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			r.Fatalf("it did not come to this: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (r *rig) stats(deployment string) trainyard.ServeStats {
	for _, s := range r.g.Snapshot() {
		if s.Deployment == deployment {
			return s
		}
	}
	return trainyard.ServeStats{}
}

// idle waits until no request is at a replica, and fails if one stays there.
func (r *rig) idle(deployment string) {
	r.Helper()
	r.until("no request is under way", func() bool {
		s := r.stats(deployment)
		return s.InFlight == 0 && s.Queued == 0
	})
}

func (r *rig) request(method, path, body string, header ...string) *http.Request {
	r.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, r.url+path, reader)
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

type reply struct {
	*http.Response
	text string
}

// ask sends a request and reads the whole answer.
func (r *rig) ask(req *http.Request) reply {
	r.Helper()
	res, err := client.Do(req)
	if err != nil {
		r.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.Fatalf("%s %s: read the answer: %v", req.Method, req.URL, err)
	}
	return reply{res, string(text)}
}

func (r *rig) score(body string, header ...string) reply {
	r.Helper()
	return r.ask(r.request("POST", "/endpoints/iris/score", body, header...))
}

var client = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// raw sends bytes on a connection of its own and returns a reader of what comes back.
func (r *rig) raw(text string) (net.Conn, *bufio.Reader) {
	r.Helper()
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := nc.Write([]byte(text)); err != nil {
		r.Fatal(err)
	}
	return nc, bufio.NewReader(nc)
}

// endpoint is an endpoint "iris" whose whole traffic goes to the first of its deployments.
func endpoint(deployments ...trainyard.DeploymentRoute) trainyard.EndpointRoute {
	hash := sha256.Sum256([]byte(key))
	e := trainyard.EndpointRoute{Name: "iris", AuthMode: trainyard.AuthKey, Keys: [][]byte{hash[:]}, Deployments: deployments}
	e.Traffic = map[string]int{deployments[0].Name: 100}
	return e
}

func deployment(name string, replicas ...string) trainyard.DeploymentRoute {
	d := trainyard.DeploymentRoute{Name: name, Scoring: "/score", Concurrency: 10, Queue: 10 * time.Second, Timeout: 10 * time.Second, Hold: 20 * time.Second}
	for _, address := range replicas {
		d.Replicas = append(d.Replicas, trainyard.ReplicaRoute{Task: trainyard.TaskID(address), Address: address, Direct: true})
	}
	return d
}

// replica is a server that answers with f.
func replica(t testing.TB, f http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s
}

func address(s *httptest.Server) string { return s.Listener.Addr().String() }

// echo answers with what it was sent.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	_, _ = w.Write(body)
}

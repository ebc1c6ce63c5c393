package gateway

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/trainyard/trainyard"
)

// refused counts answers that the gateway gave before a deployment was chosen.
type refused struct {
	mu    sync.Mutex
	codes map[int]int64
}

func (r *refused) add(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.codes == nil {
		r.codes = map[int]int64{}
	}
	r.codes[status]++
}

func (r *refused) all() map[int]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.codes)
}

// Metrics writes all counts in the text format of Prometheus. Deployments that had no requests have no rows but for their replicas.
func (g *Gateway) Metrics(w io.Writer) error {
	var b bytes.Buffer
	stats := g.Snapshot()
	gauge(&b, stats, "trainyard_gateway_replicas", "Replicas that are ready.", func(s *trainyard.ServeStats) int { return s.Replicas })
	gauge(&b, stats, "trainyard_gateway_in_flight", "Requests at replicas.", func(s *trainyard.ServeStats) int { return s.InFlight })
	gauge(&b, stats, "trainyard_gateway_queued", "Requests that wait for a replica.", func(s *trainyard.ServeStats) int { return s.Queued })
	gauge(&b, stats, "trainyard_gateway_held", "Requests that wait for the first replica.", func(s *trainyard.ServeStats) int { return s.Held })
	counter(&b, stats, "trainyard_gateway_requests_total", "Requests that came.", func(s *trainyard.ServeStats) int64 { return s.Requests })
	counter(&b, stats, "trainyard_gateway_retries_total", "Requests that were sent again.", func(s *trainyard.ServeStats) int64 { return s.Retries })
	counter(&b, stats, "trainyard_gateway_mirrored_total", "Copies of requests that came.", func(s *trainyard.ServeStats) int64 { return s.Mirrored })
	counter(&b, stats, "trainyard_gateway_dropped_total", "Copies and collected rows that were dropped.", func(s *trainyard.ServeStats) int64 { return s.Dropped })
	title(&b, "trainyard_gateway_responses_total", "counter", "Answers by status; 499: the client went away.")
	for i := range stats {
		for _, code := range slices.Sorted(maps.Keys(stats[i].Codes)) {
			fmt.Fprintf(&b, "trainyard_gateway_responses_total{%s,code=\"%d\"} %d\n", labels(&stats[i]), code, stats[i].Codes[code])
		}
	}
	latencies(&b, stats)
	title(&b, "trainyard_gateway_refused_total", "counter", "Requests that were refused before a deployment was chosen.")
	codes := g.refused.all()
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		fmt.Fprintf(&b, "trainyard_gateway_refused_total{code=\"%d\"} %d\n", code, codes[code])
	}
	g.mu.Lock()
	conns := len(g.conns)
	g.mu.Unlock()
	title(&b, "trainyard_gateway_connections", "gauge", "Connections of clients.")
	fmt.Fprintf(&b, "trainyard_gateway_connections %d\n", conns)
	_, err := w.Write(b.Bytes())
	return err
}

func title(b *bytes.Buffer, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func labels(s *trainyard.ServeStats) string {
	return fmt.Sprintf("workspace=%q,endpoint=%q,deployment=%q", s.Scope.Workspace, s.Endpoint, s.Deployment)
}

func gauge(b *bytes.Buffer, stats []trainyard.ServeStats, name, help string, value func(*trainyard.ServeStats) int) {
	title(b, name, "gauge", help)
	for i := range stats {
		fmt.Fprintf(b, "%s{%s} %d\n", name, labels(&stats[i]), value(&stats[i]))
	}
}

func counter(b *bytes.Buffer, stats []trainyard.ServeStats, name, help string, value func(*trainyard.ServeStats) int64) {
	title(b, name, "counter", help)
	for i := range stats {
		fmt.Fprintf(b, "%s{%s} %d\n", name, labels(&stats[i]), value(&stats[i]))
	}
}

func latencies(b *bytes.Buffer, stats []trainyard.ServeStats) {
	const name = "trainyard_gateway_request_seconds"
	title(b, name, "histogram", "From a request's head to the last byte of its answer.")
	for i := range stats {
		s := &stats[i]
		if s.Requests+s.Mirrored == 0 {
			continue
		}
		var sum int64
		for j, n := range s.Latency {
			sum += n
			le := "+Inf"
			if j < len(trainyard.LatencyBounds) {
				le = strconv.FormatFloat(trainyard.LatencyBounds[j].Seconds(), 'g', -1, 64)
			}
			fmt.Fprintf(b, "%s_bucket{%s,le=%q} %d\n", name, labels(s), le, sum)
		}
		fmt.Fprintf(b, "%s_sum{%s} %g\n%s_count{%s} %d\n", name, labels(s), s.LatencySum.Seconds(), name, labels(s), sum)
	}
}

// own answers the gateway's own pages.
func (c *conn) own(target []byte) error {
	path, _, _ := bytes.Cut(target, []byte("?"))
	switch string(path) {
	case "/healthz":
		if !c.g.Ready() {
			return refuse(http.StatusServiceUnavailable, "NotReady", "the gateway has no routes yet: its server has not answered")
		}
		return c.page("text/plain; charset=utf-8", []byte("ok\n"))
	case "/metrics":
		if !c.mayReadMetrics() {
			return refuse(http.StatusUnauthorized, "Unauthorized", "metrics tell of all endpoints: send a token that is good for the whole server, such as an administrator's")
		}
		var b bytes.Buffer
		if err := c.g.Metrics(&b); err != nil {
			return err
		}
		return c.page("text/plain; version=0.0.4; charset=utf-8", b.Bytes())
	}
	return notFound("there is nothing at this path: models answer below /endpoints/NAME/")
}

// mayReadMetrics: the head must still be in the buffer. A request that a proxy on this computer passed on is not from this computer.
func (c *conn) mayReadMetrics() bool {
	if c.local && !c.g.config.MetricsGuarded && c.req.get(hForwardedFor) == nil {
		return true
	}
	const scheme = "bearer "
	auth := c.req.get(hAuthorization)
	if len(auth) <= len(scheme) || !equalFold(auth[:len(scheme)], scheme) {
		return false
	}
	given := trim(auth[len(scheme):])
	want, got := sha256.Sum256([]byte(c.g.config.MetricsToken)), sha256.Sum256(given)
	if c.g.config.MetricsToken != "" && subtle.ConstantTimeCompare(want[:], got[:]) == 1 {
		return true
	}
	return c.g.checkToken(&endpoint{}, string(given), got) == nil
}

// page writes a whole answer of the gateway's own. A body that came with the request ends the connection.
func (c *conn) page(kind string, text []byte) error {
	c.ex.closing = c.ex.closing || !c.reqBody.done() || c.g.drain.Load()
	b := appendStatus(c.out.buf[:0], http.StatusOK, "OK")
	b = appendField(b, "Content-Type", kind)
	b = appendField(b, "Content-Length", strconv.Itoa(len(text)))
	b = c.ids.append(b)
	if c.ex.closing {
		b = appendField(b, "Connection", "close")
	}
	b = append(b, "\r\n"...)
	if !c.ex.head {
		b = append(b, text...)
	}
	c.out.buf = b
	c.enter(phaseWrite, c.g.config.Stall)
	c.ex.started = true
	return c.out.flush()
}

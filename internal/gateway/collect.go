package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"mime"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
)

const (
	collectBody  = 1 << 20  // of one request or answer; what is longer is cut, and says so in contentrange
	collectBytes = 16 << 20 // rows that wait to be sent; what is over that is dropped and counted
	collectEvery = time.Second
)

// collecting gathers one request and its answer. Its methods work on nil, for requests that are not collected.
type collecting struct {
	in, out *payload // nil: not wanted
}

type payload struct {
	kind  string // Content-Type
	data  []byte
	total int64

	headers map[string]string // those that the deployment asks for, by their names in lower case
}

func (p *payload) add(b []byte) {
	if p == nil {
		return
	}
	p.total += int64(len(b))
	if room := collectBody - len(p.data); room > 0 {
		p.data = append(p.data, b[:min(len(b), room)]...)
	}
}

func (c *collecting) request(b []byte) {
	if c != nil {
		c.in.add(b)
	}
}

func (c *collecting) response(b []byte) {
	if c != nil {
		c.out.add(b)
	}
}

// forgetAnswer drops what came of an answer that broke off and will be given again.
func (c *collecting) forgetAnswer() {
	if c != nil && c.out != nil {
		c.out.data, c.out.total = c.out.data[:0], 0
	}
}

func (c *collecting) answerType(kind []byte) {
	if c != nil && c.out != nil {
		c.out.kind = string(kind)
	}
}

// collecting decides whether the request is collected: by the deployment's data collector, and chance where that takes samples.
func (g *Gateway) collecting(d *deployment, h *head) *collecting {
	dc := d.route.Load().Collect
	if dc == nil {
		return nil
	}
	c := &collecting{}
	chance := rand.Float64()
	for name, spec := range dc.Collections {
		if strings.EqualFold(spec.DataCollectionMode, "Disabled") || chance >= rate(spec.SamplingRate, dc.SamplingRate) {
			continue
		}
		switch strings.ToLower(name) {
		case "request":
			c.in = &payload{kind: string(h.get(hContentType)), headers: captured(dc.RequestLogging, h)}
		case "response":
			c.out = &payload{}
		}
	}
	if c.in == nil && c.out == nil {
		return nil
	}
	return c
}

// captured are the headers of a request that are to be kept with it. Keys and cookies speak for somebody: they never are.
func captured(set *trainyard.RequestLogging, h *head) map[string]string {
	if set == nil || len(set.CaptureHeaders) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, name := range set.CaptureHeaders {
		name = strings.ToLower(name)
		for i := range h.fields {
			f := &h.fields[i]
			if f.id == hAuthorization || f.id == hCookie || !equalFold(f.name, name) {
				continue
			}
			if out[name] != "" {
				out[name] += ", "
			}
			out[name] += string(f.value)
		}
	}
	return out
}

// rate is the collection's, or all collections', or 1.
func rate(own, all float64) float64 {
	if own > 0 {
		return own
	}
	if all > 0 {
		return all
	}
	return 1
}

// finish hands over what was gathered.
func (c *collecting) finish(g *Gateway, d *deployment, ids *requestIDs, status int) {
	if c.in != nil {
		g.collects.add(g, d, "request", c.in.row(g, d, "request", string(ids.request), status))
	}
	if c.out != nil {
		g.collects.add(g, d, "response", c.out.row(g, d, "response", string(ids.request), status))
	}
}

// event is a row: a CloudEvent in JSON, with the fields that Azure's data collector adds.
type event struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	DataContentType string          `json:"datacontenttype,omitempty"`
	Time            time.Time       `json:"time"`
	Data            json.RawMessage `json:"data,omitempty"`
	DataBase64      string          `json:"data_base64,omitempty"`
	CorrelationID   string          `json:"correlationid"`
	XRequestID      string          `json:"xrequestid"`
	Status          int             `json:"status"`
	Agent           string          `json:"agent"`
	ContentRange    string          `json:"contentrange"`

	Headers map[string]string `json:"headers,omitempty"`
}

func (p *payload) row(g *Gateway, d *deployment, collection, id string, status int) []byte {
	e := event{
		SpecVersion: "1.0", ID: string(appendUUID(nil)), Source: d.scope.Child("onlineEndpoints", d.endpoint, "deployments", d.name),
		Type: "azureml.inference." + collection, DataContentType: p.kind, Time: g.config.Now().UTC(), CorrelationID: id, XRequestID: id,
		Status: status, Agent: "trainyard-gateway", Headers: p.headers,
		ContentRange: fmt.Sprintf("bytes 0-%d/%d", max(0, len(p.data)-1), p.total),
	}
	kind, _, _ := mime.ParseMediaType(p.kind) // "" for what is no media type
	switch whole := int64(len(p.data)) == p.total; {
	case len(p.data) == 0:
	case whole && (kind == "application/json" || strings.HasSuffix(kind, "+json")) && json.Valid(p.data):
		e.Data = p.data
	case utf8.Valid(p.data):
		e.Data, _ = json.Marshal(string(p.data)) // a string always encodes
	default:
		e.DataBase64 = base64.StdEncoding.EncodeToString(p.data)
	}
	row, err := json.Marshal(e)
	if err != nil {
		return nil
	}
	return append(row, '\n')
}

// collects holds rows until the server has them.
type collects struct {
	mu      sync.Mutex
	bytes   int
	rows    map[collectKey][]byte
	started bool
}

type collectKey struct {
	d          *deployment
	collection string
}

func (c *collects) add(g *Gateway, d *deployment, collection string, row []byte) {
	c.mu.Lock()
	if c.bytes+len(row) > collectBytes || len(row) == 0 {
		c.mu.Unlock()
		d.dropped()
		return
	}
	if c.rows == nil {
		c.rows = map[collectKey][]byte{}
	}
	k := collectKey{d, collection}
	c.rows[k] = append(c.rows[k], row...)
	c.bytes += len(row)
	first := !c.started
	c.started = true
	c.mu.Unlock()
	if first {
		g.work.Go(g.collectWork)
	}
}

// collectWork sends rows every second, and what is left at the end.
func (g *Gateway) collectWork() {
	every := time.NewTicker(collectEvery)
	defer every.Stop()
	failures := 0
	for {
		select {
		case <-g.stop:
			ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
			defer cancel()
			if err := g.sendRows(ctx); err != nil {
				g.log.Warn("the last collected requests were lost", "error", err)
			}
			return
		case <-every.C:
		}
		err := g.sendRows(context.Background())
		if failures++; err == nil {
			failures = 0
		} else if failures == 1 {
			g.log.Warn("collected requests did not reach the server; they are kept for another try", "error", err)
		}
	}
}

func (g *Gateway) sendRows(ctx context.Context) error {
	c := &g.collects
	c.mu.Lock()
	rows := maps.Clone(c.rows)
	clear(c.rows)
	c.mu.Unlock()
	var failed error
	for k, data := range rows {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		err := g.config.Source.Collect(ctx, k.d.endpoint, k.d.name, k.collection, data)
		cancel()
		c.mu.Lock()
		if err != nil && trainyard.CodeOf(err) != trainyard.CodeNotFound { // a deployment that is gone collects nothing
			c.rows[k] = append(data, c.rows[k]...)
			failed = err
		} else {
			c.bytes -= len(data)
		}
		c.mu.Unlock()
	}
	return failed
}

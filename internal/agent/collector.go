package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	random "math/rand/v2"
	"mime"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/net/netutil"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/target"
)

// Bounds of what a replica's script collects itself. What is over them is refused, and the script's own sender says so in the log.
const (
	collectedBody  = 1_000_000       // bytes of one collect(); with its frame it goes to the server as one piece of a log
	collectedPiece = 1 << 20         // bytes of rows that are sent together
	collectedWaits = 16 << 20        // bytes of rows that wait to be sent
	collectedConns = 32              // at once: each may hold a row that is not whole yet, and whoever reaches the port may open them
	collectedEvery = time.Second     // between two sends
	collectedLast  = 5 * time.Second // for what is left when the replica has ended
)

// Variables of azureml-ai-monitoring: where its Collector posts rows, and that it prints them instead.
const (
	collectorHost  = "AZUREML_MDC_HOST"
	collectorPort  = "AZUREML_MDC_PORT"
	collectorPrint = "AZUREML_MDC_LOCAL_CAPTURE"
)

// collector is the data collector beside a replica: it takes the rows that the scoring script collects with azureml-ai-monitoring, and
// sends them to the server. It answers at once, whatever the server does, and refuses what is too much. What it has taken is in a file until
// the server has it: see collector_send.go.
type collector struct {
	k   *task
	srv *http.Server
	key string // that the replica sends, "" if it has none; see known

	strangers atomic.Int64 // requests without it

	mu    sync.Mutex
	rows  map[string][][]byte // by collection
	bytes int
	file  *os.File      // the rows; nil: there is none
	wake  chan struct{} // closed when the replica has ended
	done  chan struct{} // closed when all is sent or given up
}

// houseCollector gives a replica whose script collects rows a port that takes them, and tells it in its environment. Where that cannot
// be had the script's rows go to the replica's log.
func (k *task) houseCollector(t *trainyard.Task, env map[string]string) {
	if len(t.Serve.Collects) == 0 || env[collectorHost]+env[collectorPort]+env[collectorPrint] != "" {
		return
	}
	ln, err := k.collectorPlace(t)
	if err != nil {
		k.warn(fmt.Sprintf("what the scoring script collects goes to its log, and to no datastore: %v", err))
		env[collectorPrint] = "true"
		return
	}
	at, key := ln.Addr().(*net.TCPAddr), rand.Text()
	env[collectorHost], env[collectorPort] = collectorUser+":"+key+"@"+at.IP.String(), strconv.Itoa(at.Port)
	pastProxies(env, at.IP.String())
	k.mu.Lock()
	k.kept.Collector, k.kept.CollectorKey, k.collects = at.String(), key, ln
	k.mu.Unlock()
}

// collectorPlace is an open port that the replica reaches.
func (k *task) collectorPlace(t *trainyard.Task) (net.Listener, error) {
	host := "127.0.0.1"
	switch d, ok := k.a.cfg.Driver.(target.Reached); {
	case k.a.cfg.SelfStaged:
		return nil, errors.New("its image serves by itself in a pod, and nothing there takes rows")
	case t.Contained && !ok:
		return nil, errors.New("containers here do not reach this node")
	case t.Contained:
		var err error
		if host, err = d.Reached(context.Background()); err != nil {
			return nil, err
		}
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// collecting takes rows for as long as the replica's process runs: until stop is called.
func (k *task) collecting(ctx context.Context) (stop func()) {
	k.mu.Lock()
	at, key, ln := k.kept.Collector, k.kept.CollectorKey, k.collects
	k.collects = nil
	k.mu.Unlock()
	if at == "" {
		return func() {}
	}
	c := &collector{k: k, key: key, rows: map[string][][]byte{}, wake: make(chan struct{}), done: make(chan struct{})}
	c.openFile()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /modeldata/log", c.take)
	c.srv = &http.Server{Handler: c.known(mux), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	opening, cancel := context.WithCancel(ctx)
	served := make(chan struct{})
	go func() { defer close(served); c.serve(opening, ln, at) }()
	go c.run(ctx)
	return func() {
		cancel()
		c.srv.Close()
		<-served
		close(c.wake)
		<-c.done
		c.saidStrangers()
	}
}

// serve takes rows until the server is closed. After another agent it opens the port again, and waits where that is not free.
func (c *collector) serve(ctx context.Context, ln net.Listener, at string) {
	var tries backoff
	for ln == nil {
		var err error
		if ln, err = net.Listen("tcp", at); err == nil {
			break
		}
		c.k.warn(fmt.Sprintf("what the scoring script collects is lost until its collector's address is free again: %v", err))
		if pause(ctx, tries.next()); ctx.Err() != nil {
			return
		}
	}
	_ = c.srv.Serve(netutil.LimitListener(ln, collectedConns))
}

// collected is a row: a CloudEvent in JSON, with the fields that Azure's data collector adds.
type collected struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	DataContentType string          `json:"datacontenttype"`
	Time            time.Time       `json:"time"`
	Data            json.RawMessage `json:"data,omitempty"`
	DataBase64      []byte          `json:"data_base64,omitempty"`
	ModelVersion    string          `json:"modelversion,omitempty"`
	CollectDataType string          `json:"collectdatatype,omitempty"`
	Agent           string          `json:"agent,omitempty"`
	CorrelationID   string          `json:"correlationid,omitempty"`
	XRequestID      string          `json:"xrequestid,omitempty"`
	ContentRange    string          `json:"contentrange"`
}

const eventType = "azureml.inference."

// take is one post of the script's sender.
func (c *collector) take(w http.ResponseWriter, r *http.Request) {
	name, share, ok := c.collection(r.Header.Get("ce-type"))
	if !ok {
		http.Error(w, fmt.Sprintf("collection %q is not in the deployment's data_collector; there is: %s", name,
			strings.Join(slices.Sorted(maps.Keys(c.k.kept.Task.Serve.Collects)), ", ")), http.StatusNotFound)
		return
	}
	if random.Float64() >= share {
		return // disabled, or no part of the sample
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, collectedBody))
	if err != nil {
		status := http.StatusBadRequest
		if _, long := errors.AsType[*http.MaxBytesError](err); long {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, fmt.Sprintf("one collect() can be at most %d bytes: %v", collectedBody, err), status)
		return
	}
	row, err := c.row(r.Header, name, data)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case !c.add(name, row):
		http.Error(w, "the data collector has as many rows waiting as it takes: they come faster than the server keeps them", http.StatusTooManyRequests)
	}
}

// collection finds the collection that an event's type names, as the deployment spells it.
func (c *collector) collection(event string) (name string, share float64, ok bool) {
	name = strings.TrimPrefix(event, eventType)
	for have, share := range c.k.kept.Task.Serve.Collects {
		if strings.EqualFold(have, name) {
			return have, share, true
		}
	}
	return name, 0, false
}

func (c *collector) row(h http.Header, collection string, data []byte) ([]byte, error) {
	t := &c.k.kept.Task
	id := h.Get("ce-x-request-id")
	e := collected{SpecVersion: "1.0", ID: h.Get("trace-id"), Type: eventType + collection, DataContentType: h.Get("Content-Type"), Time: time.Now().UTC(),
		Source:       t.Scope.Child("onlineEndpoints", t.Serve.Endpoint, "deployments", t.Serve.Deployment),
		ModelVersion: h.Get("ce-model-version"), CollectDataType: h.Get("ce-collect-data-type"), Agent: h.Get("ce-agent"), CorrelationID: id, XRequestID: id,
		ContentRange: fmt.Sprintf("bytes 0-%d/%d", max(0, len(data)-1), len(data))}
	if e.ID == "" {
		e.ID = uuid.NewString()
	}
	if s, err := strconv.ParseFloat(h.Get("ce-time"), 64); err == nil && s > 0 && s < 1e11 {
		e.Time = time.UnixMilli(int64(s * 1000)).UTC()
	}
	if kind, _, _ := mime.ParseMediaType(e.DataContentType); kind == "application/json" {
		if !json.Valid(data) {
			return nil, errors.New("the rows are not JSON, which their Content-Type says")
		}
		e.Data = data
	} else {
		e.DataBase64 = data
	}
	row, err := json.Marshal(e)
	if err == nil && len(row) >= collectedPiece {
		err = fmt.Errorf("one collect() can be at most %d bytes as a row; this one has %d", collectedPiece, len(row))
	}
	return append(row, '\n'), err
}

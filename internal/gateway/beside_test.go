package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gateway"
)

func TestTheMirrorNeverSlowsOrFailsTheLiveCall(t *testing.T) {
	release := make(chan struct{})
	var copies, wrong atomic.Int64
	mirror := replica(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if copies.Add(1); err != nil || len(body) != 2 && len(body) != 100_000 || r.Header.Get("Authorization") != "" {
			wrong.Add(1)
		}
		<-release
		w.WriteHeader(500)
	})
	live := replica(t, echo)
	e := endpoint(deployment("blue", address(live)), deployment("green", address(mirror)))
	e.Mirror = map[string]int{"green": 50}
	r := run(t, newSource(e))
	for i := range 400 { // all of them while the mirror answers none
		body := "{}"
		if i%4 == 0 {
			body = strings.Repeat("x", 100_000)
		}
		if res := r.score(body); res.StatusCode != 200 || res.text != body {
			t.Fatalf("%d %.100s", res.StatusCode, res.text)
		}
	}
	r.score("{}", "azureml-model-deployment", "blue") // not copied
	s := r.stats("green")
	if s.Dropped == 0 {
		t.Errorf("nothing was dropped before a mirror that hangs: %+v", s)
	}
	close(release)
	r.until("all copies are sent or dropped", func() bool {
		s := r.stats("green")
		return s.Mirrored+s.Dropped == 200 && s.InFlight == 0 && s.Queued == 0 && copies.Load() == s.Mirrored
	})
	if wrong.Load() > 0 || r.stats("blue").Requests != 401 || r.stats("green").Codes[500] != copies.Load() {
		t.Errorf("%d copies were wrong; %+v", wrong.Load(), r.stats("green"))
	}
}

func TestRequestsAndAnswersAreCollectedWhenAskedFor(t *testing.T) {
	model := replica(t, echo)
	d := deployment("blue", address(model))
	d.Collect = &trainyard.DataCollector{Collections: map[string]trainyard.DataCollection{
		"request": {DataCollectionMode: "Enabled"}, "response": {DataCollectionMode: "Enabled"}, "model_inputs": {DataCollectionMode: "Enabled"},
	}}
	r := run(t, newSource(endpoint(d)))
	r.score(`{"data":[1,2]}`, "Content-Type", "application/json", "x-request-id", "r-1")
	r.score("\xff\xfe", "Content-Type", "application/octet-stream")
	r.until("rows are there", func() bool {
		r.src.mu.Lock()
		defer r.src.mu.Unlock()
		return strings.Count(string(r.src.rows["iris/blue/request"]), "\n") == 2 && strings.Count(string(r.src.rows["iris/blue/response"]), "\n") == 2
	})
	for _, collection := range []string{"request", "response"} {
		var row struct {
			Type, CorrelationID string
			Data                struct{ Data []int }
			ContentRange        string
		}
		first, _, _ := strings.Cut(string(r.src.rows["iris/blue/"+collection]), "\n")
		if err := json.Unmarshal([]byte(first), &row); err != nil || row.CorrelationID != "r-1" || len(row.Data.Data) != 2 || row.ContentRange != "bytes 0-13/14" {
			t.Errorf("%s: %s, %v", collection, first, err)
		}
	}
}

func TestAGatewayServesOnWhileItsServerIsAway(t *testing.T) {
	model := replica(t, echo)
	cache := filepath.Join(t.TempDir(), "routes.json")
	src := newSource(endpoint(deployment("blue", address(model))))
	r := run(t, src, func(c *gateway.Config) { c.Cache = cache })
	src.leave(errors.New("no route to host"))
	if res := r.score("{}"); res.StatusCode != 200 {
		t.Errorf("beside a server that is away: %d", res.StatusCode)
	}
	lost := newSource()
	lost.away = errors.New("no route to host")
	again := run(t, lost, func(c *gateway.Config) { c.Cache = cache })
	if res := again.score("{}"); res.StatusCode != 200 {
		t.Errorf("after a start without a server: %d %s", res.StatusCode, res.text)
	}
	again.src.leave(nil)
	again.set(endpoint(deployment("green", address(model))))
	if res := again.score("{}"); res.Header.Get("azureml-model-deployment") != "green" {
		t.Errorf("when the server is back: %v", res.Header)
	}
}

func TestShutdownWaitsForAnswersAndEndsIdleConnections(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(begun)
			<-release
		}
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	nc, idle := r.raw(string(rawScore("x")))
	if res, err := http.ReadResponse(idle, nil); err != nil || res.StatusCode != 200 {
		t.Fatalf("%v, %v", res, err)
	}
	_, busy := r.raw("GET /endpoints/iris/slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\n\r\n")
	<-begun
	down := make(chan error, 1)
	go func() { down <- r.g.Shutdown(context.Background()) }()
	if _, err := idle.ReadByte(); err != io.EOF {
		t.Errorf("an idle connection: %v", err)
	}
	_ = nc.Close()
	select {
	case err := <-down:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	close(release)
	if res, err := http.ReadResponse(busy, nil); err != nil || res.StatusCode != 200 || !res.Close {
		t.Errorf("the request under way: %v, %v", res, err)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", r.addr); err == nil {
		t.Error("it still takes connections")
	}
}

package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// network leads to an API server that has nothing, and can be cut.
type network struct {
	mu  sync.Mutex
	cut chan struct{} // closed while it is
}

func (n *network) set(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cut {
		close(n.cut)
	} else {
		n.cut = make(chan struct{})
	}
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	cut := n.cut
	n.mu.Unlock()
	select {
	case <-cut:
		return nil, errors.New("connection refused")
	default:
	}
	body := io.NopCloser(strings.NewReader(`{"metadata":{"resourceVersion":"1"},"items":[]}`))
	if r.URL.Query().Get("watch") != "" {
		in, out := io.Pipe()
		go func() {
			select {
			case <-cut:
			case <-r.Context().Done():
			}
			out.CloseWithError(io.ErrUnexpectedEOF)
		}()
		body = in
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, Request: r}, nil
}

// A look goes on for a while from what was heard before; that nothing is heard is known at once, and since when.
func TestItIsKnownSinceWhenTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, net := newMemoryDriver(t, nil), &network{cut: make(chan struct{})}
		d.api.http.Transport = net
		d.jobs = &mirror[job]{api: d.api, kind: jobs, log: d.env.Log, version: func(j *job) string { return j.Meta.Version }, whole: d.seeJobs, one: d.seeJob}
		d.watched = &mirror[pod]{api: d.api, kind: pods, log: d.env.Log, version: func(p *pod) string { return p.Meta.Version }, whole: d.seePods, one: d.seePod}
		d.served.heard()
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go d.jobs.run(ctx)
		go d.watched.run(ctx)
		<-time.After(time.Minute)
		if since, err := d.Unheard(); err != nil {
			t.Fatalf("an API server that answers is not heard since %s: %v", since, err)
		}
		net.set(true)
		began := time.Now()
		<-time.After(10 * time.Second)
		since, err := d.Unheard()
		if err == nil || !since.Equal(began) || !strings.HasSuffix(err.Error(), ": the Kubernetes API at cluster.test cannot be reached: connection refused") {
			t.Errorf("since %s: %v, want %s", since, err, began)
		}
		if _, err := d.Observe(ctx); err != nil {
			t.Errorf("ten seconds later a look comes to %v", err)
		}
		<-time.After(time.Minute)
		if _, err := d.Observe(ctx); err == nil || !strings.HasPrefix(err.Error(), "nothing heard since "+began.UTC().Format("15:04:05 MST")+": ") {
			t.Errorf("a minute later a look comes to %v", err)
		}
		net.set(false)
		<-time.After(10 * time.Second)
		if since, err := d.Unheard(); err != nil {
			t.Errorf("back again it is not heard since %s: %v", since, err)
		}
	})
}

package gateway_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trainyard/trainyard"
)

func TestAClientThatLeavesEndsItsRequest(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // before that, the model's server does not look whether its caller is there
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(w, "first")
			_ = http.NewResponseController(w).Flush()
		}
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	for _, path := range []string{"/score", "/stream"} {
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			if res, err := client.Do(r.request("POST", "/endpoints/iris"+path, "{}").WithContext(ctx)); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		}()
		<-begun
		cancel()
		<-ended
		r.idle("blue")
	}
	r.until("both are counted as gone", func() bool { return r.stats("blue").Codes[499] == 2 })
}

func TestAnAnswerThatBreaksOffIsNotMadeWhole(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "100000") // short answers are kept back and asked for again
		}
		_, _ = io.WriteString(w, "part")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	for _, path := range []string{"/length", "/chunked"} {
		res, err := client.Do(r.request("GET", "/endpoints/iris"+path, ""))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if !errors.Is(err, io.ErrUnexpectedEOF) || string(text) != "part" {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	r.idle("blue")
}

func TestAModelThatAnswersEarlyIsHeard(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "too large for me", http.StatusRequestEntityTooLarge)
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	nc, in := r.raw("POST /endpoints/iris/score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nContent-Length: 100000000\r\n\r\n")
	_, _ = nc.Write(make([]byte, 1000))
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != 424 || res.Header.Get("ms-azureml-model-error-statuscode") != "413" || !res.Close {
		t.Fatalf("%v, %v", res, err)
	}
	r.idle("blue")
}

func TestManyClientsAtOnceGetTheirOwnAnswers(t *testing.T) {
	var replicas []string
	for range 3 {
		replicas = append(replicas, address(replica(t, echo)))
	}
	d := deployment("blue", replicas...)
	d.Concurrency = 4 // twelve at once, and as many wait
	r := run(t, newSource(endpoint(d)))
	var wg sync.WaitGroup
	var bad atomic.Int64
	for i := range 24 {
		wg.Go(func() {
			for j := range 40 {
				b := make([]byte, (i*j*97)%90_000)
				_, _ = rand.Read(b)
				req := r.request("POST", "/endpoints/iris/score", string(b))
				if j%3 == 0 && len(b) > 0 {
					req.ContentLength = -1
				}
				res, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || res.StatusCode != 200 || string(got) != string(b) {
					bad.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if bad.Load() > 0 {
		t.Errorf("%d answers were wrong", bad.Load())
	}
	r.idle("blue")
	if s := r.stats("blue"); s.Requests != 960 || s.Codes[200] != 960 {
		t.Errorf("960 requests are counted as %+v", s)
	}
}

func TestAReplicaBehindTheServerIsReachedThroughIt(t *testing.T) {
	model := replica(t, echo)
	src := newSource()
	d := deployment("blue", "10.255.255.1:1")
	d.Replicas[0].Direct = false
	src.routes.Endpoints = append(src.routes.Endpoints, endpoint(d))
	src.connect = func(ctx context.Context, _ trainyard.TaskID) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address(model))
	}
	r := run(t, src)
	if res := r.score("hello"); res.StatusCode != 200 || res.text != "hello" {
		t.Errorf("%d %q", res.StatusCode, res.text)
	}
}

package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gateway"
)

func TestReplicasThatDieUnderLoadFailNoRequest(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-r.Context().Done():
		}
		sum := sha256.Sum256(body)
		w.Header().Set("Content-Length", "64")
		_ = http.NewResponseController(w).Flush() // the head goes alone, as many a server sends it
		_, _ = io.WriteString(w, hex.EncodeToString(sum[:]))
	}
	start := func() *httptest.Server { return httptest.NewServer(http.HandlerFunc(slow)) }
	kill := func(s *httptest.Server) { // as kill -9 does: connections are reset with requests under way
		_ = s.Listener.Close()
		s.CloseClientConnections()
		go s.Close()
	}
	a, b := start(), start()
	r := run(t, newSource(endpoint(deployment("blue", address(a), address(b)))))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var failed, done atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			for j := 0; ; j++ {
				select {
				case <-stop:
					return
				default:
				}
				text := strings.Repeat("x", (i*j*1013)%200_000+1)
				sum := sha256.Sum256([]byte(text))
				want := hex.EncodeToString(sum[:])
				req := r.request("POST", "/endpoints/iris/score", text)
				if j%4 == 0 {
					req.ContentLength = -1
				}
				res, err := client.Do(req)
				if err != nil {
					failed.Add(1)
					t.Errorf("request failed: %v", err)
					continue
				}
				got, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || res.StatusCode != 200 || string(got) != want {
					failed.Add(1)
					t.Errorf("%d %.200s %v", res.StatusCode, got, err)
				}
				done.Add(1)
			}
		})
	}
	for round := range 20 {
		n := done.Load()
		r.until("requests are answered", func() bool { return done.Load() >= n+40 })
		kill(a)
		r.until("requests are answered beside a dead replica", func() bool { return done.Load() >= n+80 })
		a = start()
		if round%5 == 4 { // both go at once, and the server hears of it later
			kill(b)
			kill(a)
			a, b = start(), start()
		}
		r.set(endpoint(deployment("blue", address(a), address(b))))
	}
	close(stop)
	wg.Wait()
	if failed.Load() > 0 || done.Load() == 0 {
		t.Errorf("%d of %d requests failed", failed.Load(), done.Load())
	}
	if r.stats("blue").Retries == 0 {
		t.Error("no request was sent again: nothing was tested")
	}
	kill(a)
	kill(b)
}

func TestARollingUpdateLetsRequestsUnderWayEnd(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	old := replica(t, func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "old")
	})
	young := replica(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "new") })
	r := run(t, newSource(endpoint(deployment("blue", address(old)))))
	first := make(chan reply, 1)
	go func() { first <- r.score("{}") }()
	<-begun
	r.set(endpoint(deployment("blue", address(young))))
	for range 5 {
		if res := r.score("{}"); res.text != "new" {
			t.Fatalf("after the change: %q", res.text)
		}
	}
	close(release)
	if res := <-first; res.text != "old" {
		t.Errorf("the request under way got %d %q", res.StatusCode, res.text)
	}
}

func TestAFullDeploymentSays429(t *testing.T) {
	release := make(chan struct{})
	model := replica(t, func(w http.ResponseWriter, r *http.Request) { <-release })
	d := deployment("blue", address(model))
	d.Concurrency = 2
	kube := deployment("pod", address(model))
	kube.Concurrency, kube.Queue, kube.Kubernetes = 1, time.Millisecond, true
	r := run(t, newSource(endpoint(d, kube)))
	got := make(chan int, 4)
	for range 4 {
		go func() { got <- r.score("{}").StatusCode }()
	}
	r.until("two run and two wait", func() bool { s := r.stats("blue"); return s.InFlight == 2 && s.Queued == 2 })
	if res := r.score("{}"); res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
		t.Errorf("the fifth: %d %s", res.StatusCode, res.text)
	}
	go func() { got <- r.score("{}", "azureml-model-deployment", "pod").StatusCode }()
	r.until("the pod is busy", func() bool { return r.stats("pod").InFlight == 1 })
	if res := r.score("{}", "azureml-model-deployment", "pod"); res.StatusCode != 503 || !strings.Contains(res.text, "longest wait of 1ms") {
		t.Errorf("a pod that stays busy: %d %s", res.StatusCode, res.text)
	}
	close(release)
	for range 5 {
		if code := <-got; code != 200 {
			t.Errorf("one that waited: %d", code)
		}
	}
	r.until("reports tell of it", func() bool {
		r.src.mu.Lock()
		defer r.src.mu.Unlock()
		var queued float64
		for _, rep := range r.src.reports {
			for _, c := range rep.Deployments {
				queued += c.Queued
			}
		}
		return queued > 0
	})
}

// A deployment of two instances takes as many requests while one of them is being replaced.
func TestAnInstanceThatIsBeingReplacedCounts(t *testing.T) {
	release := make(chan struct{})
	model := replica(t, func(w http.ResponseWriter, r *http.Request) { <-release })
	d := deployment("blue", address(model))
	d.Concurrency, d.Wanted = 1, 2
	r := run(t, newSource(endpoint(d)))
	got := make(chan int, 4)
	for range 4 {
		go func() { got <- r.score("{}").StatusCode }()
	}
	r.until("one runs and three wait, or are refused", func() bool { s := r.stats("blue"); return s.InFlight+s.Queued+len(got) == 4 })
	if s := r.stats("blue"); s.InFlight != 1 || s.Queued != 3 {
		t.Errorf("with one of two instances there %d run and %d wait, want 1 and 3", s.InFlight, s.Queued)
	}
	if res := r.score("{}"); res.StatusCode != 429 {
		t.Errorf("the fifth: %d %s", res.StatusCode, res.text)
	}
	close(release)
	for range 4 {
		if code := <-got; code != 200 {
			t.Errorf("one that waited: %d", code)
		}
	}
}

// Requests that waited for a replica to come do not keep out those that come when it is there.
func TestRequestsThatWereHeldLeaveRoomForOthers(t *testing.T) {
	release := make(chan struct{})
	model := replica(t, func(w http.ResponseWriter, r *http.Request) { <-release })
	for name, before := range map[string]func() []string{
		"none yet": func() []string { return nil },
		"a dead one": func() []string {
			dead := httptest.NewServer(nil)
			dead.Close()
			return []string{address(dead)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			route := func(replicas ...string) trainyard.DeploymentRoute {
				d := deployment("blue", replicas...)
				d.Concurrency, d.Wanted, d.Wakes = 1, 1, true
				return d
			}
			r := run(t, newSource(endpoint(route(before()...))))
			got := make(chan int, 8)
			send := func(n int) {
				for range n {
					go func() { got <- r.score("{}").StatusCode }()
				}
			}
			send(1) // by which it is known that none can be reached
			r.until("one is held", func() bool { s := r.stats("blue"); return s.Queued == 1 && s.InFlight == 0 })
			send(4)
			r.until("five are held", func() bool { s := r.stats("blue"); return s.Queued == 5 && s.InFlight == 0 || len(got) > 0 })
			r.set(endpoint(route(address(model))))
			r.until("one runs and four wait", func() bool { s := r.stats("blue"); return s.InFlight == 1 && s.Queued == 4 || len(got) > 0 })
			send(2)
			r.until("six wait, or are refused", func() bool { return r.stats("blue").Queued+len(got) == 6 })
			if res := r.score("{}"); res.StatusCode != 429 {
				t.Errorf("the third that came later: %d %s", res.StatusCode, res.text)
			}
			for range 7 {
				go func() { release <- struct{}{} }()
			}
			for range 7 {
				if code := <-got; code != 200 {
					t.Errorf("one that waited: %d", code)
				}
			}
		})
	}
}

// A replica that was lost once, and is busy since, is there: no more requests than the deployment takes wait for it.
func TestABusyReplicaThatWasLostOnceTakesNoMore(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{}, 8)
	var asked atomic.Int32
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
		begun <- struct{}{}
		<-release
	})
	d := deployment("blue", address(model))
	d.Concurrency, d.Wanted, d.Wakes = 1, 1, true
	r := run(t, newSource(endpoint(d)))
	got := make(chan int, 8)
	for range 2 {
		go func() { got <- r.score("{}").StatusCode }()
	}
	<-begun
	r.until("one runs and one waits", func() bool { s := r.stats("blue"); return s.InFlight == 1 && s.Queued == 1 })
	if res := r.score("{}"); res.StatusCode != 429 || r.stats("blue").Retries == 0 {
		t.Errorf("the third: %d %s after %d retries", res.StatusCode, res.text, r.stats("blue").Retries)
	}
	close(release)
	for range 2 {
		if code := <-got; code != 200 {
			t.Errorf("one that waited: %d", code)
		}
	}
}

// A request that found its replica dead and was held for the next has its whole timeout there.
func TestARequestThatWasHeldHasItsWholeTimeout(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) { <-time.After(50 * time.Millisecond) })
	dead := httptest.NewServer(nil)
	dead.Close()
	route := func(replica string) trainyard.DeploymentRoute {
		d := deployment("blue", replica)
		d.Wanted, d.Wakes, d.Timeout = 1, true, time.Second
		return d
	}
	r := run(t, newSource(endpoint(route(address(dead)))))
	got := make(chan reply, 1)
	go func() { got <- r.score("{}") }()
	r.until("it is held", func() bool { s := r.stats("blue"); return s.Queued == 1 && s.Retries > 0 })
	<-time.After(1100 * time.Millisecond) // longer than its timeout
	r.set(endpoint(route(address(model))))
	if res := <-got; res.StatusCode != 200 {
		t.Errorf("%d %s", res.StatusCode, res.text)
	}
}

func TestAModelThatTakesTooLongIsA408(t *testing.T) {
	ended := make(chan struct{}, 2)
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		ended <- struct{}{}
	})
	d, pod := deployment("blue", address(model)), deployment("pod", address(model))
	d.Timeout, pod.Timeout, pod.Kubernetes = 50*time.Millisecond, 50*time.Millisecond, true
	r := run(t, newSource(endpoint(d, pod)))
	if res := r.score("{}"); res.StatusCode != 408 || !strings.Contains(res.text, "50ms") {
		t.Errorf("%d %s", res.StatusCode, res.text)
	}
	<-ended
	if res := r.score(strings.Repeat("x", 100_000), "azureml-model-deployment", "pod"); res.StatusCode != 504 {
		t.Errorf("a pod: %d %s", res.StatusCode, res.text)
	}
	<-ended
	r.idle("blue")
}

func TestRequestsAreHeldWhileTheFirstReplicaComes(t *testing.T) {
	model := replica(t, echo)
	asleep := deployment("blue")
	asleep.Wakes, asleep.Queue, asleep.Timeout, asleep.Progress = true, time.Millisecond, time.Second, "starting a node"
	r := run(t, newSource(endpoint(asleep)))
	got := make(chan reply, 5)
	for range 5 {
		go func() { got <- r.score("hello") }()
	}
	_, in := r.raw(string(rawScore("noted", "x-trainyard-progress: true\r\n")))
	for _, want := range []string{"starting a node", "loading the model"} {
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != 102 || res.Header.Get("x-trainyard-progress") != want {
			t.Fatalf("%v, %v; want 102 with %q", res, err, want)
		}
		asleep.Progress = "loading the model"
		r.set(endpoint(asleep))
	}
	r.until("the server hears that six are held", func() bool {
		r.src.mu.Lock()
		defer r.src.mu.Unlock()
		for _, rep := range r.src.reports {
			if len(rep.Deployments) == 1 && rep.Deployments[0].Held == 6 {
				return true
			}
		}
		return false
	})
	awake := asleep
	awake.Replicas, awake.Concurrency = deployment("blue", address(model)).Replicas, 1
	r.set(endpoint(awake))
	for range 5 {
		if res := <-got; res.StatusCode != 200 || res.text != "hello" || res.Header.Get("x-trainyard-waited-ms") == "" {
			t.Errorf("a held request got %d %s %v", res.StatusCode, res.text, res.Header)
		}
	}
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 200 {
		t.Errorf("the one with notes got %v, %v", res, err)
	}
}

func TestHeldRequestsAreBoundedAndToldWhenNothingCanCome(t *testing.T) {
	asleep := deployment("blue")
	asleep.Wakes = true
	r := run(t, newSource(endpoint(asleep)), func(c *gateway.Config) { c.MaxHeld = 1 })
	got := make(chan reply, 1)
	go func() { got <- r.score("{}") }()
	r.until("one is held", func() bool { return r.stats("blue").Held == 1 })
	if res := r.score("{}"); res.StatusCode != 429 {
		t.Errorf("one too many: %d %s", res.StatusCode, res.text)
	}
	asleep.Failed = "the image is not there"
	r.set(endpoint(asleep))
	if res := <-got; res.StatusCode != 424 || !strings.Contains(res.text, "the image is not there") {
		t.Errorf("the held one: %d %s", res.StatusCode, res.text)
	}
	asleep.Failed, asleep.Hold = "", 10*time.Millisecond
	r.set(endpoint(asleep))
	if res := r.score("{}"); res.StatusCode != 503 {
		t.Errorf("held for too long: %d %s", res.StatusCode, res.text)
	}
	ctx, cancel := context.WithCancel(context.Background())
	asleep.Hold = time.Minute
	r.set(endpoint(asleep))
	go func() {
		if res, err := client.Do(r.request("POST", "/endpoints/iris/score", "{}").WithContext(ctx)); err == nil {
			_ = res.Body.Close()
		}
	}()
	r.until("one is held", func() bool { return r.stats("blue").Held == 1 })
	cancel()
	r.idle("blue")
}

func TestScalingToZeroAndBackFailsNoRequest(t *testing.T) {
	model := replica(t, echo)
	asleep := deployment("blue")
	asleep.Wakes = true
	awake := deployment("blue", address(model))
	awake.Wakes = true
	r := run(t, newSource(endpoint(asleep)))
	for range 100 {
		got := make(chan reply, 3)
		for range 3 {
			go func() { got <- r.score("{}") }()
		}
		r.set(endpoint(awake))
		r.set(endpoint(asleep))
		r.set(endpoint(awake))
		for range 3 {
			if res := <-got; res.StatusCode != 200 {
				t.Fatalf("%d %s", res.StatusCode, res.text)
			}
		}
		r.set(endpoint(asleep))
	}
}

func TestARequestThatEndsEveryReplicaIsNotSentForEver(t *testing.T) {
	var times atomic.Int64
	die := func(w http.ResponseWriter, r *http.Request) {
		times.Add(1)
		panic(http.ErrAbortHandler)
	}
	r := run(t, newSource(endpoint(deployment("blue", address(replica(t, die)), address(replica(t, die))))))
	if res := r.score("{}"); res.StatusCode != 424 || !strings.Contains(res.text, "three replicas were lost") {
		t.Errorf("%d %s", res.StatusCode, res.text)
	}
	if n := times.Load(); n != 3 {
		t.Errorf("it was sent %d times", n)
	}
}

func TestALargeBodyThatHasPassedIsNotSentAgain(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 2<<20)
		panic(http.ErrAbortHandler)
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	nc, in := r.raw("POST /endpoints/iris/score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nContent-Length: 4000000\r\n\r\n")
	_, _ = nc.Write(make([]byte, 3_000_000))
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != 424 {
		t.Fatalf("%v, %v", res, err)
	}
	if text, _ := io.ReadAll(res.Body); !strings.Contains(string(text), "more than 1 MiB of its body had passed") {
		t.Errorf("%s", text)
	}
}

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
)

const workspace = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default"

// serve starts a server for h and a client of it.
func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(Config{URL: s.URL, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func TestConfigIsCheckedInWords(t *testing.T) {
	for _, tt := range []struct{ name, url, want string }{
		{"none", "", "trainyard server"},
		{"no scheme", "localhost:7878", "is not the URL of a server"},
		{"plain http elsewhere", "http://trainyard.example:7878", "use https://trainyard.example:7878"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(Config{URL: tt.url})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	for _, ok := range []string{"http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1", "https://x"} {
		if _, err := New(Config{URL: ok}); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
}

func TestGetSendsTokenVersionAndEscapedNames(t *testing.T) {
	var got *http.Request
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		answer(w, 200, map[string]string{"name": "x"})
	})
	raw, err := c.Get(t.Context(), "jobs", "a/b c")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), `"name":"x"`) {
		t.Errorf("body %s", raw)
	}
	if want := workspace + "/jobs/a%2Fb%20c"; got.URL.EscapedPath() != want {
		t.Errorf("path %s, want %s", got.URL.EscapedPath(), want)
	}
	if got.Header.Get("Authorization") != "Bearer secret" || got.URL.Query().Get("api-version") == "" {
		t.Errorf("header %v, query %v", got.Header, got.URL.Query())
	}
}

func TestErrorsOfTheServerKeepCodeTargetAndDetails(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answer(w, 400, map[string]any{"error": map[string]any{"code": "ValidationError", "message": "the job has 2 errors", "target": nil,
			"details": []any{map[string]any{"code": "ValidationError", "message": "one"}, map[string]any{"code": "ValidationError", "message": "two"}}}})
	})
	_, err := c.Put(t.Context(), map[string]any{}, "jobs", "j")
	var e *trainyard.Error
	if !errors.As(err, &e) || e.Code != trainyard.CodeInvalid || len(e.Details) != 2 {
		t.Fatalf("error %#v", err)
	}
	if want := "the job has 2 errors\n  one\n  two"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

func TestErrorWithoutBodyHasTheCodeOfItsStatus(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404) })
	if _, err := c.Get(t.Context(), "jobs", "j"); !trainyard.IsNotFound(err) {
		t.Errorf("error %v, want not found", err)
	}
}

func TestListFollowsPagesAtTheClientsOwnAddress(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("$skip") == "" {
			next := "https://name.the.server.has.for.itself:1/" + strings.TrimPrefix(r.URL.Path, "/") + "?$skip=2&api-version=x"
			answer(w, 200, map[string]any{"value": []int{1, 2}, "nextLink": next})
			return
		}
		answer(w, 200, map[string]any{"value": []int{3}, "nextLink": nil})
	})
	var got []string
	for item, err := range c.List(t.Context(), nil, "jobs") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(item))
	}
	if diff := cmp.Diff([]string{"1", "2", "3"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRepeatableCallsOutliveBadAnswers(t *testing.T) {
	var n atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch n.Add(1) {
		case 1:
			w.WriteHeader(503)
		case 2:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(429)
		case 3: // the connection breaks in the middle
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
		default:
			answer(w, 200, map[string]string{})
		}
	})
	if _, err := c.Get(t.Context(), "jobs", "j"); err != nil {
		t.Fatal(err)
	}
	if n.Load() != 4 {
		t.Errorf("%d calls, want 4", n.Load())
	}
}

func TestPostIsNotSentTwiceUnlessItMayBe(t *testing.T) {
	var n atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		w.WriteHeader(503)
	})
	if _, err := c.Do(t.Context(), Request{Method: "POST", Path: "/x"}); err == nil || n.Load() != 1 {
		t.Errorf("error %v after %d calls, want one call", err, n.Load())
	}
}

func TestServerThatWasNeverThereIsGivenUpSoon(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, err := New(Config{URL: "http://" + l.Addr().String(), Patience: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err = c.Get(t.Context(), "jobs")
	var away *Unreachable
	if !errors.As(err, &away) || !strings.Contains(err.Error(), "connection refused. Start one on this computer with") {
		t.Errorf("error %v", err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("gave up after %s", d)
	}
}

func TestServerThatRestartsIsWaitedFor(t *testing.T) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(w, 200, map[string]string{}) })
	first := httptest.NewServer(h)
	addr := first.Listener.Addr().String()
	retried := make(chan struct{}, 100)
	c, err := New(Config{URL: first.URL, OnRetry: func(error) { retried <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "jobs"); err != nil {
		t.Fatal(err)
	}
	first.Close()
	done := make(chan error, 1)
	go func() {
		_, err := c.Get(context.WithoutCancel(t.Context()), "jobs")
		done <- err
	}()
	<-retried // it has found nobody
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	second := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	second.Start()
	defer second.Close()
	if err := <-done; err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

func TestCancelledCallEndsAtOnce(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) })
	ctx, cancel := context.WithCancel(t.Context())
	c = c.Patient(time.Hour, func(error) { cancel() })
	if _, err := c.Get(ctx, "jobs"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestWaitFollowsAnOperation(t *testing.T) {
	for _, tt := range []struct {
		name, header string
		replies      []func(http.ResponseWriter)
		want         string
	}{
		{"status object", "Azure-AsyncOperation", []func(http.ResponseWriter){
			func(w http.ResponseWriter) { answer(w, 200, map[string]any{"status": "InProgress"}) },
			func(w http.ResponseWriter) { answer(w, 200, map[string]any{"status": "Succeeded"}) }}, ""},
		{"bare location", "Location", []func(http.ResponseWriter){
			func(w http.ResponseWriter) { w.WriteHeader(202) },
			func(w http.ResponseWriter) { w.WriteHeader(200) }}, ""},
		{"failure", "Azure-AsyncOperation", []func(http.ResponseWriter){func(w http.ResponseWriter) {
			answer(w, 200, map[string]any{"status": "Failed", "error": map[string]any{"code": "Conflict", "message": "no room"}})
		}}, "no room"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var n atomic.Int32
			c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == "POST" {
					w.Header().Set(tt.header, "https://elsewhere/ops/1?x=y")
					w.WriteHeader(202)
					return
				}
				if r.URL.Path != "/ops/1" || r.URL.Query().Get("x") != "y" {
					t.Errorf("asked for %s", r.URL)
				}
				tt.replies[n.Add(1)-1](w)
			})
			a, err := c.Post(t.Context(), nil, "computes", "c", "start")
			if err != nil {
				t.Fatal(err)
			}
			looks := 0
			err = c.Wait(t.Context(), a, func(Operation) { looks++ })
			if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && got != tt.want {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if looks != len(tt.replies) {
				t.Errorf("%d looks, want %d", looks, len(tt.replies))
			}
		})
	}
}

func TestTraceHidesSignatures(t *testing.T) {
	u, err := url.Parse("https://h/blob/c/x?sig=topsecret&sr=c")
	if err != nil {
		t.Fatal(err)
	}
	if got := redact(u); strings.Contains(got, "topsecret") || !strings.Contains(got, "sr=c") {
		t.Errorf("trace shows %s", got)
	}
}

package client

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// transport answers without a network.
type transport func(*http.Request) *http.Response

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// Looks at an operation that takes long stay a second apart, however many there have been.
func TestWaitDoesNotHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		c, err := New(Config{URL: "http://127.0.0.1:1", HTTP: &http.Client{Transport: transport(func(r *http.Request) *http.Response {
			status := "InProgress"
			if looks++; looks == 200 {
				status = "Succeeded"
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Retry-After": {"1"}}, Request: r,
				Body: io.NopCloser(strings.NewReader(`{"status":"` + status + `"}`))}
		})}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := c.Wait(t.Context(), &Answer{Header: http.Header{"Location": {"http://127.0.0.1:1/op"}}}, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 190*time.Second || took > 200*time.Second {
			t.Errorf("200 looks took %v", took)
		}
	})
}

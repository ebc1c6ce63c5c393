// Package slurmtest stands before a real slurmrestd as sites have it stand: Debian's knows neither tokens nor TLS.
package slurmtest

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// Site passes on what comes from its user with the token of the day, and answers 401 to all else.
type Site struct {
	*httptest.Server
	User  string
	token atomic.Pointer[string]
}

// New begins a Site before the slurmrestd at a URL unix:/PATH; secure has it speak TLS alone. It ends with the test.
func New(t testing.TB, slurmrestd, user, token string, secure bool) *Site {
	t.Helper()
	s := &Site{User: user}
	s.Give(token)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "slurmrestd"})
			r.Out.Header.Del("X-SLURM-USER-TOKEN") // it would look at it, and knows of none
			r.Out.Header.Del("X-SLURM-USER-NAME")
		},
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(slurmrestd, "unix:"))
		}},
	}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-SLURM-USER-NAME") != s.User || r.Header.Get("X-SLURM-USER-TOKEN") != s.Token() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of those who do not believe its certificate
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// Token is the token of the day.
func (s *Site) Token() string { return *s.token.Load() }

// Give makes another the token of the day: the last has run out.
func (s *Site) Give(token string) { s.token.Store(&token) }

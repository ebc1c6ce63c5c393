package agentlink

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/trainyard/trainyard"
)

// Proxy is the server as tasks reach it on a machine where it is not: plain HTTP on loopback, passed on over TLS to the server that
// Client speaks to. Requests bring their own tokens, which the server checks; the proxy adds nothing.
type Proxy struct {
	URL string // http://127.0.0.1:PORT
	srv *http.Server
}

// NewProxy listens on a port of loopback. Close ends it.
func NewProxy(c DialConfig, log *slog.Logger) (*Proxy, error) {
	to, err := url.Parse(c.URL)
	if err != nil {
		return nil, trainyard.Invalid("%q is not the URL of a server", c.URL)
	}
	t, err := transport(c, patience)
	if err != nil {
		return nil, err
	}
	t.ResponseHeaderTimeout = 0 // a task may wait for what takes long
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // looking whether there is such a thing takes longer than to listen
	ln, err := plain.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{URL: "http://" + ln.Addr().String(), srv: &http.Server{ReadHeaderTimeout: 20 * time.Second,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Handler: &httputil.ReverseProxy{Transport: t, FlushInterval: -1, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}}}
	go func() { _ = p.srv.Serve(ln) }()
	return p, nil
}

// Close ends what is under way and the listening.
func (p *Proxy) Close() error {
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	if p.srv.Shutdown(ctx) != nil {
		return p.srv.Close()
	}
	return nil
}

package identity

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// fromAfar is a listener whose connections seem to come from another machine.
type fromAfar struct {
	net.Listener
	remote net.Addr
}

type farConn struct {
	*net.TCPConn
	remote net.Addr
}

func (c farConn) RemoteAddr() net.Addr { return c.remote }

func (l fromAfar) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return farConn{c.(*net.TCPConn), l.remote}, nil
}

// serve starts a server on a Mux that answers each request with its protocol and whether it came over TLS. Connections seem to come
// from remote, if one is given.
func serve(t *testing.T, remote net.Addr) (port string, tlsConfig *tls.Config, mux *Mux) {
	t.Helper()
	cert, ca, err := Certificates(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if remote != nil {
		l = fromAfar{l, remote}
	}
	mux = Listen(l, cert)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s tls=%v %s", r.Proto, r.TLS != nil, body)
	})}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(mux) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
		mux.Close()
	})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	_, port, _ = net.SplitHostPort(mux.Addr().String())
	return port, &tls.Config{RootCAs: pool}, mux
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Post(url, "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestOnePortSpeaksTLSWithHTTP2AndPlainHTTPOnLoopback(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		port, conf, _ := serve(t, nil)
		h2 := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}
		h1 := &http.Transport{TLSClientConfig: conf.Clone(), TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
		plain := &http.Transport{}
		for _, tr := range []*http.Transport{h2, h1, plain} {
			defer tr.CloseIdleConnections()
		}
		for _, c := range []struct {
			tr        *http.Transport
			url, want string
		}{
			{h2, "https://localhost:" + port, "HTTP/2.0 tls=true hello"},
			{h1, "https://127.0.0.1:" + port, "HTTP/1.1 tls=true hello"},
			{plain, "http://127.0.0.1:" + port, "HTTP/1.1 tls=false hello"},
		} {
			for range 2 { // the second one on a connection that is kept
				if got := get(t, &http.Client{Transport: c.tr}, c.url); got != c.want {
					t.Errorf("%s: %q, want %q", c.url, got, c.want)
				}
			}
		}
	})
}

func TestSilentClientsHoldUpNobody(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("", func(t *testing.T) {
		port, _, mux := serve(t, nil)
		var silent []net.Conn
		for range 50 {
			c, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			silent = append(silent, c)
		}
		tr := &http.Transport{}
		defer tr.CloseIdleConnections()
		if got := get(t, &http.Client{Transport: tr, Timeout: 10 * time.Second}, "http://127.0.0.1:"+port); got != "HTTP/1.1 tls=false hello" {
			t.Errorf("%q", got)
		}
		mux.Close()
		mux.Close() // twice is no harm
		for _, c := range silent {
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, errTimeout(err)) {
				t.Fatalf("Close left a silent client hanging: %v", err)
			}
		}
	})
}

// errTimeout is err if it is a timeout, and an error that matches nothing if not.
func errTimeout(err error) error {
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return err
	}
	return errors.New("none")
}

func TestPlainHTTPFromAnotherMachineIsAnsweredInWordsAndTLSIsServed(t *testing.T) {
	port, conf, _ := serve(t, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1})
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nContent-Length: 10000\r\n\r\n%s", strings.Repeat("x", 10000))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 400 || !strings.Contains(string(body), "https://") {
		t.Errorf("%d %s %v", resp.StatusCode, body, err)
	}
	tr := &http.Transport{TLSClientConfig: conf}
	defer tr.CloseIdleConnections()
	if got := get(t, &http.Client{Transport: tr}, "https://127.0.0.1:"+port); !strings.Contains(got, "tls=true") {
		t.Errorf("TLS from another machine: %q", got)
	}
}

func TestWhoSaysNothingKeepsNobodyOut(t *testing.T) {
	port, _, mux := serve(t, nil)
	mux.Bound(func() int { return 3 })
	var silent []net.Conn
	for range 10 {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	res, err := http.Get("http://127.0.0.1:" + port)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	closed := 0
	for _, c := range silent {
		c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		var b [1]byte
		if _, err := c.Read(b[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			closed++
		}
	}
	if closed < 7 || closed > 8 {
		t.Errorf("%d of 10 connections that say nothing were closed, though 3 may wait", closed)
	}
}

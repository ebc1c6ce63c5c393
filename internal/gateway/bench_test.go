package gateway_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gateway"
)

// measured is an endpoint with a key, a split over two deployments and their metrics on, before one replica.
func measured(replica string) gateway.Fixed {
	hash := sha256.Sum256([]byte(key))
	d := func(name string) trainyard.DeploymentRoute {
		return trainyard.DeploymentRoute{
			Name: name, Scoring: "/score", Concurrency: 256, Queue: time.Second, Timeout: 5 * time.Second,
			Replicas: []trainyard.ReplicaRoute{{Task: "t", Address: replica, Direct: true}},
		}
	}
	return gateway.Fixed{Rev: 1, Endpoints: []trainyard.EndpointRoute{{
		Name: "iris", AuthMode: trainyard.AuthKey, Keys: [][]byte{hash[:]}, Traffic: map[string]int{"blue": 90, "green": 10},
		Deployments: []trainyard.DeploymentRoute{d("blue"), d("green")},
	}}}
}

func measuredGateway(b testing.TB, replica string, listen string) string {
	g := gateway.New(gateway.Config{Source: measured(replica), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { _ = g.Run(ctx) }()
	go func() { _ = g.Serve(ln) }()
	b.Cleanup(func() {
		_ = g.Shutdown(ctx)
		cancel()
	})
	for !g.Ready() {
		<-time.After(time.Millisecond)
	}
	return ln.Addr().String()
}

// quick answers every request with the same few bytes, at as little cost as there can be.
func quick(b testing.TB) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				buf := make([]byte, 4096)
				for n := 0; ; {
					m, err := nc.Read(buf[n:])
					if err != nil {
						return
					}
					if n += m; !bytes.HasSuffix(buf[:n], []byte("\r\n\r\n{\"data\":[]}")) {
						continue
					}
					n = 0
					if _, err := io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{\"data\":[42]}"); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

// BenchmarkRequest is one small request after the other on one connection: what the gateway adds is the difference to Direct.
func BenchmarkRequest(b *testing.B) {
	replica := quick(b)
	target, _ := url.Parse("http://" + replica)
	std := &http.Server{Handler: httputil.NewSingleHostReverseProxy(target)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = std.Close() })
	go func() { _ = std.Serve(ln) }()
	for _, way := range []struct{ name, address string }{
		{"Direct", replica}, {"Gateway", measuredGateway(b, replica, "127.0.0.1:0")}, {"ReverseProxy", ln.Addr().String()},
	} {
		b.Run(way.name, func(b *testing.B) {
			nc, err := net.Dial("tcp", way.address)
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			request := []byte("POST /endpoints/iris/score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"data\":[]}")
			buf := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := nc.Write(request); err != nil {
					b.Fatal(err)
				}
				if _, err := nc.Read(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestServeForMeasuring serves on TRAINYARD_GATEWAY_LISTEN before TRAINYARD_GATEWAY_REPLICA until it is interrupted, for load tools. It
// does nothing where these are not set.
func TestServeForMeasuring(t *testing.T) {
	listen, replica := os.Getenv("TRAINYARD_GATEWAY_LISTEN"), os.Getenv("TRAINYARD_GATEWAY_REPLICA")
	if listen == "" || replica == "" {
		return
	}
	t.Log("serving on", measuredGateway(t, replica, listen))
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	<-stop.Done()
}

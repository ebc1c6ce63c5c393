package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
)

// child runs this program as a part of the bench that is to be a process of its own; ok says whether it was meant to be one.
func child(args []string) (ok bool, err error) {
	if len(args) < 3 {
		return false, nil
	}
	switch args[1] {
	case "replica":
		return true, listening(args[2], answerAll)
	case "least-server":
		return true, listening(args[2], func(ln net.Listener) error { return leastServing(ln, args[3:]) })
	case "reverse-proxy":
		return true, listening(args[2], func(ln net.Listener) error { return reverseProxy(ln, args[3]) })
	}
	return false, nil
}

// listening serves on an address until it is told to end, and prints the address first.
func listening(addr string, serve func(net.Listener) error) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	fmt.Println(ln.Addr())
	if err := serve(ln); ctx.Err() == nil {
		return err
	}
	return nil
}

// Prediction is what the replica answers.
const prediction = `{"predictions":[1]}`

// answerAll is a replica that costs next to nothing, so that what is measured in front of it is the proxy: no model, no Python, and not
// the standard library's server either. It answers every request alike.
func answerAll(ln net.Listener) error {
	for {
		nc, err := ln.Accept()
		if err != nil {
			return err
		}
		go answerConn(nc)
	}
}

func answerConn(nc net.Conn) {
	defer nc.Close()
	in := bufio.NewReader(nc)
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(prediction), prediction)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return // the other side has gone
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		if _, err := nc.Write(answer); err != nil || r.Close {
			return
		}
	}
}

// reverseProxy is the standard library's, with as many idle connections as there are clients: without those it would dial for most requests.
func reverseProxy(ln net.Listener, target string) error {
	to, err := url.Parse(target)
	if err != nil {
		return err
	}
	keep := http.DefaultTransport.(*http.Transport).Clone()
	keep.MaxIdleConnsPerHost = manyClients
	p := &httputil.ReverseProxy{Transport: keep, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	if err := http.Serve(ln, p); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
)

// FuzzHead compares with net/http: what is taken here is taken there, and means the same. The other way round it need not be, since this
// parser is stricter.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST /x?y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n", "GET / HTTP/1.0\r\n\r\n",
		"GET http://a/b HTTP/1.1\r\nHost: a\r\nConnection: close, x\r\nX: y\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &reader{src: bytes.NewReader(data), buf: make([]byte, 16)}
		n, err := readHead(b)
		if err != nil {
			return
		}
		var h head
		if h.parseRequest(b.data()[:n]) != nil {
			return
		}
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			if h.target[0] == '/' && !bytes.Contains(h.target, []byte("%")) && h.get(hHost) != nil {
				t.Logf("net/http refuses %q: %v", data, err) // its URLs and hosts are stricter; lengths are compared below
			}
			return
		}
		if req.Method != string(h.method) || req.RequestURI != string(h.target) || req.ProtoMinor != h.minor {
			t.Fatalf("%q is %s %s here and %s %s there", data, h.method, h.target, req.Method, req.RequestURI)
		}
		if chunked := len(req.TransferEncoding) > 0; chunked != h.chunked || !chunked && max(h.length, 0) != req.ContentLength {
			t.Fatalf("%q has length %d chunked %v here and %d %v there", data, h.length, h.chunked, req.ContentLength, req.TransferEncoding)
		}
		for _, x := range h.fields {
			if x.id == hOther && len(req.Header.Values(string(x.name))) == 0 {
				t.Fatalf("%q: net/http has no %q", data, x.name)
			}
		}
		b.take(n)
		compareBody(t, data, b, &h, req)
	})
}

func compareBody(t *testing.T, data []byte, b *reader, h *head, req *http.Request) {
	var x body
	x.reset(b, h, false)
	var mine []byte
	for {
		p, err := x.next()
		mine = append(mine, p...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return
		}
	}
	if theirs, err := io.ReadAll(req.Body); err == nil && !bytes.Equal(mine, theirs) {
		t.Fatalf("%q has the body %q here and %q there", data, mine, theirs)
	}
}

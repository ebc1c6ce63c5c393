package gateway_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard/internal/gateway"
)

func TestRequestsThatCouldBeReadInTwoWaysAreRefused(t *testing.T) {
	model := replica(t, echo)
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	auth := "Authorization: Bearer " + key + "\r\n"
	post := "POST /endpoints/iris/score HTTP/1.1\r\nHost: x\r\n" + auth
	for what, c := range map[string]struct {
		text   string
		status int
	}{
		"two lengths":                      {post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
		"two lengths in one":               {post + "Content-Length: 3, 3\r\n\r\nabc", 400},
		"a length with a sign":             {post + "Content-Length: +3\r\n\r\nabc", 400},
		"a length and an encoding":         {post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"an encoding twice":                {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"an encoding that is not known":    {post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501},
		"a list of encodings":              {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
		"an encoding in HTTP/1.0":          {"POST /endpoints/iris/score HTTP/1.0\r\nHost: x\r\n" + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		"a space before the colon":         {post + "Content-Length : 3\r\n\r\nabc", 400},
		"a folded line":                    {post + "X: a\r\n b\r\n\r\n", 400},
		"a line without CR":                {post + "X: a\nY: b\r\n\r\n", 400},
		"lines without CR":                 {"GET / HTTP/1.1\nHost: x\n\n", 400},
		"a CR in a value":                  {post + "X: a\rb\r\n\r\n", 400},
		"a NUL in a value":                 {post + "X: a\x00b\r\n\r\n", 400},
		"no host":                          {"GET / HTTP/1.1\r\n\r\n", 400},
		"two hosts":                        {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
		"two spaces":                       {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
		"another version":                  {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
		"no request":                       {"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400},
		"an expectation that is not known": {post + "Expect: wonders\r\n\r\n", 417},
		"a long path":                      {"GET /" + strings.Repeat("x", 9000) + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
		"a long head":                      {post + "X: " + strings.Repeat("x", 70_000) + "\r\n\r\n", 431},
		"many fields":                      {post + strings.Repeat("X: y\r\n", 101) + "\r\n", 431},
		"a chunk size with a sign":         {post + "Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n", 400},
		"a chunk size that is hexed":       {post + "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", 400},
		"a chunk size without CR":          {post + "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", 400},
		"a chunk longer than it says":      {post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400},
		"a huge chunk size":                {post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc\r\n0\r\n\r\n", 400},
	} {
		_, in := r.raw(c.text)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		text, _ := io.ReadAll(res.Body)
		if res.StatusCode != c.status || !res.Close {
			t.Errorf("%s: %d %s, close %v; want %d and the end", what, res.StatusCode, text, res.Close, c.status)
		}
		if rest, _ := io.ReadAll(in); len(rest) > 0 {
			t.Errorf("%s: a second answer follows: %q", what, rest)
		}
	}
	r.idle("blue")
}

func TestARefusedRequestsBodyIsNotTheNextRequest(t *testing.T) {
	model := replica(t, echo)
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	inner := "GET /endpoints/iris/hidden HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\n\r\n"
	for _, header := range []string{"x-request-id: " + strings.Repeat("x", 101), "azureml-model-deployment: none", "X: y"} {
		bad := strings.Replace(string(rawScore(inner, header+"\r\n")), key, "wrong", 1)
		_, in := r.raw(bad + string(rawScore("after")))
		for _, want := range []bool{false, true} {
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%.20s: %v", header, err)
			}
			text, _ := io.ReadAll(res.Body)
			if ok := res.StatusCode == 200 && string(text) == "after"; ok != want {
				t.Fatalf("%.20s: %d %s", header, res.StatusCode, text)
			}
		}
	}
}

func TestSlowClientsDoNotStay(t *testing.T) {
	model := replica(t, echo)
	r := run(t, newSource(endpoint(deployment("blue", address(model)))), func(c *gateway.Config) {
		c.HeadTimeout, c.BodyTimeout, c.IdleTimeout = 50*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	})
	head := "POST /endpoints/iris/score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\n"
	for what, c := range map[string]struct {
		text   string
		status int
	}{
		"nothing comes":           {"", 0},
		"half a head":             {head, 408},
		"half a small body":       {head + "Content-Length: 10\r\n\r\nhalf", 408},
		"half a large body":       {head + "Content-Length: 1000000\r\n\r\nhalf", 408},
		"half a chunk":            {head + "Transfer-Encoding: chunked\r\n\r\n10\r\nhalf", 408},
		"a request, then nothing": {string(rawScore("x")), 200},
	} {
		_, in := r.raw(c.text)
		text, err := io.ReadAll(in) // until the gateway ends it
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		status := 0
		if res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(text))), nil); err == nil {
			status = res.StatusCode
		}
		if status != c.status {
			t.Errorf("%s: %q; want %d", what, text, c.status)
		}
	}
	r.idle("blue")
}

func TestTheNumberOfConnectionsIsBounded(t *testing.T) {
	model := replica(t, echo)
	r := run(t, newSource(endpoint(deployment("blue", address(model)))), func(c *gateway.Config) { c.MaxConns = 2 })
	_, first := r.raw(string(rawScore("a")))
	_, second := r.raw(string(rawScore("b")))
	for _, in := range []*bufio.Reader{first, second} {
		if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 200 {
			t.Fatalf("%v, %v", res, err)
		}
	}
	_, in := r.raw("")
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 503 {
		t.Errorf("the third is told %v, %v", res, err)
	}
}

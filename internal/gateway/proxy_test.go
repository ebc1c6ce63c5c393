package gateway_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func TestAnAnswerThatStreamsComesPieceByPiece(t *testing.T) {
	more := make(chan struct{})
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 5 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-more: // the client has it
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set(http.TrailerPrefix+"ms-azureml-bandwidth-response-delay-ms", "0")
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	res, err := client.Do(r.request("POST", "/endpoints/iris/score", "{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	for i := range 5 {
		line, err := in.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("event %d is %q, %v", i, line, err)
		}
		_, _ = in.ReadString('\n')
		more <- struct{}{}
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatalf("after the last event: %v", err)
	}
	if res.Trailer.Get("ms-azureml-bandwidth-response-delay-ms") != "0" {
		t.Errorf("the trailers are %v", res.Trailer)
	}
}

func TestARequestAndItsAnswerMayStreamAtOnce(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		_ = rc.Flush()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				fmt.Fprintf(w, "trailer %s\n", r.Trailer.Get("x-sum"))
				return
			}
			_, _ = io.WriteString(w, strings.ToUpper(line))
			_ = rc.Flush()
		}
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	nc, in := r.raw("POST /endpoints/iris/score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n")
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(res.Body)
	for _, word := range []string{"one", "two", "three"} {
		_, _ = fmt.Fprintf(nc, "%x;ext=1\r\n%s\n\r\n", len(word)+1, word)
		if line, err := out.ReadString('\n'); err != nil || line != strings.ToUpper(word)+"\n" {
			t.Fatalf("%s came back as %q, %v", word, line, err)
		}
	}
	_, _ = io.WriteString(nc, "0\r\nx-sum: 3\r\n\r\n")
	if line, err := out.ReadString('\n'); err != nil || line != "trailer 3\n" {
		t.Fatalf("the trailer came as %q, %v", line, err)
	}
}

func TestWebSocketsPass(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		for {
			kind, data, err := ws.Read(r.Context())
			if err != nil || ws.Write(r.Context(), kind, append([]byte("you said "), data...)) != nil {
				return
			}
		}
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ws, res, err := websocket.Dial(ctx, r.url+"/endpoints/iris/chat", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	if res.Header.Get("azureml-model-deployment") != "blue" {
		t.Errorf("the answer's headers are %v", res.Header)
	}
	for i := range 20 {
		text := strings.Repeat("x", i*300)
		if err := ws.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, data, err := ws.Read(ctx); err != nil || string(data) != "you said "+text {
			t.Fatalf("message %d came back as %q, %v", i, data, err)
		}
	}
	if s := r.stats("blue"); s.InFlight != 1 {
		t.Errorf("%d requests are in flight beside an open socket", s.InFlight)
	}
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	r.idle("blue")
}

// stream is n bytes that nobody holds.
type stream struct{ n int64 }

func (s *stream) Read(p []byte) (int, error) {
	if s.n == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), s.n)
	for i := range p[:n] {
		p[i] = byte(s.n - int64(i))
	}
	s.n -= n
	return int(n), nil
}

func TestLargeBodiesPassBothWaysWithoutBeingHeld(t *testing.T) {
	const size = 100 << 20
	want := sha256.New()
	_, _ = io.Copy(want, &stream{size})
	sum := hex.EncodeToString(want.Sum(nil))
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		got := sha256.New()
		n, err := io.Copy(got, r.Body)
		w.Header().Set("x-sum", hex.EncodeToString(got.Sum(nil)))
		w.Header().Set("x-size", strconv.FormatInt(n, 10))
		if r.ContentLength > 0 {
			w.Header().Set("Content-Length", strconv.Itoa(size))
		}
		if err == nil {
			_, _ = io.Copy(w, &stream{size})
		}
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, length := range []int64{size, -1} {
		req := r.request("POST", "/endpoints/iris/score", "")
		req.Body, req.ContentLength = io.NopCloser(&stream{size}), length
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got := sha256.New()
		n, err := io.Copy(got, res.Body)
		_ = res.Body.Close()
		if err != nil || n != size || hex.EncodeToString(got.Sum(nil)) != sum || res.Header.Get("x-sum") != sum {
			t.Fatalf("length %d: %d bytes came back, %v; the model saw %s", length, n, err, res.Header.Get("x-size"))
		}
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 32<<20 { // all that was ever allocated, in client, gateway and model
		t.Errorf("400 MiB took %d MiB of memory", grown>>20)
	}
}

func TestExpect100ContinueIsAnsweredOnlyWhenTheBodyIsWanted(t *testing.T) {
	model := replica(t, echo)
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	for _, size := range []int{10, 100_000} {
		head := "POST /endpoints/iris/score HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: " + strconv.Itoa(size) + "\r\nAuthorization: Bearer "
		nc, in := r.raw(head + key + "\r\n\r\n")
		if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
			t.Fatalf("the body is asked for with %q, %v", line, err)
		}
		_, _ = in.ReadString('\n')
		_, _ = io.WriteString(nc, strings.Repeat("x", size))
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("%v, %v", res, err)
		}
		if n, err := io.Copy(io.Discard, res.Body); err != nil || n != int64(size) {
			t.Fatalf("%d bytes came back, %v", n, err)
		}
		_, in = r.raw(head + "wrong\r\n\r\n")
		if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 401 || !res.Close {
			t.Fatalf("with a wrong key: %v, %v", res, err)
		}
	}
}

func TestInterimAnswersPass(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		_, _ = io.WriteString(w, "done")
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	_, in := r.raw(string(rawScore("x")))
	for _, want := range []int{103, 200} {
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != want {
			t.Fatalf("%v, %v; want %d", res, err, want)
		}
	}
}

func rawScore(body string, header ...string) []byte {
	return fmt.Appendf(nil, "POST /endpoints/iris/score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%sContent-Length: %d\r\n\r\n%s",
		key, strings.Join(header, ""), len(body), body)
}

func TestAnOldClientGetsAnOldAnswer(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "piece ")
			_ = http.NewResponseController(w).Flush()
		}
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	_, in := r.raw("GET /endpoints/iris/x HTTP/1.0\r\nAuthorization: Bearer " + key + "\r\n\r\n")
	text, err := io.ReadAll(in)
	if err != nil || !strings.HasSuffix(string(text), "\r\n\r\npiece piece piece ") || strings.Contains(string(text), "chunked") {
		t.Errorf("%q, %v", text, err)
	}
}

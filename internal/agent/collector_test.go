package agent

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestConnectionsWithTheCollectorAreBounded(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &task{a: &Agent{}, collects: ln}
	k.kept.Collector, k.kept.Task.Serve = ln.Addr().String(), &trainyard.Serve{Collects: map[string]float64{"rows": 1}}
	defer k.collecting(t.Context())()
	call := func(collection, body string) net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "POST /modeldata/log HTTP/1.1\r\nHost: x\r\nce-type: azureml.inference.%s\r\nContent-Length: 2\r\n\r\n%s", collection, body)
		return c
	}
	var held []net.Conn
	for range collectedConns {
		held = append(held, call("rows", "["))
	}
	next := call("no", "[]")
	next.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := next.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("one more than may be was served: %v", err)
	}
	held[0].Close()
	next.SetReadDeadline(time.Now().Add(10 * time.Second))
	if r, err := http.ReadResponse(bufio.NewReader(next), nil); err != nil || r.StatusCode != http.StatusNotFound {
		t.Errorf("it did not get the place of one that is gone: %v %v", r, err)
	}
}

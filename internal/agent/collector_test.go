package agent

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestConnectionsWithTheCollectorAreBounded(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &task{a: &Agent{}, collects: ln, base: filepath.Join(t.TempDir(), "task")}
	k.kept.CollectorKey = "key"
	k.kept.Collector, k.kept.Task.Serve = ln.Addr().String(), &trainyard.Serve{Collects: map[string]float64{"rows": 1}}
	defer k.collecting(t.Context())()
	call := func(collection, body string) net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "POST /modeldata/log HTTP/1.1\r\nHost: x\r\nAuthorization: Basic cmVwbGljYTprZXk=\r\nce-type: azureml.inference.%s\r\nContent-Length: 2\r\n\r\n%s", collection, body)
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

func TestNoProxyIsBetweenAScriptAndItsCollector(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"} {
		t.Setenv(name, "")
	}
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{}, ""},
		{map[string]string{"http_proxy": "http://p"}, "127.0.0.1"},
		{map[string]string{"HTTP_PROXY": "http://p", "NO_PROXY": "a.test,.b"}, "a.test,.b,127.0.0.1"},
		{map[string]string{"HTTP_PROXY": "http://p", "no_proxy": "*"}, "*"},
	} {
		pastProxies(c.env, "127.0.0.1")
		if got := c.env["no_proxy"]; got != c.want {
			t.Errorf("past proxies go %q, want %q", got, c.want)
		}
	}
	t.Setenv("HTTP_PROXY", "http://p") // of the agent, whose environment scripts get
	env := map[string]string{}
	if pastProxies(env, "127.0.0.1"); env["NO_PROXY"] != "127.0.0.1" {
		t.Errorf("the agent's proxy is asked: %v", env)
	}
}

func TestACollectorComesBackWhereItWasWhenThatIsFree(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := taken.Addr().String()
	k := &task{a: New(Config{}), base: filepath.Join(t.TempDir(), "task")}
	k.kept.Collector, k.kept.CollectorKey = at, "key"
	defer k.collecting(t.Context())()
	for end := time.Now().Add(10 * time.Second); ; <-time.After(5 * time.Millisecond) {
		k.mu.Lock()
		said := strings.Join(k.report.Warnings, "; ")
		k.mu.Unlock()
		if strings.Contains(said, "until its collector's address is free again") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the warnings are %q", said)
		}
	}
	taken.Close()
	for end := time.Now().Add(10 * time.Second); ; <-time.After(5 * time.Millisecond) {
		res, err := http.Post("http://"+at+"/modeldata/log", "application/json", strings.NewReader("[]"))
		if err == nil {
			res.Body.Close()
			if res.StatusCode != http.StatusUnauthorized {
				t.Errorf("somebody without the key is told %s", res.Status)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// A replica that was started before collectors had keys has none to send, and its rows are taken all the same.
func TestACollectorTakesTheRowsOfAReplicaWithoutAKey(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &task{a: New(Config{}), collects: ln, base: filepath.Join(t.TempDir(), "task")}
	k.kept.Collector, k.kept.Task.Serve = ln.Addr().String(), &trainyard.Serve{Collects: map[string]float64{"rows": 0}} // none is kept, for there is no server
	defer k.collecting(t.Context())()
	for range 3 {
		req, err := http.NewRequest(http.MethodPost, "http://"+ln.Addr().String()+"/modeldata/log", strings.NewReader("[]"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("ce-type", "azureml.inference.rows")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("its rows are answered %s", res.Status)
		}
	}
	k.mu.Lock()
	said := k.report.Warnings
	k.mu.Unlock()
	if len(said) != 1 || !strings.Contains(said[0], "it was started before collectors had keys") {
		t.Errorf("the warnings are %q", said)
	}
}

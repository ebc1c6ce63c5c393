package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gateway"
)

func TestTheServersOwnCookiesDoNotReachModels(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Join(r.Header.Values("Cookie"), "|"))
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	for sent, want := range map[string]string{
		"trainyard-7878=session":                                               "",
		"a=1; trainyard-7878=session; b=2":                                     "a=1; b=2",
		"__Host-trainyard-443=session;theme=dark":                              "theme=dark",
		"trainyard-theme=dark; mine=trainyard-7878=x; trainyard-=1; Trainyard": "trainyard-theme=dark; mine=trainyard-7878=x; trainyard-=1; Trainyard",
		"a=1;b=2": "a=1;b=2",
	} {
		if res := r.score("{}", "Cookie", sent); res.text != want {
			t.Errorf("of %q the model got %q, want %q", sent, res.text, want)
		}
	}
}

func TestACopyIsAskedAtTheMirrorsOwnPath(t *testing.T) {
	var got atomic.Value
	mirror := replica(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Store(r.URL.RequestURI() + " " + string(body))
	})
	live := replica(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.RequestURI()) })
	green := deployment("green", address(mirror))
	green.Scoring = "/v2/models/iris/infer"
	e := endpoint(deployment("blue", address(live)), green)
	e.Mirror = map[string]int{"green": 50}
	r := run(t, newSource(e))
	for path, want := range map[string]string{"/score?x=1": "/v2/models/iris/infer?x=1 {}", "/other": "/other {}"} {
		got.Store("")
		r.until("a copy comes", func() bool {
			if res := r.ask(r.request("POST", "/endpoints/iris"+path, "{}")); res.text != path {
				t.Fatalf("the live call was asked at %q", res.text)
			}
			r.idle("green")
			return got.Load() != ""
		})
		if got.Load() != want {
			t.Errorf("the mirror was asked %q, want %q", got.Load(), want)
		}
	}
}

func TestMetricsOfASharedGatewayWantAToken(t *testing.T) {
	src := newSource(endpoint(deployment("blue")))
	src.tokens = map[string]time.Time{"admin": time.Now().Add(time.Hour)}
	r := run(t, src, func(c *gateway.Config) { c.MetricsGuarded = true })
	for token, want := range map[string]int{"": 401, "Bearer no": 401, "Bearer admin": 200} {
		if res := r.ask(r.request("GET", "/metrics", "", "Authorization", token)); res.StatusCode != want {
			t.Errorf("with %q: %d %s", token, res.StatusCode, res.text)
		}
	}
}

func TestHeadersThatAreAskedForAreKeptWithTheRequest(t *testing.T) {
	d := deployment("blue", address(replica(t, echo)))
	d.Collect = &trainyard.DataCollector{Collections: map[string]trainyard.DataCollection{"request": {}, "response": {}},
		RequestLogging: &trainyard.RequestLogging{CaptureHeaders: []string{"X-Tenant", "x-none", "Authorization", "Cookie"}}}
	r := run(t, newSource(endpoint(d)))
	r.score("{}", "x-tenant", "beer", "Cookie", "a=b")
	rows := func(collection string) string {
		r.src.mu.Lock()
		defer r.src.mu.Unlock()
		return string(r.src.rows["iris/blue/"+collection])
	}
	r.until("rows are there", func() bool { return rows("request") != "" && rows("response") != "" })
	if !strings.Contains(rows("request"), `"headers":{"x-tenant":"beer"}`) || strings.Contains(rows("response"), "headers") {
		t.Errorf("the request %s; the response %s", rows("request"), rows("response"))
	}
}

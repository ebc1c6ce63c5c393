package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gateway"
)

func TestARequestReachesTheModelWithoutTheKeyAndComesBackWithItsNames(t *testing.T) {
	var got *http.Request
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.Header().Set("X-Request-Id", "the model's own")
		echo(w, r)
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	for _, path := range []string{"/endpoints/iris/score", "/endpoints/IRIS/score?a=b", "/endpoints/iris/other/path", "/endpoints/iris", "/endpoints/iris?x=1"} {
		res := r.ask(r.request("POST", path, `{"data":[1]}`, "x-request-id", "r-1", "x-ms-client-request-id", "c-1", "x-mine", "kept", "Connection", "x-mine-not", "x-mine-not", "1"))
		if res.StatusCode != 200 || res.text != `{"data":[1]}` {
			t.Fatalf("%s: %d %q", path, res.StatusCode, res.text)
		}
		want := strings.TrimPrefix(strings.TrimPrefix(path, "/endpoints/iris"), "/endpoints/IRIS")
		if !strings.HasPrefix(want, "/") {
			want = "/" + want
		}
		if got.RequestURI != want {
			t.Errorf("%s reached the model as %s, want %s", path, got.RequestURI, want)
		}
		if got.Header.Get("Authorization") != "" || got.Header.Get("x-mine") != "kept" || got.Header.Get("x-mine-not") != "" {
			t.Errorf("the model got the headers %v", got.Header)
		}
		if got.Header.Get("X-Forwarded-For") != "127.0.0.1" || got.Header.Get("X-Forwarded-Proto") != "http" || got.Host != r.addr {
			t.Errorf("the model got %v for %s", got.Header, got.Host)
		}
		for name, want := range map[string]string{"x-request-id": "r-1", "x-ms-request-id": "r-1", "x-ms-client-request-id": "c-1", "azureml-model-deployment": "blue"} {
			if have := res.Header.Values(name); len(have) != 1 || have[0] != want {
				t.Errorf("%s: the answer has %s = %q, want %q once", path, name, have, want)
			}
		}
	}
}

func TestScoreStandsForTheDeploymentsScoringPath(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) })
	d := deployment("blue", address(model))
	d.Scoring = "/v1/models/half:predict"
	r := run(t, newSource(endpoint(d)))
	for path, want := range map[string]string{"/score": "/v1/models/half:predict", "/score?a=1": "/v1/models/half:predict?a=1", "/swagger.json?version=3": "/swagger.json?version=3"} {
		if res := r.ask(r.request("GET", "/endpoints/iris"+path, "")); res.text != want {
			t.Errorf("%s reached the model as %s, want %s", path, res.text, want)
		}
	}
}

func TestAScoringPathCannotEndItsLine(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RequestURI+" "+r.Header.Get("X"))
	})
	for path, want := range map[string]string{
		"/v2/models/a HTTP/1.1\r\nX: 1\r\n\r\n": "/v2/models/a%20HTTP/1.1%0D%0AX:%201%0D%0A%0D%0A ",
		"/v2/models/Käse\x7f":                   "/v2/models/K%C3%A4se%7F ",
	} {
		d := deployment("blue", address(model))
		d.Scoring = path
		r := run(t, newSource(endpoint(d)))
		for range 2 { // the second on the same connection
			if res := r.ask(r.request("GET", "/endpoints/iris/score", "")); res.StatusCode != 200 || res.text != want {
				t.Errorf("%q reached the model as %d %q, want %q", path, res.StatusCode, res.text, want)
			}
		}
	}
}

func TestWhoMayAskWhatAndWhatTheyAreTold(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		if s := r.URL.Query().Get("status"); s != "" {
			w.Header().Set("x-ms-run-function-failed", "True")
			var code int
			_, _ = fmt.Sscan(s, &code)
			http.Error(w, "sorry", code)
			return
		}
		echo(w, r)
	})
	none := endpoint(deployment("idle"))
	none.Name, none.Traffic = "none", nil
	kube := endpoint(deployment("pod", address(model)))
	kube.Name = "kube"
	kube.Deployments[0].Kubernetes = true
	failed := endpoint(deployment("broken"))
	failed.Name = "failed"
	failed.Deployments[0].Wakes, failed.Deployments[0].Failed = true, "init() raised ValueError"
	r := run(t, newSource(endpoint(deployment("blue", address(model)), deployment("green", address(model))), none, kube, failed))
	long := strings.Repeat("x", 101)
	for _, c := range []struct {
		what, path string
		header     []string
		status     int
		text       string
	}{
		{"the key is good", "/endpoints/iris/score", nil, 200, ""},
		{"the scheme has no case", "/endpoints/iris/score", []string{"Authorization", "bearer " + key}, 200, ""},
		{"a wrong key", "/endpoints/iris/score", []string{"Authorization", "Bearer wrong"}, 401, "not one of endpoint iris"},
		{"no key", "/endpoints/iris/score", []string{"Authorization", ""}, 401, "Bearer KEY"},
		{"another scheme", "/endpoints/iris/score", []string{"Authorization", "Basic " + key}, 401, "Bearer KEY"},
		{"no such endpoint", "/endpoints/rose/score", nil, 404, `no endpoint \"rose\"`},
		{"no such page", "/score", nil, 404, "/endpoints/NAME/"},
		{"a deployment by header", "/endpoints/iris/score", []string{"azureml-model-deployment", "Green"}, 200, ""},
		{"no such deployment", "/endpoints/iris/score", []string{"azureml-model-deployment", "red"}, 404, `no deployment \"red\"`},
		{"no traffic", "/endpoints/none/score", nil, 404, "no deployment with traffic"},
		{"a long request id", "/endpoints/iris/score", []string{"x-request-id", long}, 431, "at most 100"},
		{"a long client request id", "/endpoints/iris/score", []string{"x-ms-client-request-id", long}, 431, "at most 100"},
		{"the model says no", "/endpoints/iris/score?status=400", nil, 424, "sorry"},
		{"the model fails", "/endpoints/iris/score?status=500", nil, 424, "sorry"},
		{"a pod's model says no", "/endpoints/kube/score?status=400", nil, 400, "sorry"},
		{"a pod's model fails", "/endpoints/kube/score?status=500", nil, 502, "sorry"},
		{"a model that cannot be loaded", "/endpoints/failed/score", nil, 424, "init() raised ValueError"},
	} {
		res := r.ask(r.request("POST", c.path, "{}", c.header...))
		if res.StatusCode != c.status || !strings.Contains(res.text, c.text) {
			t.Errorf("%s: %d %s, want %d with %q", c.what, res.StatusCode, res.text, c.status, c.text)
		}
		if code := res.Header.Get("ms-azureml-model-error-statuscode"); (c.status == 424 && strings.HasPrefix(c.what, "the model")) && !strings.HasSuffix(c.path, code) {
			t.Errorf("%s: the model's status is said to be %q", c.what, code)
		}
	}
	res := r.ask(r.request("POST", "/endpoints/iris/score?status=500", "{}"))
	if reason := res.Header.Get("ms-azureml-model-error-reason"); reason != "Internal Server Error" || res.Header.Get("x-ms-run-function-failed") != "True" {
		t.Errorf("the model's reason is %q, and its headers %v", reason, res.Header)
	}
}

func TestTheSplitIsExactInEveryWindowOfAHundred(t *testing.T) {
	model := replica(t, echo)
	e := endpoint(deployment("a", address(model)), deployment("b", address(model)), deployment("c", address(model)))
	e.Traffic = map[string]int{"a": 7, "b": 30, "c": 63}
	r := run(t, newSource(e))
	var order []string
	for range 250 {
		res := r.score("{}")
		order = append(order, res.Header.Get("azureml-model-deployment"))
		r.score("{}", "azureml-model-deployment", "a") // does not count
	}
	for start := 0; start+100 <= len(order); start++ {
		seen := map[string]int{}
		for _, name := range order[start : start+100] {
			seen[name]++
		}
		if seen["a"] != 7 || seen["b"] != 30 || seen["c"] != 63 {
			t.Fatalf("requests %d to %d went %v", start, start+100, seen)
		}
	}
}

func TestTokensAreAskedForOnceUntilTheyExpire(t *testing.T) {
	model := replica(t, echo)
	e := endpoint(deployment("blue", address(model)))
	e.AuthMode = trainyard.AuthAMLToken
	src := newSource(e)
	src.tokens = map[string]time.Time{"good": time.Now().Add(time.Hour)}
	r := run(t, src)
	for range 3 {
		if res := r.score("{}", "Authorization", "Bearer good"); res.StatusCode != 200 {
			t.Fatalf("a good token: %d %s", res.StatusCode, res.text)
		}
		if res := r.score("{}", "Authorization", "Bearer bad"); res.StatusCode != 401 {
			t.Fatalf("a bad token: %d %s", res.StatusCode, res.text)
		}
	}
	if src.mu.Lock(); src.asked != 2 {
		t.Errorf("the server was asked %d times about two tokens", src.asked)
	}
	src.mu.Unlock()
}

func TestTheGatewaysOwnPages(t *testing.T) {
	model := replica(t, echo)
	r := run(t, newSource(endpoint(deployment("blue", address(model)))), func(c *gateway.Config) { c.MetricsToken = "scrape" })
	r.score("{}")
	r.score("{}", "Authorization", "Bearer no")
	r.idle("blue")
	if res := r.ask(r.request("GET", "/healthz", "")); res.text != "ok\n" {
		t.Errorf("healthz: %d %q", res.StatusCode, res.text)
	}
	res := r.ask(r.request("GET", "/metrics", ""))
	for _, want := range []string{
		`trainyard_gateway_requests_total{workspace="",endpoint="iris",deployment="blue"} 1`, `code="200"} 1`, `le="+Inf"} 1`,
		`trainyard_gateway_refused_total{code="401"} 1`, "# TYPE trainyard_gateway_request_seconds histogram",
	} {
		if !strings.Contains(res.text, want) {
			t.Errorf("metrics lack %s:\n%s", want, res.text)
		}
	}
	if res := r.ask(r.request("GET", "/metrics", "", "X-Forwarded-For", "10.0.0.1")); res.StatusCode != 401 {
		t.Errorf("metrics through a proxy without a token: %d", res.StatusCode)
	}
	if res := r.ask(r.request("GET", "/metrics", "", "X-Forwarded-For", "10.0.0.1", "Authorization", "Bearer scrape")); res.StatusCode != 200 {
		t.Errorf("metrics through a proxy with the token: %d", res.StatusCode)
	}
}

func TestHeadAndOtherMethodsAndEmptyAnswers(t *testing.T) {
	model := replica(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/none":
			w.WriteHeader(204)
		case "/same":
			w.WriteHeader(304)
		default:
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "hello")
		}
	})
	r := run(t, newSource(endpoint(deployment("blue", address(model)))))
	nc, in := r.raw("")
	for _, c := range []struct {
		method, path string
		status       int
		length       int64
	}{{"HEAD", "/x", 200, 5}, {"GET", "/x", 200, 5}, {"GET", "/none", 204, 0}, {"GET", "/same", 304, 0}, {"DELETE", "/x", 200, 5}, {"OPTIONS", "/x", 200, 5}} {
		req := r.request(c.method, "/endpoints/iris"+c.path, "")
		if err := req.Write(nc); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(in, req)
		if err != nil {
			t.Fatalf("%s %s: %v", c.method, c.path, err)
		}
		n, _ := io.Copy(io.Discard, res.Body)
		if res.StatusCode != c.status || res.ContentLength != c.length || c.method != "HEAD" && n != c.length {
			t.Errorf("%s %s: %d, length %d, %d bytes", c.method, c.path, res.StatusCode, res.ContentLength, n)
		}
	}
}

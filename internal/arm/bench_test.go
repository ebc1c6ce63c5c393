package arm_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// BenchmarkPutJob is a submission through the door, without HTTP and without a store: what the door itself costs.
func BenchmarkPutJob(b *testing.B) {
	d := open(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w := httptest.NewRecorder()
		d.h.ServeHTTP(w, httptest.NewRequest("PUT", fmt.Sprintf("%s/jobs/j%d?api-version=2025-01-01-preview", ws, i), strings.NewReader(jobBody)))
		if w.Code != 201 {
			b.Fatal(w.Code, w.Body)
		}
	}
}

func BenchmarkGetJob(b *testing.B) {
	d := open(b)
	d.do("PUT", ws+"/jobs/j", jobBody).want(201)
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		d.h.ServeHTTP(w, httptest.NewRequest("GET", ws+"/jobs/j?api-version=2025-01-01-preview", nil))
		if w.Code != 200 {
			b.Fatal(w.Code, w.Body)
		}
	}
}

// FuzzBody puts any bytes as a job, a compute and a data version: the door must answer in its own words, and never show a stored secret.
func FuzzBody(f *testing.F) {
	f.Add([]byte(jobBody))
	f.Add([]byte(clusterBody))
	f.Add([]byte(`{"properties":{"properties":{"properties":[{"a":null}]}}}`))
	f.Add([]byte(`{"properties":{"limits":{"timeout":60}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d := open(t)
		for _, path := range []string{"/jobs/j", "/computes/c", "/data/d/versions/1", ""} {
			for _, method := range []string{"PUT", "PATCH"} {
				if r := d.do(method, ws+path, string(body)); r.status >= 500 {
					t.Fatalf("%s %s: %d %s", method, path, r.status, r.text)
				}
			}
			if r := d.do("GET", ws+path, ""); r.status >= 500 {
				t.Fatalf("GET %s: %d %s", path, r.status, r.text)
			}
		}
	})
}

// FuzzPath asks for any path: it is found or it is not, and nothing else.
func FuzzPath(f *testing.F) {
	f.Add("GET", ws+"/jobs/j")
	f.Add("POST", ws+"/computes/c/start")
	f.Add("GET", locs+"/mfeOperationsStatus/eyJhIjoiY3JlYXRlIn0")
	f.Fuzz(func(t *testing.T, method, path string) {
		d := open(t)
		r := httptest.NewRequest("GET", "/", nil)
		r.Method, r.URL.Path = method, path
		w := httptest.NewRecorder()
		d.h.ServeHTTP(w, r)
		if w.Code == 500 || w.Code < 200 {
			t.Fatalf("%s %q: %d %s", method, path, w.Code, w.Body)
		}
	})
}

func TestTimesAreUTCWithMicroseconds(t *testing.T) {
	d := open(t)
	d.now = time.Date(2026, 3, 1, 13, 0, 0, 123456789, time.FixedZone("CET", 3600))
	d.do("PUT", ws+"/jobs/j", jobBody).want(201).is("2026-03-01T12:00:00.123456Z", "systemData", "createdAt")
	if err := d.ctl.EditJob(trainyard.DefaultScope(), "j", func(j *trainyard.Job) error { j.Status.Started = d.now; return nil }); err != nil {
		t.Fatal(err)
	}
	d.do("GET", ws+"/jobs/j", "").want(200).is("2026-03-01T12:00:00.123456Z", "properties", "startTime")
}

package mlflow_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/trainyard/trainyard"
)

// file is the path on disk of a run's record.
func (w *world) file(run string) string {
	return filepath.Join(w.dir, filepath.FromSlash(trainyard.RunLog(scope, run)), "log.jsonl")
}

// Wherever a record's file is cut off, what is left is what was logged up to there, and logging goes on.
func TestATornLineNeverWas(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	for i := range 3 {
		w.ok("POST", "mlflow/runs/log-metric", fmt.Sprintf(`{"run_id":"j","key":"a","value":%d,"timestamp":%d}`, i, i))
	}
	whole, err := os.ReadFile(w.file("j"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	for n := range len(whole) {
		w.Close()
		w.blobs.Close()
		if err := os.WriteFile(w.file("j"), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		w.open()
		want, at := "", 0
		for i, l := range lines[:3] {
			if at += len(l); at <= n {
				want += fmt.Sprintf("a=%d ", i)
			}
		}
		history := func() string {
			return w.ok("GET", "mlflow/metrics/get-history?run_id=j&metric_key=a", nil).pairs("metrics")
		}
		if got := history(); got != strings.TrimSpace(want) {
			t.Fatalf("of %d bytes: %q, want %q", n, got, want)
		}
		w.ok("POST", "mlflow/runs/log-metric", `{"run_id":"j","key":"a","value":99,"timestamp":99}`)
		if got := history(); got != want+"a=99" {
			t.Fatalf("of %d bytes and one more: %q, want %q", n, got, want+"a=99")
		}
		w.restart()
		if got := history(); got != want+"a=99" {
			t.Fatalf("of %d bytes and one more, read again: %q, want %q", n, got, want+"a=99")
		}
	}
}

// The same with the index: what it does not list is not found, and it goes on.
func TestATornIndex(t *testing.T) {
	w := newWorld(t)
	w.run(`{"experiment_id":"0","run_name":"a"}`)
	index := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(w.file("x")))), "index.jsonl")
	whole, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
		w.Close()
		w.blobs.Close()
		if err := os.WriteFile(index, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		w.open()
		w.run(`{"experiment_id":"0","run_name":"b"}`)
		w.restart()
		if got := w.runs(""); got != "b" {
			t.Errorf("of %d bytes: %q", n, got)
		}
	}
}

// Many who log to one run at once lose nothing, and mix nothing up.
func TestManyWriters(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	var all sync.WaitGroup
	const writers, each = 8, 25
	for n := range writers {
		all.Go(func() {
			for i := range each {
				w.ok("POST", "mlflow/runs/log-batch", fmt.Sprintf(`{"run_id":"j","metrics":[{"key":"m%d","value":%d,"timestamp":%d,"step":%d}],"params":[{"key":"p%d.%d","value":"x"}]}`, n, i, i, i, n, i))
			}
		})
	}
	all.Go(func() {
		for range each {
			w.ok("GET", "mlflow/runs/get?run_id=j", nil)
			w.runs("metrics.m1 > 3")
		}
	})
	all.Wait()
	w.restart()
	v := w.ok("GET", "mlflow/runs/get?run_id=j", nil)
	if n := len(strings.Fields(v.pairs("run.data.params"))); n != writers*each {
		t.Errorf("%d params", n)
	}
	for n := range writers {
		got := w.ok("GET", fmt.Sprintf("mlflow/metrics/get-history?run_id=j&metric_key=m%d", n), nil).pairs("metrics")
		for i, m := range strings.Fields(got) {
			if m != fmt.Sprintf("m%d=%d", n, i) {
				t.Fatalf("writer %d: %s", n, got)
			}
		}
		if len(strings.Fields(got)) != each {
			t.Errorf("writer %d: %s", n, got)
		}
	}
}

// What one client changes of one parameter at the same time as another, one of them does not.
func TestAParameterIsSetOnce(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	var all sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for n := range 10 {
		all.Go(func() {
			a := w.do("POST", "mlflow/runs/log-parameter", fmt.Sprintf(`{"run_id":"j","key":"p","value":"%d"}`, n))
			mu.Lock()
			defer mu.Unlock()
			if a.StatusCode == 200 {
				won++
			}
		})
	}
	all.Wait()
	if won != 1 {
		t.Errorf("%d clients set it", won)
	}
}

// A client that did not hear the answer says it again; that is one value and not two.
func TestTheSameAgainIsOnce(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	batch := `{"run_id":"j","metrics":[{"key":"a","value":1,"timestamp":5,"step":1}]}`
	w.ok("POST", "mlflow/runs/log-batch", batch)
	w.restart()
	w.ok("POST", "mlflow/runs/log-batch", batch)
	if got := w.ok("GET", "mlflow/metrics/get-history?run_id=j&metric_key=a", nil).pairs("metrics"); got != "a=1" {
		t.Errorf("history: %s", got)
	}
}

// A cache that holds next to nothing changes nothing but the time it takes.
func TestASmallCache(t *testing.T) {
	w := newWorld(t)
	w.config.CacheBytes = 1
	w.restart()
	for i := range 20 {
		name := fmt.Sprintf("j%02d", i)
		w.submit(name, "exp", trainyard.JobRunning)
		w.ok("POST", "mlflow/runs/log-metric", fmt.Sprintf(`{"run_id":%q,"key":"a","value":%d,"timestamp":1}`, name, i))
	}
	if got := w.runs("metrics.a >= 18"); got != "Train j19 Train j18" {
		t.Errorf("found: %s", got)
	}
}

// breaking is a bucket whose disk is full when it is told so.
type breaking struct {
	mu   sync.Mutex
	left int // appends before one fails, half written; -1 never
	inner
}

type inner interface {
	Append(ctx context.Context, key string, offset int64, data []byte) (int64, error)
	OpenRange(ctx context.Context, key string, offset, length int64) (io.ReadCloser, trainyard.BlobInfo, error)
	Stat(ctx context.Context, key string) (trainyard.BlobInfo, error)
	PutWith(ctx context.Context, key string, r io.Reader, contentType string, metadata map[string]string, ifNoneMatch bool) (trainyard.BlobInfo, error)
	Page(ctx context.Context, prefix, delimiter, marker string, max int) ([]trainyard.BlobInfo, []string, string, error)
	Delete(ctx context.Context, key string) error
	DeletePrefix(ctx context.Context, prefix string) error
}

func (b *breaking) Append(ctx context.Context, key string, offset int64, data []byte) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left--; b.left == -1 {
		size, _ := b.inner.Append(ctx, key, offset, data[:len(data)/2])
		return size, trainyard.Errorf(trainyard.CodeInternal, "the disk is full")
	}
	return b.inner.Append(ctx, key, offset, data)
}

// What could not be written was not logged, and what comes after it is.
func TestAFullDisk(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	full := &breaking{left: 1, inner: w.blobs}
	w.config.Blobs = full
	w.Server.Config.Handler = handlerOf(w)
	say := func(i int) string {
		return fmt.Sprintf(`{"run_id":"j","key":"a","value":%d,"timestamp":%d}`, i, i)
	}
	w.ok("POST", "mlflow/runs/log-metric", say(1))
	w.fails("INTERNAL_ERROR", "the disk is full", "POST", "mlflow/runs/log-metric", say(2))
	w.ok("POST", "mlflow/runs/log-metric", say(3))
	for range 2 {
		if got := w.ok("GET", "mlflow/metrics/get-history?run_id=j&metric_key=a", nil).pairs("metrics"); got != "a=1 a=3" {
			t.Errorf("history: %s", got)
		}
		w.restart()
	}
}

func TestHistoryPageByPage(t *testing.T) {
	w := newWorld(t)
	w.submit("j", "exp", trainyard.JobRunning)
	n := 0
	for batch := range 5 {
		var metrics []string
		for range 7 {
			metrics = append(metrics, fmt.Sprintf(`{"key":"a","value":%d,"timestamp":%d,"step":%d},{"key":"\"k\":\"a\"","value":0,"timestamp":1}`, n, n, n))
			n++
		}
		body := fmt.Sprintf(`{"run_id":"j","metrics":[%s]}`, strings.ReplaceAll(strings.Join(metrics, ","), `\"k\":\"a\"`, "k:a"))
		w.ok("POST", "mlflow/runs/log-batch", body)
		w.ok("POST", "mlflow/runs/set-tag", fmt.Sprintf(`{"run_id":"j","key":"batch","value":"%d"}`, batch))
	}
	for _, size := range []int{1, 3, 7, 10, 34, 35, 36} {
		token, seen, pages := "", 0, 0
		for {
			v := w.ok("GET", fmt.Sprintf("mlflow/metrics/get-history?run_id=j&metric_key=a&max_results=%d&page_token=%s", size, token), nil)
			for _, m := range v["metrics"].([]any) {
				if int(m.(map[string]any)["value"].(float64)) != seen {
					t.Fatalf("pages of %d: value %v after %d", size, m, seen)
				}
				seen++
			}
			pages++
			if token, _ = v["next_page_token"].(string); token == "" {
				break
			}
		}
		if seen != 35 || pages != (35+size-1)/size {
			t.Errorf("pages of %d: %d values on %d pages", size, seen, pages)
		}
	}
	w.fails("INVALID_PARAMETER_VALUE", "page token", "GET", "mlflow/metrics/get-history?run_id=j&metric_key=a&page_token=x", "")
	w.fails("INVALID_PARAMETER_VALUE", "metric_key", "GET", "mlflow/metrics/get-history?run_id=j", "")
	w.fails("RESOURCE_DOES_NOT_EXIST", "Run with id=x", "GET", "mlflow/metrics/get-history?run_id=x&metric_key=a", "")
	for query, want := range map[string]string{
		"&max_results=3":                           "a=0 a=17 a=34",
		"&start_step=10&end_step=12":               "a=10 a=11 a=12",
		"&start_step=10&end_step=30&max_results=2": "a=10 a=30",
	} {
		if got := w.ok("GET", "mlflow/metrics/get-history-bulk-interval?run_ids=j&metric_key=a"+query, nil).pairs("metrics"); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	w.fails("INVALID_PARAMETER_VALUE", "end_step must be greater", "GET", "mlflow/metrics/get-history-bulk-interval?run_ids=j&metric_key=a&start_step=3&end_step=2", "")
	w.fails("INVALID_PARAMETER_VALUE", "between 1 and 100", "GET", "mlflow/metrics/get-history-bulk-interval?metric_key=a", "")
}
